"""The exercises of lesson 04."""

from __future__ import annotations

from minipd.lab.checks.between_steps import BETWEEN_STEPS
from minipd.lab.checks.slots_within_limit import MOST_SEQUENCES
from minipd.lab.checks.static_waste import OCCUPANCY

EXERCISES = (OCCUPANCY, BETWEEN_STEPS, MOST_SEQUENCES)
