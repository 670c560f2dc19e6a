"""The bars of the hand-off: a 512-token prompt on one pinned core, its KV to another core's worker.

    python benchmarks/handoff.py --json benchmarks/raw/handoff.json

runs a real cluster of two processes and reads its timelines. Over shared memory, copy, digest and
verification together may take 1.5 % of the prefill; over an emulated 1 Gbit/s network, with layers
sent while later ones are computed, 10 % of the link's time may stick out behind the prefill. Exits
with 1 when a bar is missed. Nothing else should run meanwhile: see `load_average` in the record.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minipd.measure.links import LinkFit
from minipd.measure.machine import describe_machine, usable_cpus
from minipd.measure.report import progress_bar, write_json
from minipd.measure.stats import Samples, paired_ratios
from minipd.pools.cluster import Cluster, Run
from minipd.pools.links.emulated import network
from minipd.pools.setup import Setup
from minipd.request import Request, SamplingParams
from minipd.sched.router import Route, WorkerLoad
from minipd.timeline import Event

PROMPT_TOKENS = 512
SHARE_BAR, EXPOSED_BAR = 0.015, 0.10
READER, WRITER = "worker-0", "worker-1"


class OnReader:
    """Every request on the first worker alone: what a prefill takes without a hand-off."""

    def route(
        self, num_tokens: int, readers: Sequence[WorkerLoad], writers: Sequence[WorkerLoad]
    ) -> Route:
        return Route(READER, None, "measured alone")


@dataclass(frozen=True, slots=True)
class HandOff:
    """One prompt's times, seconds. `step_s` is its prefill step, with what the link did in it."""

    step_s: float
    copy_s: float  # copy and digest, as the sender saw them
    verify_s: float
    exposed_s: float
    num_bytes: int


def request(name: str, tokens: int, max_tokens: int, at_s: float = 0.0) -> Request:
    ids = tuple(random.Random(name).choices(range(100, 40_000), k=tokens))
    return Request(name, ids, SamplingParams(max_tokens, ignore_eos=True), at_s)


def only(run: Run, kind: str, request_id: str) -> Event:
    (event,) = [e for e in run.timeline if e.kind == kind and e.request_id == request_id]
    return event


def number(event: Event, name: str) -> float:
    return float(str(event.data[name]))


def prefill_step_s(run: Run) -> float:
    """Seconds of the step that read the prompt."""
    steps = [e for e in run.timeline if e.kind == "step" and number(e, "prefill_tokens")]
    assert len(steps) == 1 and number(steps[0], "prefill_tokens") == PROMPT_TOKENS, steps
    return steps[0].t_s - number(steps[0], "start_s")


def hand_off(cluster: Cluster, name: str) -> HandOff:
    run = cluster.run([request(name, PROMPT_TOKENS, 2)])
    sent, committed = only(run, "handoff_finished", name), only(run, "committed", name)
    return HandOff(
        prefill_step_s(run),
        number(sent, "copy_s"),
        number(committed, "verify_s"),
        number(sent, "exposed_s"),
        int(number(sent, "bytes")),
    )


def alone(cluster: Cluster, name: str) -> float:
    return prefill_step_s(cluster.run([request(name, PROMPT_TOKENS, 1)]))


def over_shared_memory(cluster: Cluster, rounds: int) -> Iterator[tuple[HandOff, float]]:
    """Each round: one prompt handed off, and another read on the same core without a hand-off."""
    for number_ in range(rounds):
        cluster.reconfigure("disaggregated")
        sent = hand_off(cluster, f"sent {number_}")
        cluster.reconfigure("colocated", OnReader())
        yield sent, alone(cluster, f"alone {number_}")


def gaps_beside(cluster: Cluster) -> tuple[list[float], list[float]]:
    """Token gaps of running answers: while a prompt's KV arrives, and while nothing arrives."""
    chats = [request(f"chat {n}", 32, 250) for n in range(4)]
    prompts = [request(f"prompt {n}", PROMPT_TOKENS, 2, 2.0 + 2.5 * n) for n in range(3)]
    run = cluster.run([*chats, *prompts])
    busy = [
        (only(run, "handoff_started", p.id).t_s, only(run, "committed", p.id).t_s) for p in prompts
    ]
    reading = [(only(run, "prefill_started", p.id).t_s, end) for p, (_, end) in zip(prompts, busy)]
    last_chat_came = max(only(run, "committed", c.id).t_s for c in chats)
    during: list[float] = []
    quiet: list[float] = []
    for chat in chats:
        times = [e.t_s for e in run.timeline if e.kind == "token" and e.request_id == chat.id]
        for start, end in zip(times, times[1:]):
            if any(start < stop and end > begin for begin, stop in busy):
                during.append(end - start)
            elif start > last_chat_came and not any(
                start < stop and end > begin for begin, stop in reading
            ):
                quiet.append(end - start)
    return during, quiet


def described(values: Sequence[float]) -> dict[str, Any]:
    return Samples(tuple(values)).to_dict()


def percentile(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def shared_memory_record(rounds: list[tuple[HandOff, float]]) -> dict[str, Any]:
    sent = [x for x, _ in rounds]
    without = [x.step_s - x.copy_s for x in sent]
    return {
        "bytes": sent[0].num_bytes,
        "prefill_s": described(without),
        "copy_and_digest_s": described([x.copy_s for x in sent]),
        "verify_s": described([x.verify_s for x in sent]),
        "exposed_s": described([x.exposed_s for x in sent]),
        "share_of_prefill": described(
            [(x.copy_s + x.verify_s) / base for x, base in zip(sent, without)]
        ),
        "prefill_alone_s": described([y for _, y in rounds]),
        "prefill_with_over_alone": paired_ratios(
            [x.step_s for x in sent], [y for _, y in rounds]
        ).to_dict(),
    }


def gaps_record(during: list[float], quiet: list[float]) -> dict[str, Any]:
    return {
        name: {
            "count": len(values),
            "median_s": statistics.median(values),
            "p99_s": percentile(values, 0.99),
            "max_s": max(values),
        }
        for name, values in (("during", during), ("quiet", quiet))
    } | {"median_ratio": statistics.median(during) / statistics.median(quiet)}


def network_record(name: str, sent: list[HandOff]) -> dict[str, Any]:
    emulated = network(name)
    link = LinkFit(emulated.latency_s, emulated.bytes_per_s)
    return {
        "network": name,
        "link_s": link.seconds(sent[0].num_bytes),
        "prefill_s": described([x.step_s for x in sent]),
        "exposed_s": described([x.exposed_s for x in sent]),
        "exposed_share": described([x.exposed_s / link.seconds(x.num_bytes) for x in sent]),
    }


def measure(model: str, rounds: int, network_name: str) -> dict[str, Any]:
    cores = usable_cpus()[:2]
    cpus = tuple((core,) for core in cores) if len(cores) == 2 else ()
    setup = Setup(model=model, num_blocks=512, cpus=cpus, prefix_reuse=False)
    machine = describe_machine().to_dict()
    with progress_bar() as bar:
        task = bar.add_task("shared memory", total=2 * rounds + 1)
        pairs: list[tuple[HandOff, float]] = []
        with Cluster(setup) as cluster:
            notes = cluster.notes
            for pair in over_shared_memory(cluster, rounds + 1):
                pairs.append(pair)
                bar.advance(task)
            cluster.reconfigure("disaggregated")
            gaps = gaps_beside(cluster)
        bar.update(task, description=network_name)
        slow = Setup(
            model=model,
            num_blocks=512,
            cpus=cpus,
            prefix_reuse=False,
            network=network(network_name),
        )
        sent: list[HandOff] = []
        with Cluster(slow) as cluster:
            for n in range(rounds + 1):
                sent.append(hand_off(cluster, f"slow {n}"))
                bar.advance(task)
    return {
        "machine": machine,
        "model": model,
        "prompt_tokens": PROMPT_TOKENS,
        "notes": notes,
        "shared_memory": shared_memory_record(pairs[1:]),  # the first round warms up
        "token_gaps_of_4_running_answers": gaps_record(*gaps),
        "emulated": network_record(network_name, sent[1:]),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--network", default="eth1")
    parser.add_argument("--json", type=Path, help="file for the raw samples")
    options = parser.parse_args()
    record = measure(options.model, options.rounds, options.network)
    share = record["shared_memory"]["share_of_prefill"]["median"]
    exposed = record["emulated"]["exposed_share"]["median"]
    gaps = record["token_gaps_of_4_running_answers"]
    if options.json:
        write_json(options.json, record)
    print(f"hand-off over prefill       {share:7.2%}  bar {SHARE_BAR:.1%}")
    print(f"exposed over link time      {exposed:7.2%}  bar {EXPOSED_BAR:.0%} ({options.network})")
    slower = record["shared_memory"]["prefill_with_over_alone"]["median"]
    print(f"prefill with over without   {slower:7.3f}")
    print(f"token gap during over quiet {gaps['median_ratio']:7.3f}")
    return 0 if share <= SHARE_BAR and exposed <= EXPOSED_BAR else 1


if __name__ == "__main__":
    sys.exit(main())
