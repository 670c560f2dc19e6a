"""A hand-off step by step: which blocks of which layers have arrived, and when decode may start.

Stores, link, reservation, manifest and verdict are the engine's own, on a model of a few layers.
The prompt is read in one go; what is written into the other store is written press by press.
"""

from __future__ import annotations

import html
import importlib
from collections.abc import Callable
from collections.abc import Sequence as Items
from typing import Any

from minipd.cache.allocator import BlockAllocator
from minipd.engine.batch import Chunk
from minipd.engine.executor import Executor
from minipd.lab.show import html_table
from minipd.model.load import LoadedModel, load
from minipd.pools import messages as m
from minipd.pools.handoff import Identity, Receiver, layout_name
from minipd.pools.links.digests import Digests
from minipd.pools.links.direct import SameProcess
from minipd.request import Request, SamplingParams
from minipd.sched.split import DecodeOnly

NUM_BLOCKS, NUM_TOKENS, BLOCK_SIZE = 8, 40, 16
EMPTY, ARRIVED, LOST = "empty", "K and V", "LOST"
GREEDY = SamplingParams(8, ignore_eos=True)
ACTIONS = {
    "reserve": "Reserve",
    "layer": "Write next layer",
    "lose": "Write it without its last block",
    "manifest": "Send the manifest",
    "decode": "Decode a token",
    "again": "Start again",
}


class HandOff:
    """One prompt of 40 tokens on its way from a prefill worker to a decode worker."""

    def __init__(self, model: LoadedModel | None = None) -> None:
        self.model = model or load("tiny")
        self.start_again()

    def start_again(self) -> str:
        model, layers = self.model, self.model.config.num_layers
        self.reader, self.writer = (Executor(model, NUM_BLOCKS, BLOCK_SIZE) for _ in range(2))
        allocator = BlockAllocator(NUM_BLOCKS, BLOCK_SIZE)
        self.scheduler = DecodeOnly("decode worker", allocator)
        prompt = tuple(range(20, 20 + NUM_TOKENS))
        self.request = Request("a prompt", prompt, GREEDY)
        self.source = list(range(-(-NUM_TOKENS // BLOCK_SIZE)))
        chunk = Chunk("a prompt", list(prompt), 0, [*self.source, len(self.source)], GREEDY)
        self.first_token = self.reader.run([chunk])[0]
        self.transfer = SameProcess().connect(self.reader.store, self.writer.store).begin()
        self.target: list[int] = []
        self.arrived: list[list[str]] = [[EMPTY] * len(self.source) for _ in range(layers)]
        self.num_written, self.is_committed = 0, False
        return self._tell("A prompt of 40 tokens waits. Nobody has set anything aside for it.")

    # -- what can be done -----------------------------------------------------------------------

    def reserve(self) -> str:
        """The decode worker sets blocks aside."""
        if self.target:
            return self._tell("The blocks are set aside already.")
        self.scheduler.request_reservation(self.request)
        (sequence,) = self.scheduler.reserve_pending(0.0)
        self.target = list(sequence.block_ids)
        ids = ", ".join(map(str, self.target))
        return self._tell(f"The decode worker has set blocks {ids} aside. Now reading may begin.")

    def write_layer(self, *, whole: bool = True) -> str:
        """The next layer's keys and values are final: write them, or all but their last block."""
        if not self.target:
            return self._tell("Where to? The decode worker has not set blocks aside yet.")
        if self.num_written == len(self.arrived):
            return self._tell("All layers are written. Now the manifest may follow.")
        layer, count = self.num_written, len(self.source) - (not whole)
        self.transfer.write(layer, self.source[:count], self.target[:count])
        self.arrived[layer] = [ARRIVED] * count + [LOST] * (len(self.source) - count)
        self.num_written += 1
        lost = "" if whole else " Its last block got lost, and nobody noticed."
        is_top = self.num_written == len(self.arrived)
        rest = "the topmost" if is_top else "while layers above may still be computed"
        return self._tell(f"Layer {layer} is written, {rest}.{lost}")

    def send_manifest(self) -> str:
        """The decode worker compares the manifest with what it finds in its own memory."""
        sequence = self.scheduler.reserved.get(self.request.id)
        if self.is_committed:
            return self._tell("The hand-off is committed already.")
        if sequence is None:
            return self._tell("There is nothing to verify: no blocks are set aside.")
        receiver = Receiver(self._identity("decode worker"), self.writer.store)
        reason = receiver.why_refuse(self._manifest(), sequence)
        if reason is not None:
            return self._tell(
                f"Refused: {reason}. In the engine the decode worker now reads the prompt itself, "
                "with the reason 'recovered'."
            )
        self.scheduler.commit(self.request.id, self.first_token)
        self.is_committed = True
        return self._tell("Everything matches: committed. The sequence joins the running batch.")

    def decode(self) -> str:
        """One step of writing, if the decode worker knows of the sequence."""
        if not self.is_committed:
            return self._tell(
                f"Not yet. {self.num_written} of {len(self.arrived)} layers are written, and "
                "without a verified manifest this sequence does not exist for the decode worker."
            )
        batch = self.scheduler.schedule(0.0)
        if batch is None:
            return self._tell("The answer is complete.")
        tokens = self.writer.run(batch.chunks)
        self.scheduler.complete(batch, tokens, 0.0)
        return self._tell(f"A step of writing gave token {tokens[0]}.")

    def act(self, action: str) -> str:
        """One of `ACTIONS` by its name; returns what it did."""
        made: dict[str, Callable[[], str]] = {
            "reserve": self.reserve,
            "layer": self.write_layer,
            "lose": lambda: self.write_layer(whole=False),
            "manifest": self.send_manifest,
            "decode": self.decode,
            "again": self.start_again,
        }
        if action not in made:
            raise ValueError(f"There is no action {action!r}; use one of {', '.join(made)}.")
        return made[action]()

    # -- inside ---------------------------------------------------------------------------------

    def _identity(self, name: str) -> Identity:
        return Identity(name, 0, self.model.fingerprint, self.model.eos_ids)

    def _manifest(self) -> m.Manifest:
        """What the prefill worker says of the whole prompt, digests from its own memory."""
        digests = Digests(self.reader.store)
        for layer in range(len(self.arrived)):
            digests.add(layer, self.source)
        return m.Manifest(
            request_id=self.request.id,
            source="prefill worker",
            source_epoch=0,
            target="decode worker",
            target_epoch=0,
            fingerprint=self.model.fingerprint,
            layout=layout_name(self.reader.store.layout),
            block_ids=tuple(self.target),
            first_token=0,
            num_tokens=NUM_TOKENS,
            digests=digests.result(),
            num_bytes=self.transfer.num_bytes,
            token_id=self.first_token,
        )

    def _tell(self, sentence: str) -> str:
        self.told = sentence
        return sentence


def board_table(handoff: HandOff) -> dict[str, list[str]]:
    """The decode worker's blocks, a row for each layer, as columns by heading."""
    names = handoff.target or ["-"] * len(handoff.source)
    columns = {"layer": [f"layer {n}" for n in range(len(handoff.arrived))]}
    for place, block_id in enumerate(names):
        column = [layer[place] for layer in handoff.arrived]
        columns[f"part {place + 1}, in block {block_id}"] = column
    return columns


def board_html(handoff: HandOff) -> str:
    """What happened, spoken when it changes, above the decode worker's blocks."""
    told = f"<p role='status' aria-live='polite'>{html.escape(handoff.told)}</p>"
    return told + html_table(board_table(handoff), "In the decode worker's store")


def board_text(handoff: HandOff) -> str:
    """The same as plain lines."""
    rows = zip(*board_table(handoff).values(), strict=True)
    return "\n".join([handoff.told, *(f"  {row[0]}: {', '.join(row[1:])}" for row in rows)])


class HandOffView:
    """Buttons above the board."""

    def __init__(self, handoff: HandOff) -> None:
        lab: Any = importlib.import_module("minipd.lab.widgets")
        self.handoff = handoff
        self.page = lab.W.HTML(board_html(handoff))
        buttons = [lab.button(label, self._press(name)) for name, label in ACTIONS.items()]
        self.widget = lab.W.VBox([lab.row(buttons), self.page])

    def _press(self, action: str) -> Callable[[], None]:
        def pressed() -> None:
            self.handoff.act(action)
            self.page.value = board_html(self.handoff)

        return pressed


def handoff_board() -> None:
    """Show the widget before anything has happened."""
    predict: Any = importlib.import_module("minipd.lab.predict")
    predict.display_widget(HandOffView(HandOff()).widget)


def play(actions: Items[str]) -> HandOff:
    """A hand-off after some actions, each printed with what it did."""
    handoff = HandOff()
    for action in actions:
        print(f"{action}: {handoff.act(action)}")
    return handoff
