"""Names that quiz keys may use: the engine's own numbers for the model of the lessons. No torch."""

from __future__ import annotations

from minipd.measure import counts
from minipd.model.config import ModelConfig, RopeConfig

# SmolLM2-135M, from its config.json; a test compares it with the model that the engine loads.
SMOLLM2 = ModelConfig(
    architecture="LlamaForCausalLM",
    num_layers=30,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    hidden_size=576,
    ffn_size=1536,
    vocab_size=49152,
    max_context=8192,
    rms_norm_eps=1e-5,
    tie_word_embeddings=True,
    rope=RopeConfig(100000.0),
)


def engine_values() -> dict[str, float]:
    """Sizes and counts of work by name, as `minipd.measure.counts` defines them."""
    return {
        "parameters": SMOLLM2.num_parameters,
        "matmul_parameters": SMOLLM2.num_matmul_parameters,
        "weight_bytes_fp32": counts.weight_bytes(SMOLLM2, 4),
        "weight_bytes_bf16": counts.weight_bytes(SMOLLM2, 2),
        "kv_bytes_per_token_fp32": SMOLLM2.kv_bytes_per_token(4),
        "prefill_flops_512": counts.prefill_flops(SMOLLM2, 512),
        "decode_flops_1": counts.decode_flops(SMOLLM2, 1, 1),
    }
