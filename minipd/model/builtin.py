"""`tiny`, `mini`, `tiny-moe`: seeded random models that need no download, with a tokenizer.

They say nothing sensible, but take the same path through the engine as a real model. Their files
are the same bytes on every machine: weights come from whole random numbers and one exact
multiplication, never from a processor's own logarithm or cosine.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from minipd.model.config import ModelConfig
from minipd.model.recipe import recipe
from minipd.model.store import build_once, is_built, write_json, write_safetensors

# A little prose and code in several languages: all that the tokenizer is trained on.
TEXT_FILE = Path(__file__).with_name("builtin_text.txt")
VOCAB_SIZE = 512
MAX_CONTEXT = 4096
END, SPEAKERS = "<|end|>", ("<|system|>", "<|user|>", "<|assistant|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] }}"
    "{{ '<|end|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
# (L, E, H, K, D, F): `mini` has 25 million parameters, nearly all of them in its layers.
SIZES = {
    "tiny": (4, 64, 4, 2, 16, 192),
    "mini": (8, 512, 8, 4, 64, 1536),
    "tiny-moe": (4, 64, 4, 2, 16, 32),
}
SEEDS = {"tiny": 11, "mini": 12, "tiny-moe": 13}
# (experts, of which each token goes through): as many as Qwen3-30B-A3B has, each far narrower.
EXPERTS = {"tiny-moe": (128, 8)}


def random_folder(name: str) -> Path:
    """The cache's folder of one of the models, written on first use."""
    return build_once(_folder_name(name), lambda folder: _build(name, folder))


def random_is_cached(name: str) -> bool:
    return is_built(_folder_name(name))


def _folder_name(name: str) -> str:
    return f"{name}-1"  # raise the number when anything about the models changes


def _build(name: str, folder: Path) -> None:
    raw = _hf_config(name)
    config = ModelConfig.from_hf(raw)
    shapes = {part: shape for fused in recipe(config) for part, shape in fused.parts}
    write_safetensors(folder / "model.safetensors", shapes, _weights(shapes, SEEDS[name]))
    _tokenizer().save(str(folder / "tokenizer.json"))
    write_json(folder / "tokenizer_config.json", _tokenizer_config())
    ids = {key: value for key, value in raw.items() if key.endswith("token_id")}
    write_json(folder / "generation_config.json", ids)
    write_json(folder / "config.json", raw)


def _hf_config(name: str) -> dict[str, Any]:
    layers, hidden, heads, kv_heads, head_dim, ffn = SIZES[name]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "intermediate_size": ffn,
        "vocab_size": VOCAB_SIZE,
        "max_position_embeddings": MAX_CONTEXT,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "tie_word_embeddings": False,
        "dtype": "float32",
        "bos_token_id": None,
        "eos_token_id": 0,
        "pad_token_id": 0,
        **(_expert_fields(name, ffn) if name in EXPERTS else {}),
    }


def _expert_fields(name: str, ffn: int) -> dict[str, Any]:
    """What a Qwen3-MoE model's config says otherwise; the settings are those of Qwen3-30B-A3B."""
    count, top_k = EXPERTS[name]
    return {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "num_experts": count,
        "num_experts_per_tok": top_k,
        "moe_intermediate_size": ffn,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
    }


def _weights(shapes: dict[str, tuple[int, ...]], seed: int) -> Iterator[np.ndarray[Any, Any]]:
    """Uniform values of standard deviation 1/sqrt(inputs), so that activations keep their size.

    The embedding has deviation 1 and the head 3/sqrt(E): scores are then spread widely enough
    that the best token seldom nearly ties with the second.
    """
    generator = torch.Generator("cpu").manual_seed(seed)
    for name, shape in shapes.items():
        if len(shape) == 1:
            yield np.ones(shape, dtype=np.float32)
            continue
        deviation = 3.0 if name.startswith("lm_head") else 1.0
        if not name.startswith("model.embed"):
            deviation /= shape[1] ** 0.5
        drawn = torch.empty(shape, dtype=torch.int32)
        drawn.random_(-32768, 32768, generator=generator)
        # A uniform variable on (-1, 1) has deviation 1/sqrt(3).
        yield drawn.to(torch.float32).mul_(deviation * 3**0.5 / 32768).numpy()


def _tokenizer() -> Tokenizer:
    """Byte-level BPE: every text survives encoding and decoding, whatever its language."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[END, *SPEAKERS],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    text = TEXT_FILE.read_text(encoding="utf-8")
    tokenizer.train_from_iterator(text.splitlines(keepends=True), trainer)
    return tokenizer


def _tokenizer_config() -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END,
        "pad_token": END,
        "additional_special_tokens": list(SPEAKERS),
        "model_max_length": MAX_CONTEXT,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
