"""Whole characters and stop strings, token by token."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from minipd.engine import text as text_module
from minipd.engine.text import TextStream


class Bytes:
    """A tokenizer with a table of byte strings, one per id: the hardest case for characters."""

    def __init__(self, spellings: list[bytes]) -> None:
        self.spellings = spellings

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool = True) -> str:
        return b"".join(self.spellings[t] for t in token_ids).decode("utf-8", errors="replace")


def cut(text: bytes, sizes: list[int]) -> list[bytes]:
    parts: list[bytes] = []
    while text:
        size = sizes[len(parts) % len(sizes)]
        parts.append(text[:size])
        text = text[size:]
    return parts


def feed(parts: list[bytes], stop: tuple[str, ...]) -> tuple[list[str], TextStream]:
    stream = TextStream(Bytes(parts), stop)
    pieces: list[str] = []
    for index in range(len(parts)):
        done = stream.push(index) or index == len(parts) - 1
        pieces.append(stream.take(final=done))
        if done:
            break
    return pieces, stream


texts = st.text(alphabet="ab한글🙂#\n", min_size=1, max_size=14)
sizes = st.lists(st.integers(1, 5), min_size=1, max_size=5)


@given(texts, sizes, st.lists(st.text(alphabet="ab한#", min_size=1, max_size=3), max_size=3))
def test_pieces_join_to_the_text_before_the_first_stop(
    text: str, sizes: list[int], stop: list[str]
) -> None:
    pieces, stream = feed(cut(text.encode(), sizes), tuple(stop))
    shown = "".join(pieces)
    assert shown == stream.text and text.startswith(shown)
    hits = [text.find(s) for s in stop if s in text]
    if stream.stopped:
        assert not any(s in shown for s in stop)
        assert any(text.startswith(s, len(shown)) for s in stop)
    else:
        assert hits == [] and shown == text


@given(texts, sizes)
def test_no_half_character_is_ever_shown(text: str, sizes: list[int]) -> None:
    pieces, _ = feed(cut(text.encode(), sizes), ("never",))
    assert "\N{REPLACEMENT CHARACTER}" not in "".join(pieces)


@pytest.mark.parametrize("stop", [("그만",), ("만",), ("zzz", "그만")])
def test_a_korean_stop_string_cut_into_bytes(stop: tuple[str, ...]) -> None:
    parts = cut("이제 그만 하자".encode(), [2])
    pieces, stream = feed(parts, stop)
    assert stream.stopped and "".join(pieces) == "이제 그만 하자".split(stop[-1])[0]


def test_what_may_begin_a_stop_string_waits() -> None:
    stream = TextStream(Bytes([b"ab", b"#", b"#", b"x"]), ("###",))
    shown: list[str] = []
    for index in range(4):
        stream.push(index)
        shown.append(stream.take())
    assert shown == ["ab", "", "", "##x"]


@given(st.text("ab", max_size=12), st.text("ab", min_size=1, max_size=20))
def test_what_is_held_back_against_the_definition(text: str, stop: str) -> None:
    slow = max(n for n in range(len(stop)) if n == 0 or text.endswith(stop[:n]))
    assert text_module._overlap(text, stop) == slow  # pyright: ignore[reportPrivateUsage]


def test_a_very_long_stop_string_costs_no_more_than_the_text() -> None:
    stream = TextStream(Bytes([b"ab "]), ("ab ab x" * 200_000,))
    started = time.perf_counter()
    for _ in range(300):
        stream.push(0)
        stream.take()
    assert time.perf_counter() - started < 20.0  # minutes, where its every beginning is tried


def test_an_answer_cut_inside_a_character_still_ends_before_its_stop_string() -> None:
    stream = TextStream(Bytes([b"yes", b"STOP\xea"]), ("STOP",))
    assert not stream.push(0) and not stream.push(1)
    assert stream.take(final=True) == "yes"
    half = TextStream(Bytes([b"yes\xea"]))
    half.push(0)
    assert half.take() == ""
    assert half.take(final=True) == "yes\N{REPLACEMENT CHARACTER}"
