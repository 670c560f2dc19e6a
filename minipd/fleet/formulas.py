"""Back-of-envelope formulas of disaggregated serving, each with its source.

Bytes, seconds and tokens unless a name says otherwise; GB = 10^9 and GiB = 2^30 bytes, which the
sources below mix up. Standard library only. "facts" is the project's audited collection.
"""

from __future__ import annotations

from dataclasses import dataclass

KIB, MIB, GIB = 2**10, 2**20, 2**30
GB = 10**9
SECONDS_PER_DAY = 86_400


@dataclass(frozen=True, slots=True)
class KvShape:
    """What decides the size of a model's KV cache: layers, KV heads, head size."""

    layers: int
    kv_heads: int
    head_dim: int

    def bytes_per_token(self, bytes_per_value: float = 2.0) -> float:
        """Keys and values of one token in all layers: `2 L K D` values (facts C1)."""
        return 2 * self.layers * self.kv_heads * self.head_dim * bytes_per_value


# Facts C1 has the bytes per token of each.
KV_SHAPES: dict[str, KvShape] = {
    "OPT-13B": KvShape(40, 40, 128),
    "OPT-66B": KvShape(64, 72, 128),
    "OPT-175B": KvShape(96, 96, 128),
    "Llama-2-7B": KvShape(32, 32, 128),
    "Llama-2-70B": KvShape(80, 8, 128),
    "Llama-3-8B": KvShape(32, 8, 128),
    "Llama-3-70B": KvShape(80, 8, 128),
    "Llama-3.1-405B": KvShape(126, 8, 128),
    "Qwen2.5-0.5B": KvShape(24, 2, 64),
    "Qwen2.5-1.5B": KvShape(28, 2, 128),
    "Qwen2.5-7B": KvShape(28, 4, 128),
    "Qwen2.5-32B": KvShape(64, 8, 128),
    "Qwen2.5-72B": KvShape(80, 8, 128),
    "Qwen3-0.6B": KvShape(28, 8, 128),
    "Qwen3-4B": KvShape(36, 8, 128),
    "Qwen3-8B": KvShape(36, 8, 128),
    "Qwen3-14B": KvShape(40, 8, 128),
    "Qwen3-235B": KvShape(94, 4, 128),
    "GPT-2": KvShape(12, 12, 64),
}


def mla_bytes_per_token(layers: int, latent: int, rope: int, bytes_per_value: float = 2.0) -> float:
    """Multi-head latent attention keeps one latent and one rotary key per layer (DeepSeek-V3:
    61 layers of 512 + 64, 70,272 bytes; arXiv 2505.09343)."""
    return layers * (latent + rope) * bytes_per_value


def transfer_s(num_bytes: float, bytes_per_s: float, latency_s: float = 0.0) -> float:
    """Time on a link: a fixed part and a part that grows with the bytes (facts C6, C10)."""
    return latency_s + num_bytes / bytes_per_s


def mooncake_link_s(num_bytes: float) -> float:
    """Fit to Mooncake's nine hand-offs on H800: 0.38 ms + bytes / 146 GB/s, within 7 % (C6)."""
    return transfer_s(num_bytes, 146 * GB, 0.38e-3)


def handoff_operations(blocks: int, layers: int) -> int:
    """Copies needed when every block is moved by layer, keys and values apart (facts C9)."""
    return blocks * layers * 2


def prefill_flops(
    tokens: float, layers: int, hidden: int, a: float = 4.0, b: float = 22.0
) -> float:
    """Mooncake (FAST'25) section 2: `l (a n^2 d + b n d^2)`; a = 4, b = 22 for LLaMA-3-70B."""
    return layers * (a * tokens**2 * hidden + b * tokens * hidden**2)


def reuse_threshold_bytes_per_s(
    prefix_tokens: float,
    flops_per_s: float,
    *,
    hidden: int = 8192,
    gqa: int = 8,
    bytes_per_value: float = 2.0,
    a: float = 4.0,
    b: float = 22.0,
) -> float:
    """Loading a cached prefix beats computing it again above this bandwidth (facts C11).

    Mooncake (FAST'25): `B / G > 2 d s / (gqa (a p d + b d^2))`, with p the prefix, d the hidden
    size, s bytes per value, `gqa` query heads per KV head, G the machine's FLOP/s. The number of
    layers cancels. Defaults: LLaMA-3-70B.
    """
    work = gqa * (a * prefix_tokens * hidden + b * hidden**2)
    return flops_per_s * 2.0 * hidden * bytes_per_value / work


def little_concurrency(requests_per_s: float, seconds_in_system: float) -> float:
    """Little's law: requests under way = arrival rate times time in the system."""
    return requests_per_s * seconds_in_system


def concurrency_from_benchmark(
    tokens_per_s: float, output_tokens: int, ttft_s: float, tpot_s: float
) -> float:
    """Little's law on a benchmark row; must return the concurrency it was run at (facts C14)."""
    request_s = ttft_s + (output_tokens - 1) * tpot_s
    return little_concurrency(tokens_per_s / output_tokens, request_s)


def usd_per_million(gpus: float, usd_per_gpu_hour: float, tokens_per_s: float) -> float:
    """Cost of a million tokens. *Which* GPUs are billed decides the figure: LMSYS' $0.20 bills the
    72 decode GPUs of 96, the prefill nodes cost nothing (facts 1.3, C13)."""
    return gpus * usd_per_gpu_hour / (tokens_per_s * 3600.0) * 1e6


def nodes_for_volume(tokens_per_day: float, tokens_per_s_per_node: float) -> float:
    """Nodes that a daily volume keeps busy on average (facts 1.1, C12)."""
    return tokens_per_day / SECONDS_PER_DAY / tokens_per_s_per_node


def usd_per_day(nodes: float, gpus_per_node: int = 8, usd_per_gpu_hour: float = 2.0) -> float:
    return nodes * gpus_per_node * usd_per_gpu_hour * 24.0


def matched_rate_per_worker(
    prefill_workers: int, prefill_rate: float, decode_workers: int, decode_rate: float
) -> float:
    """Requests/s per worker of a split system: the slower pool decides (DistServe, facts C3)."""
    rate = min(prefill_workers * prefill_rate, decode_workers * decode_rate)
    return rate / (prefill_workers + decode_workers)


def ridge_point(flops_per_s: float, bytes_per_s: float) -> float:
    """FLOP per byte from which a device is limited by arithmetic instead of memory."""
    return flops_per_s / bytes_per_s


def flash_attention_intensity(block: int) -> float:
    """FLOP per byte of FlashAttention with square blocks: `2 b / 3` (DistServe)."""
    return 2.0 * block / 3.0


def expected_touched(experts: int, top_k: int, tokens: float) -> float:
    """Distinct experts of a layer that `tokens` tokens choose, on average: `E (1 - (1 - k/E)^T)`.

    Each token takes `top_k` of E equally popular experts, whatever the others take; one expert is
    then left out by all of them with chance `(1 - k/E)^T`. 8 tokens of 8 in 128 touch 52. Skewed
    popularity: `minipd.fleet.models.touched_experts`, of which this is the case without skew.
    """
    return experts * (1.0 - (1.0 - top_k / experts) ** tokens)
