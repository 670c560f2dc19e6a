"""What a checkpoint's `config.json` says, in the course's own words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from minipd.model.expert_config import ExpertConfig, read_experts
from minipd.model.families import DEFAULTS, SUPPORTED
from minipd.model.fields import UnsupportedModelError, damaged, flag, number, size

MAX_CONTEXT = 2**22  # a table of all positions is kept: 2 GiB of it for heads of 128 in float32


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary position embedding: frequencies `theta ** (-2i / D)`, scaled as `kind` says.

    `linear` divides every frequency by `factor`. `llama3` divides the slow ones, keeps the fast
    ones and blends between (Llama 3.1 model card, `rope_scaling` of its config.json).
    """

    theta: float = 10000.0
    kind: Literal["default", "linear", "llama3"] = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_context: int = 8192

    def inverse_frequencies(self, head_dim: int) -> list[float]:
        """The D/2 rotation speeds, radians per position."""
        plain = [self.theta ** (-2 * i / head_dim) for i in range(head_dim // 2)]
        if self.kind == "default":
            return plain
        if self.kind == "linear":
            return [frequency / self.factor for frequency in plain]
        return [self._llama3(frequency) for frequency in plain]

    def _llama3(self, frequency: float) -> float:
        turns = self.original_max_context * frequency / (2 * math.pi)
        blend = (turns - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)
        blend = min(1.0, max(0.0, blend))
        return blend * frequency + (1.0 - blend) * frequency / self.factor


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Sizes of a decoder: L, H, K, D, E, F (feed-forward) and V of the dimension table."""

    architecture: str
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    hidden_size: int
    ffn_size: int
    vocab_size: int
    max_context: int
    rms_norm_eps: float = 1e-5
    tie_word_embeddings: bool = False
    qkv_bias: bool = False
    qk_norm: bool = False
    rope: RopeConfig = RopeConfig()
    experts: ExpertConfig | None = None

    def has_experts(self, layer: int) -> bool:
        return self.experts is not None and layer in self.experts.layers

    @property
    def num_matmul_parameters(self) -> int:
        """Weights that a decoded token multiplies with: the head and its own experts included."""
        return self._matrices(self.experts.top_k if self.experts else 0)

    def _matrices(self, experts_per_layer: float) -> int:
        qkv = self.hidden_size * (self.num_heads + 2 * self.num_kv_heads) * self.head_dim
        out = self.num_heads * self.head_dim * self.hidden_size
        dense = self.num_layers - (len(self.experts.layers) if self.experts else 0)
        ffn = dense * 3 * self.hidden_size * self.ffn_size
        if self.experts:
            ffn += self.experts.num_parameters(self.hidden_size, experts_per_layer)
        return self.num_layers * (qkv + out) + ffn + self.hidden_size * self.vocab_size

    @property
    def num_parameters(self) -> int:
        return self.num_touched_parameters(self.experts.count if self.experts else 0)

    def num_touched_parameters(self, experts_per_layer: float) -> int:
        """All weights, but of only so many experts in each layer that has any."""
        per_layer = 2 * self.hidden_size + (2 * self.head_dim if self.qk_norm else 0)
        if self.qkv_bias:
            per_layer += (self.num_heads + 2 * self.num_kv_heads) * self.head_dim
        embed = 0 if self.tie_word_embeddings else self.hidden_size * self.vocab_size
        small = self.num_layers * per_layer + self.hidden_size
        return self._matrices(experts_per_layer) + embed + small

    def kv_bytes_per_token(self, bytes_per_value: int = 4) -> int:
        """Keys and values of one token in all layers: `2 * L * K * D` values."""
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * bytes_per_value

    @classmethod
    def from_hf(cls, raw: Mapping[str, Any]) -> ModelConfig:
        """Read a Hugging Face `config.json`; raises `UnsupportedModelError` rather than guess."""
        try:
            return cls._from_hf(raw)
        except UnsupportedModelError:
            raise
        except Exception as error:  # a value of another type, wherever that shows
            raise UnsupportedModelError(f"config.json is damaged: {error}.") from error

    @classmethod
    def _from_hf(cls, raw: Mapping[str, Any]) -> ModelConfig:
        architecture = _architecture(raw)
        raw = {**DEFAULTS[architecture], **raw}
        _refuse_what_would_be_wrong(raw)
        num_heads, hidden_size = size(raw, "num_attention_heads"), size(raw, "hidden_size")
        config = cls(
            architecture=architecture,
            num_layers=size(raw, "num_hidden_layers"),
            num_heads=num_heads,
            num_kv_heads=size(raw, "num_key_value_heads", num_heads),
            head_dim=size(raw, "head_dim", hidden_size // num_heads),
            hidden_size=hidden_size,
            ffn_size=size(raw, "intermediate_size"),
            vocab_size=size(raw, "vocab_size"),
            max_context=size(raw, "max_position_embeddings", most=MAX_CONTEXT),
            rms_norm_eps=number({"rms_norm_eps": 1e-6, **raw}, "rms_norm_eps"),
            tie_word_embeddings=flag(raw, "tie_word_embeddings"),
            qkv_bias=architecture.startswith("Qwen2"),
            qk_norm=architecture.startswith("Qwen3"),
            rope=_rope(raw),
            experts=read_experts(raw) if architecture.startswith("Qwen3Moe") else None,
        )
        if config.num_heads % config.num_kv_heads or config.head_dim % 2:
            raise UnsupportedModelError(
                f"{config.num_heads} query heads cannot share {config.num_kv_heads} KV heads of "
                f"size {config.head_dim}; the config.json looks damaged."
            )
        return config


def _architecture(raw: Mapping[str, Any]) -> str:
    names = raw.get("architectures") or []
    if not names:
        kind = str(raw.get("model_type"))[:80]
        raise UnsupportedModelError(
            f"The config.json (model_type {kind!r}) names no architecture; "
            f"minipd reads {', '.join(SUPPORTED.values())}."
        )
    if not isinstance(names, list):
        raise damaged("architectures", names, "a list of names")
    if names[0] not in list(SUPPORTED):
        raise UnsupportedModelError(
            f"{str(names[0])[:80]} is not supported; minipd reads {', '.join(SUPPORTED.values())} "
            f"({', '.join(SUPPORTED)})."
        )
    return str(names[0])


def _refuse_what_would_be_wrong(raw: Mapping[str, Any]) -> None:
    problems: list[str] = []
    if raw.get("hidden_act", "silu") != "silu":
        problems.append(f"the activation {raw['hidden_act']!r} (only silu)")
    # Qwen2 always has q, k, v biases and Mistral never has, whatever this key says.
    if raw.get("attention_bias") and _family(raw) in ("Llama", "Qwen3", "Qwen3Moe"):
        problems.append("attention_bias")
    if raw.get("mlp_bias") and _family(raw) == "Llama":
        problems.append("mlp_bias")
    if raw.get("partial_rotary_factor") not in (None, 1.0):
        problems.append("partial_rotary_factor")
    if raw.get("quantization_config"):
        problems.append("quantised safetensors (use an unquantised copy or a GGUF file)")
    if _slides(raw):
        problems.append(f"sliding-window attention (sliding_window = {raw['sliding_window']})")
    if problems:
        raise UnsupportedModelError(f"This checkpoint needs {', '.join(problems)}: not supported.")


def _family(raw: Mapping[str, Any]) -> str:
    return str(raw["architectures"][0]).removesuffix("ForCausalLM")


def _slides(raw: Mapping[str, Any]) -> bool:
    """Whether some layer would look at fewer tokens than the context holds."""
    window = raw.get("sliding_window")
    if not window or size(raw, "sliding_window") >= size(raw, "max_position_embeddings"):
        return False
    if _family(raw) == "Mistral":
        return True
    if not raw.get("use_sliding_window"):
        return False
    if _family(raw) == "Qwen3Moe":
        return True
    kinds = raw.get("layer_types")
    if kinds is not None:
        return "sliding_attention" in kinds
    return size(raw, "num_hidden_layers") > int(raw.get("max_window_layers", 0))


def _rope(raw: Mapping[str, Any]) -> RopeConfig:
    """Both spellings: `rope_scaling` + `rope_theta`, or transformers 5's `rope_parameters`."""
    spec: Any = raw.get("rope_scaling") or raw.get("rope_parameters") or {}
    if not isinstance(spec, Mapping):
        raise damaged("rope_parameters", spec, "an object")
    # A setting for each kind of layer: only full attention gets here.
    spec = spec.get("full_attention") or spec
    kind = spec.get("rope_type") or spec.get("type") or "default"
    if kind not in ("default", "linear", "llama3"):
        raise UnsupportedModelError(
            f"The RoPE variant {kind!r} is not supported; default, linear and llama3 are."
        )
    silent = {"rope_theta": 10000.0}
    given = next((place for place in (spec, raw) if place.get("rope_theta") is not None), silent)
    theta = number(given, "rope_theta")
    if spec.get("partial_rotary_factor") not in (None, 1.0):
        raise UnsupportedModelError("This checkpoint needs partial_rotary_factor: not supported.")
    if kind == "default":
        return RopeConfig(theta)
    factor = number(spec, "factor")
    if kind == "linear":
        return RopeConfig(theta, "linear", factor)
    # A length beside the RoPE settings wins over one inside them, as in transformers.
    key = "original_max_position_embeddings"
    original = raw.get(key) or spec.get(key) or raw["max_position_embeddings"]
    slow, fast = number(spec, "low_freq_factor"), number(spec, "high_freq_factor")
    if fast <= slow:
        raise damaged("high_freq_factor", fast, f"more than low_freq_factor = {slow}")
    return RopeConfig(theta, "llama3", factor, slow, fast, size({key: original}, key))
