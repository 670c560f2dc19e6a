"""Prompts as users write them: texts, lists of token ids, questions in a chat."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from minipd.model.store import first_line
from minipd.request import RequestError, is_whole_number, shown

Prompt = str | list[int]
NOT_LISTS = (
    bytes,
    bytearray,
    dict,
    set,
    frozenset,
)  # iterable, but no prompts in order


def prompt_list(prompts: Iterable[Prompt]) -> list[Prompt]:
    """The prompts as a list; a single text, or what is no list of prompts, is refused."""
    given: Any = prompts
    if isinstance(given, str):
        raise RequestError("generate takes a list of prompts; write generate([prompt]).")
    if isinstance(given, NOT_LISTS) or not isinstance(given, Iterable):
        raise RequestError(f"generate takes a list of prompts, not {shown(given)}.")
    return list(prompts)


def token_ids(tokenizer: Any, prompt: Prompt) -> list[int]:
    """Token ids of a text (as it stands), or the given ids unchanged."""
    if isinstance(prompt, str):
        return _encode(tokenizer, prompt)
    ids: Any = prompt
    if getattr(ids, "ndim", None) == 1:  # an array of numpy or torch
        ids = ids.tolist()
    if not isinstance(ids, (list, tuple, range)):
        raise RequestError(f"A prompt is a text or a list of token ids, not {shown(prompt)}.")
    listed: list[Any] = list(ids)
    return [_plain_int(token_id) for token_id in listed]


def chat_ids(tokenizer: Any, user: str, system: str | None) -> list[int]:
    """Token ids of a question in the model's own chat format, ready for its answer."""
    messages = [{"role": "system", "content": system}] if system is not None else []
    messages.append({"role": "user", "content": user})
    try:
        text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    except Exception as error:  # a template is a program of its own
        raise RequestError(
            f"The model's chat format cannot hold this question ({first_line(error)}): use a text "
            "as it stands instead."
        ) from error
    return _encode(tokenizer, str(text), add_special_tokens=False)


def _encode(tokenizer: Any, text: str, **options: Any) -> list[int]:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise RequestError(
            f"The text has half a character (a lone surrogate) at position {error.start}: take it "
            "out."
        ) from None
    # `verbose=False`: a text that is too long is refused later, in our words.
    return list(tokenizer.encode(text, verbose=False, **options))


def _plain_int(token_id: Any) -> int:
    """The value itself, or the int inside a numpy or torch integer; nothing is rounded."""
    value = token_id.item() if getattr(token_id, "ndim", None) == 0 else token_id
    if not is_whole_number(value):
        raise RequestError(
            f"{shown(token_id)} is no token id; a prompt is a text or a list of ints."
        )
    return value
