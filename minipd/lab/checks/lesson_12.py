"""The exercises of lesson 12."""

from __future__ import annotations

from minipd.lab.checks.fleet_ratio import FLEET_RATIO
from minipd.lab.checks.gain_by_limit import GAINS
from minipd.lab.checks.riddle_shares import RIDDLE
from minipd.lab.checks.two_bills import TWO_BILLS

EXERCISES = (FLEET_RATIO, TWO_BILLS, GAINS, RIDDLE)
