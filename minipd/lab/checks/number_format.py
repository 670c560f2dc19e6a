"""Checks of exercise 07.2: bytes are unpacked in the format that the manifest names, or refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minipd.lab.checks.returned import returns_something
from minipd.lab.hints import Answer, Check, Exercise, Hints

SHAPE = (2, 3, 4)
FORMATS = ("float16", "bfloat16", "float32")
ROUNDED = 1.001  # a float16 that bfloat16 cannot hold


def _packed(dtype_name: str, shape: tuple[int, ...] = SHAPE) -> tuple[Any, dict[str, Any], Any]:
    """Bytes of some numbers, the manifest that tells the truth about them, and the numbers."""
    import torch

    dtype = getattr(torch, dtype_name)
    count = torch.Size(shape).numel()
    numbers = (torch.arange(count) / 8 + ROUNDED).to(dtype).reshape(shape)
    raw = numbers.flatten().view(torch.uint8).clone()
    return raw, {"dtype": dtype_name, "shape": shape}, numbers


def _store(dtype_name: str) -> Any:
    import torch

    return getattr(torch, dtype_name)


def _refusal(answer: Answer, sent: str, ours: str) -> str | None:
    """The ValueError's message, or None if nothing was refused."""
    raw, manifest, _ = _packed(sent)
    try:
        answer(raw, manifest, _store(ours))
    except ValueError as error:
        return str(error)
    return None


def _same_format(answer: Answer, name: str, shape: tuple[int, ...] = SHAPE) -> Any:
    """What comes of a hand-off in the store's own format."""
    raw, manifest, _ = _packed(name, shape)
    return answer(raw, manifest, _store(name))


def _something_is_back(answer: Answer) -> object:
    try:
        return _same_format(answer, "float16")
    except ValueError:  # a later check asks why
        return True


def _takes(answer: Answer, shape: tuple[int, ...]) -> bool:
    """Whether nothing is refused; a shape of no numbers leaves only the format to be refused."""
    try:
        for name in FORMATS:
            _same_format(answer, name, shape)
    except ValueError:
        return False
    return True


def _numbers_are_right(answer: Answer) -> bool:
    import torch

    for name in FORMATS:
        raw, manifest, numbers = _packed(name)
        made = answer(raw, manifest, _store(name))
        if not torch.equal(made.flatten().double(), numbers.flatten().double()):
            return False
    return True


def _raises_the_right_kind(answer: Answer) -> bool:
    """False where a refusal comes as another error: assert, or a TypeError that names a format."""
    try:
        _refusal(answer, "bfloat16", "float16")
    except AssertionError:
        return False
    except TypeError as error:
        if "float16" in str(error):
            return False
        raise
    return True


def _names_both(answer: Answer) -> bool:
    message = _refusal(answer, "bfloat16", "float32") or ""
    other = _refusal(answer, "float16", "float32") or ""
    return "bfloat16" in message and "float32" in message and "float16" in other


def _refuses(sent: str, ours: str) -> Callable[[Answer], bool]:
    return lambda answer: _refusal(answer, sent, ours) is not None


def _refuses_length(answer: Answer, numbers_more: int) -> bool:
    """Whether bytes of one number too few, or some too many, are refused with a ValueError."""
    raw, manifest, _ = _packed("float16")
    bytes_there = raw[: 2 * numbers_more] if numbers_more < 0 else raw.repeat(2)
    try:
        answer(bytes_there.clone(), manifest, _store("float16"))
    except ValueError:
        return True
    except (AssertionError, RuntimeError):  # torch's words about sizes say nothing of a hand-off
        return False
    return False


NUMBER_FORMAT = Exercise(
    "07.2",
    "The right bytes, the wrong numbers",
    "unpack",
    (
        returns_something("unpack", "the numbers, as a tensor", _something_is_back),
        Check(
            "accepts_the_same_format",
            "A hand-off in the store's own format was refused for its format.",
            lambda answer: _takes(answer, (0,)),
            Hints(
                "What does torch call its formats, and what does the manifest?",
                'The manifest says "float16"; str(torch.float16) has a "torch." in front.',
                'Take "torch." off the front before you compare the two names.',
            ),
        ),
        Check(
            "counts_bytes",
            "As many bytes came as the shape needs, and they were refused.",
            lambda answer: _takes(answer, SHAPE),
            Hints(
                "How many numbers has a tensor of shape (2, 3, 4), and how many bytes are those?",
                "The sizes of a shape are multiplied, and each number takes as many bytes as its "
                "format says: two for float16, four for float32.",
                "raw.numel() against torch.Size(shape).numel() * store_dtype.itemsize",
            ),
        ),
        Check(
            "right_numbers",
            "The bytes were in the store's own format, and other numbers came out.",
            _numbers_are_right,
            Hints(
                "How do four bytes become two numbers?",
                "The bytes stay as they are, and are only looked at as numbers of another "
                "format; nothing is computed, and nothing changes its place.",
                "raw.view(store_dtype), as in the cell above the function",
            ),
        ),
        Check(
            "raises_value_error",
            "It was refused, but not with a ValueError.",
            _raises_the_right_kind,
            Hints(
                "Which kind of error does the task ask for?",
                "assert is for what cannot happen unless your own code is wrong, and Python can "
                "be told to leave it out; what comes from elsewhere needs an error that stays.",
                'raise ValueError(f"...") in place of the other error',
            ),
        ),
        Check(
            "refuses_bfloat16_as_float16",
            "bfloat16 bytes were taken into a float16 store.",
            _refuses("bfloat16", "float16"),
            Hints(
                "How many bytes has a number in each of the two formats?",
                "Both have two, so the length proves nothing, and neither do the numbers: all of "
                "them look plausible. Converting is no way out: it rounds.",
                'if manifest["dtype"] is not the name of store_dtype: raise ValueError(...)',
            ),
        ),
        Check(
            "refuses_other_sizes",
            "float16 bytes were taken into a float32 store.",
            _refuses("float16", "float32"),
            Hints(
                "Which formats did you think of?",
                "Any two formats may meet, not only those of the same size.",
                "Compare names, whatever they are.",
            ),
        ),
        Check(
            "refuses_float16_as_bfloat16",
            "float16 bytes were taken into a bfloat16 store.",
            _refuses("float16", "bfloat16"),
            Hints(
                "Turn the example round: is it still refused?",
                'The name "float16" is a part of "bfloat16", so `in` and endswith() find it there.',
                "Compare the whole names, with !=.",
            ),
        ),
        Check(
            "names_both_formats",
            "The message must name both formats: the one that came and the one of this store.",
            _names_both,
            Hints(
                "Who reads the message, and what has to be done then?",
                "Somebody set up two pools differently, and must find out which setting is which.",
                'Put manifest["dtype"] and the name of store_dtype into the message.',
            ),
        ),
        Check(
            "keeps_the_format",
            "The numbers must come back in the store's own format.",
            lambda answer: _same_format(answer, "bfloat16").dtype == _store("bfloat16"),
            Hints(
                "What is the dtype of what you return?",
                "A store of 16-bit numbers cannot take 32-bit ones without changing its size.",
                "Reinterpret the bytes with raw.view(store_dtype), and convert nothing.",
            ),
        ),
        Check(
            "has_the_shape",
            "The numbers must come back in the shape that the manifest names.",
            lambda answer: tuple(_same_format(answer, "float16").shape) == SHAPE,
            Hints(
                "What is the shape of what you return?",
                "Bytes travel in a row; keys and values have blocks, heads and so on.",
                'End with .reshape(manifest["shape"]).',
            ),
        ),
        Check(
            "refuses_missing_bytes",
            "Two bytes were missing, and no ValueError was raised.",
            lambda answer: _refuses_length(answer, -1),
            Hints(
                "What if the last two bytes were lost?",
                "The shape says how many numbers there must be, and the format how many bytes "
                "each of them has. torch complains, too, but not in words about a hand-off.",
                "Count: numbers of the shape times store_dtype.itemsize; raise if raw has "
                "another number of bytes.",
            ),
        ),
        Check(
            "refuses_spare_bytes",
            "Twice as many bytes came as the shape needs, and no ValueError was raised.",
            lambda answer: _refuses_length(answer, 1),
            Hints(
                "What if something came twice?",
                "Bytes to spare mean that both sides do not speak of the same thing.",
                "Compare the two numbers of bytes with !=, not with <.",
            ),
        ),
    ),
)
