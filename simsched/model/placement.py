"""The GPUs that a job holds: an ordered tuple of (node, GPUs on it) pairs.

The order is the order in which the nodes were picked. It is part of the allocation, because a ring of workers visits
the nodes in this order, and because the published measurements distinguish it.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import starmap
from typing import NamedTuple

#: ((node index, GPUs on that node), ...), each node once, GPUs >= 1; () is no GPU.
Allocation = tuple[tuple[int, int], ...]

#: GPUs on each node in the order of the allocation, for instance (4, 2).
Shape = tuple[int, ...]

NOTHING: Allocation = ()


class Tier(NamedTuple):
    """How a job is spread over the units of a tier with declared uplinks: GPUs, islands, nodes, leaves and so on.

    `common` is the greatest common divisor of its GPUs on each unit and `largest` the most on one. Because its ranks
    follow each other along the tiers, groups of n consecutive ranks lie within units exactly if n divides `common`.
    `bytes_per_s` and `latency_s` are those of a unit's uplink; `inside` marks units smaller than a node.
    """

    common: int
    largest: int
    bytes_per_s: float
    latency_s: float = 0.0
    inside: bool = False


class Site(NamedTuple):
    """Where a job runs: the GPUs on each of its nodes, all of one type.

    Of the levels above the nodes (racks, islands), the nodes are in several domains of the lowest `levels_crossed`;
    synchronisation across these takes `sync_factor` times as long as across nodes within one domain. If no level is
    crossed, the factor applies to the application's time across nodes. `tiers` describes the spread over each tier
    whose uplinks the cluster declares, the lowest first.
    """

    shape: Shape
    gpu_type: str
    levels_crossed: int = 0
    sync_factor: float = 1.0
    tiers: tuple[Tier, ...] = ()

    @property
    def nodes(self) -> int:
        """Return the number of nodes."""
        return len(self.shape)

    @property
    def gpus(self) -> int:
        """Return the number of GPUs."""
        return sum(self.shape)


def shape_of(allocation: Allocation) -> Shape:
    """Return the GPUs on each node, in allocation order."""
    return tuple([gpus for _, gpus in allocation])


def gpus_of(allocation: Allocation) -> int:
    """Count the GPUs of an allocation."""
    return sum([gpus for _, gpus in allocation])


def consolidated_shape(gpus: int, gpus_per_node: int) -> Shape:
    """Return the shape that uses as few nodes as possible: full nodes first, the remainder last."""
    full, rest = divmod(gpus, gpus_per_node)
    return (gpus_per_node,) * full + ((rest,) if rest else ())


def canonical_rotation(shape: Shape) -> Shape:
    """Return the smallest of all rotations, in tuple order; mirror images stay distinct."""
    return min(shape[i:] + shape[:i] for i in range(len(shape)))


def describe(allocation: Allocation) -> str:
    """Format an allocation as `node:gpus` pairs, for instance `5:4 2:2`."""
    if allocation and not allocation[1:]:  # the usual case
        return _pair(*allocation[0])
    return " ".join(starmap(_pair, allocation))


@lru_cache(maxsize=4096)
def _pair(node: int, gpus: int) -> str:
    return f"{node}:{gpus}"
