"""The exercises of lesson 08."""

from __future__ import annotations

from minipd.lab.checks.fit_samples import FIT_SAMPLES
from minipd.lab.checks.remote_pays import REMOTE_PAYS
from minipd.lab.checks.unfair_claim import UNFAIR_CLAIM

EXERCISES = (FIT_SAMPLES, REMOTE_PAYS, UNFAIR_CLAIM)
