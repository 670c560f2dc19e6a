"""The commands that plan fleets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from minipd.cli_options import JsonFile, refusals
from minipd.measure.outputs import probe_file, probe_folder


def plan(
    model: Annotated[
        str | None, typer.Option(help="Name, like Llama-3.1-70B, or path of a config.json.")
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(help="Name, like H100, or `this machine` with --bench.")
    ] = None,
    isl: Annotated[int | None, typer.Option(help="Tokens of a prompt.")] = None,
    osl: Annotated[int | None, typer.Option(help="Tokens of an answer.")] = None,
    ttft: Annotated[
        str | None, typer.Option(help="Limit on the time to first token: seconds, or 500ms.")
    ] = None,
    tpot: Annotated[
        str | None, typer.Option(help="Limit on the time per output token: seconds, or 50ms.")
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Requests per second.")] = None,
    prefix_hit: Annotated[
        float, typer.Option("--prefix-hit", help="Share of prompt tokens that are cached.")
    ] = 0.0,
    attainment: Annotated[float, typer.Option(help="Share of requests within each limit.")] = 0.9,
    link: Annotated[
        str, typer.Option(help="auto, infiniband_400, ethernet_25, ... or bytes/s.")
    ] = "auto",
    gpus: Annotated[int, typer.Option(help="At most so many GPUs.")] = 4096,
    price: Annotated[float | None, typer.Option(help="USD per GPU-hour.")] = None,
    dtype: Annotated[
        str | None, typer.Option(help="Weights: bfloat16, fp8, ...; else as published.")
    ] = None,
    bench: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What `minipd bench --json` wrote.")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Simulate the plan on a generated trace.")
    ] = False,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Simulate the plan on this trace.")
    ] = None,
    skip_bad_lines: Annotated[
        bool, typer.Option("--skip-bad-lines", help="Leave out a trace's unusable lines, counted.")
    ] = False,
    compare: Annotated[
        str | None, typer.Option(help="aiconfigurator: show its answer beside this one.")
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Let AIConfigurator write deployment files for the plan."),
    ] = None,
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
    """Plan a fleet: the cheapest GPUs that keep your SLOs, and whether to split prefill off.

    Tries tensor, pipeline and expert parallelism, batches and numbers of workers, with both phases
    on each worker and with a pool for each. Exit code 1 when nothing keeps the SLOs (then the
    nearest ones are shown), 2 when the input cannot be used.

    --check-steps FILE shows how far the model of step times is from measured ones. Devices it has
    factors for use those; for any other device, each row is predicted from the file's other rows.
    """
    with refusals():
        probe_file(json_path)
        probe_folder(export)
    if check_steps is not None:
        from minipd.fleet.check_steps import run_check_steps

        with refusals():
            typer.echo(run_check_steps(check_steps, json_path))
        return
    given = {
        "--model": model,
        "--gpu": gpu,
        "--isl": isl,
        "--osl": osl,
        "--ttft": ttft,
        "--tpot": tpot,
        "--rate": rate,
    }
    _need(given)
    from minipd.fleet.plan_command import Asked, run_plan

    assert model and gpu and ttft and tpot, "checked above"
    assert isl is not None and osl is not None and rate is not None, "checked above"
    asked = Asked(
        model,
        gpu,
        isl,
        osl,
        ttft,
        tpot,
        rate,
        prefix_hit,
        attainment,
        link,
        gpus,
        price,
        dtype,
        bench,
        verify,
        trace,
        compare,
        export,
        skip_bad_lines,
    )
    with refusals():
        found = run_plan(asked, json_path)
    if found.best is None:
        raise typer.Exit(1)


def _need(given: Mapping[str, object]) -> None:
    """What `plan` cannot do without, unless it only checks step times."""
    missing = [name for name, value in given.items() if value is None or value == ""]
    if missing:
        raise typer.BadParameter(
            f"give {', '.join(missing)} too (or --check-steps FILE); `minipd plan --help` has an "
            "example."
        )
