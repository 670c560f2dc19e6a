"""How long requests wait for a pool of equal workers: means and quantiles for the planner.

One worker is the M/D/1 queue of `minipd.fleet.queueing` (DistServe, OSDI'24, eq. 1). Several behind
a router that picks the least loaded one are close to the queue M/D/c, since the worker with the
least work left is the one that a single queue would have fed. Its mean wait is Sakasegawa's formula
(Annals of the Institute of Statistical Mathematics 29, 1977) halved, because service does not vary;
with c = 1 it is eq. 1 exactly. Standard library only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from minipd.fleet.queueing import OverloadError


@dataclass(frozen=True, slots=True)
class Wait:
    """`chance` that a request waits at all, and the mean wait of those that do, in seconds."""

    chance: float
    mean_if_s: float

    @property
    def mean_s(self) -> float:
        return self.chance * self.mean_if_s

    def quantile_s(self, share: float) -> float:
        """The wait that `share` of all requests stay within.

        Waits above 0 are taken as exponential. In M/D/1 this errs to the safe side: by 6 % at half
        load, 17 % near full load.
        """
        late = 1.0 - share
        return self.mean_if_s * math.log(self.chance / late) if self.chance > late else 0.0


def pool_wait(load: float, turn_s: float, workers: int) -> Wait:
    """`load` is the busy share of each of `workers` workers, which take a new request `turn_s`
    after the last one at the earliest: `turn_s / (2 c) * load ** (sqrt(2 (c + 1)) - 1) / (1 -
    load)` on average.
    """
    if load >= 1.0:
        raise OverloadError(f"Work arrives {load:.2f} times as fast as it is done; add workers.")
    chance = load ** (math.sqrt(2.0 * (workers + 1)) - 1.0)
    return Wait(chance, turn_s / (2.0 * workers * (1.0 - load)))
