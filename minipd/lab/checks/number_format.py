"""Checks of exercise 07.2: bytes are unpacked in the format that the manifest names, or refused."""

from __future__ import annotations

from typing import Any

from minipd.lab.hints import Answer, Check, Exercise, Hints

SHAPE = (2, 3, 4)
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


def _unpacks(answer: Answer, name: str) -> bool:
    import torch

    raw, manifest, numbers = _packed(name)
    made = answer(raw.clone(), dict(manifest), _store(name))
    return bool(torch.equal(made.flatten().double(), numbers.flatten().double()))


def _accepts_alike(answer: Answer) -> bool:
    try:
        return _unpacks(answer, "float16") and _unpacks(answer, "bfloat16")
    except ValueError:
        return False


def _has_shape(answer: Answer) -> bool:
    raw, manifest, numbers = _packed("float16")
    return tuple(answer(raw, manifest, _store("float16")).shape) == tuple(numbers.shape)


def _keeps_format(answer: Answer) -> bool:
    raw, manifest, _ = _packed("bfloat16")
    return answer(raw, manifest, _store("bfloat16")).dtype == _store("bfloat16")


def _names_both(answer: Answer) -> bool:
    message = _refusal(answer, "bfloat16", "float32") or ""
    other = _refusal(answer, "float16", "float32") or ""
    return "bfloat16" in message and "float32" in message and "float16" in other


def _refuses_other_sizes(answer: Answer) -> bool:
    return _refusal(answer, "float16", "float32") is not None


def _refuses_short(answer: Answer) -> bool:
    raw, manifest, _ = _packed("float16")
    for bytes_there in (raw[:-2], raw.repeat(2)):
        try:
            answer(bytes_there.clone(), dict(manifest), _store("float16"))
        except ValueError:
            continue
        except RuntimeError:  # torch's own words about sizes say nothing about a hand-off
            return False
        return False
    return True


NUMBER_FORMAT = Exercise(
    "07.2",
    "The right bytes, the wrong numbers",
    "unpack",
    (
        Check(
            "accepts_the_same_format",
            "Bytes in the store's own format must be unpacked, for each format.",
            _accepts_alike,
            Hints(
                "What does torch call its formats, and what does the manifest?",
                'The manifest says "float16"; str(torch.float16) has a "torch." in front.',
                'Take "torch." off the front before you compare the two names.',
            ),
        ),
        Check(
            "refuses_bfloat16_as_float16",
            "bfloat16 bytes were taken into a float16 store.",
            lambda answer: _refusal(answer, "bfloat16", "float16") is not None,
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
            _refuses_other_sizes,
            Hints(
                "Which formats did you think of?",
                "Any two formats may meet, not only those of the same size.",
                "Compare names, whatever they are.",
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
            _keeps_format,
            Hints(
                "What is the dtype of what you return?",
                "A store of 16-bit numbers cannot take 32-bit ones without changing its size.",
                "Reinterpret the bytes with raw.view(store_dtype), and convert nothing.",
            ),
        ),
        Check(
            "has_the_shape",
            "The numbers must come back in the shape that the manifest names.",
            _has_shape,
            Hints(
                "What is the shape of what you return?",
                "Bytes travel in a row; keys and values have blocks, heads and so on.",
                'End with .reshape(manifest["shape"]).',
            ),
        ),
        Check(
            "refuses_a_wrong_length",
            "With some bytes missing, or too many of them, a ValueError must be raised.",
            _refuses_short,
            Hints(
                "What if the last two bytes were lost?",
                "The shape says how many numbers there must be, and the format how many bytes "
                "each of them has.",
                "Count: product of the shape times store_dtype.itemsize; raise if raw has "
                "another number of bytes.",
            ),
        ),
    ),
)
