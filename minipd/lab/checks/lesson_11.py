"""The exercises of lesson 11."""

from __future__ import annotations

from minipd.lab.checks.device_notes import DEVICE_NOTES
from minipd.lab.checks.fit_at_once import FIT_AT_ONCE
from minipd.lab.checks.slots_gain import SLOTS_GAIN
from minipd.lab.checks.split_alone import SPLIT_ALONE

EXERCISES = (SLOTS_GAIN, DEVICE_NOTES, FIT_AT_ONCE, SPLIT_ALONE)
