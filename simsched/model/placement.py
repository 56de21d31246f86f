"""The GPUs that a job holds: an ordered tuple of (node, GPUs on it) pairs.

The order is the order in which the nodes were picked. It is part of the allocation, because a ring of workers visits
the nodes in this order, and because the published measurements distinguish it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import starmap
from typing import NamedTuple, TypeVar

from simsched.words import counted

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


#: Thousandths in a whole GPU.
GPU_MILLI = 1000


def models_of(gpu_spec: str) -> frozenset[str]:
    """Return the models in a text, separated by |; empty for an empty text."""
    return frozenset(name.strip() for name in gpu_spec.split("|") if name.strip())


@dataclass(frozen=True)
class Pod:
    """The request of a pod: thousandths of cores, MiB, and `gpu_milli` / 1000 of each of `num_gpus` GPUs.

    `gpu_spec` names the models that it accepts, separated by |; any if it is empty.
    """

    name: str
    cpu_milli: int
    memory_mib: int
    num_gpus: int
    gpu_milli: int
    gpu_spec: str = ""

    @property
    def total_milli(self) -> int:
        """Return the thousandths of GPUs that it asks for in total."""
        return self.num_gpus * self.gpu_milli

    @property
    def gpu_models(self) -> frozenset[str]:
        """Return the models that it accepts; empty means any."""
        return models_of(self.gpu_spec)

    @property
    def shares(self) -> bool:
        """Return whether it wants a fraction of one GPU."""
        return self.num_gpus == 1 and self.gpu_milli < GPU_MILLI


Request = TypeVar("Request", bound=Hashable)

#: The amount by which parts may exceed a whole GPU, since sums of decimal fractions are inexact.
SLACK = 1e-9
#: The share of all requests that the usual ones cover.
COVERED = 0.95


def usual_requests(counts: Counter[Request], covered: float = COVERED) -> list[tuple[Request, float]]:
    """Return the most frequent requests that cover the share `covered`, each with its share; shares add up to 1.

    Ties go to the request counted first. Source: Weng et al., "Beware of Fragmentation" (ATC'23), section 3, the
    classes of its target workload.
    """
    total, seen, kept = counts.total(), 0, []
    for request, count in counts.most_common():
        kept.append((request, count))
        seen += count
        if seen >= covered * total:
            break
    return [(request, count / seen) for request, count in kept]


class Amount(NamedTuple):
    """The amount wanted of a node: GPUs, thousandths of each of them, thousandths of cores, and memory in MiB."""

    gpus: int
    gpu_milli: int = GPU_MILLI
    cpu_milli: int = 0
    memory_mib: int = 0


#: A whole GPU and nothing else.
_WHOLE = Amount(1)


class NodeShape(NamedTuple):
    """`nodes` nodes of one type with the amount `each` on every one; with 0 nodes, `each` in total on any nodes.

    `gpu_types` are those allowed (None: any); all nodes are in one domain of the level `within`, counted from 0, the
    lowest above the nodes (None: anywhere). An `exclusive` job shares its nodes with no other.
    """

    nodes: int
    each: Amount
    gpu_types: tuple[str, ...] | None = None
    within: int | None = None
    exclusive: bool = False

    @property
    def binds(self) -> bool:
        """Return whether it restricts more than the number and the types of GPUs."""
        return bool(self.nodes or self.each[1:] != _WHOLE[1:] or self.within is not None or self.exclusive)

    @property
    def said(self) -> str:
        """Describe in words what it wants."""
        each = self.each
        parts = [counted(each.gpus, "GPU")]
        parts += [f"{each.cpu_milli / 1000:g} cores"] if each.cpu_milli else []
        parts += [f"{each.memory_mib} MiB"] if each.memory_mib else []
        types = f" of type {' or '.join(self.gpu_types)}" if self.gpu_types is not None else ""
        on = f" on each of {counted(self.nodes, 'node')}" if self.nodes else ""
        return f"{', '.join(parts)}{on}{types}{', to itself' if self.exclusive else ''}"

    def beside(self, gpus: int) -> tuple[int, int]:
        """Return the thousandths of cores and the MiB for `gpus` of its GPUs on a node, rounded up."""
        each, whole = self.each, self.each.gpus
        if not whole:
            return each.cpu_milli, each.memory_mib
        return -(-each.cpu_milli * gpus // whole), -(-each.memory_mib * gpus // whole)

    def is_like(self, gpus: tuple[int, ...]) -> bool:
        """Return whether nodes with these GPUs have the shape; a node may hold several parts of it."""
        whole = self.each.gpus
        if not self.nodes:
            return sum(gpus) == whole
        if not whole:
            return len(gpus) == self.nodes and not any(gpus)
        return sum(gpus) == self.nodes * whole and not any(one % whole for one in gpus)


def node_labels(types: Iterable[str]) -> list[str]:
    """Name nodes, given by their GPU types in order, as `Terms.held_nodes` does: a100:0, a100:1, t4:0."""
    counts: Counter[str] = Counter()
    found = []
    for kind in types:
        found.append(f"{kind}:{counts[kind]}")
        counts[kind] += 1
    return found


class Terms(NamedTuple):
    """Conditions for the start of a job besides room: its reservation, and the jobs that must end before it.

    At most `group_limit` jobs of its group (a job array) run at once (0: all); `licences` are names and counts. On
    submission it had waited `waited_s` seconds; a job that runs when a replay starts held `held_nodes`, named as by
    `node_labels`.
    """

    reservation: str = ""
    after: tuple[str, ...] = ()
    group_limit: int = 0
    licences: tuple[tuple[str, int], ...] = ()
    waited_s: int = 0
    held_nodes: tuple[str, ...] = ()
