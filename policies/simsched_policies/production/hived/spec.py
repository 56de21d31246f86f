"""What an administrator declares about cells, and what a gang asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: The priority of an opportunistic gang, and of a cell in which nothing runs.
OPPORTUNISTIC = -1
FREE = -2
#: The highest priority of a guaranteed gang.
MOST_URGENT = 1000


@dataclass(frozen=True)
class CellType:
    """A level of the hierarchy: `count` cells of type `child`; `is_node` marks the level of machines."""

    child: str
    count: int
    is_node: bool = False


@dataclass(frozen=True)
class CellSpec:
    """A physical cell: a node's address is its name, a GPU's its index; `children` may be left out below a node."""

    type: str = ""
    address: str = ""
    children: tuple[CellSpec, ...] = ()
    pinned: str = ""


@dataclass(frozen=True)
class VirtualCluster:
    """What a tenant owns: numbers of cells by full path of types, like "rack.node", and pinned cells by name."""

    cells: tuple[tuple[str, int], ...] = ()
    pinned: tuple[str, ...] = ()


@dataclass(frozen=True)
class CellCluster:
    """The types, the physical cells and the virtual clusters of a cluster."""

    types: Mapping[str, CellType]
    cells: tuple[CellSpec, ...]
    tenants: Mapping[str, VirtualCluster]


@dataclass(frozen=True)
class Gang:
    """Pods that run together or not at all; `pods` holds the GPUs of each.

    `priority` is `OPPORTUNISTIC`, or 0 to 1000 for a guaranteed gang. A `lazy` one may become opportunistic when its
    tenant's more urgent gangs need its cells. An empty `gpu_type` means any; `pinned` asks for a pinned cell.
    """

    name: str
    tenant: str
    priority: int
    pods: tuple[int, ...]
    gpu_type: str = ""
    pinned: str = ""
    lazy: bool = True


#: GPUs of one pod: the node's name and the indices of the GPUs in the order in which they were chosen.
PodPlace = tuple[str, tuple[int, ...]]


@dataclass(frozen=True)
class Placed:
    """The gang runs now; `places` by pod, in the order of `Gang.pods`; `demoted` gangs became opportunistic."""

    places: tuple[PodPlace, ...]
    demoted: tuple[str, ...] = ()


@dataclass(frozen=True)
class Preempts:
    """The gang has its cells reserved and starts when the `victims` are gone."""

    victims: tuple[str, ...]
    places: tuple[PodPlace, ...]
    demoted: tuple[str, ...] = ()


@dataclass(frozen=True)
class Waits:
    """The gang cannot run now."""

    why: str = field(default="no cells fit")


Outcome = Placed | Preempts | Waits
