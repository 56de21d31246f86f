"""Outages of nodes, and failures that jobs cause themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log
from typing import NamedTuple, Protocol

import numpy as np

from simsched.arithmetic import Series
from simsched.model.cluster import Cluster

#: The kind of an outage that is announced beforehand.
PLANNED = "maintenance"


class Outage(NamedTuple):
    """The seconds between which a node is down, and the kind of outage as its source calls it.

    With `notice`, its jobs save their progress before.
    """

    node: int
    down_s: float
    up_s: float
    kind: str = "outage"
    notice: bool = False


class OutageCause(NamedTuple):
    """A cause of outages: its share of them, and the median and sigma of its log-normal repair time."""

    name: str
    share: float
    repair_median_s: float = 0.0
    repair_sigma: float = 0.0


@dataclass(frozen=True, slots=True)
class AttemptPlan:
    """The attempts of a job that fail on their own.

    `run_s` are the running seconds of each. With `keeps` the next attempt continues where the failed one ended, as in a
    trace that records the duration of each attempt; otherwise it starts from the last checkpoint. With `gives_up` the
    job ends unsuccessfully when the last of them fails.
    """

    run_s: tuple[float, ...] = ()
    keeps: bool = False
    gives_up: bool = False


class JobFailures(Protocol):
    """Draws the failures that jobs cause themselves."""

    def plan(self, num_gpus: int, rng: np.random.Generator) -> AttemptPlan:
        """Return the failing attempts of a job that asks for `num_gpus` GPUs."""
        ...


#: The 90th percentile of the standard normal distribution.
_Z90 = 1.2815515655446004


class Cause(NamedTuple):
    """A cause of failures: median and 90th percentile of the minutes to failure, and trials with 1, 2-4, >4 GPUs."""

    name: str
    median_min: float
    p90_min: float
    trials: tuple[int, int, int]

    def draw_s(self, rng: np.random.Generator) -> float:
        """Draw the seconds to a failure, log-normal with the published median and 90th percentile."""
        sigma = log(self.p90_min / self.median_min) / _Z90
        return 60 * self.median_min * exp(sigma * rng.standard_normal())


#: Table 7 of Jeon et al. (ATC'19), the causes with more than 100 trials.
CAUSES = (
    Cause("CPU out of memory", 13.45, 17.73, (11465, 235, 376)),
    Cause("incorrect inputs", 1.87, 404.83, (5844, 2638, 1208)),
    Cause("semantic error", 2.72, 376.0, (1603, 494, 846)),
    Cause("core dump", 0.85, 72.75, (1936, 496, 480)),
    Cause("invalid memory access", 1.03, 403.5, (712, 774, 1116)),
    Cause("model checkpoint error", 181.67, 3728.93, (743, 384, 868)),
    Cause("CUDA failure", 1.32, 19.87, (133, 1153, 198)),
    Cause("syntax error", 0.58, 5.02, (780, 184, 168)),
    Cause("traceback", 1.02, 894.33, (356, 277, 144)),
    Cause("MPI error", 1.62, 3015.27, (456, 54, 124)),
    Cause("GPU out of memory", 18.53, 353.62, (237, 70, 180)),
    Cause("MPI runtime failure", 1389.48, 13778.6, (240, 141, 97)),
    Cause("permission error", 1.0, 8.15, (56, 202, 41)),
    Cause("import error", 0.67, 4.58, (108, 30, 10)),
    Cause("job preempted", 559.08, 2682.85, (25, 95, 27)),
    Cause("CUDA initialisation failed", 1.08, 2.18, (16, 66, 59)),
    Cause("no signature", 1.87, 28.0, (1235, 294, 155)),
)

#: Figure 9, for 1, 2-4, 5-8 and more than 8 GPUs: mean number of retries, and share of jobs that end unsuccessfully.
RETRIES = (0.33, 0.98, 1.09, 1.11)
UNSUCCESSFUL = (0.13, 0.37, 0.42, 0.47)


@dataclass(frozen=True)
class PhillyFailures:
    """Draws failing attempts: the mean number of retries from Figure 9, causes and times from Table 7.

    Assumed: the number of retries is geometric, and causes within a job are independent (the paper finds that users
    repeat their errors). An attempt does not fail if the job completes first. Source: Jeon et al., "Analysis of
    Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads", ATC'19.
    """

    def plan(self, num_gpus: int, rng: np.random.Generator) -> AttemptPlan:
        """Return the failing attempts of a job that asks for `num_gpus` GPUs."""
        size = _band(num_gpus, (1, 4, 8))
        retries = int(rng.geometric(1 / (1 + RETRIES[size]))) - 1
        gives_up = bool(rng.random() < UNSUCCESSFUL[size])
        demand = _band(num_gpus, (1, 4))
        weights = np.array([cause.trials[demand] for cause in CAUSES], dtype=float)
        chosen = rng.choice(len(CAUSES), size=retries + gives_up, p=weights / weights.sum())
        return AttemptPlan(tuple(CAUSES[i].draw_s(rng) for i in chosen.tolist()), gives_up=gives_up)


def _band(num_gpus: int, limits: tuple[int, ...]) -> int:
    """Return the index of the first limit that `num_gpus` does not exceed."""
    return next((i for i, limit in enumerate(limits) if num_gpus <= limit), len(limits))


# A market for nodes: groups of spot and on-demand nodes in zones, whose availability and prices change over time.
#
# Zones are named as clouds do: a region and a letter (us-east-1c, us-central1-a). Source of the rules of transfers:
# SkyNomad's artifact (NSDI'27).

#: The kind of an outage by which the market takes a node back.
RECLAIMED = "reclaimed"
_CHEAP, _NEAR_PER_GB, _FAR_PER_GB = frozenset({"us-east-1", "us-east-2"}), 0.01, 0.02


class Offer(NamedTuple):
    """What a user sees of a group of nodes: zone, indices, whether it is spot, and the dollars of a node-hour now."""

    zone: str
    nodes: Sequence[int]
    spot: bool
    price_per_h: float


@dataclass(frozen=True)
class MarketGroup:
    """Nodes of one GPU type in a zone; `available` is 1 where the market offers them (None: always).

    With `notice`, jobs save their progress before the nodes go.
    """

    zone: str
    nodes: Sequence[int]
    spot: bool
    prices: Series
    available: Series | None = None
    notice: bool = True

    def reclaims(self) -> list[Outage]:
        """Return the times between which the market keeps the nodes."""
        if self.available is None:
            return []
        step_s, values = self.available.step_s, [*self.available.values]
        edges = [i for i, value in enumerate(values) if i == 0 or value != values[i - 1]] + [len(values)]
        gone = [(step_s * a, step_s * b) for a, b in pairwise(edges) if not values[a]]
        return [Outage(node, down_s, up_s, RECLAIMED, self.notice) for down_s, up_s in gone for node in self.nodes]


@dataclass(frozen=True)
class Market:
    """All groups, in the order of their nodes, with their future."""

    groups: tuple[MarketGroup, ...]

    @classmethod
    def on_demand(cls, cluster: Cluster) -> Market:
        """Return a market of one zone that offers all nodes of a cluster, always and for nothing."""
        by_type = {kind: [one.index for one in cluster.nodes if one.gpu_type == kind] for kind in cluster.gpus_by_type}
        return cls(tuple(MarketGroup("", nodes, False, Series(1.0, (0.0,))) for nodes in by_type.values()))

    def offers(self, now_s: float) -> tuple[Offer, ...]:
        """Return what users see at a second."""
        return tuple(Offer(one.zone, one.nodes, one.spot, one.prices.at(now_s)) for one in self.groups)

    def outages(self) -> tuple[Outage, ...]:
        """Return all times for which nodes are reclaimed."""
        return tuple(outage for group in self.groups for outage in group.reclaims())


def region_of(zone: str) -> str:
    """Return the region of a zone: its name less the letter."""
    return zone[:-1].removesuffix("-")


def transfer_cost(origin: str, target: str, gb: float) -> float:
    """Return the dollars for moving a checkpoint of `gb` GB between zones."""
    regions = {region_of(origin), region_of(target)}
    return 0.0 if len(regions) == 1 else gb * (_NEAR_PER_GB if regions == _CHEAP else _FAR_PER_GB)
