"""Where a prompt goes whose beginning somebody holds: overlap against load, and what is known."""

from __future__ import annotations

from minipd.cache.allocator import BlockAllocator
from minipd.cache.books import TierBooks
from minipd.request import Request, Sequence
from minipd.sched.prefix_router import PrefixAware, PrefixMap, forgotten_by
from minipd.sched.router import WorkerLoad

P = 4


def loads(
    *cached: int, queued: tuple[int, ...] = (), running: tuple[int, ...] = ()
) -> list[WorkerLoad]:
    found: list[WorkerLoad] = []
    for index, tokens in enumerate(cached):
        waiting = queued[index] if queued else 0
        writing = running[index] if running else 0
        found.append(WorkerLoad(f"w{index}", waiting, 0, writing, tokens))
    return found


def ask(*tokens: int) -> Request:
    return Request("r", tokens)


# -- the choice -----------------------------------------------------------------------------------


def test_a_follow_up_goes_to_the_holder() -> None:
    route = PrefixAware().route(100, [], loads(0, 64, 0))
    assert (route.decode, route.choice) == ("w1", "local")
    assert route.reason == "64 of 100 tokens are held there"


def test_without_a_holder_the_one_with_least_work() -> None:
    route = PrefixAware().route(100, [], loads(0, 0, 0, queued=(50, 10, 90)))
    assert route.decode == "w1" and "nobody holds" in route.reason


def test_a_busy_holder_is_left_alone_once_waiting_costs_more_than_reading() -> None:
    router = PrefixAware(tokens_per_running=10)
    for queued, chosen in ((63, "w0"), (65, "w1")):
        assert router.route(100, [], loads(64, 0, queued=(queued, 0))).decode == chosen
    route = router.route(100, [], loads(64, 0, running=(7, 0)))
    assert route.decode == "w1"
    assert route.reason == "0 of 100 tokens are held there, 64 at the busier w0"


def test_in_a_split_reader_and_writer_are_chosen_alike() -> None:
    readers = [WorkerLoad("p0"), WorkerLoad("p1", cached_tokens=80)]
    route = PrefixAware().route(100, readers, loads(0, 96))
    assert (route.prefill, route.decode) == ("p1", "w1")


def test_a_writer_that_holds_nearly_all_reads_the_rest_itself() -> None:
    readers = [WorkerLoad("p0")]
    assert PrefixAware(max_local_tokens=4).route(100, readers, loads(0, 96)).choice == "local"
    assert PrefixAware(max_local_tokens=3).route(100, readers, loads(0, 96)).choice == "remote"


# -- what is known --------------------------------------------------------------------------------


def test_only_the_unbroken_beginning_counts() -> None:
    known = PrefixMap()
    known.add("w0", [b"a", b"b", b"c"])
    assert known.num_held("w0", [b"a", b"b", b"c", b"d"]) == 3
    known.remove("w0", [b"b", b"unknown"])
    assert known.num_held("w0", [b"a", b"b", b"c"]) == 1
    known.forget("w0")
    assert known.num_held("w0", [b"a"]) == 0 == known.num_held("never seen", [b"a"])


def test_a_bounded_map_drops_the_end_of_the_oldest_chain() -> None:
    known = PrefixMap(max_blocks=3)
    known.add("w0", [b"a", b"b"])
    known.add("w0", [b"c", b"d"])
    assert [known.num_held("w0", chain) for chain in ([b"a", b"b"], [b"c", b"d"])] == [1, 2]


def test_names_are_the_allocators_own() -> None:
    """The coordinator hashes tokens as the worker does, or nobody would ever be found."""
    router, tokens = PrefixAware(block_size=P), tuple(range(11))
    allocator = BlockAllocator(8, P)
    sequence = Sequence(ask(*tokens))
    allocator.admit(sequence)
    sequence.num_cached_tokens = len(tokens)
    allocator.publish(sequence)
    assert router.names_of(ask(*tokens)) == sequence.block_hashes
    assert len(router.names_of(ask(*tokens), [11])) == 2, "the last token has no KV yet"
    assert len(router.names_of(ask(*tokens), [11, 12])) == 3


def test_look_up_notes_down_what_each_worker_holds() -> None:
    router, request = PrefixAware(block_size=P), ask(*range(11))
    router.known.add("w1", router.names_of(ask(*range(5))))
    found = loads(7, 0)
    router.look_up(request, [], found)
    assert [load.cached_tokens for load in found] == [0, 4]


# -- what a worker has forgotten ------------------------------------------------------------------


def run_through(allocator: BlockAllocator, *tokens: int) -> Sequence:
    sequence = Sequence(ask(*tokens))
    allocator.admit(sequence)
    sequence.num_cached_tokens = len(tokens)
    allocator.publish(sequence)
    allocator.release(sequence)
    return sequence


def test_nobody_counts_unless_asked() -> None:
    allocator = BlockAllocator(2, P)
    for first in (0, 100):
        run_through(allocator, *range(first, first + 8))
    assert forgotten_by(allocator) == ()


def test_what_is_forgotten_is_told_once() -> None:
    allocator = BlockAllocator(2, P)
    allocator.forgotten = []
    gone = run_through(allocator, *range(8)).block_hashes
    run_through(allocator, *range(100, 108))
    assert sorted(forgotten_by(allocator)) == sorted(gone)
    assert forgotten_by(allocator) == ()


def test_what_a_tier_still_holds_is_not_forgotten() -> None:
    books = TierBooks(2, 0, 100, P)
    allocator = BlockAllocator(2, P, books=books)
    allocator.forgotten = []
    first = run_through(allocator, *range(8)).block_hashes
    run_through(allocator, *range(100, 108))
    assert forgotten_by(allocator) == ()
    run_through(allocator, *range(200, 208))
    assert sorted(forgotten_by(allocator)) == sorted(first)
