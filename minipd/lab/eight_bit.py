"""Weights of one byte: the same decoder with 8-bit products, in the two ways that are in use.

`weights`: weights are stored in 8 bits and widened on their way into a 16-bit product. Fewer bytes
are read, the arithmetic is what it was. `both`: the input of each product is rounded to 8 bits as
well, a scale for each row, and whole numbers are multiplied: less to read and faster arithmetic,
where the processor has instructions for it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn

from minipd.measure.phases import MinipdEngine
from minipd.measure.same_tokens import teacher_forced_logits
from minipd.model.decoder import Attend, Decoder, DecoderLayer
from minipd.model.layers import rms_norm, rotate, swiglu
from minipd.model.load import LoadedModel

Kind = Literal["weights", "both"]
Product = Callable[[Tensor], Tensor]  # x (T, in) to (T, out), float32 on both sides
LARGEST = 127  # an 8-bit whole number holds -128 to 127; symmetric, so that zero stays zero
# The kernel that widens weights on the way does so for each row: with more rows than this it pays
# to widen them once for the pass and to multiply as usual.
FEW_ROWS = 16


class EightBitError(ValueError):
    """A model or machine for which the 8-bit products do not work; the message says why."""


def quantise(weight: Tensor) -> tuple[Tensor, Tensor]:
    """`weight` (in, out) as int8 (out, in) with one float32 scale for each output (out,)."""
    rows = weight.detach().T.float()  # (out, in)
    scale = rows.abs().amax(1).clamp_min(1e-12) / LARGEST  # (out,)
    whole = (rows / scale[:, None]).round_().to(torch.int8)  # (out, in)
    return whole.contiguous(), scale


def product_of(weight: Tensor, kind: Kind) -> Product:
    """`x @ weight` computed from 8-bit weights, `weight` (in, out)."""
    whole, scale = quantise(weight)
    narrow, columns = scale.bfloat16(), whole.T  # (out,), (in, out)

    def weights(x: Tensor) -> Tensor:
        if len(x) <= FEW_ROWS:
            return torch.ops.aten._weight_int8pack_mm(
                x.bfloat16(), whole, narrow
            ).float()  # (T, out)
        return (x @ columns.float()).mul_(scale)  # (T, out)

    if kind == "weights":
        return weights

    def both(x: Tensor) -> Tensor:
        row_scale = x.abs().amax(1, keepdim=True).clamp_min_(1e-12).div_(LARGEST)  # (T, 1)
        rows = (x / row_scale).round_().to(torch.int8)  # (T, in)
        return torch.ops.aten._int_mm(rows, columns).float().mul_(scale).mul_(row_scale)  # (T, out)

    return both


class EightBitLayer(nn.Module):
    """A `DecoderLayer` line by line, with its four products exchanged."""

    def __init__(self, layer: DecoderLayer, kind: Kind) -> None:
        super().__init__()
        self.plain = layer
        self.qkv, self.o = product_of(layer.qkv, kind), product_of(layer.o, kind)
        self.gate_up, self.down = product_of(layer.gate_up, kind), product_of(layer.down, kind)

    def forward(self, index: int, x: Tensor, turns: Tensor, attend: Attend, _: Tensor) -> Tensor:
        """Layer number `index` on `x` (T, E); it needs no scratch."""
        c, eps = self.plain.config, self.plain.config.rms_norm_eps
        qkv = self.qkv(rms_norm(x, self.plain.input_norm, eps)).view(len(x), -1, c.head_dim)
        q, k, v = qkv.split((c.num_heads, c.num_kv_heads, c.num_kv_heads), dim=1)
        mixed = attend(index, rotate(q, turns), rotate(k, turns), v)  # (T, H, D)
        x = x + self.o(mixed.reshape(len(x), -1))  # (T, E)
        return x + self.down(swiglu(self.gate_up(rms_norm(x, self.plain.post_norm, eps))))


class EightBitDecoder(Decoder):
    """A decoder that shares all but its matrices with a plain one."""

    def __init__(self, plain: Decoder, kind: Kind) -> None:
        nn.Module.__init__(self)  # not Decoder's, which would make room for float32 weights
        self.config, self.plain, self.head = plain.config, plain, plain.head
        layers = [layer for layer in plain.layers if isinstance(layer, DecoderLayer)]
        self.layers = nn.ModuleList(EightBitLayer(layer, kind) for layer in layers)
        head = plain.head.transpose(0, 1).flatten(1)  # (E, V)
        self.final_norm, self._logits = plain.final_norm, product_of(head, kind)

    def embed_tokens(self, token_ids: Tensor) -> Tensor:
        return self.plain.embed_tokens(token_ids)

    def turns(self, positions: Tensor) -> Tensor:
        return self.plain.turns(positions)

    def logits(self, hidden: Tensor) -> Tensor:
        return self._logits(hidden)  # (R, V)


def eight_bit(model: LoadedModel, kind: Kind) -> LoadedModel:
    """The model with 8-bit matrices; raises `EightBitError` where that does not run."""
    if model.config.qkv_bias or model.config.qk_norm or model.decoder.head.dtype != torch.float32:
        raise EightBitError(f"{model.name} has parts that this small version leaves out.")
    try:
        with torch.inference_mode():
            decoder = EightBitDecoder(model.decoder, kind)
            decoder.logits(torch.ones(1, model.config.hidden_size))
    except RuntimeError as error:
        raise EightBitError(f"8-bit products ({kind}) do not run here: {error}") from error
    return replace(model, decoder=decoder)


def same_choices(plain: LoadedModel, other: LoadedModel, texts: Sequence[list[int]]) -> float:
    """Share of all tokens of `texts` for which both models would choose the same next token."""
    same = list(_choices(plain, other, texts))
    return sum(same) / len(same)


def _choices(plain: LoadedModel, other: LoadedModel, texts: Sequence[list[int]]) -> Iterator[bool]:
    for text in texts:
        rows = range(len(text))
        chosen = [teacher_forced_logits(m.decoder, text, rows).argmax(1) for m in (plain, other)]
        yield from (chosen[0] == chosen[1]).tolist()


def first_difference(plain: Sequence[int], other: Sequence[int]) -> int | None:
    """Index of the first token in which two answers differ, None where they agree to the end."""
    return next((i for i, (a, b) in enumerate(zip(plain, other)) if a != b), None)


def time_passes(
    models: Mapping[str, LoadedModel],
    tokens: list[int],
    rows: Sequence[int],
    repetitions: int = 3,
) -> dict[str, dict[int, float]]:
    """Median seconds of a pass of each size, by model; the models take turns.

    One row is a step of decode (eight of them are timed), more rows are a prompt.
    """
    engines = {name: MinipdEngine(model, max(rows), 1) for name, model in models.items()}
    runs: dict[str, dict[int, list[float]]] = {n: {r: [] for r in rows} for n in models}
    for _ in range(repetitions + 1):
        for size in rows:
            for name, engine in engines.items():
                runs[name][size].append(_seconds(engine, tokens, size))
    # The first run of each is warm-up.
    return {n: {r: statistics.median(s[1:]) for r, s in sizes.items()} for n, sizes in runs.items()}


def _seconds(engine: MinipdEngine, tokens: list[int], size: int) -> float:
    return engine.decode(tokens[:8]) / 8 if size == 1 else engine.prefill(tokens[:size])
