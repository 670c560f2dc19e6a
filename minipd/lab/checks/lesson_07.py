"""The exercises of lesson 07."""

from __future__ import annotations

from minipd.lab.checks.number_format import NUMBER_FORMAT
from minipd.lab.checks.reservations import RESERVATIONS
from minipd.lab.checks.whole_parcel import WHOLE_PARCEL

EXERCISES = (WHOLE_PARCEL, NUMBER_FORMAT, RESERVATIONS)
