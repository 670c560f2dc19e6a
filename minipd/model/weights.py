"""Reads a Hugging Face folder's safetensors straight into an empty `Decoder`.

A checkpoint stores q, k, v, gate and up apart and as (out, in); the decoder wants them fused and as
(in, out). Tensors are read one by one, so no more than one fused tensor exists twice at any time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate import init_empty_weights
from accelerate.utils import set_module_tensor_to_device
from safetensors import SafetensorError, safe_open
from torch import Tensor

from minipd.model.config import ModelConfig
from minipd.model.decoder import Decoder, num_head_groups
from minipd.model.pages import ALIGNMENT_BYTES, WeightMemory
from minipd.model.store import ModelLoadError, Shape

PICKLES = (".bin", ".pt", ".pth", ".ckpt")
INDEX = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True)
class Fused:
    """One parameter of the decoder, and the checkpoint's tensors (name, shape) it is made of."""

    name: str
    parts: tuple[tuple[str, Shape], ...]

    @property
    def num_values(self) -> int:
        return sum(math.prod(shape) for _, shape in self.parts)

    @property
    def is_turned(self) -> bool:
        """Whether it is stored (in, out); the embedding is looked up by rows and stays (V, E)."""
        return len(self.parts[0][1]) == 2 and self.name != "embed"


def recipe(config: ModelConfig) -> Iterator[Fused]:
    """Every parameter of `Decoder(config)`, in the order of the forward pass."""
    embed = ("model.embed_tokens.weight", (config.vocab_size, config.hidden_size))
    if not config.tie_word_embeddings:
        yield Fused("embed", (embed,))
    for index in range(config.num_layers):
        yield from _layer(config, f"layers.{index}.", f"model.layers.{index}.")
    yield Fused("final_norm", (("model.norm.weight", (config.hidden_size,)),))
    head = ("lm_head.weight", embed[1])
    yield Fused("head", (embed if config.tie_word_embeddings else head,))


def _layer(c: ModelConfig, ours: str, theirs: str) -> Iterator[Fused]:
    rows = {"q": c.num_heads * c.head_dim, "k": c.num_kv_heads * c.head_dim}
    rows["v"] = rows["k"]
    attention, mlp, size = f"{theirs}self_attn.", f"{theirs}mlp.", c.hidden_size
    yield Fused(f"{ours}input_norm", ((f"{theirs}input_layernorm.weight", (size,)),))
    qkv = tuple((f"{attention}{x}_proj.weight", (n, size)) for x, n in rows.items())
    yield Fused(f"{ours}qkv", qkv)
    if c.qkv_bias:
        biases = tuple((f"{attention}{x}_proj.bias", (n,)) for x, n in rows.items())
        yield Fused(f"{ours}qkv_bias", biases)
    if c.qk_norm:
        yield Fused(f"{ours}q_norm", ((f"{attention}q_norm.weight", (c.head_dim,)),))
        yield Fused(f"{ours}k_norm", ((f"{attention}k_norm.weight", (c.head_dim,)),))
    yield Fused(f"{ours}o", ((f"{attention}o_proj.weight", (size, rows["q"])),))
    yield Fused(f"{ours}post_norm", ((f"{theirs}post_attention_layernorm.weight", (size,)),))
    gate_up = tuple((f"{mlp}{x}_proj.weight", (c.ffn_size, size)) for x in ("gate", "up"))
    yield Fused(f"{ours}gate_up", gate_up)
    yield Fused(f"{ours}down", ((f"{mlp}down_proj.weight", (size, c.ffn_size)),))


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that make up the checkpoint; raises when any is missing."""
    index = folder / INDEX
    if index.is_file():
        try:
            names = set(json.loads(index.read_text(encoding="utf-8-sig"))["weight_map"].values())
        except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError):
            raise ModelLoadError(f"{index} is damaged: download this file again.") from None
        files = [folder / str(name) for name in sorted(names)]
        if lost := [file.name for file in files if not file.is_file()]:
            raise ModelLoadError(
                f"{folder} lacks {', '.join(lost)}, named in {INDEX}: download the missing files."
            )
        return files
    single = folder / "model.safetensors"
    files = [single] if single.is_file() else sorted(folder.glob("*.safetensors"))
    if len(files) != 1:
        raise ModelLoadError(_no_weights(folder, files))
    return files


def _no_weights(folder: Path, files: list[Path]) -> str:
    if files:
        return f"{folder} holds several safetensors files but no {INDEX}: add that file."
    pickles = [file.name for file in sorted(folder.iterdir()) if file.suffix in PICKLES]
    return (
        refuse_pickle(folder / pickles[0])
        if pickles
        else (f"{folder} holds no safetensors weights: give a folder with model.safetensors in it.")
    )


def refuse_pickle(path: Path) -> str:
    return (
        f"{path.name} is refused, because loading a pickled checkpoint can run any program that "
        "was put inside it: use the model's safetensors files or a GGUF file instead."
    )


class Checkpoint:
    """Lazy view of a folder's tensors; use as a context manager, which closes the files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files = ExitStack()
        self._reader_of: dict[str, Any] = {}
        try:
            for path in weight_files(folder):
                self._open(path)
        except BaseException:
            self._files.close()
            raise

    def _open(self, path: Path) -> None:
        try:
            reader = self._files.enter_context(safe_open(path, framework="pt", device="cpu"))
            self._reader_of |= dict.fromkeys(reader.keys(), reader)
        except (SafetensorError, OSError) as error:
            raise ModelLoadError(
                f"{path} is damaged or not complete ({error}): delete it and download it again."
            ) from error

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def shapes(self) -> dict[str, Shape]:
        """Every tensor's shape, from the files' headers."""
        return {n: tuple(r.get_slice(n).get_shape()) for n, r in self._reader_of.items()}

    def tensor(self, name: str) -> Tensor:
        """The stored tensor; raises unless it has a floating-point type."""
        try:
            value: Tensor = self._reader_of[name].get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise ModelLoadError(f"Tensor {name!r} cannot be read ({error}).") from error
        if value.dtype not in (torch.float32, torch.bfloat16, torch.float16, torch.float64):
            raise ModelLoadError(
                f"Tensor {name!r} is stored as {value.dtype}, which is quantised: use an "
                "unquantised copy of the model or a GGUF file."
            )
        return value


def check_tensors(config: ModelConfig, shapes: Mapping[str, Shape], place: Path) -> None:
    """Raises unless `shapes` has exactly the tensors that `config` asks for, of the right shapes.

    Done before anything is built: until then nothing has confirmed the sizes in a config.
    """
    layers = len({name.split(".")[2] for name in shapes if name.startswith("model.layers.")})
    if layers != config.num_layers:
        raise _strangers(config, place, f"has {layers} layers and not {config.num_layers}")
    wanted = {name: shape for fused in recipe(config) for name, shape in fused.parts}
    # Old checkpoints carry their rotary table, and tied ones sometimes a second embedding.
    unused = {"lm_head.weight"} if config.tie_word_embeddings else set[str]()
    found = {n for n in shapes if not n.endswith("rotary_emb.inv_freq")} - unused
    for verb, names in (
        ("lacks", wanted.keys() - found),
        ("has the unknown", found - wanted.keys()),
    ):
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise _strangers(config, place, f"{verb} tensor {min(names)!r}{more}")
    for name, shape in wanted.items():
        if shapes[name] != shape:
            fault = f"has tensor {name!r} of shape {shapes[name]} instead of {shape}"
            raise _strangers(config, place, fault)


def _strangers(config: ModelConfig, place: Path, fault: str) -> ModelLoadError:
    return ModelLoadError(
        f"The checkpoint in {place} {fault}: its weights do not belong to its config.json "
        f"({config.architecture})."
    )


def build(config: ModelConfig, folder: Path, device: torch.device, dtype: torch.dtype) -> Decoder:
    """The decoder that a folder's weights make, on `device`."""
    with Checkpoint(folder) as checkpoint:
        check_tensors(config, checkpoint.shapes(), folder)
        with init_empty_weights():
            decoder = Decoder(config)
        fusings = list(recipe(config))
        num_bytes = sum(f.num_values * dtype.itemsize + ALIGNMENT_BYTES for f in fusings)
        memory = WeightMemory(num_bytes, device)
        for fused in fusings:
            parts = [checkpoint.tensor(name) for name, _ in fused.parts]
            value = _fuse([part.to(device, dtype) for part in parts], fused, memory)
            set_module_tensor_to_device(
                decoder, fused.name, device, value=value, dtype=dtype, clear_cache=False
            )
    return decoder.eval()


def _fuse(parts: list[Tensor], fused: Fused, memory: WeightMemory) -> Tensor:
    """Stack (out_i, in) parts and turn them to (in, out) if asked. Never a view of the file."""
    stacked = parts[0] if len(parts) == 1 else torch.cat(parts)  # (out, in) or (out,)
    if fused.name == "head":
        groups = num_head_groups(len(stacked))
        stored = stacked.view(groups, -1, stacked.shape[1]).transpose(1, 2)  # (C, E, V/C)
    else:
        stored = stacked.T if fused.is_turned else stacked  # (in, out), (out, in) or (out,)
    return memory.empty(tuple(stored.shape), stored.dtype).copy_(stored)
