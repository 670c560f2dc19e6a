"""GGUF files become the folders that transformers makes of them, or are refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch

from minipd.model import builtin
from minipd.model.config import RopeConfig
from minipd.model.gguf import GgufFile
from minipd.model.load import load
from minipd.model.store import ModelLoadError

Quant = gguf.GGMLQuantizationType
IDS = [7, 300, 41, 41, 9, 0, 511, 23, 100]
NAMES = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def gguf_name(name: str) -> str:
    base, kind = name.rsplit(".", 1)
    if base in WHOLE:
        return f"{WHOLE[base]}.{kind}"
    _, _, index, part = base.split(".", 3)
    return f"blk.{index}.{NAMES[part]}.{kind}"


def permuted(value: np.ndarray, heads: int) -> np.ndarray:
    """Row order of q and k in Llama GGUF files, row by row: the slow way round."""
    size = len(value) // heads
    rows = [h * size + half * size // 2 + i
            for h in range(heads) for i in range(size // 2) for half in (0, 1)]  # fmt: skip
    return value[rows]


@pytest.fixture
def make_gguf(tmp_path: Path, cache: Path) -> Callable[..., tuple[Path, Any]]:
    """A GGUF file of a random transformers model, and that model (before quantisation)."""
    import transformers

    def make(
        family: str = "Llama",
        quant: Quant = Quant.F32,
        fields: dict[str, Any] | None = None,
        extra: Iterable[tuple[str, np.ndarray]] = (),
        **options: Any,
    ) -> tuple[Path, Any]:
        sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
                 "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512,
                 "max_position_embeddings": 128, "initializer_range": 0.2}  # fmt: skip
        torch.manual_seed(3)
        config = getattr(transformers, f"{family}Config")(**{**sizes, **options})
        model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
        path = tmp_path / "model.gguf"
        writer = gguf.GGUFWriter(path, family.lower())
        _write_fields(writer, family.lower(), config, fields or {})
        for name, tensor in model.state_dict().items():
            if name == "lm_head.weight" and config.tie_word_embeddings:
                continue
            _write_tensor(writer, family, config, name, tensor.numpy(), quant)
        for name, value in extra:
            writer.add_tensor(name, value)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path, model

    return make


def _write_tensor(
    writer: gguf.GGUFWriter, family: str, config: Any, name: str, value: np.ndarray, quant: Quant
) -> None:
    if family == "Llama" and ("q_proj" in name or "k_proj" in name):
        q = "q_proj" in name
        value = permuted(value, config.num_attention_heads if q else config.num_key_value_heads)
    if value.ndim == 2 and quant != Quant.F32:
        packed = gguf.quantize(value, quant)
        writer.add_tensor(gguf_name(name), packed, raw_dtype=quant)
    else:
        writer.add_tensor(gguf_name(name), value)


def _write_fields(writer: gguf.GGUFWriter, arch: str, config: Any, fields: dict[str, Any]) -> None:
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    tokens = builtin._tokenizer()  # pyright: ignore[reportPrivateUsage]
    by_id = sorted(tokens.get_vocab().items(), key=lambda item: item[1])
    merges = json.loads(tokens.to_str())["model"]["merges"]
    values = {
        f"{arch}.block_count": config.num_hidden_layers,
        f"{arch}.context_length": config.max_position_embeddings,
        f"{arch}.embedding_length": config.hidden_size,
        f"{arch}.feed_forward_length": config.intermediate_size,
        f"{arch}.attention.head_count": config.num_attention_heads,
        f"{arch}.attention.head_count_kv": config.num_key_value_heads,
        f"{arch}.attention.key_length": head_dim,
        f"{arch}.attention.value_length": head_dim,
        f"{arch}.rope.dimension_count": head_dim,
        f"{arch}.rope.freq_base": float(config.rope_parameters["rope_theta"]),
        f"{arch}.attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
        f"{arch}.vocab_size": config.vocab_size,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2" if arch.startswith("qwen") else "smollm",
        "tokenizer.ggml.eos_token_id": 0,
        **fields,
    }
    for key, value in values.items():
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        else:
            writer.add_uint32(key, value)
    writer.add_token_list([token for token, _ in by_id])
    writer.add_token_types([3 if index < 4 else 1 for _, index in by_id])
    writer.add_token_merges([" ".join(pair) for pair in merges])


CASES: dict[str, dict[str, Any]] = {
    "llama": {"family": "Llama"},
    "llama-tied": {"family": "Llama", "tie_word_embeddings": True},
    "llama-q8": {"family": "Llama", "quant": Quant.Q8_0},
    "llama-q4_1": {"family": "Llama", "quant": Quant.Q4_1},
    "llama-f16": {"family": "Llama", "quant": Quant.F16},
    "llama-bf16": {"family": "Llama", "quant": Quant.BF16},
    "qwen2": {"family": "Qwen2"},
    "qwen3": {"family": "Qwen3", "head_dim": 128},
}


@pytest.mark.parametrize("case", CASES)
def test_converted_file_gives_the_logits_of_transformers(
    case: str, make_gguf: Any, logits_of: Any
) -> None:
    from transformers import AutoModelForCausalLM, GgufConfig

    path, original = make_gguf(**CASES[case])
    read = AutoModelForCausalLM.from_pretrained(
        str(path.parent), gguf_file=path.name, dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
    )  # fmt: skip
    ours = load(path)
    with torch.inference_mode():
        expected = read(torch.tensor([IDS])).logits[0]  # (T, V)
        before = original(torch.tensor([IDS])).logits[0]  # (T, V)
        folder = AutoModelForCausalLM.from_pretrained(ours.folder)(torch.tensor([IDS])).logits[0]
    assert torch.allclose(logits_of(ours, IDS), expected, atol=1e-3, rtol=0)
    assert torch.allclose(folder, expected, atol=1e-3, rtol=0)
    if "quant" not in CASES[case]:
        assert torch.allclose(expected, before, atol=1e-3, rtol=0)


def test_qwen3_head_size_is_read_from_the_file(make_gguf: Any, logits_of: Any) -> None:
    """Compared with the model itself: transformers takes every Qwen3 GGUF head to be 128 wide."""
    path, original = make_gguf("Qwen3", head_dim=32)
    with torch.inference_mode():
        expected = original(torch.tensor([IDS])).logits[0]  # (T, V)
    assert torch.allclose(logits_of(load(path), IDS), expected, atol=1e-3, rtol=0)


def test_tokenizer_of_the_file(make_gguf: Any, cache: Path) -> None:
    ours, tiny = load(make_gguf()[0]), load("tiny").tokenizer
    for text in ("Hello, world!", "안녕하세요", "def f(x):\n    return x", "<|user|>hi<|end|>"):
        assert ours.tokenizer.decode(ours.tokenizer.encode(text)) == text
        assert ours.tokenizer.encode(text) == tiny.encode(text)
    # SmolLM takes each digit alone, which keeps two spaces before a number together.
    pieces = ours.tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str("a  12")
    assert [piece for piece, _ in pieces] == ["a", "ĠĠ", "1", "2"]
    assert ours.eos_ids == {0}


def test_bos_is_added_where_the_file_says_so(make_gguf: Any) -> None:
    fields = {"tokenizer.ggml.pre": "llama-bpe", "tokenizer.ggml.add_bos_token": True,
              "tokenizer.ggml.bos_token_id": 1}  # fmt: skip
    model = load(make_gguf(fields=fields)[0])
    assert model.tokenizer.encode("Hello")[0] == 1
    assert model.tokenizer.backend_tokenizer.model.ignore_merges


def test_file_is_converted_once(make_gguf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path, _ = make_gguf()
    first = load(path)
    monkeypatch.setattr("minipd.model.gguf.convert", None)
    assert load(path).fingerprint == first.fingerprint
    moved = path.rename(path.with_name("moved.gguf"))
    assert load(moved).folder == first.folder


def test_llama3_rope_is_recovered_from_its_divisors(make_gguf: Any) -> None:
    rope = RopeConfig(10000.0, "llama3", 32.0, 1.0, 4.0, 8192)
    plain = np.array(RopeConfig(10000.0).inverse_frequencies(16))
    divisors = (plain / np.array(rope.inverse_frequencies(16))).astype(np.float32)
    assert len(np.unique(divisors)) > 1 and divisors.max() == 32
    path, _ = make_gguf(extra=[("rope_freqs.weight", divisors)])
    assert load(path).config.rope == rope
    path, _ = make_gguf(extra=[("rope_freqs.weight", divisors[::-1].copy())])
    with pytest.raises(ModelLoadError, match="not llama3's"):
        load(path)


def test_linear_rope(make_gguf: Any) -> None:
    path, _ = make_gguf(
        fields={"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 2.0}
    )
    assert load(path).config.rope == RopeConfig(10000.0, "linear", 2.0)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"fields": {"llama.rope.scaling.type": "yarn"}}, "yarn"),
    ({"fields": {"llama.rope.dimension_count": 8}}, "a part of each head"),
    ({"fields": {"llama.expert_count": 8}}, "with experts"),
    ({"fields": {"llama.attention.sliding_window": 64}}, "sliding-window"),
    ({"fields": {"tokenizer.ggml.pre": "unheard-of"}}, "unheard-of"),
    ({"extra": [("blk.0.ffn_gate_inp.weight", np.ones((8, 64), np.float32))]}, "ffn_gate_inp"),
    ({"family": "Gemma", "head_dim": 16}, "'gemma'"),
    ({"fields": {"llama.block_count": 10**6}}, "2 layers and not 1000000"),
    ({"fields": {"llama.embedding_length": 128}}, "has tensor .* of shape"),
    ({"fields": {"llama.attention.layer_norm_rms_epsilon": float("nan")}}, "rms_norm_eps = nan"),
]


@pytest.mark.parametrize(("options", "word"), REFUSED)
def test_what_would_be_computed_wrongly_is_refused(
    options: dict[str, Any], word: str, make_gguf: Any, cache: Path
) -> None:
    path, _ = make_gguf(**options)
    with pytest.raises(ValueError, match=word):
        load(path)
    left = [path.name for path in (cache / "models").iterdir()]
    assert left in ([], ["gguf.lock"]), "neither half a folder nor a lock for each file may stay"


def test_merges_that_are_none(make_gguf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def add_bad(writer: gguf.GGUFWriter, _: list[str]) -> None:
        writer.add_array("tokenizer.ggml.merges", ["no-pair", "zzzz qqqq"])

    monkeypatch.setattr(gguf.GGUFWriter, "add_token_merges", add_bad)
    path, _ = make_gguf()
    with pytest.raises(ModelLoadError, match="unusable tokenizer"):
        load(path)


def test_a_panic_inside_the_tokenizers_library_is_told_as_an_error(
    make_gguf: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A merge whose result the vocabulary lacks was seen to raise what is no `Exception`."""

    class Panic(BaseException):
        pass

    def panic(*_: Any, **__: Any) -> None:
        raise Panic("range end index 2 out of range")

    path, _ = make_gguf()
    monkeypatch.setattr("transformers.PreTrainedTokenizerFast.from_pretrained", panic)
    with pytest.raises(ModelLoadError, match="unusable tokenizer .range end"):
        load(path)


def test_unknown_quantisation(make_gguf: Any) -> None:
    path, _ = make_gguf(quant=Quant.Q8_0, hidden_size=256)
    whole = path.read_bytes()
    at = whole.index(b"token_embd.weight") + len(b"token_embd.weight") + 4 + 2 * 8
    assert whole[at : at + 4] == int(Quant.Q8_0).to_bytes(4, "little")
    path.write_bytes(whole[:at] + (999).to_bytes(4, "little") + whole[at + 4 :])
    with pytest.raises(ModelLoadError, match=r"unknown to the gguf package .*999.* Q4_K_M"):
        load(path)
    # Known by name, but nobody has written its unpacking.
    path.write_bytes(whole[:at] + int(Quant.Q8_K).to_bytes(4, "little") + whole[at + 4 :])
    with pytest.raises(ModelLoadError, match=r"token_embd.weight.* quantisation Q8_K"):
        load(path)


def test_truncated_or_foreign_file(make_gguf: Any) -> None:
    path, _ = make_gguf()
    whole = path.read_bytes()
    for content in (
        whole[: len(whole) // 2],
        whole[:-100],
        whole[:2000],
        whole[:3],
        b"",
        b"PK" * 99,
    ):
        path.write_bytes(content)
        with pytest.raises(ModelLoadError, match="download it again"):
            load(path)


def test_permutation_is_undone(make_gguf: Any) -> None:
    path, original = make_gguf()
    source = GgufFile(path)
    read = {source.hf_name(t.name): v for t, v in zip(source.tensors, source.values())}
    for name, value in original.state_dict().items():
        assert np.array_equal(read[name], value.numpy()), name
