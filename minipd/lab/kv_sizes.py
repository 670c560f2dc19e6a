"""Sizing one box: what the weights leave, how many tokens of KV fit, and so how many users.

Real models only, as configs, so that parameters and KV bytes come from the engine's own formulas.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from minipd.lab.predict import reveal
from minipd.lab.show import show_table
from minipd.measure.counts import weight_bytes
from minipd.model.config import ModelConfig

RESERVE_SHARE = 0.1  # of the memory: intermediate results, the program itself, the driver


def _config(kind: str, *sizes: int, tied: bool = False) -> ModelConfig:
    """`sizes` are L, H, K, D, E, F, V and the longest context."""
    layers, heads, kv_heads, head_dim, hidden, ffn, vocab, context = sizes
    return ModelConfig(
        architecture=f"{kind}ForCausalLM",
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        hidden_size=hidden,
        ffn_size=ffn,
        vocab_size=vocab,
        max_context=context,
        tie_word_embeddings=tied,
        qkv_bias=kind == "Qwen2",
        qk_norm=kind == "Qwen3",
    )


# From each model's config.json. Llama-2-7B is the one with a KV head for every query head.
MODELS: dict[str, ModelConfig] = {
    "SmolLM2-135M": _config("Llama", 30, 9, 3, 64, 576, 1536, 49152, 8192, tied=True),
    "Qwen2.5-0.5B": _config("Qwen2", 24, 14, 2, 64, 896, 4864, 151936, 32768, tied=True),
    "Llama-2-7B": _config("Llama", 32, 32, 32, 128, 4096, 11008, 32000, 4096),
    "Qwen2.5-7B": _config("Qwen2", 28, 28, 4, 128, 3584, 18944, 152064, 32768),
    "Llama-3-8B": _config("Llama", 32, 32, 8, 128, 4096, 14336, 128256, 8192),
    "Qwen3-8B": _config("Qwen3", 36, 32, 8, 128, 4096, 12288, 151936, 40960),
    "Llama-3-70B": _config("Llama", 80, 64, 8, 128, 8192, 28672, 128256, 8192),
    "Qwen2.5-72B": _config("Qwen2", 80, 64, 8, 128, 8192, 29568, 152064, 32768),
}


@dataclass(frozen=True, slots=True)
class Sizing:
    """One box with one model: sizes in bytes, `context` in tokens for each user."""

    model: str
    memory: int
    weights: int
    kv_per_token: int
    context: int
    longest_context: int

    @property
    def reserve(self) -> int:
        return round(RESERVE_SHARE * self.memory)

    @property
    def room(self) -> int:
        """What weights and reserve leave for keys and values; 0 if they do not even fit."""
        return max(0, self.memory - self.weights - self.reserve)

    @property
    def tokens(self) -> int:
        return self.room // self.kv_per_token

    @property
    def users(self) -> int:
        return self.tokens // self.context

    @property
    def sentence(self) -> str:
        """The whole sum in words, for those who do not see the picture."""
        box = f"{self.model} in a box of {_gb(self.memory)}: weights {_gb(self.weights)}, reserve "
        box += f"{_gb(self.reserve)}"
        if not self.room:
            return f"{box}. They do not fit: there is no room for any user."
        people = "1 user" if self.users == 1 else f"{self.users:,} users"
        told = f"{box}, left for notes {_gb(self.room)}, which is {self.tokens:,} tokens. "
        each = "" if self.users == 1 else " each"
        told += f"That is {people} with {self.context:,} tokens{each}."
        if self.context > self.longest_context:
            told += f" But this model was made for at most {self.longest_context:,} tokens."
        return told


def _gb(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:,.1f} GB"


def size_box(model: str, memory_gb: float, context: int, bytes_per_value: int = 2) -> Sizing:
    """Weights and KV of a real model in `memory_gb` (10^9 bytes); 2 bytes are a 16-bit type."""
    config = MODELS[model]
    return Sizing(
        model,
        round(memory_gb * 1e9),
        config.num_parameters * bytes_per_value,
        config.kv_bytes_per_token(bytes_per_value),
        context,
        config.max_context,
    )


def users_table(memory_gb: float, context: int) -> dict[str, list[object]]:
    """Every model in one box: the calculator's text version."""
    sizes = [size_box(name, memory_gb, context) for name in MODELS]
    return {
        "model": [size.model for size in sizes],
        "weights (GB)": [f"{size.weights / 1e9:.1f}" for size in sizes],
        "KV bytes per token": [f"{size.kv_per_token:,}" for size in sizes],
        "tokens that fit": [f"{size.tokens:,}" for size in sizes],
        "users": [f"{size.users:,}" for size in sizes],
    }


def heads_table(bytes_per_value: int = 2) -> dict[str, list[object]]:
    """What sharing KV heads saves: each model as it is, and with a KV head per query head."""
    configs = list(MODELS.values())
    kept = [c.kv_bytes_per_token(bytes_per_value) for c in configs]
    shared = [c.num_heads // c.num_kv_heads for c in configs]
    return {
        "model": list(MODELS),
        "layers": [c.num_layers for c in configs],
        "query heads": [c.num_heads for c in configs],
        "KV heads": [c.num_kv_heads for c in configs],
        "bytes per token": [f"{size:,}" for size in kept],
        "if nothing were shared": [f"{size * by:,}" for size, by in zip(kept, shared)],
        "smaller by": [f"{by} times" if by > 1 else "nothing" for by in shared],
    }


def tokens_as_large_as_weights(config: ModelConfig, bytes_per_value: int) -> int:
    """From how many tokens on a step of decode reads more notes than weights."""
    return weight_bytes(config, bytes_per_value) // config.kv_bytes_per_token(bytes_per_value)


def try_box(
    kv_bytes: Callable[..., int], users_that_fit: Callable[..., int], prediction: str
) -> None:
    """Size a box of 48 GB with the learner's functions; reveal what sharing KV heads brings."""
    memory, tokens, block = 48 * 10**9, 2048, 16
    users: list[int] = []
    try:
        for name in ("Llama-2-7B", "Qwen2.5-7B"):
            c = MODELS[name]
            heads = (c.num_layers, c.num_heads, c.num_kv_heads, c.head_dim)
            weights, reserve = 2 * c.num_parameters, round(RESERVE_SHARE * memory)
            per_token = kv_bytes(1, *heads, 2)
            users.append(users_that_fit(memory, weights, reserve, per_token, tokens, block))
    except NotImplementedError:
        print("This cell needs your functions: solve Exercises 1 and 3, then run it again.")
        return
    box = f"{memory / 1e9:.0f} GB, {tokens:,} tokens for each user"
    show_table({"model": ["Llama-2-7B", "Qwen2.5-7B"], "users": users}, box)
    if not users[0]:
        print("Your functions leave no room for Llama-2-7B: see what the checks say.")
        return
    reveal(prediction, users[1] / users[0], "times")
    print(_why_not_as_many("Llama-2-7B", "Qwen2.5-7B"))


def _why_not_as_many(large: str, small: str) -> str:
    """Why the users grow by another factor than the notes shrink by: the weights differ too."""
    a, b = MODELS[large], MODELS[small]
    notes = a.kv_bytes_per_token(2) / b.kv_bytes_per_token(2)
    weights = 2 * (b.num_parameters - a.num_parameters) / 1e9
    return (
        f"{small}'s notes are {notes:.1f} times smaller, and its weights take "
        f"{weights:.1f} GB more, which is room that no user gets."
    )
