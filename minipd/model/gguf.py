"""Turns a GGUF file of a Llama-like model into a Hugging Face folder, once, in the cache.

Quantised blocks are unpacked to float32 by the `gguf` package; the tokenizer is rebuilt by
`transformers`. Sources: the GGUF specification (ggml repository, docs/gguf.md) for keys and names.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from tqdm.auto import tqdm

from minipd.model.config import ModelConfig, RopeConfig
from minipd.model.gguf_tokenizer import write_tokenizer
from minipd.model.store import (
    ModelLoadError,
    Shape,
    build_once,
    require_free_space,
    sha256_of,
    write_json,
    write_safetensors,
)
from minipd.model.weights import check_tensors

Array = np.ndarray[Any, Any]

ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
WHOLE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
PER_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
ROPE_FACTORS = "rope_freqs.weight"


def converted_folder(path: Path) -> Path:
    """The cache's Hugging Face folder for this GGUF file, made on first use; keyed by its hash."""
    return build_once(f"gguf-{sha256_of(path)[:16]}", lambda folder: convert(path, folder))


def convert(path: Path, folder: Path) -> None:
    """Write config, float32 weights and tokenizer of the GGUF file into an empty folder."""
    source = GgufFile(path)
    config = source.hf_config()
    shapes = {source.hf_name(t.name): source.shape(t) for t in source.tensors}
    check_tensors(ModelConfig.from_hf(config), shapes, path)  # before any large file is written
    require_free_space(folder, 4 * sum(int(np.prod(shape)) for shape in shapes.values()))
    model, cut = (str(source.field(f"tokenizer.ggml.{key}", "default")) for key in ("model", "pre"))
    write_tokenizer(path, model, cut, folder)
    write_safetensors(folder / "model.safetensors", shapes, source.values())
    ids = {k: v for k, v in config.items() if k.endswith("token_id")}
    write_json(folder / "generation_config.json", ids)
    write_json(folder / "config.json", config)


class GgufFile:
    """A GGUF file's facts and tensors under their Hugging Face names."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.reader: Any = gguf.GGUFReader(path)
        except Exception as error:
            # The reader has no error class of its own: damage shows as whatever it stumbles over.
            raise ModelLoadError(_unreadable(path, error)) from error
        self.gguf_architecture = str(self.field("general.architecture", "unknown"))
        if self.gguf_architecture not in ARCHITECTURES or self.model_field("expert_count", 0):
            raise ModelLoadError(
                f"{path.name} holds a model of architecture {self.gguf_architecture!r}"
                f"{' with experts' * bool(self.model_field('expert_count', 0))}: minipd reads "
                f"dense GGUF models of architecture {', '.join(ARCHITECTURES)}."
            )
        self.tensors: list[Any] = [t for t in self.reader.tensors if t.name != ROPE_FACTORS]
        self._refuse_unknown_quantisation()

    def field(self, key: str, default: Any = None) -> Any:
        found = self.reader.get_field(key)
        return default if found is None else found.contents()

    def model_field(self, key: str, default: Any = None) -> Any:
        return self.field(f"{self.gguf_architecture}.{key}", default)

    def _refuse_unknown_quantisation(self) -> None:
        tried: set[Any] = set()
        for tensor in self.tensors:
            if tensor.tensor_type not in tried:
                tried.add(tensor.tensor_type)
                _dequantize(tensor, self.path, tensor.data[:1])

    def hf_name(self, name: str) -> str:
        if name in WHOLE:
            return WHOLE[name]
        match name.split("."):
            case ["blk", index, part, ("weight" | "bias") as kind] if part in PER_LAYER:
                return f"model.layers.{index}.{PER_LAYER[part]}.{kind}"
            case _:
                raise ModelLoadError(
                    f"{self.path.name} has the tensor {name!r}, which no model that minipd "
                    "computes has: use a GGUF file of a plain Llama, Mistral, Qwen2 or Qwen3."
                )

    @staticmethod
    def shape(tensor: Any) -> Shape:
        """GGUF lists dimensions fastest first; this is (out, in), as NumPy and torch have it."""
        return tuple(int(n) for n in reversed(tensor.shape))

    def values(self) -> Iterator[Array]:
        """Every tensor as float32, in the order of `tensors` and in Hugging Face's row order."""
        heads = {"attn_q": self._heads(), "attn_k": self._kv_heads()}
        for tensor in tqdm(self.tensors, desc=f"Converting {self.path.name}", disable=None):
            value = _dequantize(tensor, self.path, tensor.data).reshape(self.shape(tensor))
            part = tensor.name.split(".")[-2]
            turned = self.gguf_architecture == "llama" and part in heads
            yield _unpermuted(value, heads[part]) if turned else value

    def _heads(self) -> int:
        return int(self.model_field("attention.head_count", 0))

    def _kv_heads(self) -> int:
        return int(self.model_field("attention.head_count_kv", self._heads()))

    def hf_config(self) -> dict[str, Any]:
        """The `config.json` that describes this file; raises where the file says too little."""
        try:
            return self._hf_config()
        except (TypeError, ValueError, ZeroDivisionError) as error:
            if isinstance(error, ModelLoadError):
                raise
            raise ModelLoadError(
                f"{self.path.name} does not say how large its model is ({error}): "
                "download it again or use another conversion."
            ) from error

    def _hf_config(self) -> dict[str, Any]:
        size, names = int(self.model_field("embedding_length")), [t.name for t in self.tensors]
        embed = next((t for t in self.tensors if t.name == "token_embd.weight"), None)
        head_dim = int(self.model_field("attention.key_length", size // self._heads()))
        special = {
            f"{x}_token_id": self.field(f"tokenizer.ggml.{x}_token_id") for x in ("bos", "eos")
        }
        return {
            "architectures": [ARCHITECTURES[self.gguf_architecture]],
            "model_type": self.gguf_architecture,
            "vocab_size": self.shape(embed)[0] if embed else 0,
            "hidden_size": size,
            "intermediate_size": int(self.model_field("feed_forward_length")),
            "num_hidden_layers": int(self.model_field("block_count")),
            "num_attention_heads": self._heads(),
            "num_key_value_heads": self._kv_heads(),
            "head_dim": head_dim,
            "hidden_act": "silu",
            "max_position_embeddings": int(self.model_field("context_length")),
            "rms_norm_eps": float(self.model_field("attention.layer_norm_rms_epsilon")),
            "rope_parameters": self._rope(head_dim),
            "sliding_window": self.model_field("attention.sliding_window"),
            "use_sliding_window": self.model_field("attention.sliding_window") is not None,
            "tie_word_embeddings": "output.weight" not in names,
            "dtype": "float32",
            **special,
            "pad_token_id": self.field("tokenizer.ggml.padding_token_id"),
        }

    def _rope(self, head_dim: int) -> dict[str, Any]:
        theta = float(self.model_field("rope.freq_base", 10000.0))
        if int(self.model_field("rope.dimension_count", head_dim)) != head_dim:
            raise ModelLoadError(f"{self.path.name} rotates a part of each head: not supported.")
        factors = next((t for t in self.reader.tensors if t.name == ROPE_FACTORS), None)
        if factors is not None:
            return _llama3_rope(self.path, theta, np.asarray(factors.data, dtype=np.float64))
        kind = str(self.model_field("rope.scaling.type", "none"))
        factor = float(self.model_field("rope.scaling.factor", 1.0))
        if kind == "none":
            return {"rope_type": "default", "rope_theta": theta}
        return {"rope_type": kind, "rope_theta": theta, "factor": factor}


def _llama3_rope(path: Path, theta: float, factors: Array) -> dict[str, Any]:
    """GGUF keeps llama3 scaling as one divisor per frequency; find the setting that gives them.

    Every published llama3 checkpoint uses low 1, high 4 and an original context of 8192; the
    slowest frequency is divided by the whole factor. Anything else is refused, not approximated.
    """
    rope = RopeConfig(theta, "llama3", float(factors.max()), 1.0, 4.0, 8192)
    plain = np.array(RopeConfig(theta).inverse_frequencies(2 * len(factors)))
    expected = plain / np.array(rope.inverse_frequencies(2 * len(factors)))
    if not np.allclose(factors, expected, rtol=1e-4):
        raise ModelLoadError(
            f"{path.name} scales RoPE in a way that is not llama3's: not supported."
        )
    return {
        "rope_type": "llama3",
        "rope_theta": theta,
        "factor": rope.factor,
        "low_freq_factor": rope.low_freq_factor,
        "high_freq_factor": rope.high_freq_factor,
        "original_max_position_embeddings": rope.original_max_context,
    }


def _unpermuted(value: Array, num_heads: int) -> Array:
    """Undo llama.cpp's row order of q and k: it interleaves the two halves that RoPE pairs.

    `value` is (heads * D, in) or (heads * D,).
    """
    pairs = value.reshape(num_heads, -1, 2, *value.shape[1:])  # (heads, D/2, 2, in)
    return pairs.swapaxes(1, 2).reshape(value.shape)


def _dequantize(tensor: Any, path: Path, blocks: Array) -> Array:
    try:
        return gguf.dequantize(blocks, tensor.tensor_type).astype(np.float32, copy=False)
    except (NotImplementedError, KeyError) as error:
        raise ModelLoadError(
            f"Tensor {tensor.name!r} of {path.name} uses the quantisation "
            f"{tensor.tensor_type.name}, which the gguf package cannot unpack: use another "
            "quantisation of this model, such as Q8_0, Q4_K_M or F16."
        ) from error


def _unreadable(path: Path, error: Exception) -> str:
    if "GGMLQuantizationType" in str(error):
        return (
            f"{path.name} uses a quantisation unknown to the gguf package ({error}): upgrade gguf "
            "or use another quantisation of this model, such as Q8_0, Q4_K_M or F16."
        )
    return (
        f"{path.name} is not a GGUF file, or damaged or not complete ({error}): download it again."
    )
