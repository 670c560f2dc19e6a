"""Which model a lesson loads on machines of different sizes."""

import pytest

from minipd.lab import model_choice
from minipd.model.load import BUILT_IN


@pytest.fixture
def machine(monkeypatch):
    """Pretend to be a machine with so much memory, and perhaps a container's limit."""
    monkeypatch.delenv(model_choice.VARIABLE, raising=False)

    def pretend(total_gb, limit_gb=None):
        memory = type("Memory", (), {"total": int(total_gb * 1e9)})()
        limit = None if limit_gb is None else int(limit_gb * 1e9)
        monkeypatch.setattr(model_choice.psutil, "virtual_memory", lambda: memory)
        monkeypatch.setattr(model_choice.hardware, "memory_limit_bytes", lambda: limit)

    return pretend


@pytest.mark.parametrize(
    ("total_gb", "limit_gb", "name"),
    [(16, None, "smollm2-135m"), (4, None, "smollm2-135m"), (3.9, None, "mini"), (64, 2, "mini")],
)
def test_memory_decides(machine, total_gb, limit_gb, name):
    machine(total_gb, limit_gb)
    chosen, sentence = model_choice.lesson_model()
    assert chosen == name and name in BUILT_IN
    assert f"{min(total_gb, limit_gb or total_gb):.1f} GB" in sentence
    assert ("mean nothing" in sentence) == (name == "mini")


def test_a_limit_beyond_the_memory_changes_nothing(machine):
    machine(3, 100)
    assert model_choice.lesson_model()[0] == "mini"


def test_the_learner_may_overrule(machine, monkeypatch):
    machine(64)
    monkeypatch.setenv(model_choice.VARIABLE, " mini ")
    chosen, sentence = model_choice.lesson_model()
    assert chosen == "mini" and model_choice.VARIABLE in sentence


def test_this_machine_gets_one_of_the_two(monkeypatch):
    monkeypatch.delenv(model_choice.VARIABLE, raising=False)
    assert model_choice.lesson_model()[0] in (model_choice.REAL_MODEL, model_choice.SMALL_MODEL)
    assert model_choice.memory_bytes() > 2**28
