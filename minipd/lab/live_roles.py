"""Lesson 10: the same requests on a cluster whose workers may, or may not, change pools."""

from __future__ import annotations

from minipd.lab.pool_ratio import Kind
from minipd.measure.metrics import summarise
from minipd.measure.slo import SLO
from minipd.pools.cluster import Cluster, Run
from minipd.pools.controller import Controller
from minipd.request import Request
from minipd.sched.rebalance import Rebalancer


def shifted(
    cluster: Cluster, requests: list[Request], slo: SLO, moves: bool
) -> tuple[Run, list[str]]:
    """Serve them on the cluster as it stands, with or without a controller that may move workers;
    says of each move when it came and why."""
    assert slo.ttft_s is not None and slo.tpot_s is not None
    policy = Rebalancer(ttft_s=slo.ttft_s, tpot_s=slo.tpot_s, confirm=2, cooldown_s=1.0)
    controller = Controller(policy, interval_s=0.1, window_s=1.5)
    cluster.controller = controller if moves else None
    run = cluster.run(requests)
    cluster.controller = None
    return run, [f"{move.worker} goes to {move.role}: {move.reason}" for move in controller.moves]


def attained(run: Run, slo: SLO, kind: Kind) -> float:
    """The share of one kind's requests that met both limits."""
    summary = summarise(run.timeline, slo, lambda name: name.startswith(kind.name))
    return summary.attainment or 0.0
