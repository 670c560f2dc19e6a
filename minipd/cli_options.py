"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

JsonFile = Annotated[
    Path | None, typer.Option("--json", metavar="FILE", help="Also write raw samples as JSON.")
]
Model = Annotated[str, typer.Option(help="Built-in name, folder, GGUF file or hub id.")]
Dtype = Annotated[
    Literal["float32", "bfloat16", "float16"], typer.Option(help="Type of the weights.")
]
Network = Annotated[
    str | None,
    typer.Option(help="Emulated: nvlink4, ib400, efa400, roce100, eth25, eth10, eth1 or B/s:s."),
]
