"""The architectures that the decoder computes, under the names that a config.json gives them."""

from __future__ import annotations

from typing import Any

SUPPORTED = {
    "LlamaForCausalLM": "Llama and SmolLM",
    "MistralForCausalLM": "Mistral",
    "Qwen2ForCausalLM": "Qwen2",
    "Qwen3ForCausalLM": "Qwen3 (dense)",
    "Qwen3MoeForCausalLM": "Qwen3-MoE",
}

# What transformers 5 assumes where a config.json is silent and a wrong guess would not show in the
# shapes of the weights (its configuration_*.py). Absent differs from null, which means "none".
DEFAULTS: dict[str, dict[str, Any]] = {
    "LlamaForCausalLM": {"max_position_embeddings": 2048},
    "MistralForCausalLM": {
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
    },
    "Qwen2ForCausalLM": {
        "num_key_value_heads": 32,
        "max_position_embeddings": 32768,
        "sliding_window": 4096,
        "max_window_layers": 28,
    },
    "Qwen3ForCausalLM": {
        "num_key_value_heads": 32,
        "head_dim": 128,
        "max_position_embeddings": 32768,
        "sliding_window": 4096,
        "max_window_layers": 28,
    },
    "Qwen3MoeForCausalLM": {
        "intermediate_size": 6144,
        "num_key_value_heads": 4,
        "max_position_embeddings": 32768,
        "sliding_window": 4096,
        "moe_intermediate_size": 768,
        "num_experts_per_tok": 8,
        "decoder_sparse_step": 1,
    },
}
