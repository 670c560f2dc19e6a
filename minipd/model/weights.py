"""Reads a Hugging Face folder's safetensors straight into an empty `Decoder`.

A checkpoint stores q, k, v, gate and up apart and as (out, in); the decoder wants them fused and as
(in, out). Tensors are read one by one, so no more than one fused tensor (of experts: one expert's
part of it) exists twice at any time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from accelerate import init_empty_weights
from accelerate.utils import set_module_tensor_to_device
from safetensors import SafetensorError, safe_open
from torch import Tensor

from minipd.model.config import ModelConfig
from minipd.model.decoder import Decoder, num_head_groups
from minipd.model.expert_stacks import Place, num_experts, unstacked
from minipd.model.pages import ALIGNMENT_BYTES, WeightMemory
from minipd.model.recipe import Fused, recipe
from minipd.model.store import ModelLoadError, Shape

PICKLES = (".bin", ".pt", ".pth", ".ckpt")
INDEX = "model.safetensors.index.json"


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that make up the checkpoint; raises when any is missing."""
    index = folder / INDEX
    if index.is_file():
        try:
            names = set(json.loads(index.read_text(encoding="utf-8-sig"))["weight_map"].values())
        except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError):
            raise ModelLoadError(f"{index} is damaged: download this file again.") from None
        for name in names:
            if not _stays_inside(name):
                raise ModelLoadError(
                    f"{index} names {str(name)[:80]!r}, which is no file of this folder: download "
                    "this file again, from a place that you trust."
                )
        files = [folder / name for name in sorted(names)]
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


def _stays_inside(name: object) -> bool:
    """Whether a file's name in an index is one, and leads to no place above the folder.

    Only the name counts: the hub's cache has links in its folders, to files elsewhere.
    """
    if not isinstance(name, str) or not name.isprintable():
        return False
    steps = name.replace("\\", "/").split("/")
    return "" not in steps and ".." not in steps and ":" not in steps[0]


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
        self._places: dict[str, Place] = {}
        try:
            for path in weight_files(folder):
                self._open(path)
        except BaseException:
            self._files.close()
            raise

    def _open(self, path: Path) -> None:
        try:
            reader = self._files.enter_context(safe_open(path, framework="pt", device="cpu"))
            mine = dict.fromkeys(reader.keys(), reader)
        except (SafetensorError, OSError) as error:
            raise ModelLoadError(
                f"{path} is damaged or not complete ({error}): delete it and download it again."
            ) from error
        if twice := self._reader_of.keys() & mine.keys():
            raise ModelLoadError(
                f"Tensor {min(twice)!r} is in {path.name} and in another file of {self.folder}: "
                "download the model again."
            )
        self._reader_of |= mine

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def shapes(self) -> dict[str, Shape]:
        """Every tensor's shape, from the files' headers; of a stack of experts, each one's."""
        stored = {n: tuple(r.get_slice(n).get_shape()) for n, r in self._reader_of.items()}
        shapes, self._places = unstacked(stored)
        return shapes

    def tensor(self, name: str) -> Tensor:
        """The stored tensor; raises unless it has a floating-point type."""
        place = self._places.get(name)
        try:
            value: Tensor = (
                self._reader_of[name].get_tensor(name)
                if place is None
                else self._reader_of[place.name].get_slice(place.name)[place.expert, place.rows]
            )
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
    if config.experts and (found := num_experts(shapes)) != config.experts.count:
        fault = f"has {found} experts in a layer and not {config.experts.count}"
        raise _strangers(config, place, fault)
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
            value = _load(fused, lambda name: checkpoint.tensor(name).to(device, dtype), memory)
            if fused.rotated:
                _pair_up(value, fused.rotated, config.head_dim)
            set_module_tensor_to_device(
                decoder, fused.name, device, value=value, dtype=dtype, clear_cache=False
            )
    return decoder.eval()


def _load(fused: Fused, read: Callable[[str], Tensor], memory: WeightMemory) -> Tensor:
    """One parameter, never a view of the file: parts are read and copied expert by expert."""
    names = [name for name, _ in fused.parts]
    each = len(names) // (fused.experts or 1)
    whole: Tensor | None = None
    for expert, start in enumerate(range(0, len(names), each)):
        value = _fuse([read(name) for name in names[start : start + each]], fused)
        if not fused.experts:
            return memory.empty(tuple(value.shape), value.dtype).copy_(value)
        if whole is None:
            whole = memory.empty((fused.experts, *value.shape), value.dtype)  # (X, in, out)
        whole[expert].copy_(value)
    assert whole is not None, "a layer has at least one expert"
    return whole


def _pair_up(value: Tensor, num_heads: int, head_dim: int) -> None:
    """Reorder the first heads of `value` (..., heads D) in place: what a checkpoint has at i and
    i + D/2 of a head, and the rotary embedding turns together, comes to 2i and 2i + 1.

    Queries and keys change alike, so no product of the two changes.
    """
    rotated = value[..., : num_heads * head_dim]
    halves = rotated.unflatten(-1, (num_heads, 2, head_dim // 2))  # (..., heads, 2, D/2)
    rotated.copy_(halves.transpose(-2, -1).flatten(-3))  # (..., heads D)


def _fuse(parts: list[Tensor], fused: Fused) -> Tensor:
    """Stack (out_i, in) parts and turn them to (in, out) if asked."""
    stacked = parts[0] if len(parts) == 1 else torch.cat(parts)  # (out, in) or (out,)
    if fused.name == "head":
        groups = num_head_groups(len(stacked))
        return stacked.view(groups, -1, stacked.shape[1]).transpose(1, 2)  # (C, E, V/C)
    return stacked.T if fused.is_turned else stacked  # (in, out), (out, in) or (out,)
