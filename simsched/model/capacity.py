"""What is free of a cluster: GPUs by node, type and level, and cores, memory and parts of GPUs where they count."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from simsched.model.application import ApplicationFacts
from simsched.model.cluster import Node
from simsched.model.placement import Allocation
from simsched.model.pod import GPU_MILLI

Ints = npt.NDArray[np.int64]

#: What a node has of something that it does not declare.
_PLENTY = 1 << 60


class Amount(NamedTuple):
    """What is wanted of a node: GPUs, thousandths of each of them, thousandths of cores, and memory in MiB."""

    gpus: int
    gpu_milli: int = GPU_MILLI
    cpu_milli: int = 0
    memory_mib: int = 0


class NodeShape(NamedTuple):
    """So many nodes of one type with so much on `each`.

    `gpu_types` are those allowed (None: any); `within` is the level of which all nodes are in one domain, counted from
    0, the lowest above the nodes (None: they may be anywhere).
    """

    nodes: int
    each: Amount
    gpu_types: tuple[str, ...] | None = None
    within: int | None = None


@dataclass(frozen=True)
class Claim:
    """What a shape gets: nodes, so much on each, and the places of its GPUs where single ones are counted."""

    nodes: tuple[int, ...]
    each: Amount
    gpus: tuple[tuple[int, ...], ...] = ()

    @property
    def allocation(self) -> Allocation:
        """Return the GPUs by node."""
        return tuple((node, self.each.gpus) for node in self.nodes) if self.each.gpus else ()


class Room(NamedTuple):
    """What is free of each node as arrays, in thousandths and MiB; `gpu_milli` has shape (nodes, most GPUs of one)."""

    gpus: Ints
    cpu_milli: Ints
    memory_mib: Ints
    gpu_milli: Ints

    @classmethod
    def of(cls, nodes: Sequence[Node], free: Sequence[int] | None = None) -> Room:
        """Take nodes of which the first `free` GPUs (None: all) are free, and all of the cores and memory."""
        rows = [
            (node.gpus, *(_PLENTY if has is None else has for has in (node.cpu_milli, node.memory_mib)))
            for node in nodes
        ]
        gpus, cpu, memory = np.array(rows, dtype=np.int64).reshape(-1, 3).T.copy()
        whole = gpus if free is None else np.array(free, dtype=np.int64)
        milli = np.where(np.arange(max(gpus, default=0)) < whole[:, None], GPU_MILLI, 0)
        return cls(gpus, cpu, memory, milli.astype(np.int64))


class Pool:
    """The free GPUs of the nodes of one type.

    `nodes_with[n]` has a bit for every node with n GPUs free, so that the node of lowest index is found at once.
    `levels` has, for each level above the nodes, the bits of the nodes of each domain with the GPUs of these nodes.
    """

    __slots__ = ("_fewest", "_largest", "levels", "nodes_with", "total")

    def __init__(
        self, capacity: Mapping[int, int], free: Sequence[int], domains: Mapping[int, Sequence[int]] | None = None
    ) -> None:
        """Hold nodes with their GPUs (`capacity`, by node index), of which `free` (by node index) are free.

        `domains` has, by node index, the domain that it is in at each level above the nodes; None without levels.
        """
        self.levels = _levels(capacity, domains or {})
        self._largest = sorted(capacity.values(), reverse=True)
        self._fewest: dict[int, int] = {}
        self.nodes_with = [0] * (max(self._largest, default=0) + 1)
        self.total = 0
        for node in sorted(capacity):
            self.nodes_with[free[node]] |= 1 << node
            self.total += free[node]

    def most_free(self, within: int = -1) -> Iterator[tuple[int, int]]:
        """Return nodes among the bits of `within` and their free GPUs, the most free first, by index on a tie."""
        return self._nodes(range(len(self.nodes_with) - 1, 0, -1), within)

    def least_free(self, within: int = -1, fewest: int = 1) -> Iterator[tuple[int, int]]:
        """Return nodes and their free GPUs, the least free first, by index on a tie, from `fewest` free GPUs on."""
        return self._nodes(range(fewest, len(self.nodes_with)), within)

    def best_fit(self, gpus: int, within: int = -1) -> int | None:
        """Find the node with the fewest free GPUs that has `gpus`, among the bits of `within`."""
        for count in range(gpus, len(self.nodes_with)):
            nodes = self.nodes_with[count] & within
            if nodes:
                return lowest_node(nodes)
        return None

    def free_within(self, nodes: int) -> int:
        """Count the free GPUs of the nodes whose bits are in `nodes`."""
        return sum(count * (having & nodes).bit_count() for count, having in enumerate(self.nodes_with))

    def fewest_nodes(self, gpus: int) -> int | None:
        """Count the nodes that `gpus` GPUs need at least in the empty cluster, None where it has fewer GPUs."""
        known = self._fewest.get(gpus)
        if known is not None:
            return known
        missing = gpus
        for count, size in enumerate(self._largest, start=1):
            missing -= size
            if missing <= 0:
                self._fewest[gpus] = count
                return count
        return None

    def domains_at(self, level: int | None) -> list[int]:
        """Return the bits of the nodes of each domain of a level, the least free first; of all nodes without one."""
        if level is None:
            return [-1]
        return sorted((nodes for nodes, _ in self.levels[level]), key=self.free_within) if self.levels else []

    def _nodes(self, counts: range, within: int = -1) -> Iterator[tuple[int, int]]:
        for count in counts:
            nodes = self.nodes_with[count] & within
            while nodes:
                node = lowest_node(nodes)
                yield node, count
                nodes &= nodes - 1


def _levels(
    capacity: Mapping[int, int], domains: Mapping[int, Sequence[int]]
) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Return, for each level and each domain with such nodes, the bits of its nodes and the GPUs of these."""
    if not domains:
        return ()
    found: list[dict[int, tuple[int, int]]] = [{} for _ in next(iter(domains.values()), ())]
    for node, gpus in sorted(capacity.items()):
        for level, domain in zip(found, domains.get(node, ()), strict=False):
            bits, so_far = level.get(domain, (0, 0))
            level[domain] = bits | 1 << node, so_far + gpus
    return tuple(tuple(level.values()) for level in found)


def lowest_node(nodes: int) -> int:
    """Return the lowest node of a set of bits."""
    return (nodes & -nodes).bit_length() - 1


@dataclass(frozen=True)
class Placer:
    """A way to choose GPUs; `waits` tells that it may refuse a job although there are enough free GPUs."""

    name: str
    choose: Callable[[Pool, int], Allocation | None]
    waits: bool = False


class _Shown(Protocol):
    """What a view shows of a cluster."""

    @property
    def nodes(self) -> Sequence[Node]: ...
    @property
    def up(self) -> Sequence[bool]: ...
    @property
    def free(self) -> Sequence[int]: ...


class Capacity:
    """What is free of a cluster, node by node (`free`, whole GPUs) and sorted for each GPU type.

    Types are named by their places in `types`, which has them in the order of the nodes.
    """

    def __init__(self, nodes: Sequence[Node], up: Sequence[bool], free: Sequence[int], *, parts: bool = False) -> None:
        """Take the state as a view shows it; `parts` tells that GPUs are given away in parts."""
        self.nodes = nodes
        self.up = list(up)
        self.free = list(free)
        self.total = sum(self.free)
        self.types = list(dict.fromkeys(node.gpu_type for node in nodes))
        self._all_types = tuple(range(len(self.types)))
        #: The pool of each node, once somebody has asked for a pool.
        self._pool_of: list[Pool] = []
        self._room: Room | None = None
        if parts or any(node.cpu_milli is not None or node.memory_mib is not None for node in nodes):
            self._room = Room.of(nodes, self.free)
            #: The places of the GPUs that are held by count.
            self._held = [list(range(free, node.gpus)) for free, node in zip(self.free, nodes, strict=True)]

    @classmethod
    def of(cls, view: _Shown) -> Capacity:
        """Return what is free as a view shows it."""
        return cls(view.nodes, view.up, view.free)

    @classmethod
    def idle(cls, view: _Shown, held: Iterable[Allocation] = ()) -> Capacity:
        """Return what would be free of the nodes that are up if nothing ran but what holds `held`."""
        free = [node.gpus if up else 0 for node, up in zip(view.nodes, view.up, strict=True)]
        for allocation in held:
            for node, gpus in allocation:
                free[node] -= gpus
        return cls(view.nodes, view.up, free)

    def __repr__(self) -> str:
        """Show the free GPUs of each type."""
        return f"<Capacity {', '.join(f'{self.total_of(kind)} {name}' for kind, name in enumerate(self.types))} free>"

    @cached_property
    def _pools(self) -> list[Pool]:
        domains = {node.index: node.domains for node in self.nodes if node.domains}
        sizes: dict[str, dict[int, int]] = {kind: {} for kind in self.types}
        for node, up in zip(self.nodes, self.up, strict=True):
            if up:
                sizes[node.gpu_type][node.index] = node.gpus
        pools = {kind: Pool(gpus, self.free, domains) for kind, gpus in sizes.items()}
        self._pool_of = [pools[node.gpu_type] for node in self.nodes]
        return list(pools.values())

    @cached_property
    def _type_of(self) -> list[int]:
        place = {kind: i for i, kind in enumerate(self.types)}
        return [place[node.gpu_type] for node in self.nodes]

    def fitting(self, facts: ApplicationFacts) -> tuple[int, ...]:
        """List the types on which an application runs, in the order of the nodes."""
        if facts.gpu_types is None:
            return self._all_types
        return tuple(place for place, kind in enumerate(self.types) if facts.runs_on(kind))

    def type_of(self, allocation: Allocation) -> int:
        """Return the type of the GPUs of an allocation."""
        return self._type_of[allocation[0][0]]

    def total_of(self, kind: int) -> int:
        """Count the free GPUs of a type."""
        return self._pools[kind].total

    def choose(self, placer: Placer, gpus: int, types: Iterable[int] | None = None) -> Allocation | None:
        """Ask a placer for GPUs of one of some types (None: of any), in their order; changes nothing."""
        if gpus > self.total:
            return None
        for pool in self._pools if types is None else (self._pools[kind] for kind in types):
            found = placer.choose(pool, gpus) if pool.total >= gpus else None
            if found is not None:
                return found
        return None

    def choose_of(self, kind: int, placer: Placer, gpus: int) -> Allocation | None:
        """Ask a placer for GPUs of a type; changes nothing."""
        pool = self._pools[kind]
        return placer.choose(pool, gpus) if pool.total >= gpus else None

    def place(self, placer: Placer, gpus: int, types: Iterable[int] | None = None) -> Allocation | None:
        """Take what `choose` finds."""
        found = self.choose(placer, gpus, types)
        if found is not None:
            self.take(found)
        return found

    def holds(self, allocation: Allocation) -> bool:
        """Return whether these very GPUs are free."""
        return all(self.free[node] >= gpus for node, gpus in allocation)

    def take(self, allocation: Allocation) -> None:
        """Mark whole GPUs as held."""
        if self._room is not None:
            for node, gpus in allocation:
                places = np.flatnonzero(self._room.gpu_milli[node] == GPU_MILLI)[:gpus].tolist()
                self._room.gpu_milli[node, places] = 0
                self._held[node] += places
        self._change(allocation, -1)

    def give_back(self, allocation: Allocation) -> None:
        """Mark whole GPUs as free."""
        if self._room is not None:
            for node, gpus in allocation:
                self._room.gpu_milli[node, [self._held[node].pop() for _ in range(gpus)]] = GPU_MILLI
        self._change(allocation, 1)

    def fit(self, shape: NodeShape) -> Claim | None:
        """Return what a shape gets, None where it does not fit; changes nothing.

        Of types the first one serves that has room, of its domains the least free, and in it the least free nodes.
        """
        for kind, pool in zip(self.types, self._pools, strict=True):
            if shape.gpu_types is None or kind in shape.gpu_types:
                for domain in pool.domains_at(shape.within):
                    nodes = self._with_room(pool, domain, shape)
                    if len(nodes) == shape.nodes:
                        return Claim(tuple(nodes), shape.each, tuple(self._places(node, shape.each) for node in nodes))
        return None

    def hold(self, claim: Claim) -> None:
        """Mark what a shape gets as held."""
        self._settle(claim, -1)

    def let_go(self, claim: Claim) -> None:
        """Mark what a shape held as free."""
        self._settle(claim, 1)

    def when(self, shape: NodeShape, ends: Iterable[tuple[float, Allocation | Claim]], now_s: float) -> float | None:
        """Return the earliest time at which a shape fits where what runs gives back what it holds at its end.

        None where it does not fit the empty cluster. What is past its end counts as ending now.
        """
        later = Capacity(self.nodes, self.up, self.free)
        if self._room is not None:
            later._room = Room(*(column.copy() for column in self._room))
            later._held = [list(places) for places in self._held]
        time_s = now_s
        for end_s, held in sorted(ends, key=lambda one: one[0]):
            if end_s > time_s:
                if later.fit(shape) is not None:
                    return time_s
                time_s = end_s
            if isinstance(held, Claim):
                later.let_go(held)
            else:
                later.give_back(held)
        return time_s if later.fit(shape) is not None else None

    def _with_room(self, pool: Pool, domain: int, shape: NodeShape) -> list[int]:
        """List the first nodes of a domain with room for a part of a shape, as many as it wants at most."""
        each, found = shape.each, list[int]()
        whole = each.gpu_milli == GPU_MILLI
        for node, _ in pool.least_free(domain, each.gpus if whole else 0):
            if len(found) == shape.nodes:
                break
            if self._room is None or self._has_room(self._room, node, each):
                found.append(node)
        return found

    def _has_room(self, room: Room, node: int, each: Amount) -> bool:
        beside = room.cpu_milli[node] >= each.cpu_milli and room.memory_mib[node] >= each.memory_mib
        return bool(beside) and len(self._places(node, each)) == each.gpus

    def _places(self, node: int, each: Amount) -> tuple[int, ...]:
        """Choose single GPUs of a node: those with the least free that has room."""
        if self._room is None:
            return ()
        free = self._room.gpu_milli[node]
        able = [gpu for gpu in range(self.nodes[node].gpus) if free[gpu] >= each.gpu_milli]
        return tuple(sorted(able, key=lambda gpu: free[gpu])[: each.gpus])

    def _settle(self, claim: Claim, sign: int) -> None:
        each = claim.each
        for i, node in enumerate(claim.nodes):
            more = sign * each.gpus
            if self._room is not None:
                self._room.cpu_milli[node] += sign * each.cpu_milli
                self._room.memory_mib[node] += sign * each.memory_mib
                self._room.gpu_milli[node, list(claim.gpus[i])] += sign * each.gpu_milli
                more = int((self._room.gpu_milli[node] == GPU_MILLI).sum()) - self.free[node]
            self._change(((node, more),), 1)

    def _change(self, allocation: Allocation, sign: int) -> None:
        free, pools = self.free, self._pool_of
        for node, gpus in allocation:
            before = free[node]
            free[node] = after = before + sign * gpus
            self.total += after - before
            if pools:
                pool, bit = pools[node], 1 << node
                pool.nodes_with[before] ^= bit
                pool.nodes_with[after] ^= bit
                pool.total += after - before
