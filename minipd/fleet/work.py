"""What one step of a model asks of one device: a list of operations, each with FLOPs and bytes.

A step is described by its chunks, as in the engine: a prompt is a chunk of many new tokens, a
decoding sequence a chunk of one. Nothing here knows a device's speed.

What a device of a tensor-parallel group of `tp` does, per layer, for T new tokens in all:

* every matrix of k inputs and n outputs: `2 T k n` FLOPs, `k n` weights read, `T (k + n)`
activations;
* routed experts: the same over `T top_k` rows, reading only the experts that T tokens touch;
* attention: FLOPs per pair of query and key, and the cache read once per chunk;
* norms, rotation, activation function, residual sums: only bytes;
* two all-reduces of T hidden states when tp > 1, two all-to-alls when experts are spread.

The head multiplies one row per sequence, since only a chunk's last token is sampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from minipd.fleet.attention import cached_tokens_read, causal_pairs
from minipd.fleet.models import SKEW, Layers, Model

Kind = Literal[
    "matrix", "experts", "attention", "cache", "elementwise", "all_reduce", "all_to_all", "send"
]
ACTIVATION_BYTES = 2.0  # hidden states travel and rest in 16 bits, whatever the weights are
EXPERT_LAUNCHES = 5  # choose, sort rows by expert, gate and up, activation, down and weighted sum
TILE = 128  # rows and columns that one unit computes at a time in usual GPU products


@dataclass(frozen=True, slots=True)
class Chunk:
    """`count` sequences that each add `new` tokens after `context` cached ones."""

    new: int
    context: float
    count: int = 1


@dataclass(frozen=True, slots=True)
class Parallel:
    """How a replica is spread over devices.

    `tp` devices share every matrix, `pp` stages share the layers, `ep` devices share the experts: 1
    means that the tensor-parallel group cuts each expert instead. With ep > tp, `ep / tp` replicas
    of the attention part (data parallel) work on batches of their own and meet in the experts.
    """

    tp: int = 1
    pp: int = 1
    ep: int = 1

    def __post_init__(self) -> None:
        if min(self.tp, self.pp, self.ep) < 1:
            raise ValueError(
                f"tp, pp and ep must be at least 1, not {self.tp}, {self.pp}, {self.ep}."
            )
        if self.ep > 1 and self.ep % self.tp:
            raise ValueError(f"ep is {self.ep}; it must be a multiple of tp, which is {self.tp}.")

    @property
    def attention_replicas(self) -> int:
        return max(1, self.ep // self.tp)

    @property
    def devices(self) -> int:
        return self.tp * self.pp * self.attention_replicas


@dataclass(frozen=True, slots=True)
class Operation:
    """`times` equal operations, each of so many FLOPs and bytes on one device.

    `rows` and `tiles` are the rows (of attention: the sequences) and the output tiles of a product;
    `devices` take part in an exchange; `launches` kernels have to be started. `copies`: how often
    the bytes of an all-to-all hold the same token, once per expert chosen.
    """

    kind: Kind
    times: float
    flops: float
    num_bytes: float
    launches: float = 1.0
    rows: float = 0.0
    tiles: float = 0.0
    devices: int = 1
    copies: int = 1


def prefill_step(tokens: int, sequences: int = 1, cached: int = 0) -> list[Chunk]:
    """`sequences` prompts of `tokens` new tokens each, after `cached` reused ones."""
    return [Chunk(tokens, float(cached), sequences)]


def decode_step(context: float, sequences: int) -> list[Chunk]:
    """One token for each of `sequences` sequences that hold `context` tokens."""
    return [Chunk(1, context, sequences)]


def step_work(
    model: Model, chunks: Sequence[Chunk], parallel: Parallel, skew: float = SKEW
) -> list[Operation]:
    """All operations of a step on one device, over all pipeline stages in turn."""
    work: list[Operation] = []
    tokens = float(sum(chunk.new * chunk.count for chunk in chunks))
    for group in model.layers:
        work += _matrices(model, group, tokens, parallel.tp)
        work += _attention(model, group, chunks, parallel.tp)
        work.append(_elementwise(model, group, tokens, parallel.tp))
        work += _exchanges(model, group, tokens, parallel)
        if group.experts:
            work.append(_experts(model, group, tokens, parallel, skew))
    sequences = float(sum(chunk.count for chunk in chunks))
    work.append(_product(model, 1, sequences, model.hidden, model.vocab / parallel.tp))
    if parallel.pp > 1:
        states = tokens * model.hidden * ACTIVATION_BYTES
        work.append(Operation("send", parallel.pp - 1, 0.0, states, devices=parallel.pp))
    return work


def _product(model: Model, times: float, rows: float, inputs: float, outputs: float) -> Operation:
    weights = inputs * outputs * model.weight_bytes
    activations = rows * (inputs + outputs) * ACTIVATION_BYTES
    tiles = max(1.0, rows / TILE) * outputs / TILE
    flops = 2 * rows * inputs * outputs
    return Operation("matrix", times, flops, weights + activations, 1, rows, tiles)


def _matrices(model: Model, group: Layers, tokens: float, tp: int) -> list[Operation]:
    return [
        _product(model, group.count, tokens, inputs, outputs)
        for inputs, outputs in model.matrices(group, tp)
    ]


def _experts(
    model: Model, group: Layers, tokens: float, parallel: Parallel, skew: float
) -> Operation:
    """Grouped products over the rows that reach this device's experts.

    With ep > 1 the tokens of all attention replicas arrive, spread evenly over ep devices (an
    assumption: real routing needs balancing for it). On average the last tile of each expert is
    half empty, so half a tile of rows is computed for nothing per touched expert.
    """
    experts = group.experts
    assert experts is not None, "only layers with experts get here"
    share = parallel.ep if parallel.ep > 1 else 1
    gathered = tokens * parallel.attention_replicas if parallel.ep > 1 else tokens
    touched = experts.touched(gathered, skew) / share
    width = model.expert_parameters(experts) / (1 if parallel.ep > 1 else parallel.tp)
    rows = gathered * experts.top_k / share
    moved = rows * (2 * model.hidden + model.ffn_matrices * experts.width) * ACTIVATION_BYTES
    weights = touched * width * model.weight_bytes
    flops = 2 * (rows + touched * TILE / 2) * width
    return Operation("experts", group.count, flops, weights + moved, EXPERT_LAUNCHES)


def _attention(model: Model, group: Layers, chunks: Sequence[Chunk], tp: int) -> list[Operation]:
    """Prompts and decoding sequences apart, since different kernels serve them."""
    work: list[Operation] = []
    attention = group.attention
    per_token = attention.kv_values_per_token(tp) * model.kv_bytes
    parts: dict[Kind, list[Chunk]] = {
        "attention": [chunk for chunk in chunks if chunk.new > 1],
        "cache": [chunk for chunk in chunks if chunk.new == 1],
    }
    for kind, part in parts.items():
        if not part:
            continue
        decode = kind == "cache"
        flops = num_bytes = 0.0
        for chunk in part:
            pairs = causal_pairs(chunk.new, chunk.context, attention.window)
            read = cached_tokens_read(chunk.new, chunk.context, attention.window)
            flops += chunk.count * pairs * attention.flops_per_pair(tp, decode)
            num_bytes += chunk.count * (read + chunk.new) * per_token
        sequences = float(sum(chunk.count for chunk in part))
        work.append(Operation(kind, group.count, flops, num_bytes, 1, sequences))
    return work


def _elementwise(model: Model, group: Layers, tokens: float, tp: int) -> Operation:
    """Two norms with residual sums read and write two hidden states each; the feed-forward's
    activation reads two widths and writes one; queries, keys and values are rotated and stored."""
    states = 8.0 * model.hidden
    width = 3.0 * group.ffn_width / tp
    if group.experts:
        width += group.experts.top_k * (3.0 * group.experts.width + 2.0 * model.hidden)
    rotated = 2.0 * group.attention.matrices(tp)[0][1]
    num_bytes = tokens * (states + width + rotated) * ACTIVATION_BYTES
    return Operation("elementwise", group.count, 0.0, num_bytes, launches=2)


def _exchanges(model: Model, group: Layers, tokens: float, parallel: Parallel) -> list[Operation]:
    work: list[Operation] = []
    states = tokens * model.hidden * ACTIVATION_BYTES
    spread = group.experts is not None and parallel.ep > 1
    if parallel.tp > 1:
        times = group.count * (1 if spread else 2)  # spread experts bring their own exchange
        work.append(Operation("all_reduce", times, 0.0, states, 0, devices=parallel.tp))
    if spread and group.experts:
        one_way = tokens / parallel.tp * model.hidden * group.experts.top_k
        for value_bytes in (min(ACTIVATION_BYTES, model.weight_bytes), ACTIVATION_BYTES):
            sent = one_way * value_bytes  # out in the precision of the weights, back in 16 bits
            work.append(
                Operation(
                    "all_to_all",
                    group.count,
                    0.0,
                    sent,
                    0,
                    devices=parallel.ep,
                    copies=group.experts.top_k,
                )
            )
    return work
