"""Rebuilds the tokenizer inside a GGUF file as Hugging Face tokenizer files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from minipd.model.store import ModelLoadError, first_line

# How text is cut before byte-pair merging. Named ones that transformers rebuilds, and those that
# differ from its plain byte-level rule only by taking each digit alone.
KNOWN_CUTS = ("gpt-2", "llama-bpe", "llama3", "llama-v3", "qwen2", "deepseek-r1-qwen", "tekken")
DIGIT_CUTS = ("smollm", "starcoder")
# Vocabularies that take a whole word found in them before trying merges.
WHOLE_WORD_CUTS = ("llama-bpe", "llama3", "llama-v3", "tekken")


def write_tokenizer(path: Path, model: str, cut: str, folder: Path) -> None:
    """Tokenizer files as transformers rebuilds them, corrected by the file's cutting rule.

    `model` and `cut` are the file's `tokenizer.ggml.model` and `.pre`. An unknown rule is refused:
    it would give token ids that the model was not trained on.
    """
    from transformers import PreTrainedTokenizerFast

    byte_level = model == "gpt2"
    if byte_level and cut not in KNOWN_CUTS + DIGIT_CUTS:
        raise ModelLoadError(
            f"{path.name} cuts text by the rule {cut!r}; minipd knows "
            f"{', '.join(KNOWN_CUTS + DIGIT_CUTS)}: use the model's Hugging Face folder instead."
        )
    try:
        plain: Any = PreTrainedTokenizerFast
        tokenizer = plain.from_pretrained(str(path.parent), gguf_file=path.name)
        tokenizer.save_pretrained(folder)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the tokenizers library may panic, which is no `Exception`
        why = first_line(error)
        raise ModelLoadError(f"{path.name} has an unusable tokenizer ({why}).") from error
    if byte_level:
        _finish_byte_level(folder / "tokenizer.json", cut)


def _finish_byte_level(file: Path, cut: str) -> None:
    content = json.loads(file.read_text(encoding="utf-8"))
    if cut in DIGIT_CUTS:
        bytes_rule = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
        digits = {"type": "Digits", "individual_digits": True}
        rules = [digits, bytes_rule | {"use_regex": True}]
        content["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": rules}
    content["model"]["ignore_merges"] = cut in WHOLE_WORD_CUTS
    file.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
