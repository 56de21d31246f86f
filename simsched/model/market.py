"""A market for nodes: groups of spot and on-demand nodes in zones, whose availability and prices change over time.

Zones are named as clouds do: a region and a letter (us-east-1c, us-central1-a). Source of the rules of transfers:
SkyNomad's artifact (NSDI'27).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from simsched.arithmetic import Series
from simsched.model.cluster import Cluster
from simsched.model.outages import Outage

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
