"""Are the answers the same in every mode? Many requests of mixed lengths, by architecture's rule 3.

    python benchmarks/same_tokens.py --requests 300 --json benchmarks/raw/same_tokens.json

serves one generated trace colocated, chunked and disaggregated (directly, and over an emulated
network) on two real workers, and compares every answer with the first mode's. Exits with 1 when
answers differ beyond near-ties, or when a block leaked.
"""

from __future__ import annotations

import argparse
import random
import sys
from dataclasses import asdict, replace
from pathlib import Path

from minipd.measure.contest import (
    CHUNKED,
    COLOCATED,
    DISAGGREGATED,
    compare_tokens,
    fair_pair,
    hold,
    split_cores,
)
from minipd.measure.machine import describe_machine
from minipd.measure.report import progress_bar, write_json
from minipd.measure.same_tokens import logits_of
from minipd.model.load import load
from minipd.pools.cluster import Cluster
from minipd.pools.links.emulated import network
from minipd.request import Request, SamplingParams
from minipd.timeline import TERMINAL_KINDS


def mixed_requests(count: int, vocab_size: int, seed: int) -> list[Request]:
    """Mostly short prompts, some of hundreds of tokens, all at once in the queue."""
    draw = random.Random(f"same tokens {seed}")
    requests: list[Request] = []
    for number in range(count):
        length = draw.choice([1, 15, 16, 17, 31, 32, 48, 64, draw.randint(2, 100), 300])
        prompt = tuple(draw.randrange(vocab_size) for _ in range(length))
        sampling = SamplingParams(draw.randint(1, 24), ignore_eos=True)
        requests.append(Request(f"mixed-{number:03d}", prompt, sampling, 0.01 * number))
    return requests


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--network", default="eth10")
    parser.add_argument("--json", type=Path, help="file for the verdict and the counts")
    options = parser.parse_args()
    model, cores = load(options.model), split_cores(2)
    requests = mixed_requests(options.requests, model.config.vocab_size, options.seed)
    setup = fair_pair(model, requests, cores)
    modes = [COLOCATED, CHUNKED, DISAGGREGATED]
    with progress_bar() as progress:
        task = progress.add_task("requests", total=4 * len(requests))

        def count(_contender: object, event: object) -> None:
            if getattr(event, "kind", "") in TERMINAL_KINDS:
                progress.advance(task)

        with Cluster(setup) as cluster:
            outcomes = hold(cluster, modes, requests, keep=None, on_event=count)
        wired = replace(setup, network=network(options.network))
        with Cluster(wired) as cluster:
            over = hold(cluster, [DISAGGREGATED], requests, keep=None, on_event=count)
    outcomes[f"disaggregated over {options.network}"] = over["disaggregated"]
    verdict = compare_tokens(requests, outcomes, logits_of(model.decoder))
    leaked = sum(sum(o.run.leaked_blocks.values()) for o in outcomes.values())
    found = {
        "machine": describe_machine().to_dict(),
        "model": {"name": model.name, "fingerprint": model.fingerprint},
        "requests": len(requests),
        "ways": list(outcomes),
        "comparison": asdict(verdict),
        "passed": verdict.passed,
        "leaked_blocks": leaked,
    }
    print(verdict, f"leaked blocks: {leaked}")
    if options.json:
        write_json(options.json, found)
    return 0 if verdict.passed and not leaked else 1


if __name__ == "__main__":
    sys.exit(main())
