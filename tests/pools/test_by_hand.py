"""A request is disturbed at every single point of its life: it ends once and leaves nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from minipd.engine.batch import Chunk
from minipd.engine.executor import Executor
from minipd.llm import LLM
from minipd.pools import messages as m
from minipd.pools.cluster import Setup
from minipd.request import Request, SamplingParams
from minipd.sched.limits import Limits
from minipd.sched.router import Threshold
from tests.pools.by_hand import HandDriven
from tests.pools.helpers import answers, ask, check_same, check_sound, ending, events

SETUP = Setup(model="tiny", num_blocks=64)
LAST_TURN = 22  # by then three requests of 6 tokens over a link of 4 turns are through


def three() -> list[Request]:
    return [ask("a", 40, 6), ask("b", 17, 6), ask("c", 33, 1)]


@pytest.fixture(scope="module")
def expected(llm: LLM) -> dict[str, list[int]]:
    return answers(llm, three())


def disturbed(
    llm: LLM, turn: int, act: Callable[[HandDriven], None], setup: Setup = SETUP
) -> HandDriven:
    """Three requests over a slow link, and `act` between turns `turn` and `turn + 1`."""
    driven = HandDriven(llm.model, setup, polls=4)
    for request in three():
        driven.coordinator.submit(request)
    for _ in range(turn):
        driven.turn()
    act(driven)
    while driven.coordinator.is_busy:
        driven.turn()
        assert driven.now < 300, "this does not come to an end"
    return driven


def test_undisturbed(llm: LLM, expected: dict[str, list[int]]) -> None:
    driven = disturbed(llm, LAST_TURN, lambda _: None)
    run = driven.result()
    check_sound(run, three())
    assert run.outputs == expected
    assert max(e.t_s for e in run.timeline if e.request_id) < LAST_TURN


@pytest.mark.parametrize("turn", range(LAST_TURN))
@pytest.mark.parametrize("victim", ["a", "b", "c"])
def test_cancelled(llm: LLM, expected: dict[str, list[int]], turn: int, victim: str) -> None:
    run = disturbed(llm, turn, lambda driven: driven.coordinator.cancel(victim)).result()
    check_sound(run, three())
    for request_id, tokens in expected.items():
        got = run.outputs.get(request_id, [])
        if request_id == victim and ending(run, victim)[0] == "cancelled":
            assert got == tokens[: len(got)]
        else:
            assert got == tokens


@pytest.mark.parametrize("turn", range(LAST_TURN))
def test_deadline(llm: LLM, expected: dict[str, list[int]], turn: int) -> None:
    """The clock counts turns: the deadline of "a" falls into each of them."""
    requests = [replace(r, deadline_s=turn + 0.5) if r.id == "a" else r for r in three()]
    run = HandDriven(llm.model, SETUP, polls=4).run(requests)
    check_sound(run, requests)
    assert ending(run, "b") == ending(run, "c") == ("finished", "length")
    assert ending(run, "a") in {("cancelled", "deadline"), ("finished", "length")}
    assert run.outputs.get("a", []) == expected["a"][: len(run.outputs.get("a", []))]
    if turn < 5:
        assert ending(run, "a")[0] == "cancelled"


@pytest.mark.parametrize("turn", range(LAST_TURN))
@pytest.mark.parametrize("names", [["worker-0"], ["worker-1"], ["worker-0", "worker-1"]], ids=str)
@pytest.mark.parametrize("again", [True, False], ids=["restarted", "gone"])
def test_killed(
    llm: LLM, expected: dict[str, list[int]], turn: int, names: list[str], again: bool
) -> None:
    def kill(driven: HandDriven) -> None:
        for name in names:
            driven.kill(name, again=again)

    run = disturbed(llm, turn, kill).result()
    check_sound(run, three())
    for request in three():
        kind, reason = ending(run, request.id)
        if again or "worker-1" not in names:
            assert (kind, reason) == ("finished", "length")
            check_same(llm, [request], expected, run)
        elif kind == "failed":
            assert reason == "no decode worker is left, and none can be restarted"
    assert len(events(run, "worker_died")) == len(names)


@pytest.mark.parametrize("turn", range(0, LAST_TURN, 2))
def test_one_of_two_pairs_killed(llm: LLM, expected: dict[str, list[int]], turn: int) -> None:
    setup = replace(SETUP, num_prefill=2, num_decode=2)
    for name in ("worker-0", "worker-2"):
        driven = disturbed(llm, turn, lambda d, n=name: d.kill(n, again=False), setup)
        run = driven.result()
        check_sound(run, three())
        assert {ending(run, r.id)[0] for r in three()} == {"finished"}
        check_same(llm, three(), expected, run)
        for member in driven.coordinator.members.values():  # the router's books are even
            load = member.load
            assert (load.queued_prefill_tokens, load.num_waiting_prefills) == (0, 0)
            assert load.num_running == 0


def test_a_request_gives_up_after_three_workers(llm: LLM) -> None:
    driven = HandDriven(llm.model, SETUP)
    driven.coordinator.submit(ask("a", 20, 50))
    for _ in range(3):
        for _ in range(6):
            driven.turn()
        driven.kill("worker-1")
    while driven.coordinator.is_busy:
        driven.turn()
    run = driven.result()
    check_sound(run, [ask("a", 20, 50)])
    assert ending(run, "a") == ("failed", "its worker died 3 times")


@pytest.mark.parametrize("turn", range(LAST_TURN))
def test_broken_link(llm: LLM, expected: dict[str, list[int]], turn: int) -> None:
    """All writers opened before and after fail from here on; decode workers read for themselves."""

    def pull(driven: HandDriven) -> None:
        driven.workers["worker-0"].link.is_broken = True  # type: ignore[attr-defined]
        for outgoing in driven.workers["worker-0"].sender.outgoing.values():
            outgoing.transfer.is_broken = True  # type: ignore[attr-defined]

    run = disturbed(llm, turn, pull).result()
    check_sound(run, three())
    check_same(llm, three(), expected, run)
    if turn < 4:
        assert {e.data["reason"] for e in events(run, "prefill_started", "a")} == {
            "prompt",
            "recovered",
        }


def test_a_target_that_cannot_be_reached(llm: LLM, expected: dict[str, list[int]]) -> None:
    driven = HandDriven(llm.model, SETUP, is_reachable=False)
    run = driven.run(three())
    check_sound(run, three())
    check_same(llm, three(), expected, run)
    assert not events(run, "committed")


# -- what does not verify ---------------------------------------------------------------------


def flip_a_byte(driven: HandDriven, manifest: m.Manifest) -> m.Manifest:
    store = driven.workers["worker-1"].executor.store
    row = store.values[2][manifest.block_ids[1]].view(torch.uint8)
    row.view(-1)[77] += 1
    return manifest


def drop_a_layer(driven: HandDriven, manifest: m.Manifest) -> m.Manifest:
    store = driven.workers["worker-1"].executor.store
    for block in manifest.block_ids:
        store.keys[3][block] = 0
        store.values[3][block] = 0
    return manifest


def swap_two_blocks(driven: HandDriven, manifest: m.Manifest) -> m.Manifest:
    store = driven.workers["worker-1"].executor.store
    first, second = manifest.block_ids[:2]
    for tensor in (store.keys[1], store.values[1]):
        tensor[[first, second]] = tensor[[second, first]].clone()
    return manifest


def told(**changes: object) -> Callable[[HandDriven, m.Manifest], m.Manifest]:
    return lambda _, manifest: replace(manifest, **changes)  # type: ignore[arg-type]


def told_otherwise(name: str) -> Callable[[HandDriven, m.Manifest], m.Manifest]:
    def change(_: HandDriven, manifest: m.Manifest) -> m.Manifest:
        value = getattr(manifest, name)
        return replace(manifest, **{name: value[::-1] if name == "block_ids" else value[:-1]})

    return change


def wrong_dtype(_: HandDriven, manifest: m.Manifest) -> m.Manifest:
    return replace(manifest, layout=manifest.layout.replace("float32", "bfloat16"))


FAULTS: dict[str, tuple[Callable[[HandDriven, m.Manifest], m.Manifest], str]] = {
    "a byte": (flip_a_byte, "the values of layer 2 do not match their digest"),
    "a layer": (drop_a_layer, "the keys of layer 3 do not match their digest"),
    "two blocks": (swap_two_blocks, "the keys of layer 1 do not match their digest"),
    "dtype": (wrong_dtype, "the layout of the hand-off is .*bfloat16, but here .*float32"),
    "stale epoch": (told(target_epoch=-1), "the epoch of the hand-off is -1, but here it is 0"),
    "other target": (told(target="worker-7"), "the target of the hand-off is worker-7"),
    "other weights": (told(fingerprint="x"), "the model of the hand-off is x"),
    "other tokens": (told(num_tokens=39), "the tokens of the hand-off is 39, but here it is 40"),
    "other prefix": (told(first_token=16), "the cached tokens of the hand-off is 16"),
    "other blocks": (told_otherwise("block_ids"), "the blocks of the hand-off"),
    "missing digest": (told_otherwise("digests"), "7 digests were sent for 8 tensors"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_refused_and_read_again(llm: LLM, expected: dict[str, list[int]], fault: str) -> None:
    change, reason = FAULTS[fault]
    driven = HandDriven(llm.model, SETUP)

    def tamper(message: m.FromWorker) -> m.FromWorker:
        if isinstance(message, m.HandedOff) and message.manifest.request_id == "a":
            return m.HandedOff(change(driven, message.manifest))
        return message

    driven.tamper = tamper
    run = driven.run(three())
    check_sound(run, three())
    (refused,) = events(run, "handoff_refused")
    assert refused.request_id == "a"
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(refused.data["reason"])
    check_same(llm, three(), expected, run)
    assert [e.request_id for e in events(run, "committed")] == ["b"]
    reasons = [e.data["reason"] for e in events(run, "prefill_started", "a")]
    assert reasons == ["prompt", "recovered"]


def test_kv_written_for_a_former_life_stays_out(llm: LLM, expected: dict[str, list[int]]) -> None:
    """The decode worker dies with bytes on the wire: they reach its old memory, not its new one."""
    driven = HandDriven(llm.model, SETUP, polls=4)
    driven.coordinator.submit(three()[0])
    while not driven.workers["worker-0"].sender.outgoing:
        driven.turn()
    old = driven.workers["worker-1"]
    driven.kill("worker-1")
    new = driven.workers["worker-1"]
    manifests: list[m.Manifest] = []
    before = new.executor.store.buffer.clone()

    def watch(message: m.FromWorker) -> m.FromWorker:
        if isinstance(message, m.HandedOff) and not manifests:
            manifests.append(message.manifest)
            assert torch.equal(new.executor.store.buffer, before)
            assert old.executor.store.buffer.any()
        return message

    driven.tamper = watch
    while driven.coordinator.is_busy:
        driven.turn()
    run = driven.result()
    check_sound(run, three()[:1])
    check_same(llm, three()[:1], expected, run)
    assert manifests[0].target_epoch == 0 and new.identity.epoch == 1
    sequence = llm.submit([1], SamplingParams(1))
    reason = new.receiver.why_refuse(manifests[0], sequence)
    assert reason == "the epoch of the hand-off is 0, but here it is 1"
    llm.scheduler.cancel(sequence.id, 0.0)


# -- rule 1: the hand-off changes nothing -----------------------------------------------------


@pytest.mark.parametrize("length", [1, 15, 16, 17, 32, 47, 200])
def test_kv_and_next_logits_are_those_of_an_unsplit_engine(llm: LLM, length: int) -> None:
    request = ask("a", length, 4)
    driven = HandDriven(llm.model, SETUP)
    driven.coordinator.submit(request)
    decoder = driven.workers["worker-1"]
    while not decoder.scheduler.running:
        driven.turn()
    sequence = decoder.scheduler.sequences["a"]
    store = decoder.executor.store
    num_blocks = -(-length // 16)
    alone = Executor(llm.model, SETUP.num_blocks)
    blocks = list(range(num_blocks + 1))
    first = alone.run([Chunk("a", list(request.prompt_ids), 0, blocks, request.sampling)])
    assert sequence.output_ids[:1] == first
    for layer in range(store.layout.num_layers):
        for ours, theirs in ((store.keys, alone.store.keys), (store.values, alone.store.values)):
            held = ours[layer][sequence.block_ids[:num_blocks]].flatten(0, 1)[:length]
            assert torch.equal(held, theirs[layer][:num_blocks].flatten(0, 1)[:length])
    decoder.scheduler.allocator.grow(sequence, length + 1)
    there = Chunk("a", first, length, sequence.block_ids, request.sampling)
    here = Chunk("a", first, length, blocks, request.sampling)
    assert torch.equal(decoder.executor.forward([there]), alone.forward([here]))  # type: ignore[attr-defined]


# -- traps ------------------------------------------------------------------------------------


def test_one_token_ends_on_the_prefill_worker(llm: LLM) -> None:
    requests = [ask(f"r{n}", 20 + n, 1) for n in range(5)]
    run = HandDriven(llm.model, SETUP, polls=3).run(requests)
    check_sound(run, requests)
    assert run.outputs == answers(llm, requests)
    assert {e.worker for e in events(run, "finished")} == {"worker-0"}
    assert not events(run, "committed")


def test_the_first_token_ends_the_text(llm: LLM) -> None:
    first = answers(llm, [ask("a", 20, 1)])["a"][0]
    request = replace(ask("a", 20, 9), sampling=SamplingParams(9))
    driven = HandDriven(llm.model, SETUP)
    for worker in driven.workers.values():
        worker.scheduler.eos_ids = frozenset({first})
    run = driven.run([request])
    check_sound(run, [request])
    assert ending(run, "a") == ("finished", "eos") and run.outputs["a"] == [first]


def test_a_stop_string_across_the_hand_off(llm: LLM) -> None:
    """It begins in the token of the prefill worker and ends in one of the decode worker."""
    tried = 0
    for length in range(20, 60):
        tokens = answers(llm, [ask("a", length, 4)])["a"]
        head, text = (llm.model.tokenizer.decode(t) for t in (tokens[:1], tokens[:2]))
        stop = text[len(head) - 1 :]
        if len(head) < 1 or len(text) <= len(head) or "\N{REPLACEMENT CHARACTER}" in text:
            continue
        tried += 1
        params = SamplingParams(8, stop=(stop,), ignore_eos=True)
        request = replace(ask("a", length), sampling=params)
        run = HandDriven(llm.model, SETUP).run([request])
        check_sound(run, [request])
        assert ending(run, "a") == ("finished", "stop") and run.outputs["a"] == tokens[:2]
        if tried == 3:
            return
    raise AssertionError("no prompt gave two tokens of plain text")


def test_what_the_decode_worker_holds_is_not_sent(llm: LLM) -> None:
    shared = ask("a", 100, 6)
    driven = HandDriven(llm.model, SETUP)
    first = driven.run([shared])
    sent_first = sum(int(str(e.data["bytes"])) for e in events(first, "committed"))
    second = driven.run([replace(shared, id="again")])
    sent = [int(str(e.data["bytes"])) for e in events(second, "committed", "again")]
    block_bytes = 2 * 4 * driven.workers["worker-1"].executor.store.layout.block_bytes
    assert sent_first == 7 * block_bytes and sent == [block_bytes]
    (reserved,) = events(second, "reserved", "again")
    assert reserved.data["cached_tokens"] == 96
    assert second.outputs["again"] == second.outputs["a"] == answers(llm, [shared])["a"]
    planned = [e.data["bytes"] for e in events(second, "handoff_started", "again")]
    assert planned == sent


def test_a_request_id_may_come_again_while_the_first_is_still_on_the_wire(llm: LLM) -> None:
    once, again = ask("a", 30, 1), ask("a", 50, 5)
    driven = HandDriven(llm.model, SETUP, polls=6)
    driven.coordinator.submit(once)
    while driven.coordinator.tickets:
        driven.turn()
    assert driven.coordinator.is_busy  # its bytes are still under way
    driven.run([again])
    run = driven.result()
    assert set(run.leaked_blocks.values()) == {0}
    expected = answers(llm, [once])["a"] + answers(llm, [again])["a"]
    assert run.outputs["a"] == expected
    assert len(events(run, "finished")) == 2


def test_too_few_blocks_to_decode_all_at_once(llm: LLM) -> None:
    """Requests wait for their reservation, some give way later; nothing is lost."""
    requests = [ask(f"r{n}", 30, 30) for n in range(8)]
    run = HandDriven(llm.model, replace(SETUP, num_blocks=8)).run(requests)
    check_sound(run, requests)
    check_same(llm, requests, answers(llm, requests), run)
    reasons = {(e.worker, e.data["reason"]) for e in events(run, "prefill_started")}
    assert reasons == {("worker-0", "prompt"), ("worker-1", "preempted")}
    assert events(run, "preempted")


def test_a_short_prompt_is_read_where_it_is_answered(llm: LLM) -> None:
    requests = [ask("short", 20), ask("long", 90)]
    driven = HandDriven(llm.model, SETUP, router=Threshold(max_local_prefill_tokens=50))
    run = driven.run(requests)
    check_sound(run, requests)
    check_same(llm, requests, answers(llm, requests), run)
    started = {(e.request_id, e.worker, e.data["reason"]) for e in events(run, "prefill_started")}
    assert started == {("short", "worker-1", "local"), ("long", "worker-0", "prompt")}
    choices = {e.request_id: e.data["choice"] for e in events(run, "routed")}
    assert choices == {"short": "local", "long": "remote"}


@pytest.mark.parametrize("max_running", [1, 2])
def test_few_at_a_time(llm: LLM, max_running: int) -> None:
    requests = [ask(f"r{n}", 10 + 7 * n, 5) for n in range(7)]
    setup = replace(SETUP, limits=Limits(max_running=max_running))
    run = HandDriven(llm.model, setup).run(requests)
    check_sound(run, requests)
    check_same(llm, requests, answers(llm, requests), run)
    assert max(int(str(e.data["decode_seqs"])) for e in events(run, "step")) <= max_running
