"""What a timeline's picture shows, as rows of a table and as sentences."""

from __future__ import annotations

from minipd.lab.pictures.lanes import Lanes

COLUMNS = ("run", "worker", "what", "start s", "length ms", "tokens")


def table_rows(name: str, panel: Lanes) -> list[tuple[str, ...]]:
    """Freezes, hand-offs and prefills as rows of `COLUMNS`."""
    rows = [
        (name, s.worker, f"frozen by {s.cause or '?'}", s.start_s, s.longest_s, f"{s.tokens:.1f}")
        for s in panel.stalls
    ]
    rows += [
        (name, w.worker, "waits for notes", w.start_s, w.longest_s, f"{w.tokens:.1f}")
        for w in panel.waits
    ]
    rows += [
        (name, h.source, f"hand-off of {h.request_id}", h.start_s, h.end_s - h.start_s, "")
        for h in panel.handoffs
    ]
    rows += [
        (name, worker, block.kind, block.start_s, block.end_s - block.start_s, f"{block.tokens}")
        for worker in panel.workers
        for block in panel.blocks[worker]
        if block.kind != "decode"
    ]
    rows.sort(key=lambda row: row[3])
    return [(r[0], r[1], r[2], f"{r[3]:.3f}", f"{r[4] * 1000:.1f}", r[5]) for r in rows]


def in_words(name: str, panel: Lanes) -> str:
    """One or two sentences on one run, for the alternative text."""
    run = f"{name}: " if name else ""
    lanes = ", ".join(f"{worker} ({panel.roles.get(worker, 'worker')})" for worker in panel.workers)
    told = f"{run}Lanes for {lanes}; {len(panel.handoffs)} hand-offs"
    if panel.waits:
        longest_s = max(wait.longest_s for wait in panel.waits)
        told += f"; waits for notes: {len(panel.waits)}, longest {longest_s * 1000:,.0f} ms"
    if not panel.stalls:
        return f"{told}; no answer froze."
    worst = max(panel.stalls, key=lambda stall: stall.longest_s)
    cause = f" while {worst.cause} ({worst.cause_tokens:,} tokens) was read" if worst.cause else ""
    return (
        f"{told}; answers froze {len(panel.stalls)} times, longest {worst.longest_s * 1000:,.0f} ms"
        f" or {worst.tokens:.0f} tokens on {worst.worker} at {worst.start_s:.2f} s{cause}."
    )
