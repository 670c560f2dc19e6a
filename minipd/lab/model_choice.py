"""Which model a lesson loads: the real one, or a small random one where memory is short."""

from __future__ import annotations

import os

import psutil

from minipd.measure import hardware

REAL_MODEL, SMALL_MODEL = "smollm2-135m", "mini"
NEEDED_BYTES = 4 * 10**9  # weights in float32, a KV cache, Python with its libraries, a browser
VARIABLE = "MINIPD_LESSON_MODEL"


def lesson_model() -> tuple[str, str]:
    """The name to load, and one sentence that says why it is this one.

    With under 4 GB of memory it is `mini`. `MINIPD_LESSON_MODEL` overrules: a built-in name or a
    model folder, for example a larger model on a larger machine.
    """
    chosen = os.environ.get(VARIABLE, "").strip()
    if chosen:
        return chosen, f"Model: {chosen}, as {VARIABLE} says."
    memory = memory_bytes()
    has = f"this machine has {memory / 1e9:.1f} GB of memory"
    if memory >= NEEDED_BYTES:
        return REAL_MODEL, f"Model: {REAL_MODEL} ({has})."
    return SMALL_MODEL, (
        f"Model: {SMALL_MODEL}, as {has} and {REAL_MODEL} wants {NEEDED_BYTES / 1e9:.0f}. Its "
        "weights are random: times and sizes are real, but its words mean nothing."
    )


def memory_bytes() -> int:
    """Memory of this machine, or of the container that limits it, in bytes."""
    total, limit = psutil.virtual_memory().total, hardware.memory_limit_bytes()
    return min(total, limit) if limit else total
