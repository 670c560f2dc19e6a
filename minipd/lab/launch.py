"""`minipd lab`: the learner's copy of the course, the model, and JupyterLab on the first lesson."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from minipd.lab.deliver import Delivery, DeliveryError, deliver, read_manifest
from minipd.paths import course_root

DEFAULT_MODEL = "smollm2-135m"


def course_to_copy() -> Path:
    """The built course of this installation; raises `DeliveryError` when it was never built."""
    root = course_root()
    if root is None:
        raise DeliveryError(
            "The course notebooks are not in this installation; install minipd again, or build "
            "them in a checkout with `python -m course.build`."
        )
    return root


def report(deliveries: Sequence[Delivery], folder: Path) -> list[str]:
    """What a learner should know about a delivery: one line each, nothing when nothing changed."""
    new = sum(d.action == "new" for d in deliveries)
    lines = [f"{new} new files in {folder}."] if new else []
    for d in deliveries:
        if d.action == "updated":
            lines.append(f"{d.name} was brought up to date.")
        if d.action == "beside":
            lines.append(f"You changed {d.name}: it stays; the new version is {d.written.name}.")
        if d.backup:
            lines.append(f"Your run of the earlier {d.name} is in {d.backup.name}.")
    return lines


def first_lesson(folder: Path) -> str:
    """Path of the lowest-numbered lesson, relative to `folder`, with forward slashes."""
    lessons = sorted((folder / "notebooks").glob("[0-9][0-9]_*.ipynb"))
    if not lessons:
        raise DeliveryError(f"{folder} holds no lesson; delete it and run `minipd lab` again.")
    return f"notebooks/{lessons[0].name}"


def lab_arguments(folder: Path, lesson: str, *, no_browser: bool, port: int) -> list[str]:
    """Arguments for JupyterLab: this machine only, access token on, opening at `lesson`."""
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0  # containers; refused by default
    return [
        "--ServerApp.ip=127.0.0.1",
        f"--ServerApp.port={port}",
        f"--ServerApp.root_dir={folder.resolve()}",
        f"--LabApp.default_url=/lab/tree/{lesson}",
        *(["--no-browser"] if no_browser else []),
        *(["--allow-root"] if is_root else []),
    ]


def fetch_model(console: Console) -> None:
    """Have the default model on this computer before the first lesson asks for it.

    Without it the lab still opens: the lessons can be read, and they fetch it themselves later.
    """
    from minipd.model.load import find_folder

    try:
        find_folder(DEFAULT_MODEL)
    except (OSError, RuntimeError, ValueError) as error:
        console.print(f"The model {DEFAULT_MODEL} is not here yet: {error}", style="yellow")
        console.print("Opening the course all the same; cells that need the model will say so.")


def launch(folder: Path, no_browser: bool, port: int, with_solutions: bool = False) -> None:
    """Bring `folder` up to date, fetch the model, and serve JupyterLab until Ctrl-C."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    folder = folder.expanduser()
    if unreadable := read_manifest(folder)[1]:
        console.print(unreadable, markup=False)
    for line in report(deliver(course_to_copy(), folder, with_solutions=with_solutions), folder):
        console.print(line)
    lesson = first_lesson(folder)
    fetch_model(console)
    console.print(f"Opening {lesson} in JupyterLab; stop it with Ctrl-C, then y.")
    _serve(lab_arguments(folder, lesson, no_browser=no_browser, port=port))


def _serve(arguments: list[str]) -> None:
    """Run JupyterLab in this process, so that stopping it leaves no server behind."""
    settings = str(Path(__file__).with_name("jupyter"))
    before = os.environ.get("JUPYTER_CONFIG_PATH")
    os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join([settings, *([before] if before else [])])
    sys.argv[:] = ["jupyter-lab", *arguments]  # extensions read it to find their own options
    from jupyterlab.labapp import LabApp  # pyright: ignore[reportMissingTypeStubs]

    LabApp.launch_instance(arguments)
