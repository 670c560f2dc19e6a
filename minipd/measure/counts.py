"""How much work a phase is, by formula: the numerators of MFU and MBU. Free of torch.

Only useful work is counted, whatever an engine really does: if it computes masked scores or copies
KV about, its MFU and MBU fall. L, H, K, D, E, V as in the dimension table. Of a model with experts,
a token's arithmetic is that of the experts it goes through; the bytes are those of all experts that
some token of the step goes through (`experts_read`, a mean per layer that has experts).
"""

from __future__ import annotations

from minipd.model.config import ModelConfig


def prefill_flops(config: ModelConfig, num_tokens: int, start: int = 0) -> float:
    """FLOPs that read `num_tokens` prompt tokens after `start` cached ones.

    `2 * weights * T` for every matrix but the head, `2 * E * V` for the head on one row, and
    `4 * L * H * D` per pair of a query and a key that it sees (scores and weighted sum).
    """
    head = config.hidden_size * config.vocab_size
    body = config.num_matmul_parameters - head
    seen = sum(range(start + 1, start + num_tokens + 1))
    return 2 * body * num_tokens + 2 * head + _attention_flops(config, seen)


def decode_flops(config: ModelConfig, num_sequences: int, context: float) -> float:
    """FLOPs of one step: `2 * weights` and `4 * L * H * D * context` per sequence."""
    per_token = 2 * config.num_matmul_parameters + _attention_flops(config, context)
    return num_sequences * per_token


def weight_bytes(
    config: ModelConfig,
    bytes_per_value: int,
    num_sequences: int = 1,
    experts_read: float | None = None,
) -> int:
    """Bytes of weights that one step reads: each once, for all sequences together.

    A tied head is the embedding too, and is read whole. Of an untied embedding, only one row of E
    values per sequence is. Where nobody counted `experts_read`, it is the least possible: those of
    one token, as if all chose alike.
    """
    table = config.hidden_size * config.vocab_size
    untied = not config.tie_word_embeddings
    least = config.experts.top_k if config.experts else 0
    read = config.num_touched_parameters(least if experts_read is None else experts_read)
    once = read - (table if untied else 0)
    rows = num_sequences * config.hidden_size if untied else 0
    return (once + rows) * bytes_per_value


def decode_bytes(
    config: ModelConfig,
    bytes_per_value: int,
    num_sequences: int,
    context: float,
    experts_read: float | None = None,
) -> float:
    """Bytes that one step must read: the weights, and `context` tokens of KV per sequence.

    What it writes (one token of KV per sequence) and the activations, a thousandth, are left out.
    """
    kv = num_sequences * context * config.kv_bytes_per_token(bytes_per_value)
    return weight_bytes(config, bytes_per_value, num_sequences, experts_read) + kv


def mean_context(num_steps: int, depth: int = 0) -> float:
    """Tokens that a decode step attends to, itself included, on average from `depth` on."""
    return depth + (num_steps + 1) / 2


def _attention_flops(config: ModelConfig, pairs: float) -> float:
    return 4 * config.num_layers * config.num_heads * config.head_dim * pairs
