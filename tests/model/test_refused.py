"""Broken or unsuitable models: one sentence each, naming what is wrong and what to do."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import suppress
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


@pytest.mark.parametrize("name", ["../other/{}", "/{}", "C:\\{}", "..\\{}", "a//{}", "", 5, None])
def test_an_index_leads_to_no_other_folder(make_hf: MakeHf, tmp_path: Path, name: Any) -> None:
    folder, _ = make_hf("Llama", max_shard_size="60KB")
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    tensor, shard = next(iter(index["weight_map"].items()))
    (folder.parent / "other").mkdir()
    (folder / shard).rename(folder.parent / "other" / shard)
    index["weight_map"][tensor] = name.format(shard) if isinstance(name, str) else name
    path.write_text(json.dumps(index))
    refused(folder, "no file of this folder")


def test_a_tensor_in_two_shards(make_hf: MakeHf) -> None:
    folder, _ = make_hf("Llama", max_shard_size="60KB")
    first, second = sorted(folder.glob("model-*.safetensors"))[:2]
    tensors = load_file(second)
    name = next(iter(load_file(first)))
    save_file(tensors | {name: torch.ones(3)}, second, metadata={"format": "pt"})
    refused(folder, name, "another file")


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


def rewrite(file: Path, **values: Any) -> None:
    content = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(content | values))


def test_a_tokenizer_with_a_program_of_its_own(llama: Path) -> None:
    proof = llama / "it-ran"
    (llama / "evil.py").write_text(f"open({str(proof)!r}, 'w').close()\nclass T: pass\n")
    auto_map = {"AutoTokenizer": ["evil.T", None], "AutoConfig": "evil.T"}
    rewrite(llama / "config.json", auto_map=auto_map)
    load(llama)  # known to minipd by its architecture: the program is not looked at
    rewrite(llama / "tokenizer_config.json", tokenizer_class="T")
    with suppress(ModelLoadError):
        load(llama)
    rewrite(llama / "tokenizer_config.json", auto_map=auto_map)
    refused(llama, "auto_map", "refused")
    assert not proof.exists()


def test_sizes_that_the_weights_do_not_confirm(llama: Path) -> None:
    started = time.perf_counter()
    config = (llama / "config.json").read_text()
    for key, value in {"num_hidden_layers": 10**7, "vocab_size": 10**9, "hidden_size": 10**9,
                       "intermediate_size": 10**9, "head_dim": 10**9}.items():  # fmt: skip
        rewrite(llama / "config.json", **{key: value})
        refused(llama, "do not belong to its config.json")
        (llama / "config.json").write_text(config)
    assert time.perf_counter() - started < 60  # seconds at most, where nothing is made of that size


def test_nested_json(llama: Path) -> None:
    deep = "[" * 100_000
    for name in ("tokenizer_config.json", "model.safetensors.index.json", "config.json"):
        (llama / name).write_text(deep)
        refused(llama, name)


def test_a_byte_order_mark_is_no_damage(llama: Path) -> None:
    file = llama / "config.json"
    file.write_text("\ufeff" + file.read_text(), encoding="utf-8")
    assert load(llama).config.num_layers == 3


@pytest.mark.parametrize("ids", ["x", 1.5, [1, "a", None], {"a": 1}, [[1]], True], ids=repr)
def test_eos_ids_are_whole_numbers(llama: Path, ids: Any) -> None:
    rewrite(llama / "generation_config.json", eos_token_id=ids)
    refused(llama, "eos_token_id", "whole number")


def test_a_tokenizer_error_is_one_line(llama: Path) -> None:
    (llama / "tokenizer.json").unlink()
    with pytest.raises(ModelLoadError) as caught:
        load(llama)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "name", ["x" * 5000, "x/" * 3000, "a\0b", "~nobody-here/x", "a/..", "a/.b", "-a/b", "a/b-"]
)
def test_names_that_nothing_can_have(cache: Path, name: str) -> None:
    refused(name, "There is no model or file", "hub id")
    with pytest.raises(ModelLoadError) as caught:
        load(name)
    assert len(str(caught.value)) < 350


@pytest.mark.parametrize("device", [None, [1], "meta", "privateuseone", 1.5, "x" * 5000])
def test_devices_that_hold_no_values(cache: Path, device: Any) -> None:
    refused("tiny", "cannot be used here", device=device)


def test_device_and_dtype(cache: Path) -> None:
    refused("tiny", "float64", "bfloat16", dtype="float64")
    refused("tiny", "'abacus'", "'cpu'", device="abacus")
    if not torch.cuda.is_available():
        refused("tiny", "'cuda'", "GPU", device="cuda")
