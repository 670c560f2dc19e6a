"""From a name to a model ready to run: find its folder, read its config, fill a decoder."""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from minipd.model import builtin, download, gguf
from minipd.model.config import ModelConfig
from minipd.model.decoder import Decoder
from minipd.model.store import ModelLoadError, first_line, sha256_of
from minipd.model.weights import PICKLES, build, refuse_pickle, weight_files
from minipd.request import is_whole_number, shown

DEFAULT = "smollm2-135m"
BUILT_IN = (DEFAULT, *builtin.SIZES)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
ACCEPTED = (
    f"a built-in model ({', '.join(BUILT_IN)}), a local Hugging Face folder, a hub id such as "
    "'org/name', or a .gguf file"
)


@dataclass(frozen=True)
class LoadedModel:
    """A model on its device, its tokenizer, and where it came from.

    `folder` is a Hugging Face style folder that `transformers` opens too. `fingerprint` names the
    weights as stored: see `fingerprint_of`.
    """

    name: str
    config: ModelConfig
    decoder: Decoder
    tokenizer: Any
    eos_ids: frozenset[int]
    fingerprint: str
    folder: Path


def load(
    name_or_path: str | Path = DEFAULT,
    device: str | torch.device = "cpu",
    dtype: str | torch.dtype = "float32",
) -> LoadedModel:
    """Load a model for inference; raises `ModelLoadError` or `UnsupportedModelError`.

    The first use of a built-in name or a GGUF file writes a folder to the cache. The decoder is
    built without memory and filled tensor by tensor, so that the weights never exist twice.
    """
    name = str(name_or_path)
    place, number_type = _device(device), _dtype(dtype)
    folder = find_folder(name)
    raw = _read_json(folder / "config.json")
    config = ModelConfig.from_hf(raw)
    decoder = build(config, folder, place, number_type)
    tokenizer = _tokenizer(folder)
    return LoadedModel(
        name=name if name in BUILT_IN else Path(name).name,
        config=config,
        decoder=decoder,
        tokenizer=tokenizer,
        eos_ids=_eos_ids(folder, raw, tokenizer),
        fingerprint=fingerprint_of(folder),
        folder=folder,
    )


def is_cached(name: str) -> bool:
    """Whether `load(name)` would find the model on this computer, without a download or a build."""
    if name == DEFAULT:
        return download.default_is_cached()
    if name in BUILT_IN:
        return builtin.random_is_cached(name)
    if not name:
        return False
    return _what_is(name)[1] != "" or download.cached_hub_folder(name) is not None


def fingerprint_of(folder: Path) -> str:
    """16 hexadecimal digits that change when any weight or any line of config.json does.

    SHA-256 over config.json and every byte of every safetensors file, under their names; the
    tokenizer is not covered. File hashes are remembered in the cache by size and time of change.
    """
    files = [folder / "config.json", *weight_files(folder)]
    lines = "".join(f"{file.name} {sha256_of(file)}\n" for file in files)
    return hashlib.sha256(lines.encode()).hexdigest()[:16]


def find_folder(name: str) -> Path:
    """The Hugging Face folder behind a name, fetched or converted where needed."""
    if name == DEFAULT:
        return download.default_folder()
    if name in BUILT_IN:
        return builtin.random_folder(name)
    path, kind = _what_is(name)
    if kind:
        return path if kind == "folder" else _folder_of_file(path)
    # As the hub has them: neither part begins or ends with a dot or a dash.
    if re.fullmatch(r"\w([\w.-]*\w)?/\w([\w.-]*\w)?", name, re.A) and path.suffix != ".gguf":
        return download.hub_folder(name)
    close = difflib.get_close_matches(name.lower(), BUILT_IN, n=1, cutoff=0.4)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ModelLoadError(f"There is no model or file {shown(name)}: give {ACCEPTED}.{hint}")


def _what_is(name: str) -> tuple[Path, str]:
    """The path, and "folder", "file" or "" (nothing there, or no possible name of a path)."""
    path = Path(name)
    with suppress(OSError, ValueError, RuntimeError):  # too long, a zero byte, an unknown ~user
        path = path.expanduser()
        if name and path.exists():
            return path, "folder" if path.is_dir() else "file"
    return path, ""


def _folder_of_file(path: Path) -> Path:
    if path.suffix == ".gguf":
        return gguf.converted_folder(path)
    if path.suffix in PICKLES:
        raise ModelLoadError(refuse_pickle(path))
    if path.suffix == ".safetensors":
        raise ModelLoadError(f"{path} is one file of a model: give the folder it lies in.")
    raise ModelLoadError(f"{path} is not a model: give {ACCEPTED}.")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ModelLoadError(
            f"{path.parent} has no {path.name}: give a Hugging Face model folder, or a .gguf file."
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise ModelLoadError(f"{path} cannot be read ({error}): download it again.") from error
    if not isinstance(content, dict):
        raise ModelLoadError(f"{path} is damaged: download it again.")
    return content


def _tokenizer(folder: Path) -> Any:
    """The folder's tokenizer, by transformers; plain ones skip its slow search for a class."""
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    plain = ("PreTrainedTokenizerFast", "TokenizersBackend")
    settings = folder / "tokenizer_config.json"
    said = _read_json(settings) if settings.is_file() else {}
    if said.get("auto_map"):
        raise ModelLoadError(
            f"{settings} is refused, because its auto_map asks to run a program of the model's "
            "own: use a model with an ordinary tokenizer."
        )
    kind: Any = PreTrainedTokenizerFast if said.get("tokenizer_class") in plain else AutoTokenizer
    try:
        # Never ask, never run: a config.json may name programs as well.
        return kind.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        # Each tokenizer family fails in its own way on missing or damaged files, or even panics.
        raise ModelLoadError(
            f"{folder} has no usable tokenizer ({first_line(error)}): add its tokenizer.json and "
            "tokenizer_config.json."
        ) from error


def _eos_ids(folder: Path, raw: dict[str, Any], tokenizer: Any) -> frozenset[int]:
    """Ids that end an answer, from the first place that names any, as `generate` looks for them."""
    generation = folder / "generation_config.json"
    settings = _read_json(generation) if generation.is_file() else {}
    for ids in (settings.get("eos_token_id"), raw.get("eos_token_id"), tokenizer.eos_token_id):
        if ids is not None:
            listed: list[Any] = ids if isinstance(ids, list) else [ids]
            if not all(is_whole_number(token_id) for token_id in listed):
                raise ModelLoadError(
                    f"{folder} is damaged: its eos_token_id is {shown(ids)}, which must be a whole "
                    "number or a list of them."
                )
            return frozenset(listed)
    return frozenset()


def _device(device: str | torch.device) -> torch.device:
    try:
        place = torch.device(device)
        torch.zeros(1, device=place).item()  # a place that keeps values
    except Exception as error:  # each kind of device fails in its own way
        raise ModelLoadError(
            f"The device {shown(str(device))} cannot be used here: give 'cpu', or 'cuda' on a "
            "computer whose torch finds a GPU."
        ) from error
    return place


def _dtype(dtype: str | torch.dtype) -> torch.dtype:
    found = DTYPES.get(str(dtype).removeprefix("torch."))
    if found is None:
        raise ModelLoadError(
            f"The dtype {shown(str(dtype))} is not offered: give {', '.join(DTYPES)}."
        )
    return found
