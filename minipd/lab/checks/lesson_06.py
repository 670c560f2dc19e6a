"""The exercises of lesson 06."""

from __future__ import annotations

from minipd.lab.checks.charge_stalls import CHARGE_STALLS
from minipd.lab.checks.next_step import NEXT_STEP
from minipd.lab.checks.tokens_lost import TOKENS_LOST

EXERCISES = (TOKENS_LOST, CHARGE_STALLS, NEXT_STEP)
