"""Tiers below the device: what the books decide, what the files are worth, what a policy saves."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch

from minipd.cache.books import ALWAYS, DISK, FetchPolicy, Move, Place, Tier, TierBooks
from minipd.cache.disk import HEADER_BYTES, BlockFolder, DamagedBlockError
from minipd.cache.store import KVLayout, KVStore
from minipd.cache.tier_sizes import TierError, TierSizes
from minipd.cache.tiers import KVTiers

LAYOUT = KVLayout(2, 6, 4, 1, 8, torch.float32)
BLOCK = 2 * LAYOUT.num_layers * LAYOUT.block_bytes
ON_SLOT_0 = Place("host", 0)


def books(host: int = 2, disk: int = 2, policy: FetchPolicy = ALWAYS) -> TierBooks:
    return TierBooks(host, disk, 100, 4, policy)


def on(block: int) -> Place:
    return Place("device", block)


def filled(fingerprint: str = "f" * 16, **sizes: object) -> KVTiers:
    """Tiers over a store in which every block differs."""
    store = KVStore(LAYOUT)
    store.buffer.copy_(torch.arange(store.buffer.numel()).view(store.buffer.shape))
    return KVTiers(store, fingerprint, TierSizes(**sizes), time.monotonic)  # type: ignore[arg-type]


def block_of(tiers: KVTiers, index: int) -> torch.Tensor:
    return tiers.store.buffer[:, :, index].clone()


def back(tiers: KVTiers, names: Iterable[bytes], first: int) -> list[int]:
    """Fetch into blocks from `first` on; hands back the blocks whose KV did not come."""
    for block, name in enumerate(names, first):
        tiers.books.fetch(name, block, "r")
    return list(tiers.carry_out(tiers.books.take_moves()).unfilled)


# -- the books ------------------------------------------------------------------------------------


def test_host_first_then_disk_then_nowhere() -> None:
    kept = books(host=1, disk=1)
    assert all(kept.keep(name, block) for block, name in enumerate([b"a", b"b", b"c"]))
    assert kept.take_moves() == [
        Move(b"a", on(0), ON_SLOT_0),
        Move(b"a", ON_SLOT_0, DISK),
        Move(b"b", on(1), ON_SLOT_0),
        Move(b"a", DISK, None),
        Move(b"b", ON_SLOT_0, DISK),
        Move(b"c", on(2), ON_SLOT_0),
    ]
    assert kept.take_lost() == [b"a"]
    assert [kept.tier_of(name) for name in (b"a", b"b", b"c")] == [None, "disk", "host"]


def test_what_a_tier_has_already_is_not_written_again() -> None:
    kept = books()
    kept.keep(b"a", 0)
    kept.fetch(b"a", 3, "r")
    kept.take_moves()
    assert kept.keep(b"a", 3) and kept.take_moves() == []


def test_what_a_prompt_waits_for_does_not_make_way() -> None:
    kept = books(host=1, disk=0)
    kept.keep(b"a", 0)
    kept.hold([b"a"])
    assert not kept.keep(b"b", 1), "the only slot is wanted"
    kept.hold()
    assert kept.keep(b"b", 1) and kept.tier_of(b"a") is None


def test_without_any_room_nothing_moves() -> None:
    kept = books(host=0, disk=0)
    assert not kept.keep(b"a", 0) and not kept.moves


# -- keep, move or compute again ------------------------------------------------------------------


@pytest.mark.parametrize(("bandwidth", "count"), [(99.0, 0), (101.0, 3)])
def test_fetching_pays_above_one_bandwidth(bandwidth: float, count: int) -> None:
    """A block of 100 bytes takes 1 s to compute: 100 bytes/s is where both cost the same."""
    policy = FetchPolicy(prefill_tokens_per_s=4.0, host_bytes_per_s=bandwidth)
    assert policy.num_worth_fetching(["host"] * 3, 100, 4) == count
    assert policy.is_worth_keeping("host", 100, 4) == bool(count)


def test_a_latency_needs_several_blocks_to_pay() -> None:
    policy = FetchPolicy(4.0, host_bytes_per_s=200.0, latency_s=1.2)  # 0.5 s saved per block
    assert [policy.num_worth_fetching(["host"] * n, 100, 4) for n in (1, 2, 3)] == [0, 0, 3]


def test_a_slow_tail_is_computed() -> None:
    policy = FetchPolicy(4.0, host_bytes_per_s=1000.0, disk_bytes_per_s=50.0)
    tiers: list[Tier | None] = ["host", "host", "disk"]
    assert policy.num_worth_fetching(tiers, 100, 4) == 2
    assert policy.num_worth_fetching(["disk", None, None], 100, 4) == 3, "it leads to two for free"
    assert FetchPolicy().num_worth_fetching(tiers, 100, 4) == 3, "unmeasured: always"


@pytest.mark.parametrize("wrong", [{"host_bytes_per_s": 0.0}, {"latency_s": -1.0}])
def test_speeds_that_nothing_has(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="bandwidths above 0"):
        FetchPolicy(**wrong)


# -- the copies -----------------------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [{"host_bytes": 4 * BLOCK}, {"host_bytes": BLOCK, "disk": "x"}])
def test_the_very_bytes_come_back(sizes: dict[str, object], tmp_path: Path) -> None:
    if "disk" in sizes:
        sizes = sizes | {"disk": tmp_path}
    tiers, names = filled(**sizes), [b"a", b"b", b"c"]
    before = [block_of(tiers, index) for index in range(3)]
    for index, name in enumerate(names):
        tiers.books.keep(name, index)
    outcome = tiers.carry_out(tiers.books.take_moves())
    assert {c.kind for c in outcome.copied} == {"kv_evicted"}
    tiers.store.buffer.zero_()
    assert back(tiers, names, 3) == []
    for index, right in enumerate(before):
        assert torch.equal(block_of(tiers, 3 + index), right)


def test_a_run_finds_the_files_of_an_earlier_one(tmp_path: Path) -> None:
    first = filled(disk=tmp_path)
    right = block_of(first, 1)
    first.books.keep(b"a", 1)
    first.carry_out(first.books.take_moves())
    second = filled(disk=tmp_path)
    assert second.books.tier_of(b"a") == "disk"
    assert back(second, [b"a"], 5) == [] and torch.equal(block_of(second, 5), right)


def test_a_bounded_folder(tmp_path: Path) -> None:
    limit = 2 * (BLOCK + HEADER_BYTES)
    tiers = filled(disk=tmp_path, disk_bytes=limit)
    for index, name in enumerate([b"a", b"b", b"c", b"d"]):
        tiers.books.keep(name, index)
    tiers.carry_out(tiers.books.take_moves())
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= limit
    assert sorted(path.stem for path in files) == sorted(n.hex() for n in (b"c", b"d"))
    assert len(filled(disk=tmp_path, disk_bytes=limit // 2).books.names("disk")) == 1


# -- files that cannot be trusted -----------------------------------------------------------------


def written(tmp_path: Path) -> tuple[KVTiers, Path]:
    tiers = filled(disk=tmp_path)
    tiers.books.keep(b"a", 1)
    tiers.carry_out(tiers.books.take_moves())
    (path,) = tmp_path.rglob("*.kv")
    return tiers, path


def flip(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)


DAMAGE = {
    "a bit of the KV": lambda path: flip(path, -5),
    "a bit of the header": lambda path: flip(path, 30),
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "too long": lambda path: path.write_bytes(path.read_bytes() + b"x"),
    "empty": lambda path: path.write_bytes(b""),
    "a pickle": lambda path: path.write_bytes(b"\x80\x04cos\nsystem\n"),
    "gone": lambda path: path.unlink(),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_never_served(damage: str, tmp_path: Path) -> None:
    tiers, path = written(tmp_path)
    DAMAGE[damage](path)
    tiers.books.fetch(b"a", 4, "r")
    outcome = tiers.carry_out(tiers.books.take_moves())
    assert outcome.unfilled == {4: b"a"}
    assert [(c.kind, c.request_id) for c in outcome.copied] == [("kv_lost", "r")]
    assert tiers.books.tier_of(b"a") is None and not path.exists()


def test_a_copy_made_of_a_damaged_block_is_lost_too(tmp_path: Path) -> None:
    """Fetched and forgotten again within one plan: host memory must not keep what never came."""
    tiers = filled(disk=tmp_path, host_bytes=BLOCK)
    for index, name in enumerate([b"a", b"b"]):
        tiers.books.keep(name, index)
    tiers.carry_out(tiers.books.take_moves())
    assert [tiers.books.tier_of(name) for name in (b"a", b"b")] == ["disk", "host"]
    flip(next(tmp_path.rglob(f"{b'a'.hex()}.kv")), -1)
    tiers.books.fetch(b"a", 4, "r")
    tiers.books.keep(b"a", 4)  # into the slot of b
    assert tiers.books.tier_of(b"a") == "host"
    tiers.carry_out(tiers.books.take_moves())
    assert tiers.books.tier_of(b"a") is None and tiers.books.tier_of(b"b") == "disk"


def test_another_models_files_are_not_even_seen(tmp_path: Path) -> None:
    written(tmp_path)
    other = filled("e" * 16, disk=tmp_path)
    assert other.books.names("disk") == []


def test_another_models_file_under_our_name_is_refused(tmp_path: Path) -> None:
    _, path = written(tmp_path)
    other = filled("e" * 16, disk=tmp_path)
    assert other.folder is not None
    path.rename(other.folder.folder / path.name)
    with pytest.raises(DamagedBlockError, match="header"):
        other.folder.read(b"a", bytearray(BLOCK))


def test_a_disk_that_is_full_costs_nothing_but_the_tier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiers = filled(disk=tmp_path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("minipd.cache.disk.os.replace", full)
    tiers.books.keep(b"a", 1)
    (told,) = tiers.carry_out(tiers.books.take_moves()).copied
    assert told.kind == "kv_lost" and "No space left" in told.reason
    assert tiers.books.tier_of(b"a") is None
    assert not [path for path in tmp_path.rglob("*") if path.is_file()], "no half-written file"


def test_two_engines_share_a_folder(tmp_path: Path) -> None:
    one, two = filled(disk=tmp_path), filled(disk=tmp_path)
    for tiers in (one, two):
        tiers.books.keep(b"a", 1)
        tiers.carry_out(tiers.books.take_moves())
    one.new_books()  # deletes what it knows of
    assert back(two, [b"a"], 4) == [4], "gone: to be computed again"


def test_remains_of_a_crash_are_cleared_away(tmp_path: Path) -> None:
    folder = BlockFolder(tmp_path, "m", 8)
    old, new = folder.folder / "old.tmp", folder.folder / "new.tmp"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (1.0, 1.0))
    (folder.folder / "README").write_text("not ours")
    assert folder.scan() == []
    assert not old.exists() and new.exists(), "another engine may be writing the new one"


# -- asked for wrongly ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"host_bytes": -1}, "host_kv_bytes is -1"),
        ({"host_bytes": True}, "whole number"),
        ({"host_bytes": 1.5}, "whole number"),
        ({"host_bytes": BLOCK - 1}, "holds no block"),
        ({"host_bytes": 1 << 60}, "ask for less"),
        ({"disk_bytes": 5}, "needs a folder"),
    ],
)
def test_sizes_that_mean_nothing(sizes: dict[str, object], words: str) -> None:
    with pytest.raises(TierError, match=words):
        filled(**sizes)


def test_a_disk_without_room_for_one_block(tmp_path: Path) -> None:
    with pytest.raises(TierError, match="disk_kv_bytes of 10 holds no block"):
        filled(disk=tmp_path, disk_bytes=10)


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TierError, match="choose a folder that can be written"):
        filled(disk=tmp_path / "file")


@pytest.mark.skipif(sys.platform == "win32", reason="folders there have no such bits")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        (tmp_path / "probe").touch()
    except OSError:
        with pytest.raises(TierError, match="choose a folder that can be written"):
            filled(disk=tmp_path)
    else:
        pytest.skip("this user may write everywhere")
    finally:
        tmp_path.chmod(stat.S_IRWXU)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_through_pinned_memory(tmp_path: Path) -> None:
    store = KVStore(LAYOUT, "cuda")
    store.buffer.normal_()
    right = store.buffer.clone()
    tiers = KVTiers(store, "f" * 16, TierSizes(2 * BLOCK, tmp_path), time.monotonic)
    assert tiers.host.is_pinned()
    names = [b"a", b"b", b"c"]
    for index, name in enumerate(names):
        tiers.books.keep(name, index)
    tiers.carry_out(tiers.books.take_moves())
    store.buffer.zero_()
    assert back(tiers, names, 3) == []
    assert torch.equal(store.buffer[:, :, 3:], right[:, :, :3])
