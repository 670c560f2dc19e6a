"""Block tables, step by step: a small cache with words for tokens, run by the engine's scheduler.

`Board` holds the state and says in sentences what each step did; `board_html` and `board_text` draw
it for eyes and for terminals; `block_board` is the notebook's widget around them.
"""

from __future__ import annotations

import html
import importlib
from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import Any

from minipd.cache.allocator import BlockAllocator
from minipd.request import Request, SamplingParams, Sequence
from minipd.sched.colocated import PrefillFirst
from minipd.timeline import Event

BLOCK_SIZE, NUM_BLOCKS, MAX_ANSWER = 4, 8, 20  # tokens, blocks, tokens
SYSTEM = ["You", "are", "a", "patient", "tutor;", "answer", "very", "briefly."]  # two blocks
PROMPTS = {
    "Ann": [*SYSTEM, "Why", "blocks?"],
    "Ben": [*SYSTEM, "What", "is", "KV?"],
    "Cem": ["Translate", "this", "word:", "apple"],  # exactly one block
}


@dataclass(frozen=True, slots=True)
class BlockView:
    """One block as it stands. `is_named`: a prompt that begins like its text would find it."""

    id: int
    words: tuple[str, ...]
    users: tuple[str, ...]
    is_named: bool

    @property
    def state(self) -> str:
        if len(self.users) > 1:
            return f"shared by {' and '.join(self.users)}"
        if self.users:
            return f"of {self.users[0]}"
        return "free, but remembered" if self.is_named else "free"


class Board:
    """Three people, eight blocks. Everything is decided by the engine's allocator and scheduler."""

    def __init__(self) -> None:
        self.words: dict[int, list[str]] = {block_id: [] for block_id in range(NUM_BLOCKS)}
        allocator = BlockAllocator(NUM_BLOCKS, BLOCK_SIZE, prefer_runs=False)
        self.scheduler = PrefillFirst("board", allocator)
        self.told = "All blocks are free. Ask somebody's question, then take a step."
        self._texts: dict[int, list[int]] = {}  # all tokens up to a block's end
        self._vocabulary: list[str] = []
        self._asked = 0

    def ask(self, name: str) -> str:
        """Queue a person's question, unless it is being answered already."""
        if any(_person(s.id) == name for s in self.scheduler.sequences.values()):
            return self._tell(f"{name}'s question is here already; take a step.")
        self._asked += 1
        prompt = tuple(map(self._token, PROMPTS[name]))
        sampling = SamplingParams(MAX_ANSWER, ignore_eos=True)
        self.scheduler.add(Request(f"{name} {self._asked}", prompt, sampling), 0.0)
        return self._tell(f"{name}'s question of {len(prompt)} tokens waits.")

    def step(self) -> str:
        """One step of the engine: read what waits, if it fits; otherwise write a token each."""
        batch = self.scheduler.schedule(0.0)
        if batch is None:
            return self._tell("Nothing to run: ask a question first.")
        for chunk in batch.chunks:
            text = self.scheduler.sequences[chunk.request_id].token_ids(0, chunk.stop)
            for place in range(chunk.start, chunk.stop):
                self._write(chunk.block_ids[place // BLOCK_SIZE], text[: place + 1])
        lengths = [len(self.scheduler.sequences[c.request_id].output_ids) for c in batch.chunks]
        names = [_person(chunk.request_id) for chunk in batch.chunks]
        made = [f"{n.lower()}-{length + 1}" for n, length in zip(names, lengths)]
        self.scheduler.complete(batch, [self._token(word) for word in made], 0.0)
        return self._tell(" ".join(_sentences(self.scheduler.drain_events())))

    def finish(self, name: str) -> str:
        """End one person's answer; its blocks go back."""
        for sequence in list(self.scheduler.sequences.values()):
            if _person(sequence.id) == name:
                self.scheduler.finish(sequence, "stop", 0.0)
                return self._tell(" ".join(_sentences(self.scheduler.drain_events())))
        return self._tell(f"{name} has no answer under way.")

    def blocks(self) -> list[BlockView]:
        """All blocks in the order of their ids."""
        users: dict[int, list[str]] = {block_id: [] for block_id in self.words}
        for sequence in self.scheduler.running:
            for block_id in sequence.block_ids:
                users[block_id].append(_person(sequence.id))
        return [
            BlockView(block_id, tuple(words), tuple(users[block_id]), self._is_named(block_id))
            for block_id, words in self.words.items()
        ]

    def tables(self) -> list[str]:
        """One sentence for each person: the block table, and how full its last block is."""
        told = [
            _table(_person(s.id), s.block_ids, s.num_cached_tokens) for s in self.scheduler.running
        ]
        return told + [f"{_person(s.id)} waits and owns no block." for s in self.scheduler.waiting]

    def _tell(self, sentence: str) -> str:
        self.told = sentence
        return sentence

    def _token(self, word: str) -> int:
        if word not in self._vocabulary:
            self._vocabulary.append(word)
        return self._vocabulary.index(word)

    def _write(self, block_id: int, text: list[int]) -> None:
        """Put the last word of a text at its place; what stood there and behind it was older."""
        self.words[block_id][(len(text) - 1) % BLOCK_SIZE :] = [self._vocabulary[text[-1]]]
        self._texts[block_id] = text

    def _is_named(self, block_id: int) -> bool:
        text = self._texts.get(block_id, [])
        probe = Sequence(Request("probe", (*text, -1)))  # one token more, which is left to run
        found = self.scheduler.allocator.find_prefix(probe)
        return len(found) * BLOCK_SIZE == len(text) and block_id in found


def _person(request_id: str) -> str:
    return request_id.split()[0]


def _table(name: str, block_ids: list[int], num_cached: int) -> str:
    taken = num_cached - BLOCK_SIZE * (len(block_ids) - 1)
    ids = ", ".join(map(str, block_ids))
    return f"{name}: blocks {ids}; {taken} of {BLOCK_SIZE} places of the last one taken."


def _sentences(events: list[Event]) -> list[str]:
    """What a step did, in words; single tokens are gathered into one sentence."""
    told: list[str] = []
    writers = [_person(e.request_id) for e in events if e.kind == "token"]
    for event in events:
        name = _person(event.request_id) if event.request_id else ""
        if event.kind == "preempted":
            told.append(f"No block is free: {name}, the youngest, gives all of its blocks back.")
        elif event.kind == "prefill_started":
            tokens, cached = event.data["tokens"], event.data["cached_tokens"]
            again = "again " if event.data["reason"] == "preempted" else ""
            told.append(f"{name} is read {again}({tokens} tokens; {cached} were there already).")
        elif event.kind == "finished":
            told.append(f"{name} is done; blocks that nobody else uses are free again.")
    return told + ([f"A token for {' and '.join(writers)}."] if writers else [])


def board_text(board: Board) -> str:
    """The board as plain lines: what happened, every block, every table."""
    lines = [f"  block {b.id}: {' '.join(b.words) or '-'} ({b.state})" for b in board.blocks()]
    return "\n".join([board.told, *lines, *(f"  {line}" for line in board.tables())])


def board_html(board: Board) -> str:
    """The board as boxes in a row; each says in words what its border shows."""
    boxes = "".join(map(_box, board.blocks()))
    tables = "".join(f"<li>{html.escape(line)}</li>" for line in board.tables())
    row = "display:flex;flex-wrap:wrap;gap:6px;list-style:none;padding:0;margin:4px 0"
    head = f"<p role='status' aria-live='polite'>{html.escape(board.told)}</p>"
    names = "<ul aria-label='Block tables'>" + tables + "</ul>" if tables else ""
    return f"{head}<ul aria-label='Blocks' style='{row}'>{boxes}</ul>{names}"


def _box(block: BlockView) -> str:
    line = {0: "1px dashed", 1: "2px solid"}.get(len(block.users), "4px double")
    style = f"border:{line} currentColor;padding:4px 8px;width:10em;min-height:4.5em"
    words = html.escape(" ".join(block.words)) or "&ndash;"
    title = f"<b>block {block.id}</b>, {html.escape(block.state)}"
    return f"<li style='{style}'>{title}<br>{words}</li>"


class BoardView:
    """Buttons above a board; the board is drawn afresh after each press."""

    def __init__(self, board: Board) -> None:
        lab: Any = importlib.import_module("minipd.lab.widgets")
        self.board = board
        self.page = lab.W.HTML(board_html(board))
        asks = [lab.button(f"Ask {n}'s", self._press(lambda n=n: board.ask(n))) for n in PROMPTS]
        ends = [lab.button(f"End {n}'s", self._press(lambda n=n: board.finish(n))) for n in PROMPTS]
        one = lab.button("One step", self._press(board.step))
        self.widget = lab.W.VBox([lab.row([*asks, one]), lab.row(ends), self.page])

    def _press(self, action: Callable[[], str]) -> Callable[[], None]:
        def pressed() -> None:
            action()
            self.page.value = board_html(self.board)

        return pressed


def block_board() -> None:
    """Show the widget with an empty cache."""
    predict: Any = importlib.import_module("minipd.lab.predict")
    predict.display_widget(BoardView(Board()).widget)


def play(actions: Items[str]) -> Board:
    """A board after some actions, each printed with what it did: `Ann`, `step`, `end Ann`."""
    board = Board()
    for action in actions:
        if action == "step":
            board.step()
        elif action.startswith("end "):
            board.finish(action.removeprefix("end "))
        else:
            board.ask(action)
        print(f"{action}: {board.told}")
    return board
