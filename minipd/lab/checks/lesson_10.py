"""The exercises of lesson 10."""

from __future__ import annotations

from minipd.lab.checks.best_split import BEST_SPLIT
from minipd.lab.checks.busier_pool import BUSIER_POOL
from minipd.lab.checks.readers_needed import READERS_NEEDED

EXERCISES = (BEST_SPLIT, READERS_NEEDED, BUSIER_POOL)
