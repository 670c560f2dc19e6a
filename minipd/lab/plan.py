"""What `minipd run` was asked for: refused at once where it cannot work, and its requests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from minipd.cache.tier_sizes import TierSizes
from minipd.lab.byte_sizes import bytes_of
from minipd.measure.arrivals import DAY_S
from minipd.measure.names import no_such
from minipd.measure.rows import Trace
from minipd.measure.slo import SLO
from minipd.measure.traces import read_trace, reshape_trace
from minipd.measure.workloads import generate
from minipd.pools.links.emulated import Network
from minipd.pools.links.emulated import network as named_network
from minipd.pools.setup import Mode

MODES: tuple[Mode, ...] = ("colocated", "decode_first", "chunked", "disaggregated")
ROUTERS = ("default", "remote", "local", "threshold", "cost", "round_robin", "length", "prefix")
NEED_A_PREFILL_POOL = ("remote", "threshold", "cost")
POOLS = ("processes", "threads")
KV_BLOCK = 16  # tokens
MAX_WORKERS = 64  # each holds the weights once
MAX_PROMPT_TOKENS = 10_000_000  # of all requests together; they are held in memory


class RunError(ValueError):
    """A run that cannot be made as asked; the message says what to change."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What `minipd run` was asked for."""

    modes: tuple[str, ...] = ("disaggregated",)
    model: str = "smollm2-135m"
    device: str = "cpu"
    dtype: str = "float32"
    trace: Path | None = None
    skip_bad_lines: bool = False
    workload: str = "chat"
    num_requests: int = 20
    rate_per_s: float = 1.0
    seed: int = 0
    time_factor: float = 1.0
    max_prompt_tokens: int | None = None
    max_output_tokens: int | None = None
    num_prefill: int = 1
    num_decode: int = 1
    pool: str = "processes"
    paced: bool = False
    network: str | None = None
    router: str = "default"
    local_tokens: int = 256
    chunk_tokens: int = 64
    ttft_s: float | None = None
    tpot_s: float | None = None
    rebalance: bool = False
    deterministic: bool = False
    kv_tokens: int | None = None
    host_kv: str | None = None
    disk_kv: Path | None = None
    disk_kv_size: str | None = None

    @property
    def tiers(self) -> TierSizes:
        """What each worker keeps below its device; raises what says which option is wrong."""
        host = bytes_of(self.host_kv, "--host-kv") if self.host_kv is not None else 0
        disk = bytes_of(self.disk_kv_size, "--disk-kv-size") if self.disk_kv_size else None
        if self.disk_kv is None and disk is not None:
            raise RunError("--disk-kv-size needs a folder: give --disk-kv as well.")
        return TierSizes(host, self.disk_kv, disk)

    @property
    def num_workers(self) -> int:
        return self.num_prefill + self.num_decode

    @property
    def devices(self) -> tuple[str, ...]:
        """Where the workers run, each on the next one in turn."""
        return tuple(name.strip() for name in self.device.split(","))

    @property
    def wire(self) -> Network | None:
        """The emulated network; None for the machine's own memory."""
        return None if self.network is None else named_network(self.network)

    @property
    def slo(self) -> SLO:
        return SLO(ttft_s=self.ttft_s, tpot_s=self.tpot_s)


def check_plan(plan: Plan) -> None:
    """Refuse what cannot work, before anything is loaded or measured."""
    for mode in plan.modes or ("",):
        _check_name("mode", mode, MODES)
    _check_name("router", plan.router, ROUTERS)
    _check_name("pool", plan.pool, POOLS)
    if plan.router in NEED_A_PREFILL_POOL and set(plan.modes) != {"disaggregated"}:
        raise RunError(
            f"The router {plan.router!r} needs a prefill pool, which only the mode disaggregated "
            "has; leave the other modes out, or choose local, round_robin, length or prefix."
        )
    if min(plan.num_prefill, plan.num_decode) < 1 or plan.num_workers > MAX_WORKERS:
        raise RunError(
            "A run needs at least one prefill and one decode worker, and at most "
            f"{MAX_WORKERS} workers."
        )
    if plan.chunk_tokens < 1 or plan.local_tokens < 0:
        raise RunError("A chunk needs at least 1 token, and a length limit cannot be below 0.")
    _ = plan.slo, plan.wire  # both refuse what means nothing
    if not all(plan.devices):
        raise RunError(f"--device {plan.device!r} names no device; write cpu or cuda:0,cuda:1.")
    if plan.rebalance:
        _check_rebalance(plan)
    if plan.kv_tokens is not None and plan.kv_tokens < KV_BLOCK:
        raise RunError(f"--kv-tokens needs room for one block: {KV_BLOCK} or more.")
    if plan.tiers and plan.deterministic:
        raise RunError("--deterministic reuses no KV: leave --host-kv and --disk-kv out.")


def _check_rebalance(plan: Plan) -> None:
    if "disaggregated" not in plan.modes or plan.num_workers < 3:
        raise RunError(
            "--rebalance moves workers between two pools: it needs the mode disaggregated and at "
            "least 3 workers, like --prefill 1 --decode 3."
        )
    if plan.ttft_s is None or plan.tpot_s is None:
        raise RunError("--rebalance keeps two limits: give both --ttft and --tpot, in seconds.")


def _check_name(what: str, name: str, choices: tuple[str, ...]) -> None:
    if name not in choices:
        raise RunError(no_such(what, name, choices))


def trace_of(plan: Plan) -> Trace:
    """The rows to serve, read or generated; raises what says which option to change."""
    if plan.trace is not None:
        read = read_trace(plan.trace, skip_bad=plan.skip_bad_lines)
    else:
        rows = generate(plan.workload, plan.num_requests, plan.rate_per_s, plan.seed)
        read = Trace(rows, f"generated: {plan.workload}", "minipd", [])
    trace = reshape_trace(
        read,
        time_factor=plan.time_factor,
        max_prompt_tokens=plan.max_prompt_tokens,
        max_output_tokens=plan.max_output_tokens,
        limit=plan.num_requests if plan.trace is not None else None,
    )
    last_s, total = trace.rows[-1].arrival_s, sum(row.prompt_tokens for row in trace.rows)
    if last_s > DAY_S:
        raise RunError(
            f"The last request would come after {last_s / DAY_S:,.1f} days, and a run waits in "
            "real time: stay within a day with a higher --rate, a smaller --time-factor or fewer "
            "--requests."
        )
    if total > MAX_PROMPT_TOKENS:
        raise RunError(
            f"The prompts have {total:,} tokens together and a run holds at most "
            f"{MAX_PROMPT_TOKENS:,}; use fewer --requests or --max-prompt-tokens."
        )
    return trace
