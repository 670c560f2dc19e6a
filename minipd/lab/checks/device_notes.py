"""Checks of exercise 11.2: KV bytes of a token on one of several devices, and copies of a head."""

from __future__ import annotations

from minipd.lab.hints import Answer, Check, Exercise, Hints

# Qwen3-235B-A22B: 94 layers, 4 KV heads of 128; 192,512 bytes per token in 16 bits (facts C1).
QWEN = (94, 4, 128, 2)


def _notes(answer: Answer, tp: int, shape: tuple[int, int, int, int] = QWEN) -> tuple[float, float]:
    num_bytes, copies = answer(*shape, tp)
    return float(num_bytes), float(copies)


def _is_pair(answer: Answer) -> bool:
    return len(answer(*QWEN, 1)) == 2


def _whole(answer: Answer) -> bool:
    return _notes(answer, 1)[0] != 96_256  # keys only


def _every_layer(answer: Answer) -> bool:
    return _notes(answer, 1)[0] != 2_048


def _one_device(answer: Answer) -> bool:
    return _notes(answer, 1)[0] == 192_512


def _shared(answer: Answer) -> bool:
    return _notes(answer, 2)[0] == 96_256 and _notes(answer, 4)[0] == 48_128


def _floor(answer: Answer) -> bool:
    return _notes(answer, 8)[0] == 48_128 and _notes(answer, 32)[0] == 48_128


def _no_copies(answer: Answer) -> bool:
    return all(_notes(answer, tp)[1] == 1 for tp in (1, 2, 4))


def _copies(answer: Answer) -> bool:
    return _notes(answer, 8)[1] == 2 and _notes(answer, 32)[1] == 8


def _others(answer: Answer) -> bool:
    smol = (30, 3, 64, 4)
    return _notes(answer, 3, smol) == (15_360, 1) and _notes(answer, 9, smol) == (15_360, 3)


DEVICE_NOTES = Exercise(
    "11.2",
    "Notes on one device",
    "device_notes",
    (
        Check(
            "two_numbers",
            "device_notes must return two numbers: bytes on one device, copies of a head.",
            _is_pair,
            Hints(
                "Look at the last line of your function.",
                "Two questions are asked: how much, and how often.",
                "return num_bytes, copies",
            ),
        ),
        Check(
            "keys_and_values",
            "On one device you keep half of what there is.",
            _whole,
            Hints(
                "What does a note consist of?",
                "A key and a value, each as long as the head.",
                "Multiply by 2.",
            ),
        ),
        Check(
            "every_layer",
            "You keep the notes of one layer only.",
            _every_layer,
            Hints(
                "How many note-pads does a model have?",
                "TP cuts each layer, so every device has a part of every layer.",
                "Multiply by layers.",
            ),
        ),
        Check(
            "one_device",
            "One device keeps 192,512 bytes for a token of this model.",
            _one_device,
            Hints(
                "Compare with lesson 02's formula.",
                "2 x layers x KV heads x head size x bytes of a number.",
                "2 * layers * heads_here * head_dim * value_bytes",
            ),
        ),
        Check(
            "heads_are_dealt_out",
            "With 2 devices and 4 KV heads, each device keeps half of the notes.",
            _shared,
            Hints(
                "What does each device keep of four heads, if there are two devices?",
                "As long as there are heads enough, they are shared out evenly.",
                "kv_heads / tp heads on each device",
            ),
        ),
        Check(
            "never_half_a_head",
            "With 8 devices and 4 KV heads, no device can keep less than one whole head.",
            _floor,
            Hints(
                "Can a device work with half a key?",
                "Scores need the whole head; so each device keeps at least one.",
                "max(1, kv_heads / tp)",
            ),
        ),
        Check(
            "shared_is_not_copied",
            "As long as there are heads enough, each head is kept once.",
            _no_copies,
            Hints(
                "How often is a head kept when two devices share four?",
                "A head is copied only where more devices than heads need one.",
                "max(1, tp / kv_heads)",
            ),
        ),
        Check(
            "copies",
            "8 devices share 4 KV heads: each head is kept twice.",
            _copies,
            Hints(
                "How many devices need the same head?",
                "All devices keep one head each; divide them by the heads there are.",
                "tp / kv_heads, where that is above 1",
            ),
        ),
        Check(
            "another_model",
            "SmolLM2 on 3 and on 9 devices: 15,360 bytes each, and each head once or three times.",
            _others,
            Hints(
                "Is a number of the first model left in your code?",
                "Everything must come from the arguments.",
                "heads_here = max(1, kv_heads / tp)",
            ),
        ),
    ),
)
