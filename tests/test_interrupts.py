"""Ctrl-C at any line: nothing is left behind, and everyone else's answer is what it would be."""

from __future__ import annotations

import multiprocessing
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import minipd
from minipd.interrupts import held_back, let_through, unseen_by_children
from minipd.llm import LLM
from minipd.measure.invariants import check_timeline
from minipd.model.load import LoadedModel, load
from minipd.request import SamplingParams
from minipd.sched.limits import Limits

ROOM = str(Path(minipd.__file__).parent)
PARAMS = SamplingParams(6, ignore_eos=True)
PROMPTS = [[number] * (3 + 5 * number) for number in range(1, 6)]


@pytest.fixture(scope="module")
def tiny() -> LoadedModel:
    return load("tiny")


@pytest.fixture(autouse=True)
def default_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, "a hold was left behind"
    signal.signal(signal.SIGINT, before)


def interrupted(call: Callable[[], Any], line: int) -> bool:
    """Run `call` with a SIGINT before its `line`-th line of minipd; whether that line came."""
    left = line

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        if not frame.f_code.co_filename.startswith(ROOM):
            return None
        if event == "line":
            left -= 1
            if left == 0:
                sys.settrace(None)
                signal.raise_signal(signal.SIGINT)
        return trace

    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        assert left <= 0
    finally:
        sys.settrace(None)
    return left <= 0


def assert_nothing_left(llm: LLM) -> None:
    assert not llm.scheduler.sequences and not llm._texts  # pyright: ignore[reportPrivateUsage]
    assert not llm.scheduler.waiting and not llm.scheduler.running
    assert llm.scheduler.allocator.num_used_blocks == 0
    llm.timeline.extend(llm.scheduler.drain_events())
    assert not check_timeline(llm.timeline)


@pytest.mark.parametrize("seed", range(25))
def test_generate_interrupted_at_a_random_line(tiny: LoadedModel, seed: int) -> None:
    chance = random.Random(seed)
    blocks = chance.choice([8, 12, 60])
    llm = LLM(tiny, num_kv_blocks=blocks, block_size=8, limits=Limits(chance.choice([2, 8]), 64))
    expected = LLM(tiny, num_kv_blocks=60).generate(PROMPTS, PARAMS)
    stream = llm.stream(PROMPTS[0], PARAMS)
    got = [next(stream).token_id] if chance.random() < 0.5 else []
    interrupted(lambda: llm.generate(PROMPTS[1:], PARAMS), chance.randrange(1, 1500))
    assert len(llm._texts) == len(got)  # pyright: ignore[reportPrivateUsage]
    assert [*got, *(piece.token_id for piece in stream)] == expected[0].token_ids
    assert_nothing_left(llm)
    again = llm.generate(PROMPTS, PARAMS)
    assert [a.token_ids for a in again] == [e.token_ids for e in expected]


def test_a_stream_interrupted_at_every_line(tiny: LoadedModel) -> None:
    llm = LLM(tiny, num_kv_blocks=8)

    def read_two() -> None:
        stream = llm.stream([5, 6], PARAMS)
        next(stream)
        next(stream)
        stream.close()  # type: ignore[attr-defined]

    line = 1
    while interrupted(read_two, line):
        assert_nothing_left(llm)
        line += 1 + line // 15
    assert line > 100


def test_submit_interrupted_at_every_line(tiny: LoadedModel) -> None:
    llm, line = LLM(tiny, num_kv_blocks=8), 1
    while interrupted(lambda: llm.submit([5, 6], PARAMS), line):
        assert_nothing_left(llm)
        line += 1
    assert line > 20 and len(llm.scheduler.sequences) == 1


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="Windows has no interval timer")
def test_real_signals(tiny: LoadedModel) -> None:
    def press(*_: object) -> None:
        signal.raise_signal(signal.SIGINT)

    chance, llm, stopped = random.Random(3), LLM(tiny, num_kv_blocks=40, block_size=8), 0
    before = signal.signal(signal.SIGALRM, press)
    begun = time.monotonic()
    while (now := time.monotonic()) < begun + 3 or (stopped <= 10 and now < begun + 120):
        try:
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.0005, 0.06))
            llm.generate([[i] * 20 for i in range(40)], PARAMS)
            signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            stopped += 1
        assert_nothing_left(llm)
        llm.timeline.clear()
    signal.signal(signal.SIGALRM, before)
    assert stopped > 10


def test_a_hold_lets_it_in_where_it_is_told_to() -> None:
    seen: list[str] = []
    with pytest.raises(KeyboardInterrupt), held_back(), held_back():
        signal.raise_signal(signal.SIGINT)
        seen.append("held")
        with let_through():
            seen.append("never")
    with pytest.raises(KeyboardInterrupt), held_back():
        with let_through():
            seen.append("open")
        signal.raise_signal(signal.SIGINT)
        seen.append("to the end")
    assert seen == ["held", "open", "to the end"]


def test_another_handler_is_called_and_put_back() -> None:
    heard: list[int] = []
    mine = lambda number, _: heard.append(number)  # noqa: E731
    signal.signal(signal.SIGINT, mine)
    with held_back():
        signal.raise_signal(signal.SIGINT)
        assert heard == []
        with let_through():
            assert heard == [signal.SIGINT]
    assert signal.getsignal(signal.SIGINT) is mine and len(heard) == 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with held_back():
        signal.raise_signal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_other_threads_hold_nothing() -> None:
    def work() -> None:
        with held_back(), let_through():
            handlers.append(signal.getsignal(signal.SIGINT))

    handlers: list[object] = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers == [signal.default_int_handler]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc to see what a process blocks")
def test_processes_started_unseen_never_hear_it() -> None:
    """A worker that still imports when Ctrl-C comes must not print a traceback of its own."""

    def blocked(status: str) -> bool:
        (line,) = (x for x in Path(status).read_text().splitlines() if x.startswith("SigBlk"))
        return bool(int(line.split()[1], 16) >> (signal.SIGINT - 1) & 1)

    process = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,))
    with unseen_by_children():
        process.start()
    try:
        assert blocked(f"/proc/{process.pid}/status")
        assert not blocked("/proc/thread-self/status")
    finally:
        process.kill()
        process.join()
