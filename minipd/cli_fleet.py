"""The commands that plan fleets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from minipd.cli_options import JsonFile
from minipd.measure.outputs import probe_file


def plan(
    check_steps: Annotated[
        Path | None,
        typer.Option(
            "--check-steps",
            metavar="FILE",
            help="Compare the step-time model with a JSON file of reference step times.",
        ),
    ] = None,
    json_path: JsonFile = None,
) -> None:
    """Plan a fleet from a model of step times.

    --check-steps FILE shows how far that model is from measured steps. Devices it has factors for
    use those; for any other device, each row is predicted from the file's other rows.
    """
    probe_file(json_path)
    if check_steps is None:
        raise typer.BadParameter("say what to do, like --check-steps FILE.")
    from minipd.fleet.check_steps import run_check_steps

    typer.echo(run_check_steps(check_steps, json_path))
