"""From token ids to text a user may see: whole characters only, and nothing past a stop string."""

from __future__ import annotations

from typing import Protocol

from minipd.request import FinishReason, Sequence

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"  # what a tokenizer writes for half a character


class Decodes(Protocol):
    def decode(self, token_ids: list[int], *, skip_special_tokens: bool = ...) -> str: ...


class TextStream:
    """The growing text of one answer.

    A character may be spread over several tokens (Korean, emoji), so text that ends in half of one
    waits for the next token. Text that could be the beginning of a stop string waits as well.
    """

    def __init__(self, tokenizer: Decodes, stop: tuple[str, ...] = ()) -> None:
        self.tokenizer = tokenizer
        self.stop = stop
        self.text = ""
        self.stopped = False
        self._ids: list[int] = []
        self._start = 0  # decode from here: enough context for the next token's spelling
        self._done = 0  # ids before this are part of `text`
        self._shown = 0

    def push(self, token_id: int) -> bool:
        """Add a token; True when a stop string is now complete (the text ends before it)."""
        self._ids.append(token_id)
        before = self._decode(self._ids[self._start : self._done])
        after = self._decode(self._ids[self._start :])
        if not after.endswith(REPLACEMENT):
            self._append(after[len(before) :])
            self._start, self._done = self._done, len(self._ids)
        return self.stopped

    def take(self, *, final: bool = False) -> str:
        """Text not taken yet that will not change any more; all the rest when `final`."""
        if final and not self.stopped and self._done < len(self._ids):
            before = self._decode(self._ids[self._start : self._done])
            self._append(self._decode(self._ids[self._start :])[len(before) :])
            self._done = len(self._ids)
        end = len(self.text) if final or self.stopped else len(self.text) - self._held_back()
        piece, self._shown = self.text[self._shown : end], max(self._shown, end)
        return piece

    def _decode(self, token_ids: list[int]) -> str:
        return self.tokenizer.decode(token_ids, skip_special_tokens=True)

    def _append(self, piece: str) -> None:
        """Add to the text, up to the first stop string in it."""
        searched_from = max(0, len(self.text) - max(map(len, self.stop), default=0))
        self.text += piece
        hits = [at for s in self.stop if (at := self.text.find(s, searched_from)) >= 0]
        if hits:
            self.text, self.stopped = self.text[: min(hits)], True

    def _held_back(self) -> int:
        """Length of the longest end of the text that begins some stop string."""
        return max((_overlap(self.text, stop) for stop in self.stop), default=0)


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that begins `stop` without being all of it."""
    end = text[max(0, len(text) - len(stop) + 1) :]
    at = end.find(stop[0])
    while at >= 0 and not stop.startswith(end[at:]):
        at = end.find(stop[0], at + 1)
    return len(end) - at if at >= 0 else 0


class StopWatcher:
    """A scheduler's `finish_check` for stop strings; follows only sequences that have some.

    A sequence that was begun on another worker is caught up from its output ids, so a stop string
    that began there is still found.
    """

    def __init__(self, tokenizer: Decodes) -> None:
        self.tokenizer = tokenizer
        self._texts: dict[str, TextStream] = {}

    def __call__(self, sequence: Sequence) -> FinishReason | None:
        stop = sequence.request.sampling.stop
        if not stop:
            return None
        text = self._texts.get(sequence.id)
        if text is None:
            text = self._texts[sequence.id] = TextStream(self.tokenizer, stop)
            for token_id in sequence.output_ids[:-1]:
                text.push(token_id)
        return "stop" if text.push(sequence.output_ids[-1]) else None

    def forget(self, request_id: str) -> None:
        self._texts.pop(request_id, None)
