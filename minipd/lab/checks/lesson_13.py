"""The exercises of lesson 13."""

from __future__ import annotations

from minipd.lab.checks.audit_hits import AUDIT_HITS
from minipd.lab.checks.fetch_from import FETCH_FROM
from minipd.lab.checks.forget_order import FORGET
from minipd.lab.checks.route_or_move import ROUTE

EXERCISES = (AUDIT_HITS, FETCH_FROM, FORGET, ROUTE)
