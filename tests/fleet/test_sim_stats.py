"""`minipd simulate --stats`: a trace's figures, and what prefixes its prompts share."""

from __future__ import annotations

import json
import os
from pathlib import Path
from random import Random

import pytest

from tests.fleet.test_sim_command import mooncake_file, run

# Third-party data is read from where it lies, as in tests/measure/test_traces.py.
SHARED = Path(os.environ.get("MINIPD_TRACES", Path(__file__).parents[2].parent / "shared/traces"))
MOONCAKE = SHARED / "mooncake_synthetic.jsonl"


def test_statistics_of_a_trace(tmp_path: Path) -> None:
    out = tmp_path / "stats.json"
    words = run("--trace", str(mooncake_file(tmp_path)), "--stats", "--json", str(out))
    told = json.loads(out.read_text("utf-8"))
    assert told["requests"] == 3 and told["span_s"] == 3.0
    assert told["prefix_hits"]["token_weighted"] == pytest.approx(1024 / 3500)
    assert told["prefix_hits"]["per_request"] == pytest.approx(1024 / 1400 / 3)
    assert "prefix hits, token-weighted" in words


def test_two_averages_of_a_generated_trace(tmp_path: Path) -> None:
    """Many short prompts of their own and few long ones that share most of theirs: of the tokens
    most could be reused, of the average request little. Counted here in a plain way as well."""
    rng, seen, out = Random(4), set[int](), tmp_path / "stats.json"
    total, shared, shares, lines = 0, 0, list[float](), list[str]()
    for n in range(300):
        length, ids = rng.randint(100, 900), [10_000 + n]
        if n % 3 == 0:
            document, pages = rng.randrange(5), rng.randint(20, 40)
            ids = [1000 * document + page for page in range(pages)] + ids
            length = 512 * pages + rng.randint(1, 512)
        ids = ids[: -(-length // 512)]
        while len(ids) < -(-length // 512):
            ids.append(20_000 + n)
        hits = next((k for k, name in enumerate(ids) if name not in seen), len(ids))
        seen.update(ids)
        shared += 512 * hits
        shares.append(512 * hits / length)
        total += length
        row = {"timestamp": 250 * n, "input_length": length, "output_length": 9, "hash_ids": ids}
        lines.append(json.dumps(row) + "\n")
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(lines), "utf-8")
    run("--trace", str(path), "--stats", "--json", str(out))
    told = json.loads(out.read_text("utf-8"))
    hits = told["prefix_hits"]
    assert hits["token_weighted"] == pytest.approx(shared / total)
    assert hits["per_request"] == pytest.approx(sum(shares) / 300)
    assert hits["token_weighted"] > hits["per_request"] + 0.3
    assert told["rate_per_s"] == pytest.approx(300 / (299 * 0.25))


@pytest.mark.skipif(not MOONCAKE.is_file(), reason="needs MINIPD_TRACES, a folder with the trace")
def test_mooncakes_two_averages(tmp_path: Path) -> None:
    """Facts section 5: 65.1 % of the tokens, 43.2 % of the average request."""
    out = tmp_path / "stats.json"
    run("--trace", str(MOONCAKE), "--stats", "--json", str(out))
    told = json.loads(out.read_text("utf-8"))
    assert told["requests"] == 3993
    assert told["prefix_hits"]["token_weighted"] == pytest.approx(0.651, abs=0.0005)
    assert told["prefix_hits"]["per_request"] == pytest.approx(0.432, abs=0.0005)
    assert told["rate_per_s"] == pytest.approx(3.907, abs=0.001)
