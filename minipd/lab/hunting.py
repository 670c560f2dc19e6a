"""Property tests in a notebook: hundreds of small cases, and of the failing ones the smallest.

`hypothesis` makes the cases. Nothing is random between runs and nothing is written to disk, so
that a class sees the same counterexamples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy

from minipd.cache.allocator import hash_block
from minipd.request import Request, Sequence

EXAMPLES = 300
Answer = Callable[..., Any]
Property = Callable[..., None]  # takes the function under test and one case, and asserts


@dataclass(frozen=True, slots=True)
class Counterexample:
    """The smallest case that was found to fail, and what it broke."""

    case: dict[str, Any]
    broke: str

    def __str__(self) -> str:
        words = ", ".join(f"{name}={value!r}" for name, value in self.case.items())
        return f"{words}: {self.broke}"


def smallest_failure(
    holds: Property,
    answer: Answer,
    inputs: dict[str, SearchStrategy[Any]],
    examples: int = EXAMPLES,
) -> Counterexample | None:
    """The smallest failing case of at most `examples`, or None; a stub's own error passes."""
    failed: list[Counterexample] = []

    @settings(
        max_examples=examples,
        database=None,
        derandomize=True,
        deadline=None,
        phases=(Phase.generate, Phase.shrink),
        report_multiple_bugs=False,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(**inputs)
    def trial(**case: Any) -> None:
        try:
            holds(answer, **case)
        except NotImplementedError:
            raise
        except Exception as error:
            words = str(error) if isinstance(error, AssertionError) else repr(error)
            first_line = words.split("\n")[0] or "the property does not hold"
            failed.append(Counterexample(case, first_line))
            raise

    try:
        trial()
    except NotImplementedError:
        raise
    except Exception:
        return failed[-1]  # hypothesis runs the smallest one last
    return None


def hunt(
    holds: Property,
    answer: Answer,
    /,
    *,
    examples: int = EXAMPLES,
    **inputs: SearchStrategy[Any],
) -> None:
    """Print the smallest case for which `answer` breaks the property, or that there is none."""
    try:
        found = smallest_failure(holds, answer, inputs, examples)
    except NotImplementedError:
        print("Nothing to test yet: write the function first, then run this cell again.")
        return
    if found is None:
        print(f"{answer.__name__} held in all {examples} cases.")
    else:
        print(f"{answer.__name__} is broken. The smallest case found:\n  {found}")


@dataclass(slots=True)
class Books:
    """What a small scheduler knows: who runs, who waits, and who uses which block.

    `users[block]` counts the sequences whose table holds the block; `free` lists blocks of nobody.
    """

    running: list[Sequence] = field(default_factory=list[Sequence])
    waiting: list[Sequence] = field(default_factory=list[Sequence])
    users: list[int] = field(default_factory=list[int])
    free: list[int] = field(default_factory=list[int])


def two_answers(shared: int, own: int, written: int) -> tuple[Books, Sequence, Sequence]:
    """Two running sequences whose first `shared` blocks are the same, and one that waits.

    The first one has `own` blocks of its own and `written` tokens of its answer. Blocks are of 4
    tokens. Returns the books, the first sequence and the second.
    """
    blocks = list(range(shared + own + 1))
    first = Sequence(Request("first", tuple(range(4 * (shared + own) - 3))), list(range(written)))
    second = Sequence(Request("second", tuple(range(4 * shared + 1))))
    first.block_ids, second.block_ids = blocks[:-1], [*blocks[:shared], blocks[-1]]
    for sequence in (first, second):
        sequence.num_cached_tokens, sequence.is_prefilling = sequence.num_tokens - 1, False
    users = [2] * shared + [1] * (own + 1) + [0, 0]
    queue = [Sequence(Request("third", (1, 2, 3)))]
    books = Books([second, first], queue, users, [len(blocks), len(blocks) + 1])
    return books, first, second


def named_blocks(token_ids: list[int], block_size: int) -> dict[bytes, int]:
    """The names of all full blocks of a text, in order, each with its number as the block's id."""
    names: dict[bytes, int] = {}
    name = b""
    for index in range(len(token_ids) // block_size):
        name = hash_block(name, token_ids[index * block_size : (index + 1) * block_size])
        names[name] = index
    return names
