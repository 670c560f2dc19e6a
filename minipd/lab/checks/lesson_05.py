"""The exercises of lesson 05."""

from __future__ import annotations

from minipd.lab.checks.blocks_to_add import BLOCKS_TO_ADD
from minipd.lab.checks.preempt import PREEMPT
from minipd.lab.checks.reusable_blocks import REUSABLE_BLOCKS
from minipd.lab.checks.run_piece import RUN_PIECE

EXERCISES = (BLOCKS_TO_ADD, REUSABLE_BLOCKS, PREEMPT, RUN_PIECE)
