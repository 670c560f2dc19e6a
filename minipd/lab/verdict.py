"""What one run of the demo showed, in sentences that hold for that run and no other."""

from __future__ import annotations

from statistics import median

from minipd.lab.comparison import title
from minipd.measure.contest import is_chat
from minipd.measure.demo import Demo
from minipd.measure.metrics import run_metrics
from minipd.measure.real_hardware import H100X8
from minipd.measure.stalls import DEFAULT_K, find_stalls

ALIKE = 0.05  # ratios nearer to 1 than this are called the same
OVERHEAD_STEP_S = 0.005  # below it, messages and the system's hiccups weigh in every gap


def verdict(demo: Demo) -> list[str]:
    """What froze, what the split did to it, what it cost, and whether the answers are the same."""
    said = [_freeze(demo), _split(demo), *_better_than_split(demo), _beside(demo), _answers(demo)]
    step_s = demo.outcomes["colocated"].summary.undisturbed_step_s
    if step_s is not None and step_s < OVERHEAD_STEP_S:
        said.append(
            f"A decode step of {demo.model.name} takes {step_s * 1e3:.1f} ms here, so that what "
            "the workers and the system do beside it weighs in every gap: these figures say "
            "little about larger models."
        )
    return said


def _freeze(demo: Demo) -> str:
    colocated = demo.outcomes["colocated"]
    step_s = colocated.summary.undisturbed_step_s
    stalls = find_stalls(colocated.run.timeline, undisturbed_s=step_s)
    if not stalls:
        return (
            f"Colocated, no gap between tokens was longer than {DEFAULT_K:g} undisturbed steps: "
            "on this machine and with this model no document froze anybody."
        )
    worst = max(stalls, key=lambda stall: stall.longest_s)
    freeze = (
        f"Colocated, the longest freeze lasted {worst.longest_s * 1e3:.0f} ms, the time of "
        f"{worst.tokens:.0f} undisturbed tokens."
    )
    return f"{freeze} {_one_document(demo, worst.undisturbed_s)}"


def _one_document(demo: Demo, step_s: float) -> str:
    """A freeze may hold several documents and a hiccup of the system; this is one document's."""
    events = demo.outcomes["colocated"].run.timeline
    read = [r for r in run_metrics(events).requests if not is_chat(r.id) and r.prefill_s]
    if not read:
        return ""
    num_tokens = round(median(r.prompt_tokens for r in read))
    here, there = median(r.prefill_s for r in read) / step_s, H100X8.freeze_tokens(num_tokens)
    exaggerates = ": this machine exaggerates" if here > 1.5 * there else ""
    return (
        f"One document of {num_tokens} tokens costs everybody else on its worker {here:.1f} tokens "
        f"here and {there:.1f} on {H100X8.name}{exaggerates}; there, one of 8,192 costs "
        f"{H100X8.freeze_tokens(8192):.0f}."
    )


def _split(demo: Demo) -> str:
    ratio = demo.p99_itl_ratio()
    if ratio is None:
        return "The chats' gaps between tokens could not be compared: one side has none."
    if abs(ratio - 1) < ALIKE:
        return "Split, the chats' p99 gap between tokens is about the same as colocated."
    factor, word = (ratio, "shorter") if ratio > 1 else (1 / ratio, "longer")
    return (
        f"Split, the chats' p99 gap between tokens is {factor:.1f} times {word} than colocated, "
        f"and the stalled share of gaps {_stalled(demo, 'disaggregated')} instead of "
        f"{_stalled(demo, 'colocated')}."
    )


def _stalled(demo: Demo, name: str) -> str:
    return f"{100 * demo.outcomes[name].summary.stalled_share:.1f} %"


def _better_than_split(demo: Demo) -> list[str]:
    """Another way whose p99 gap was clearly shorter is named, whoever it is."""
    p99 = {n: o.summary.percentile_ms("itl_s", "p99") for n, o in demo.outcomes.items()}
    known = {name: value for name, value in p99.items() if value}
    if not known or "disaggregated" not in known:
        return []
    best = min(known, key=lambda name: known[name])
    if known["disaggregated"] <= (1 + ALIKE) * known[best]:
        return []
    return [
        f"The shortest p99 gap was that of {title(best)!r}: {known[best]:.0f} ms against "
        f"{known['disaggregated']:.0f} ms."
    ]


def _beside(demo: Demo) -> str:
    """What else changed from colocated to split, for better or worse."""
    colocated, split = (demo.outcomes[n].summary for n in ("colocated", "disaggregated"))
    chats = [s.percentile_ms("ttft_s", "p50") for s in (split, colocated)]
    documents = [demo.document_ttft_p50_ms(n) for n in ("disaggregated", "colocated")]
    share = split.handoffs.share_of_prefill
    moved = "" if share is None else f"; moving the KV took {100 * share:.1f} % of prefill time"
    return (
        f"Beside that, from colocated to split: median time to first token of the chats "
        f"{_change(*chats)}, of the documents {_change(*documents)}; output tokens per second "
        f"{_change(split.output_tokens_per_s, colocated.output_tokens_per_s)}{moved}."
    )


def _change(after: float | None, before: float | None) -> str:
    return (
        f"{100 * (after / before - 1):+.0f} %" if after is not None and before else "not measured"
    )


def _answers(demo: Demo) -> str:
    tokens = demo.tokens
    ways, leaked = f"{tokens.num_sequences} compared", f"{demo.leaked_blocks} blocks leaked."
    if tokens.num_different and any(o.summary.failed for o in demo.outcomes.values()):
        return f"{tokens.num_different} answers differ, as some requests failed ({ways})."
    if tokens.num_different:
        return f"{tokens.num_different} answers differ ({ways}): that is a fault of minipd."
    if tokens.near_ties:
        rule = "within" if tokens.passed else "more than"
        return (
            f"The answers are the same tokens in every mode ({ways}) but for {tokens.near_ties} "
            f"near-ties, {rule} the 1 % that the rule allows; {leaked}"
        )
    return f"The answers are the same tokens in every mode ({ways}); {leaked}"
