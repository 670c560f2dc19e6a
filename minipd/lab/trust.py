"""How far a lesson's measurement may be trusted, in words, with what to do about it."""

from __future__ import annotations

from collections.abc import Mapping

from minipd.measure.ceilings import Ceilings
from minipd.measure.stats import Samples

REMEDY = "Plug in, close other programs, let the machine cool for a minute, and measure again."


def doubts(ceilings: Ceilings, rates: Mapping[str, Samples]) -> str:
    """Why these results are indicative only, and the remedy; empty where there is no doubt."""
    reasons = [f"{name} spread by {s.spread:.0%}" for name, s in rates.items() if s.is_indicative]
    if ceilings.indicative_reason:
        reasons.append(f"the ceilings: {ceilings.indicative_reason}")
    return f"Indicative only ({'; '.join(reasons)}). {REMEDY}" if reasons else ""
