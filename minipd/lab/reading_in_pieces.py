"""What it costs to read a prompt in pieces: measured, and counted in bytes that are read again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from minipd.engine.batch import Chunk
from minipd.engine.executor import Executor
from minipd.lab.model_choice import lesson_model
from minipd.lab.show import Table, show_table
from minipd.measure.contest import split_cores
from minipd.measure.demo import measure_phases
from minipd.measure.phases import BLOCK_SIZE, random_tokens
from minipd.measure.stopwatch import num_threads
from minipd.model.config import ModelConfig
from minipd.model.load import LoadedModel, load
from minipd.request import SamplingParams

QUARTER = 0.25  # what Sarathi-Serve reports as the most, for pieces of 512 tokens
GROWTH = 0.05  # of a whole reading: a surplus that grows by less may be noise


@dataclass(frozen=True, slots=True)
class Pieces:
    """One prompt length read in pieces of one size, beside reading it whole. Seconds of one
    processor core, the quickest round; `first_s` and `last_s` are single pieces of it."""

    prompt_tokens: int
    piece_tokens: int
    seconds: float
    whole_s: float
    first_s: float
    last_s: float

    @property
    def extra(self) -> float:
        """The surplus over reading it whole, as a share of that; below zero it was faster."""
        return self.seconds / self.whole_s - 1.0


def measure_pieces(
    model: LoadedModel, sizes: Mapping[int, Sequence[int]], rounds: int = 3
) -> list[Pieces]:
    """Prompts of each length, whole and in pieces of each size beside it, taking turns.

    On one thread and in processor time, which leaves out what other programs take; what is left
    of them can only make a run slower, so the quickest one counts. The shortest length is read
    once before as warm-up.
    """
    executor = Executor(model, -(-max(sizes) // BLOCK_SIZE))
    with num_threads(1):
        read_in_pieces(executor, random_tokens(model.config.vocab_size, min(sizes)), min(sizes))
        return [
            found
            for length, pieces in sizes.items()
            for found in _measure_length(executor, length, pieces, rounds)
        ]


def _measure_length(
    executor: Executor, length: int, sizes: Sequence[int], rounds: int
) -> list[Pieces]:
    tokens = random_tokens(executor.model.config.vocab_size, length)
    samples: dict[int, list[list[float]]] = {size: [] for size in (length, *sizes)}
    for _ in range(rounds):
        for size, runs in samples.items():
            runs.append(read_in_pieces(executor, tokens, size))
    best = {size: min(runs, key=sum) for size, runs in samples.items()}
    whole_s = sum(best[length])
    return [
        Pieces(length, size, sum(best[size]), whole_s, best[size][0], best[size][-1])
        for size in sizes
    ]


def read_in_pieces(executor: Executor, tokens: list[int], size: int) -> list[float]:
    """Processor seconds of each pass that reads `size` tokens of a prompt, from an empty cache."""
    blocks, seconds = list(range(-(-len(tokens) // BLOCK_SIZE))), list[float]()
    for at in range(0, len(tokens), size):
        sampling = SamplingParams() if at + size >= len(tokens) else None
        chunk = Chunk("pieces", tokens[at : at + size], at, blocks, sampling)
        start = time.thread_time()
        executor.run([chunk])
        seconds.append(time.thread_time() - start)
    return seconds


def reread_tokens(prompt_tokens: int, piece_tokens: int) -> int:
    """Tokens whose keys and values are read again, over all pieces: about N^2 / 2c.

    A piece looks back at all tokens before it; read whole, the prompt's keys and values never
    have to come back from the cache.
    """
    return sum(range(0, prompt_tokens, piece_tokens))


def reread_bytes(config: ModelConfig, prompt_tokens: int, piece_tokens: int) -> dict[str, float]:
    """Bytes that pieces read again (float32): keys and values of earlier pieces, and the weights
    of the layers, once more for every pass but the first."""
    passes = -(-prompt_tokens // piece_tokens)
    embedding = config.vocab_size * config.hidden_size * (1 if config.tie_word_embeddings else 2)
    return {
        "notes": reread_tokens(prompt_tokens, piece_tokens) * config.kv_bytes_per_token(4),
        "weights": (passes - 1) * (config.num_parameters - embedding) * 4,
    }


def pieces_table(measured: Sequence[Pieces], config: ModelConfig) -> Table:
    """Measured surplus beside the bytes that were read again."""
    again = [reread_bytes(config, p.prompt_tokens, p.piece_tokens) for p in measured]
    return {
        "prompt (tokens)": [p.prompt_tokens for p in measured],
        "pieces of": [p.piece_tokens for p in measured],
        "whole (s)": [p.whole_s for p in measured],
        "in pieces (s)": [p.seconds for p in measured],
        "surplus": [f"{p.extra:+.0%}" for p in measured],
        "first piece (ms)": [1000 * p.first_s for p in measured],
        "last piece (ms)": [1000 * p.last_s for p in measured],
        "notes fetched again (MB)": [round(b["notes"] / 1e6) for b in again],
        "weights fetched again (MB)": [round(b["weights"] / 1e6) for b in again],
    }


def fetching_table(measured: Sequence[Pieces], config: ModelConfig, bytes_per_s: float) -> Table:
    """What the fetching alone would take at `bytes_per_s`, as a share of a whole reading."""
    again = [reread_bytes(config, p.prompt_tokens, p.piece_tokens) for p in measured]
    shares = [
        {what: num / bytes_per_s / p.whole_s for what, num in b.items()}
        for p, b in zip(measured, again)
    ]
    return {
        "prompt (tokens)": [p.prompt_tokens for p in measured],
        "pieces of": [p.piece_tokens for p in measured],
        "surplus, measured": [f"{p.extra:+.0%}" for p in measured],
        "notes, at most": [f"{share['notes']:.1%}" for share in shares],
        "weights, at most": [f"{share['weights']:.0%}" for share in shares],
    }


def verdicts(measured: Sequence[Pieces]) -> list[str]:
    """What these measurements say of the two papers: one sentence for each size of piece that was
    tried on several lengths."""
    said: list[str] = []
    for size in dict.fromkeys(p.piece_tokens for p in measured):
        rows = sorted(
            (p for p in measured if p.piece_tokens == size), key=lambda p: p.prompt_tokens
        )
        if len(rows) < 2:
            continue
        short, long = rows[0], rows[-1]
        grows = "grows with the length" if long.extra - short.extra > GROWTH else "hardly grows"
        within = "stays within" if long.extra <= QUARTER else "exceeds"
        said.append(
            f"Pieces of {size}: {short.extra:+.0%} for {short.prompt_tokens} tokens, "
            f"{long.extra:+.0%} for {long.prompt_tokens}. The surplus {grows} and {within} a "
            "quarter."
        )
    return said


def document_price(tokens_lost: Callable[[int, int, float, float, int], float]) -> None:
    """The exercises' last step: the learner's formula, fed with two speeds of this machine."""
    try:
        tokens_lost(2, 1, 1.0, 1.0, 1)
    except NotImplementedError:
        print("This cell needs your tokens_lost: solve Exercise 1, then run it again.")
        return
    name, why = lesson_model()
    print(why)
    speed = measure_phases(load(name), split_cores(2), repetitions=1)
    rates = speed.prefill_tok_s, speed.decode_tok_s
    lost = [tokens_lost(1000, cached, *rates, 1) for cached in (0, 500)]
    columns = {"of 1,000 tokens, cached": [0, 500], "a reader loses (tokens)": lost}
    show_table(columns, f"reads {rates[0]:.0f} tokens/s, writes {rates[1]:.1f} tokens/s")
