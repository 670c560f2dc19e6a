"""What must hold in every timeline, checked from its events alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from minipd.measure.ordering import Roles, count, in_order, text
from minipd.timeline import TERMINAL_KINDS, Event


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule: its short name, the request, when, and one sentence on what was seen."""

    rule: str
    request_id: str
    t_s: float
    message: str


@dataclass(slots=True)
class _Life:
    """What has been seen of one request so far."""

    arrived: bool = False
    tokens: int = 0
    ended: str = ""
    holders: set[str] = field(default_factory=set[str])  # workers that prefilled or committed it


def check_timeline(events: Iterable[Event], running: bool = False) -> list[Violation]:
    """All violations in order of time; an empty list is a sound timeline.

    Rules: `arrival` (once, first), `terminal` (exactly one; while `running` it may be missing),
    `after-terminal` (no token, commit or terminal later), `token-order` (0, 1, 2 ...), `no-token`
    (a finished answer has tokens), `token-count` (as many as the terminal event says), `no-kv` (a
    worker yields tokens only for what it prefilled or committed), `silent-prefill` (a decode
    worker's prefill has a reason).
    """
    lives: dict[str, _Life] = {}
    roles = Roles()
    found: list[Violation] = []
    last_s = 0.0
    for event in in_order(events):
        last_s = event.t_s
        roles.feed(event)
        if event.request_id:
            life = lives.setdefault(event.request_id, _Life())
            found += [
                Violation(rule, event.request_id, event.t_s, message)
                for rule, message in _check(event, life, roles)
            ]
    if not running:
        found += [
            Violation("terminal", name, last_s, "arrived and never ended")
            for name, life in lives.items()
            if life.arrived and not life.ended
        ]
    return found


def _check(event: Event, life: _Life, roles: Roles) -> list[tuple[str, str]]:
    """Rules that one event breaks; updates the request's life."""
    if event.kind == "arrived":
        again = life.arrived
        life.arrived = True
        return [("arrival", "arrived twice")] if again else []
    broken: list[tuple[str, str]] = []
    if not life.arrived:
        broken.append(("arrival", f"{event.kind} before it arrived"))
        life.arrived = True
    if event.kind in TERMINAL_KINDS:
        return broken + _check_terminal(event, life)
    if life.ended and event.kind in ("token", "committed", "prefill_started"):
        broken.append(("after-terminal", f"{event.kind} after it was {life.ended}"))
    if event.kind == "token":
        broken += _check_token(event, life)
    elif event.kind == "committed":
        life.holders.add(event.worker)
    elif event.kind == "preempted":
        life.holders.discard(event.worker)
    elif event.kind == "prefill_started":
        life.holders.add(event.worker)
        reason = text(event, "reason")
        if roles.get(event.worker) == "decode" and reason in ("", "prompt"):
            message = f"prefill on decode worker {event.worker} with the reason {reason!r}"
            broken.append(("silent-prefill", message))
    return broken


def _check_token(event: Event, life: _Life) -> list[tuple[str, str]]:
    broken: list[tuple[str, str]] = []
    index = count(event, "index")
    if index != life.tokens:
        broken.append(("token-order", f"token {index} where token {life.tokens} was due"))
    life.tokens = max(life.tokens, index + 1)
    if event.worker not in life.holders:
        message = f"token {index} from {event.worker}, which neither prefilled nor committed it"
        broken.append(("no-kv", message))
    return broken


def _check_terminal(event: Event, life: _Life) -> list[tuple[str, str]]:
    if life.ended:
        return [("terminal", f"{event.kind} after it was already {life.ended}")]
    life.ended = event.kind
    broken: list[tuple[str, str]] = []
    if event.kind == "finished" and not life.tokens:
        broken.append(("no-token", "finished without a token"))
    told = event.data.get("output_tokens")
    if told is not None and told != life.tokens:
        broken.append(("token-count", f"{life.tokens} tokens seen, {told} told"))
    return broken
