"""Experts as checkpoints store them: each under a name of its own, or all of a layer in one stack.

The hub's Qwen3-MoE checkpoints have `experts.7.gate_proj.weight` and so on; transformers 5 can also
save its own `experts.gate_up_proj` (X, 2F, E) and `experts.down_proj` (X, E, F). Everything else
here sees only the former.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from minipd.model.expert_config import MAX_EXPERTS
from minipd.model.store import Shape

STACKS = {".mlp.experts.gate_up_proj": ("gate", "up"), ".mlp.experts.down_proj": ("down",)}


@dataclass(frozen=True, slots=True)
class Place:
    """Where one expert's matrix lies: rows `rows` of layer `expert` of the stack `name`."""

    name: str
    expert: int
    rows: slice


def unstacked(stored: Mapping[str, Shape]) -> tuple[dict[str, Shape], dict[str, Place]]:
    """All shapes by the names of single experts, and the places of those that lie in a stack.

    What cannot be taken apart keeps its own name, which no config asks for.
    """
    shapes: dict[str, Shape] = {}
    places: dict[str, Place] = {}
    for name, shape in stored.items():
        layer, parts = _stack(name, shape)
        if not parts:
            shapes[name] = shape
        height = shape[1] // len(parts) if parts else 0
        for expert in range(shape[0] if parts else 0):
            for index, part in enumerate(parts):
                one = f"{layer}.mlp.experts.{expert}.{part}_proj.weight"
                rows = slice(index * height, (index + 1) * height)
                shapes[one], places[one] = (height, shape[2]), Place(name, expert, rows)
    return shapes, places


def _stack(name: str, shape: Shape) -> tuple[str, tuple[str, ...]]:
    """The layer that a stack of experts belongs to and the matrices side by side in it, or none."""
    for ending, parts in STACKS.items():
        divides = len(shape) == 3 and shape[0] <= MAX_EXPERTS and shape[1] % len(parts) == 0
        if name.endswith(ending) and divides:
            return name.removesuffix(ending), parts
    return name, ()


def num_experts(shapes: Mapping[str, Shape]) -> int:
    """How many different experts the names speak of: 0 for a dense checkpoint."""
    cut = (name.split(".mlp.experts.") for name in shapes)
    return len({pieces[1].split(".")[0] for pieces in cut if len(pieces) == 2})
