"""Lesson 12's ledger: claims that this course began with, what was found, what a calculation says.

The three texts behind the course are named by what they are: `announcement` (an explainer of a
cloud's announcement), `vendor` (a vendor's article), `module` (a course module). Sources are those
of the project's facts, section 1; a claim without one stays "unsourced".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from minipd.fleet.formulas import nodes_for_volume
from minipd.lab.bill_dial import DEEPSEEK_96, GPUS_PER_NODE, KIMI_128, bill_of
from minipd.lab.show import Table

# DeepSeek's own figures of one day (open-infra-index, day 6): tokens per day, tokens/s of a node.
READ_A_DAY, WRITTEN_A_DAY = 608e9, 168e9
READS_TOK_S, WRITES_TOK_S = 73_700.0, 14_800.0
KIMI_TOGETHER, KIMI_TOK_S = 480, 288_000.0  # answers at once on a decode GPU; all decode GPUs
MOONCAKE_PERCENT = 498.0


@dataclass(frozen=True, slots=True)
class Claim:
    """`says` as it is told; `computed` is worked out when the table is shown."""

    says: str
    told_by: str
    found: str
    computed: Callable[[], str]
    verdict: str


def fleet_nodes() -> tuple[float, float]:
    """Nodes that DeepSeek's day keeps busy on average, reading and writing."""
    return (
        nodes_for_volume(READ_A_DAY, READS_TOK_S),
        nodes_for_volume(WRITTEN_A_DAY, WRITES_TOK_S),
    )


def times_as_much(percent: float) -> float:
    """A gain of so many percent is a factor of one more than that."""
    return 1.0 + percent / 100.0


def kimi_step_s() -> float:
    """Seconds between two tokens of one answer: Little's law on the whole decode pool."""
    return KIMI_TOGETHER * GPUS_PER_NODE * KIMI_128.decode_nodes / KIMI_TOK_S


def explained(factor: float, whole: float = 10.0) -> float:
    """The share of a factor that another factor explains: factors multiply, so logarithms add."""
    return math.log(factor) / math.log(whole)


def _ratio() -> str:
    reading, writing = fleet_nodes()
    return f"{reading:.1f} and {writing:.1f} nodes: 1 to {writing / reading:.2f}"


def _bill() -> str:
    bill = bill_of(DEEPSEEK_96, 100)
    return f"USD {bill.advertised:.4f} for 72 decode GPUs, USD {bill.everybody:.3f} for all 96"


def _price() -> str:
    bill = bill_of(DEEPSEEK_96, 100)
    return f"all 96 GPUs, answers of 100 tokens: USD {bill.matched:.2f} each, all charged to output"


def _kimi() -> str:
    step_s = kimi_step_s()
    return f"{step_s * 1e3:.0f} ms between tokens: {1 / step_s:.2f} tokens/s for each user"


def _gain() -> str:
    return f"+{MOONCAKE_PERCENT:.0f} % is times {times_as_much(MOONCAKE_PERCENT):.2f}"


CLAIMS = (
    Claim(
        "DeepSeek runs 32 GPUs for prefill and 320 for decode, about 1 to 10",
        "module",
        "the model's report names them as smallest units",
        _ratio,
        "true of units, false of the fleet",
    ),
    Claim(
        "the same GPUs do about 2.5 times as much",
        "module",
        "nothing on the split alone; near it: 2.54 (moving experts), 2.35 (another mix of GPUs)",
        lambda: "nothing to compute from: no load, no limits",
        "unsourced",
    ),
    Claim(
        "capacity grew about fivefold (498 %)",
        "module, as DeepSeek's",
        "Mooncake, one trace, the strictest of three limits",
        _gain,
        "real, of somebody else, and misread",
    ),
    Claim(
        "a million tokens cost about USD 0.20 to make",
        "module",
        "LMSYS, phases measured one by one, each with the other one free",
        _bill,
        "real, decode GPUs only, at their best",
    ),
    Claim(
        "... while an API sells them at about USD 1.00",
        "module",
        "a list price: it covers idle hours, input, staff and profit",
        _price,
        "a price beside a cost",
    ),
    Claim(
        "eight H200 went from 1 answer at once to 175 and more",
        "module",
        "no source",
        lambda: "lesson 11 bounds it from memory",
        "unsourced",
    ),
    Claim(
        "Kimi K2.7 wrote 288,000 tokens/s on 128 H200",
        "module",
        "LMSYS, of Kimi K2; nothing on K2.7",
        _kimi,
        "number right, name wrong",
    ),
    Claim(
        "NVIDIA's next platform has chips for prefill and for decode",
        "module",
        "Rubin CPX, announced in 2025, was pulled at GTC 2026 (as reported) for a decode chip",
        lambda: "nothing to compute",
        "out of date",
    ),
    Claim(
        "Tenstorrent decodes from fast memory on the chip, far cheaper",
        "module",
        "no measurement found",
        lambda: "no price and no rate to compute from",
        "unverified",
    ),
    Claim(
        "the split is for dozens of GPUs and more",
        "module",
        "DistServe points small fleets to serving without a split, AWS to large dense models",
        lambda: "lesson 09: one or two GPUs gain nothing",
        "sound as a rule of thumb",
    ),
    Claim(
        "long prompts to the split, short ones straight to the decoder",
        "announcement",
        "AWS documents such a router; the length at which it switches is not stated",
        lambda: "lesson 08: a length for each link and load",
        "confirmed",
    ),
    Claim(
        "not more GPUs, better placed",
        "announcement",
        "an argument, no figure",
        lambda: "see the fleet and the plans above",
        "holds for a given load and limit",
    ),
    Claim(
        "agents load decode",
        "vendor",
        "a trace of agents reads 98 % of its tokens",
        lambda: "lesson 10: depends on what is cached",
        "half of it",
    ),
    Claim(
        "both pools hold the weights",
        "vendor",
        "the same in every published system",
        lambda: "lesson 07 measured it",
        "confirmed",
    ),
)


def claims_table(computed: bool = True) -> Table:
    """The ledger: what is said and by whom, then either what a calculation says, or the source."""
    table: dict[str, list[object]] = {"claim": [claim.says for claim in CLAIMS]}
    if computed:
        table["a calculation says"] = [claim.computed() for claim in CLAIMS]
        table["verdict"] = [claim.verdict for claim in CLAIMS]
    else:
        table["told by"] = [claim.told_by for claim in CLAIMS]
        table["what was found"] = [claim.found for claim in CLAIMS]
    return table
