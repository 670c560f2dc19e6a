"""The exercises of lesson 09."""

from __future__ import annotations

from minipd.lab.checks.broken_rules import BROKEN_RULES
from minipd.lab.checks.goodput_per_worker import GOODPUT_PER_WORKER
from minipd.lab.checks.token_times import TOKEN_TIMES

EXERCISES = (TOKEN_TIMES, GOODPUT_PER_WORKER, BROKEN_RULES)
