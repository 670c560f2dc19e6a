"""Models that every engine test shares: read once, never changed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from minipd.model.load import LoadedModel, load
from minipd.model.store import ModelLoadError


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """Small products gain nothing from more, and lose much where tests share the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tiny() -> LoadedModel:
    return load("tiny")


@pytest.fixture(scope="session")
def smollm2() -> LoadedModel:
    try:
        return load("smollm2-135m")
    except ModelLoadError as error:
        pytest.skip(f"SmolLM2-135M cannot be had here: {error}")
