"""The exercises of lesson 01."""

from __future__ import annotations

from minipd.lab.checks.answer_waits import ANSWER_WAITS
from minipd.lab.checks.causal_shares import CAUSAL_SHARES
from minipd.lab.checks.reusable_notes import REUSABLE_NOTES
from minipd.lab.checks.token_passes import TOKEN_PASSES

EXERCISES = (ANSWER_WAITS, TOKEN_PASSES, REUSABLE_NOTES, CAUSAL_SHARES)
