"""The exercises of lesson 03."""

from __future__ import annotations

from minipd.lab.checks.corner_side import SIDE_OF_THE_CORNER
from minipd.lab.checks.new_machine import SPEED_UP
from minipd.lab.checks.two_shares import TWO_SHARES

EXERCISES = (SIDE_OF_THE_CORNER, TWO_SHARES, SPEED_UP)
