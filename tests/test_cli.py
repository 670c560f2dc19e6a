"""The commands: fast help without torch, one function per command, one sentence per error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import minipd
from minipd import cli

COMMANDS = ("doctor", "bench", "sheet", "demo", "run", "plan", "lab", "check", "quiz")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Replace every room's function by a recorder that answers what `calls.answer` holds."""
    seen: list[tuple[Any, ...]] = []

    def room(path: str, function: str) -> None:
        module = ModuleType(path)

        def record(*arguments: Any) -> bool:
            seen.append((function, *arguments))
            return True

        setattr(module, function, record)
        monkeypatch.setitem(sys.modules, path, module)

    room("minipd.measure.doctor", "run_doctor")
    room("minipd.measure.bench", "run_bench")
    room("minipd.measure.sheet", "show_sheet")
    room("minipd.lab.demo", "run_demo")
    room("minipd.lab.run", "run_plan")
    sys.modules["minipd.lab.run"].Plan = lambda **asked: asked  # type: ignore[attr-defined]
    room("minipd.fleet.check_steps", "run_check_steps")
    from minipd.fleet.plan_command import Asked
    from minipd.fleet.simulate_command import run_stats

    room("minipd.fleet.plan_command", "run_plan")
    planning = sys.modules["minipd.fleet.plan_command"]
    recorded = planning.run_plan

    def planned(*arguments):
        recorded(*arguments)
        return SimpleNamespace(best=True)

    planning.run_plan, planning.Asked = planned, Asked  # type: ignore[attr-defined]
    room("minipd.fleet.simulate_command", "run_simulate")
    sys.modules["minipd.fleet.simulate_command"].run_stats = run_stats  # type: ignore[attr-defined]
    room("minipd.lab.launch", "launch")
    room("minipd.lab.check", "run_check")
    room("minipd.lab.quiz_terminal", "run_quiz")
    room("minipd.lab.export", "export_quiz")
    return seen


def run_main(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Exit code of `minipd` with these arguments; a single string is split at its spaces."""
    words = arguments[0].split() if len(arguments) == 1 else list(arguments)
    monkeypatch.setattr(sys, "argv", ["minipd", *words])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    return int(stop.value.code or 0)


def fail_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Make `minipd doctor` raise `error`."""
    module = ModuleType("minipd.measure.doctor")

    def run_doctor(*_: Any) -> bool:
        raise error

    module.run_doctor = run_doctor  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "minipd.measure.doctor", module)


def test_help_is_instant_and_imports_no_torch():
    probe = (
        "import sys, minipd.cli\n"
        "sys.argv = ['minipd', '--help']\n"
        "try: minipd.cli.main()\n"
        "except SystemExit as stop: assert not stop.code\n"
        "heavy = {'torch', 'numpy', 'transformers', 'jupyterlab'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    seconds = []  # of processor time: waiting for a core is nobody's fault
    for _ in range(3):
        before = os.times()
        done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True)
        after = os.times()
        used = after.children_user + after.children_system
        seconds.append(used - before.children_user - before.children_system)
        assert done.returncode == 0, done.stderr
    assert min(seconds) < 2.0


def test_help_names_every_command_and_each_has_one_line_and_an_example():
    runner = CliRunner()
    listing = runner.invoke(cli.app, ["--help"]).stdout
    for name in COMMANDS:
        line = next(text for text in listing.splitlines() if text.strip().startswith(name + " "))
        assert line.rstrip().endswith("."), f"{name}: its one line is cut off: {line}"
        shown = runner.invoke(cli.app, [name, "--help"])
        assert shown.exit_code == 0
        assert f"Example: minipd {name}" in shown.stdout


def test_examples_in_the_help_are_accepted(calls, monkeypatch):
    for command in cli.app.registered_commands:
        example = str(command.epilog).removeprefix("Example: minipd ").split()
        assert run_main(monkeypatch, *example) == 0, example
    assert [call[0] for call in calls] == [
        "run_doctor",
        "run_bench",
        "show_sheet",
        "run_demo",
        "run_plan",
        "run_plan",
        "run_simulate",
        "launch",
        "run_check",
        "export_quiz",
    ]


def test_options_reach_the_function(calls, monkeypatch):
    run_main(monkeypatch, "doctor --quick --json d.json")
    run_main(
        monkeypatch,
        "bench --model tiny --device cuda --dtype bfloat16 --threads 2 --pin 0,1 "
        "--vs transformers --repetitions 3 --json b.json --no-sheet",
    )
    run_main(monkeypatch, "sheet --file s.jsonl --csv s.csv")
    run_main(monkeypatch, "lab --folder c --no-browser --port 9000 --with-solutions")
    run_main(monkeypatch, "check --all --folder c")
    run_main(monkeypatch, "quiz 00")
    run_main(monkeypatch, "quiz 01 --export qti --out q.zip")
    assert calls == [
        ("run_doctor", Path("d.json"), True),
        (
            "run_bench",
            *("tiny", "cuda", "bfloat16", 2, "0,1", "transformers", 3),
            *(Path("b.json"), False),
        ),
        ("show_sheet", Path("s.jsonl"), Path("s.csv")),
        ("launch", Path("c"), True, 9000, True),
        ("run_check", None, Path("c"), True),
        ("run_quiz", "00"),
        ("export_quiz", "01", "qti", Path("q.zip")),
    ]


def test_a_failed_check_is_exit_code_1(calls, monkeypatch):
    for module, function, arguments in (
        ("minipd.measure.doctor", "run_doctor", ["doctor"]),
        ("minipd.lab.check", "run_check", ["check", "00"]),
    ):
        monkeypatch.setattr(sys.modules[module], function, lambda *_: False)
        assert run_main(monkeypatch, *arguments) == 1


def test_check_without_a_lesson_says_what_to_name(calls, monkeypatch, capsys):
    assert run_main(monkeypatch, "check") == 2
    assert "minipd check 00" in capsys.readouterr().err
    assert calls == []


def test_an_unknown_command_suggests_the_nearest(monkeypatch, capsys):
    assert run_main(monkeypatch, "benhc") == 2
    assert "Did you mean 'bench'?" in capsys.readouterr().err


def test_version(monkeypatch, capsys):
    assert run_main(monkeypatch, "--version") == 0
    assert capsys.readouterr().out.strip() == f"minipd {minipd.__version__}"


class OursError(ValueError):
    """Stands for an error class of the package."""


OursError.__module__ = "minipd.somewhere"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OursError("Give it one word."), "minipd: Give it one word.\n"),
        (FileNotFoundError(2, "No such file or directory", "b.json"), "directory (b.json); set"),
        (RuntimeError("odd"), "RuntimeError: odd (set MINIPD_DEBUG=1"),
        (ModuleNotFoundError("No module named 'x'"), "install minipd again"),
    ],
)
def test_errors_become_one_sentence(monkeypatch, capsys, error, said):
    monkeypatch.delenv("MINIPD_DEBUG", raising=False)
    fail_with(monkeypatch, error)
    assert run_main(monkeypatch, "doctor") == (2 if isinstance(error, OursError) else 1)
    printed = capsys.readouterr()
    assert said in printed.err
    assert "Traceback" not in printed.err
    assert printed.err.count("\n") == 1
    assert printed.out == ""


def test_debug_shows_the_traceback(monkeypatch, capsys):
    monkeypatch.setenv("MINIPD_DEBUG", "1")
    fail_with(monkeypatch, OursError("Give it one word."))
    assert run_main(monkeypatch, "doctor") == 2
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    "error",
    [AssertionError("a broken\ninvariant"), TypeError("x" * 10_000), KeyError("a"), IndexError()],
)
def test_a_bug_is_one_sentence_that_does_not_blame_the_user(monkeypatch, capsys, error):
    monkeypatch.delenv("MINIPD_DEBUG", raising=False)
    fail_with(monkeypatch, error)
    assert run_main(monkeypatch, "doctor") == 1
    said = capsys.readouterr().err
    assert said.startswith(f"minipd: {type(error).__name__}: ") and said.count("\n") == 1
    assert "a fault of minipd, not yours (set MINIPD_DEBUG=1" in said and len(said) < 700


def test_too_little_memory_is_said_in_words(monkeypatch, capsys):
    monkeypatch.delenv("MINIPD_DEBUG", raising=False)
    fail_with(monkeypatch, MemoryError())
    assert run_main(monkeypatch, "doctor") == 1
    assert "not enough memory" in capsys.readouterr().err


def test_files_are_tried_before_a_command_begins(calls, monkeypatch, capsys, tmp_path):
    (tmp_path / "file").write_text("")
    folder, file = str(tmp_path), str(tmp_path / "file")
    for words in (
        ["doctor", "--json", folder],
        ["bench", "--json", folder],
        ["sheet", "--csv", folder],
        ["demo", "--json", folder],
        ["demo", "--folder", file],
        ["run", "--json", folder],
        ["run", "--pictures", file],
    ):
        assert run_main(monkeypatch, *words) == 2, words
        assert "choose another" in capsys.readouterr().err
    assert calls == []


def test_impossible_numbers_of_threads_are_refused(calls, monkeypatch, capsys):
    for count in ("0", "99999999999"):
        assert run_main(monkeypatch, "bench", "--threads", count) == 2
    assert calls == []


def test_ctrl_c_is_130_with_one_sentence(monkeypatch, capsys):
    fail_with(monkeypatch, KeyboardInterrupt())
    assert run_main(monkeypatch, "doctor") == 130
    assert capsys.readouterr().err == "minipd: stopped by Ctrl-C.\n"


def test_python_dash_m_works():
    done = subprocess.run(
        [sys.executable, "-m", "minipd", "--version"], capture_output=True, text=True
    )
    assert done.stdout.strip() == f"minipd {minipd.__version__}"


def test_limits_may_be_given_with_a_unit():
    from minipd.cli_options import seconds

    assert seconds("0.5") == seconds("0.5s") == seconds("500MS") == 0.5
    with pytest.raises(typer.BadParameter, match="write seconds, or 500ms"):
        seconds("soon")
