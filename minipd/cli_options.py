"""Options that several commands share, and how a command refuses bad input."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer

from minipd.measure.outputs import OutputError
from minipd.measure.slo import seconds_of

JsonFile = Annotated[
    Path | None,
    typer.Option("--json", metavar="FILE", help="Also write all of it as JSON."),
]
Model = Annotated[str, typer.Option(help="Built-in name, folder, GGUF file or hub id.")]
Dtype = Annotated[
    Literal["float32", "bfloat16", "float16"], typer.Option(help="Type of the weights.")
]
Network = Annotated[
    str | None,
    typer.Option(
        help="Emulated: nvlink4, ib400, efa400, roce100, eth25, eth10, eth1, or bytes/s:seconds."
    ),
]


def seconds(text: str) -> float:
    """`0.5`, `0.5s` and `500ms` are the same time; one that is no limit is refused later."""
    try:
        return seconds_of(text)
    except ValueError:
        raise typer.BadParameter(f"{text[:40]!r} is no time; write seconds, or 500ms.") from None


FirstTokenLimit = Annotated[
    float | None,
    typer.Option(
        "--ttft", parser=seconds, metavar="TIME", help="SLO of the first token: seconds, or 500ms."
    ),
]
TokenLimit = Annotated[
    float | None,
    typer.Option(
        "--tpot", parser=seconds, metavar="TIME", help="SLO per further token: seconds, or 50ms."
    ),
]


def is_refusal(error: Exception) -> bool:
    """Whether it says that what the user gave cannot be used, and not that something failed."""
    is_ours = type(error).__module__.startswith("minipd.")
    return is_ours and isinstance(error, (ValueError, OutputError))


@contextmanager
def refusals() -> Generator[None]:
    """Bad input ends the command with one sentence and exit code 2, as a misspelt option does."""
    try:
        yield
    except (ValueError, OutputError) as error:
        if not is_refusal(error) or os.environ.get("MINIPD_DEBUG") == "1":
            raise
        typer.echo(f"minipd: {error}", err=True)
        raise typer.Exit(2) from error
