"""The exercises of lesson 00."""

from __future__ import annotations

from minipd.lab.checks.honest_rate import HONEST_RATE
from minipd.lab.checks.step_time import STEP_TIME

EXERCISES = (HONEST_RATE, STEP_TIME)
