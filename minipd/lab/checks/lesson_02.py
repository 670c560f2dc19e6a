"""The exercises of lesson 02."""

from __future__ import annotations

from minipd.lab.checks.kv_bytes import KV_BYTES
from minipd.lab.checks.note_pad import NOTE_PAD
from minipd.lab.checks.users_fit import USERS_FIT

EXERCISES = (KV_BYTES, NOTE_PAD, USERS_FIT)
