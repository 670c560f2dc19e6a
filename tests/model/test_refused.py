"""Broken or unsuitable models: one sentence each, naming what is wrong and what to do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from minipd.model.load import is_cached, load
from minipd.model.store import ModelLoadError

MakeHf = Callable[..., tuple[Path, Any]]


@pytest.fixture
def llama(make_hf: MakeHf) -> Path:
    return make_hf("Llama")[0]


def refused(name: str | Path, *words: str, **options: Any) -> None:
    with pytest.raises(ModelLoadError) as caught:
        load(name, **options)
    for word in words:
        assert word in str(caught.value)


def change(folder: Path, edit: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def test_truncated_file(llama: Path) -> None:
    file = llama / "model.safetensors"
    whole = file.read_bytes()
    for keep in (len(whole) - 1, len(whole) // 2, 100, 4, 0):
        file.write_bytes(whole[:keep])
        refused(llama, "model.safetensors", "download it again")


def test_missing_tensor(llama: Path) -> None:
    change(llama, lambda t: t.pop("model.layers.1.mlp.up_proj.weight"))
    refused(llama, "lacks", "model.layers.1.mlp.up_proj.weight")


def test_unknown_tensor(llama: Path) -> None:
    change(llama, lambda t: t.update({"model.layers.0.self_attn.q_proj.bias": torch.ones(48)}))
    refused(llama, "unknown", "model.layers.0.self_attn.q_proj.bias")


def test_wrong_shape(llama: Path) -> None:
    name = "model.layers.2.self_attn.v_proj.weight"
    change(llama, lambda t: t.update({name: torch.ones(24, 47)}))
    refused(llama, name, "(24, 47)", "(24, 48)")


def test_integer_weights(llama: Path) -> None:
    change(llama, lambda t: t.update({"model.norm.weight": torch.ones(48, dtype=torch.int8)}))
    refused(llama, "model.norm.weight", "int8", "unquantised")


def test_old_rotary_table_is_ignored(llama: Path) -> None:
    extra = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(6)}
    change(llama, lambda t: t.update(extra))
    assert load(llama).config.num_layers == 3


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth", "model.ckpt"])
def test_pickles(llama: Path, name: str) -> None:
    (llama / "model.safetensors").rename(llama / name)
    refused(llama, name, "run any program")
    refused(llama / name, name, "run any program")


def test_missing_shard(make_hf: MakeHf) -> None:
    folder, _ = make_hf("Llama", max_shard_size="60KB")
    lost = sorted(folder.glob("model-*.safetensors"))[1]
    lost.unlink()
    refused(folder, lost.name, "download")


def test_damaged_index(make_hf: MakeHf) -> None:
    folder, _ = make_hf("Llama", max_shard_size="60KB")
    (folder / "model.safetensors.index.json").write_text("{}")
    refused(folder, "index.json is damaged")


def test_folder_without_weights_config_or_tokenizer(llama: Path) -> None:
    (llama / "tokenizer.json").unlink()
    refused(llama, "no usable tokenizer")
    (llama / "model.safetensors").unlink()
    refused(llama, "no safetensors weights")
    (llama / "config.json").write_text("{")
    refused(llama, "config.json cannot be read")
    (llama / "config.json").unlink()
    refused(llama, "has no config.json")


def test_unsupported_architecture_of_a_real_folder(llama: Path) -> None:
    config = json.loads((llama / "config.json").read_text())
    (llama / "config.json").write_text(json.dumps(config | {"architectures": ["GPT2LMHeadModel"]}))
    with pytest.raises(ValueError, match="GPT2LMHeadModel is not supported; minipd reads Llama"):
        load(llama)


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("smolm2", "Did you mean 'smollm2-135m'?"),
        ("Tiny", "Did you mean 'tiny'?"),
        ("nowhere.gguf", "There is no model or file"),
        ("./nowhere/at-all", "hub id"),
        ("", "built-in model"),
    ],
)
def test_unknown_names(cache: Path, name: str, word: str) -> None:
    refused(name, word)
    assert not is_cached(name)


def test_files_that_are_no_model(llama: Path, tmp_path: Path) -> None:
    refused(llama / "model.safetensors", "give the folder")
    refused(llama / "config.json", "is not a model")


def test_device_and_dtype(cache: Path) -> None:
    refused("tiny", "float64", "bfloat16", dtype="float64")
    refused("tiny", "'abacus'", "'cpu'", device="abacus")
    if not torch.cuda.is_available():
        refused("tiny", "'cuda'", "GPU", device="cuda")
