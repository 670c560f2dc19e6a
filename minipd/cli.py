"""The commands. Each one is a thin function that hands its options to one function in its room.

Rooms are imported inside the commands, so that `minipd --help` stays instant and needs no torch.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import Annotated, Literal

import typer

import minipd
from minipd.cli_course import CourseFolder, check, quiz
from minipd.cli_fleet import plan
from minipd.cli_options import Dtype, JsonFile, Model, is_refusal
from minipd.cli_serving import demo, run
from minipd.cli_simulate import simulate
from minipd.measure.outputs import probe_file

app = typer.Typer(
    name="minipd",
    help="minipd: watch a language model read (prefill) and write (decode), each measured apart.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

MAX_WORDS_CHARS = 500  # of somebody else's error message


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"minipd {minipd.__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """minipd: watch a language model read (prefill) and write (decode), each measured apart."""


@app.command(epilog="Example: minipd doctor --json doctor.json")
def doctor(
    json_path: JsonFile = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer repetitions.")] = False,
) -> None:
    """Check and measure this computer.

    Each check prints OK, NOTE (no obstacle) or FAIL with its remedy; then the two ceilings are
    measured, arithmetic (FLOP/s) and memory reads (GB/s). About a minute. Exit code 1 when a check
    FAILs.
    """
    probe_file(json_path)
    from minipd.measure.doctor import run_doctor

    if not run_doctor(json_path, quick):
        raise typer.Exit(1)


@app.command(epilog="Example: minipd bench --pin 0 --threads 1 --vs transformers --json bench.json")
def bench(
    model: Model = "smollm2-135m",
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:1.")] = "cpu",
    dtype: Dtype = "float32",
    threads: Annotated[
        int | None,
        typer.Option(min=1, max=4096, help="CPU threads (default: one per CPU allowed)."),
    ] = None,
    pin: Annotated[
        str | None, typer.Option(metavar="CPUS", help="Pin to these CPUs, like 0 or 0,2-3.")
    ] = None,
    vs: Annotated[
        Literal["transformers"] | None, typer.Option(help="Measure this engine side by side.")
    ] = None,
    repetitions: Annotated[
        int, typer.Option(min=1, help="Rounds: three runs of pp512, one of tg128 in each.")
    ] = 5,
    json_path: JsonFile = None,
    sheet: Annotated[bool, typer.Option(help="Add a line to your bench sheet.")] = True,
) -> None:
    """Measure prefill and decode apart.

    pp512: prefill tokens/s of a 512-token prompt; tg128: decode tokens/s over 128 steps; MFU and
    MBU: the shares of this computer's two ceilings, measured in the same run.
    """
    probe_file(json_path)
    from minipd.measure.bench import run_bench

    run_bench(model, device, dtype, threads, pin, vs, repetitions, json_path, sheet)


@app.command(epilog="Example: minipd sheet --csv my-sheet.csv")
def sheet(
    path: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="Another sheet than your own.")
    ] = None,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Export it for a spreadsheet.")
    ] = None,
) -> None:
    """Show your bench sheet.

    It holds one line for every bench run on this computer.
    """
    probe_file(csv)
    from minipd.measure.sheet import show_sheet

    show_sheet(path, csv)


app.command(epilog="Example: minipd demo --json demo.json")(demo)
app.command(epilog="Example: minipd run --mode colocated --mode disaggregated --rate 0.5")(run)
PLAN_EXAMPLE = (
    "Example: minipd plan --model Llama-3.1-70B --gpu H100 --isl 4000 --osl 300 --ttft 2 "
    "--tpot 50ms --rate 8"
)
app.command(epilog=PLAN_EXAMPLE)(plan)
app.command(
    epilog="Example: minipd simulate --prefill 2 --decode 2 --rate 40 --ttft 0.5 --tpot 0.02"
)(simulate)


@app.command(epilog="Example: minipd lab --folder my-course")
def lab(
    folder: CourseFolder = Path("my-course"),
    no_browser: Annotated[
        bool, typer.Option("--no-browser", help="Only print the address.")
    ] = False,
    port: Annotated[int, typer.Option(min=1, max=65535, help="First port to try.")] = 8888,
    with_solutions: Annotated[
        bool, typer.Option("--with-solutions", help="Copy the solution notebooks too.")
    ] = False,
) -> None:
    """Open the course in JupyterLab.

    Works on a copy in your own folder. Run it again after an update: notebooks you have not
    changed are brought up to date, and your own work is kept.
    """
    from minipd.lab.launch import launch

    launch(folder, no_browser, port, with_solutions)


app.command(epilog="Example: minipd check 00")(check)
app.command(epilog="Example: minipd quiz 00 --export gift --out quiz-00.gift")(quiz)


def explain(error: Exception) -> str:
    """One sentence for a user: what went wrong, and for foreign errors how to learn more."""
    if type(error).__module__.startswith("minipd."):
        return str(error)
    words = " ".join(str(error).split())  # foreign messages may be long, and in several lines
    said = words if len(words) <= MAX_WORDS_CHARS else f"{words[:MAX_WORDS_CHARS]}..."
    more = "set MINIPD_DEBUG=1 and run it again to see where it happened"
    if isinstance(error, OSError) and error.strerror:
        where = f" ({error.filename})" if error.filename else ""
        return f"{error.strerror}{where}; {more}."
    if isinstance(error, ImportError):
        return f"{said}: a package is missing or broken; install minipd again, or {more}."
    if isinstance(error, MemoryError):
        return f"There is not enough memory for this; ask for less, or {more}."
    if isinstance(error, (ValueError, RuntimeError, OSError)):
        return f"{type(error).__name__}: {said} ({more})."
    return f"{type(error).__name__}: {said}; this is a fault of minipd, not yours ({more})."


def main() -> None:
    """Run one command; an error becomes one sentence on stderr and exit code 1, or 2 where it lies
    in what the user gave (Ctrl-C: 130)."""
    try:
        app(prog_name="minipd")
    except Exception as error:
        if os.environ.get("MINIPD_DEBUG") == "1":
            traceback.print_exc()
        else:
            typer.echo(f"minipd: {explain(error)}", err=True)
        sys.exit(2 if is_refusal(error) else 1)
    except SystemExit as stop:
        if stop.code == 130:  # typer turns Ctrl-C into this code without a word
            typer.echo("minipd: stopped by Ctrl-C.", err=True)
        raise
