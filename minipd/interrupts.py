"""Ctrl-C waits while the books are written.

Python raises `KeyboardInterrupt` between any two lines. Half-way through the books of a scheduler
or an allocator that leaves requests and blocks that belong to nobody; so there it is held back.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from types import FrameType
from typing import Any

_now: _Hold | None = None  # there is one at most: signals reach the main thread only


class _Hold:
    """The handler of SIGINT during a hold; `handler` is the one that was there before."""

    def __init__(self, handler: Callable[[int, FrameType | None], Any]) -> None:
        self.handler = handler
        self.is_open = False
        self.came = False

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        self.came = not self.is_open
        if self.is_open:
            self.handler(signum, frame)


@contextmanager
def held_back() -> Generator[None]:
    """Ctrl-C takes effect after this block, or in a `let_through` inside it.

    Changes nothing inside another hold, off the main thread (where Ctrl-C never arrives), or where
    Python does not handle SIGINT.
    """
    global _now
    may_hold = _now is None and _on_main_thread()
    handler = signal.getsignal(signal.SIGINT) if may_hold else None
    if not callable(handler):
        yield
        return
    hold = _Hold(handler)
    try:
        signal.signal(signal.SIGINT, hold)
        _now = hold
        yield
    finally:
        _now = None
        signal.signal(signal.SIGINT, handler)
        if hold.came:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def unseen_by_children() -> Generator[None]:
    """Processes started in this block never see Ctrl-C, not even while they still import; here it
    takes effect after the block. Changes nothing on Windows."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # its first start would let the signal through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def let_through() -> Generator[None]:
    """Ctrl-C takes effect at once, as outside `held_back`; also one that came before."""
    hold = _now
    if hold is None or not _on_main_thread():
        yield
        return
    hold.is_open = True
    try:
        if hold.came:
            signal.raise_signal(signal.SIGINT)
        yield
    finally:
        hold.is_open = False


def _on_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
