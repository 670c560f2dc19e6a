"""When a remote prefill pays: what it adds to one reader's wait, and what it spares all others.

Seconds, bytes and tokens. The break-even is the prompt length at which the time to first token that
a remote prefill adds equals the stall that it spares, summed over the running chats, on one link.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from minipd.fleet.configs import find_model
from minipd.fleet.factors import committed
from minipd.fleet.gpus import find_device
from minipd.fleet.steps import StepModel
from minipd.fleet.work import decode_step, prefill_step
from minipd.lab.predict import reveal
from minipd.lab.show import show_table
from minipd.measure.links import LinkFit
from minipd.measure.real_hardware import H100X8

Seconds = Callable[[float], float]  # by prompt tokens
LONGEST = 131_072  # tokens: beyond it "never" is said
CONTEXT = 2048  # tokens behind each running chat, where a step's length depends on it
LATENCY_S = 0.38e-3  # of one hand-off between real servers (facts C6, fitted to nine transfers)
# Payload at line rate, bytes/s: what a data sheet promises, and so the best case.
LINKS = {
    "10 GbE": LinkFit(LATENCY_S, 1.25e9),
    "25 GbE": LinkFit(LATENCY_S, 3.125e9),
    "400 Gb InfiniBand": LinkFit(LATENCY_S, 50e9),
}


@dataclass(frozen=True, slots=True)
class Server:
    """A decode worker with `chats` running answers, and a prefill worker of the same speed.

    `stall_s(n)` is what each chat loses when the decode worker reads n tokens itself.
    """

    name: str
    kv_bytes_per_token: float
    num_layers: int
    chats: int
    step_s: float
    prefill_s: Seconds
    stall_s: Seconds

    def freeze_tokens(self, tokens: float) -> float:
        """The stall of one chat, counted in tokens that it would have got."""
        return self.stall_s(tokens) / self.step_s


def measured_server(
    name: str,
    kv_bytes: float,
    layers: int,
    chats: int,
    tokens_per_s: float,
    step_s: float,
    pass_s: float = 0.0,
) -> Server:
    """A server known by what it measures: a pass that reads n tokens takes `pass_s` and n times the
    seconds of a token, a step of all its chats `step_s`.

    A chat still gets one token out of the step that reads, so a step's length is not lost.
    """

    def prefill_s(tokens: float) -> float:
        return pass_s + tokens / tokens_per_s

    def stall_s(tokens: float) -> float:
        return max(0.0, prefill_s(tokens) - step_s)

    return Server(name, kv_bytes, layers, chats, step_s, prefill_s, stall_s)


def gpu_server(chats: int, model: str = "meta-llama/Llama-3.1-8B", gpu: str = "h100_sxm") -> Server:
    """One GPU for each role, by the step-time model of docs/fleet.md (H100 or A100).

    Llama-3-8B and Llama-3.1-8B have the same shapes.
    """
    found, device = find_model(model), find_device(gpu)
    steps = StepModel(found, device, committed()[device.key])
    step_s = steps.decode_s(CONTEXT, chats)

    def shared_step_s(tokens: int) -> float:
        return steps.step(prefill_step(tokens) + decode_step(CONTEXT, chats)).seconds

    # What such a step costs with as good as no prompt, its second attention kernel included.
    start_s = shared_step_s(2)

    def stall_s(tokens: float) -> float:
        return max(0.0, shared_step_s(max(1, round(tokens))) - start_s)

    def prefill_s(tokens: float) -> float:
        return steps.prefill_s(max(1, round(tokens)))

    name = f"{found.name.split('/')[-1]} on {device.name}"
    return Server(name, KV_BYTES[model], NUM_LAYERS[model], chats, step_s, prefill_s, stall_s)


KV_BYTES = {"meta-llama/Llama-3.1-8B": 131_072.0}  # facts C1: 2 x 32 layers x 8 heads x 128 x 2 B
NUM_LAYERS = {"meta-llama/Llama-3.1-8B": 32}


def exposed_s(server: Server, link: LinkFit, tokens: float, layer_by_layer: bool = True) -> float:
    """The part of the transfer that sticks out behind the prefill.

    Sent layer by layer, the bytes of all layers but the last may travel while later layers are
    still being computed; the last layer's cannot.
    """
    wire_s = tokens * server.kv_bytes_per_token / link.bytes_per_s
    if not layer_by_layer:
        return link.latency_s + wire_s
    layers = server.num_layers
    hidden_s = min(server.prefill_s(tokens), wire_s) * (layers - 1) / layers
    return link.latency_s + wire_s - hidden_s


def added_s(server: Server, link: LinkFit, tokens: float, layer_by_layer: bool = True) -> float:
    """What the new reader waits longer when the prompt is read elsewhere.

    A remote prefill speaks to the decode worker twice (reserve, commit), a local one once; each
    time it waits for the step under way, half a step on average.
    """
    return server.step_s / 2 + exposed_s(server, link, tokens, layer_by_layer)


def spared_s(server: Server, tokens: float) -> float:
    """What all running chats together do not lose."""
    return server.chats * server.stall_s(tokens)


def break_even(server: Server, link: LinkFit, layer_by_layer: bool = True) -> float:
    """The shortest prompt from which remote pays, in tokens; infinity when none up to LONGEST does.

    From there on it pays up to LONGEST.
    """

    def pays(tokens: float) -> bool:
        return spared_s(server, tokens) >= added_s(server, link, tokens, layer_by_layer)

    grid = [1.0, *(2.0 ** (power / 2) for power in range(1, 35))]  # 1 to 131,072
    loses = [tokens for tokens in grid if not pays(tokens)]
    if not loses:
        return grid[0]
    low = loses[-1]
    if low == grid[-1]:
        return math.inf
    high = grid[grid.index(low) + 1]
    while high - low > 0.05:
        middle = (low + high) / 2
        low, high = (low, middle) if pays(middle) else (middle, high)
    return high


def in_words(tokens: float) -> str:
    """A break-even to two digits, which is more than any of these models knows."""
    return "never" if math.isinf(tokens) else f"{float(f'{tokens:.2g}'):,.0f}"


def real_table(
    layer_by_layer: bool = True, chats: Sequence[int] = (1, 4, 8, 32)
) -> dict[str, list[object]]:
    """Break-even lengths of Llama-3-8B on an H100, by running chats and link."""
    servers = [gpu_server(count) for count in chats]
    table: dict[str, list[object]] = {"running chats": list(chats)}
    for name, link in LINKS.items():
        table[name] = [in_words(break_even(s, link, layer_by_layer)) for s in servers]
    return table


def freeze_table(here: Server, lengths: Sequence[int] = (64, 512, 2048, 8192)) -> dict[str, object]:
    """The same freeze in tokens: here, on one H100, and published for a 70B model on eight."""
    gpu = gpu_server(here.chats)
    return {
        "prompt (tokens)": list(lengths),
        "here": [round(here.freeze_tokens(n), 1) for n in lengths],
        gpu.name: [round(gpu.freeze_tokens(n), 1) for n in lengths],
        H100X8.name: [round(max(0.0, H100X8.freeze_tokens(n, here.chats) - 1), 1) for n in lengths],
    }


# The team of the lesson: Llama-3-8B over 10 GbE, 2,048 tokens read in 205 ms (facts C10). The
# source gives no step; 10 ms is an assumption of ours.
TEAM: dict[str, float] = {
    "layers": 32,
    "query_heads": 32,
    "kv_heads": 8,
    "head_size": 128,
    "bytes_per_value": 2,
    "gigabits_per_s": 10.0,
    "latency_s": LATENCY_S,
    "prefill_tokens_per_s": 2048 / 0.205,
    "step_s": 0.010,
}


def chats_needed(formula: Callable[..., float], prediction: str, prompt: int = 2048) -> None:
    """By a learner's `break_even`: the fewest chats for which the team's prompt pays.

    An exercise that is not done yet gets one sentence instead.
    """
    counts = (1, 2, 3, 4, 8, 16)
    try:
        lengths = [float(formula(**TEAM, chats=count)) for count in counts]
    except NotImplementedError:
        print("This cell needs your break_even: solve Exercise 2, then run it again.")
        return
    show_table({"running chats": counts, "remote from (tokens)": [in_words(n) for n in lengths]})
    enough = [count for count, length in zip(counts, lengths) if length <= prompt]
    if not enough:
        print(f"With this formula no number of chats makes {prompt:,} tokens pay.")
        return
    reveal(prediction, float(enough[0]), "chats")
