"""The demo's trace: many running chats, and now and then somebody sends a long document."""

from __future__ import annotations

from random import Random

from minipd.measure.rows import TraceRow


def demo_trace(
    seed: int = 0,
    chats: int = 24,
    documents: int = 4,
    *,
    duration_s: float = 40.0,
    chat_prompt_tokens: int = 48,
    chat_output_tokens: int = 96,
    document_prompt_tokens: int = 1024,
    document_output_tokens: int = 16,
    first_document_s: float | None = None,
    chats_within_s: float | None = None,
    jitter: float = 0.25,
) -> list[TraceRow]:
    """Rows of kinds `chat` and `document`, in order of arrival, nothing shared between them.

    Chats start at even distances over `chats_within_s` (default: `duration_s`), the first at 0;
    documents at even distances over `duration_s` from `first_document_s` (default: half a distance
    in). Chat lengths and all starts vary by `jitter` of themselves or of the distance; documents
    all have their stated length, so that each freeze is comparable with the next.
    """
    if chats < 1 or documents < 0 or duration_s <= 0.0 or not 0.0 <= jitter < 1.0:
        raise ValueError(
            "Use at least 1 chat, 0 documents, a duration above 0 and jitter in [0, 1)."
        )
    rng = Random(f"minipd demo {seed}")

    def vary(value: float) -> float:
        return value * (1.0 + jitter * (2.0 * rng.random() - 1.0))

    rows: list[TraceRow] = []
    chat_gap_s = (duration_s if chats_within_s is None else chats_within_s) / chats
    for number in range(chats):
        start_s = chat_gap_s * number + (vary(chat_gap_s) - chat_gap_s if number else 0.0)
        prompt, output = round(vary(chat_prompt_tokens)), round(vary(chat_output_tokens))
        rows.append(TraceRow(round(start_s, 6), max(1, prompt), max(1, output), "chat"))
    document_gap_s = duration_s / max(1, documents)
    first_s = 0.5 * document_gap_s if first_document_s is None else first_document_s
    for number in range(documents):
        start_s = first_s + document_gap_s * number + 0.5 * (vary(document_gap_s) - document_gap_s)
        row = TraceRow(
            round(max(0.0, start_s), 6), document_prompt_tokens, document_output_tokens, "document"
        )
        rows.append(row)
    return sorted(rows, key=lambda row: row.arrival_s)


COMMITTED = {
    "seed": 0,
    "chats": 8,
    "documents": 10,
    "duration_s": 15.5,
    "chats_within_s": 1.6,
    "first_document_s": 2.0,
    "chat_output_tokens": 168,
    "document_prompt_tokens": 576,
    "document_output_tokens": 4,
    "jitter": 0.15,
}  # arguments of the trace that `minipd demo` serves, `data/demo_trace.jsonl`
