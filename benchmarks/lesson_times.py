"""How long each lesson takes from its first cell to its last, as a learner runs it.

    python benchmarks/lesson_times.py --json benchmarks/raw/lesson_times.json

runs the notebooks one after another, each in a kernel and a folder of its own, and exits with 1
when one takes more than two minutes or fails. Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import nbformat
import psutil
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from minipd.measure.machine import describe_machine
from minipd.measure.report import write_json

LIMIT_S = 120.0
LESSONS = Path(__file__).parents[1] / "notebooks"
OURS = ("MINIPD_PROGRESS", "MINIPD_SHEET")  # the learner's files stay as they are


def run(notebook: Path) -> dict[str, Any]:
    """Seconds of one lesson, the load before it, and the error that ended it, if any."""
    load = psutil.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="minipd-") as folder:
        for name in OURS:
            os.environ[name] = str(Path(folder) / name.lower())
        client = NotebookClient(
            nbformat.read(notebook, 4),  # pyright: ignore[reportUnknownMemberType]
            timeout=None,
            kernel_name="python3",
            resources={"metadata": {"path": folder}},
        )
        began, error = time.monotonic(), None
        try:
            client.execute()
        except CellExecutionError as failed:
            error = str(failed)[-500:]
    return {"seconds": time.monotonic() - began, "load_before": load, "error": error}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", nargs="*", default=[], metavar="NN", help="lessons, like 03 11")
    parser.add_argument("--json", type=Path, help="file for the seconds")
    options = parser.parse_args()
    os.environ.pop("OMP_NUM_THREADS", None)
    found: dict[str, dict[str, Any]] = {}
    for notebook in sorted(LESSONS.glob("*.ipynb")):
        if not options.only or notebook.name[:2] in options.only:
            one = found[notebook.stem] = run(notebook)
            print(f"{notebook.stem}: {one['seconds']:.0f} s {one['error'] or ''}", flush=True)
    if options.json:
        head = {"machine": describe_machine().to_dict(), "limit_s": LIMIT_S}
        write_json(options.json, head | {"lessons": found})
    bad = [name for name, one in found.items() if one["error"] or one["seconds"] > LIMIT_S]
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
