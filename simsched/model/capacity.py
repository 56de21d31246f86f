"""The free resources of a cluster: GPUs by node, type and level, and cores, memory and parts of GPUs if they count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from simsched.model.application import ApplicationFacts
from simsched.model.cluster import Node
from simsched.model.placement import GPU_MILLI, Allocation, Amount, NodeShape
from simsched.model.pool import Placer, Pool

Ints = npt.NDArray[np.int64]

#: The amount assumed of a resource that a node does not declare.
_PLENTY = 1 << 60


@dataclass(frozen=True)
class Claim:
    """What a shape gets: nodes, the amount on each, and the indices of its GPUs if single GPUs are tracked."""

    nodes: tuple[int, ...]
    each: Amount
    gpus: tuple[tuple[int, ...], ...] = ()
    #: Whether the nodes are exclusive.
    alone: bool = False

    @property
    def allocation(self) -> Allocation:
        """Return the GPUs by node."""
        return tuple((node, self.each.gpus) for node in self.nodes) if self.each.gpus else ()


class Room(NamedTuple):
    """Free resources by node as arrays, in thousandths and MiB; `gpu_milli` has shape (nodes, most GPUs of one)."""

    gpus: Ints
    cpu_milli: Ints
    memory_mib: Ints
    gpu_milli: Ints

    @classmethod
    def of(
        cls, nodes: Sequence[Node], free: Sequence[int] | None = None, beside: Sequence[tuple[int, int]] | None = None
    ) -> Room:
        """Take nodes with their first `free` GPUs (None: all) free; `beside` is what is taken of cores and memory."""
        rows = [(node.gpus, cores_of(node), memory_of(node)) for node in nodes]
        gpus, cpu, memory = np.array(rows, dtype=np.int64).reshape(-1, 3).T.copy()
        whole = gpus if free is None else np.array(free, dtype=np.int64)
        milli = np.where(np.arange(max(gpus, default=0)) < whole[:, None], GPU_MILLI, 0)
        if beside is not None:
            taken = np.array(beside, dtype=np.int64).reshape(-1, 2)
            cpu, memory = cpu - taken[:, 0], memory - taken[:, 1]
        return cls(gpus, cpu, memory, milli.astype(np.int64))


def beside_of(
    nodes: Sequence[Node], shape: NodeShape, allocation: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield the cores and memory that a shape takes of each of its nodes; an exclusive shape takes more than exist."""
    for node, gpus in allocation:
        cpu, memory = shape.beside(gpus)
        yield node, (cores_of(nodes[node]) + 1 if shape.exclusive else cpu, memory)


def cores_of(node: Node) -> int:
    """Return the thousandths of cores of a node, a very large number if it declares none."""
    return _PLENTY if node.cpu_milli is None else node.cpu_milli


def memory_of(node: Node) -> int:
    """Return the MiB of a node, a very large number if it declares none."""
    return _PLENTY if node.memory_mib is None else node.memory_mib


class _Shown(Protocol):
    """The part of a view that describes a cluster."""

    @property
    def nodes(self) -> Sequence[Node]: ...
    @property
    def up(self) -> Sequence[bool]: ...
    @property
    def free(self) -> Sequence[int]: ...
    @property
    def beside(self) -> Sequence[tuple[int, int]] | None: ...


class Capacity:
    """The free resources of a cluster, by node (`free`, whole GPUs) and sorted for each GPU type.

    Types are indices into `types`, which is in the order of the nodes.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        up: Sequence[bool],
        free: Sequence[int],
        beside: Sequence[tuple[int, int]] | None = None,
        *,
        parts: bool = False,
    ) -> None:
        """Take the state as a view shows it; `parts` says that parts of GPUs are allocated."""
        self.nodes = nodes
        self.up = list(up)
        self.free = list(free)
        self.total = sum(self.free)
        #: The number of times that anything was taken or given back.
        self.changes = 0
        self.types = list(dict.fromkeys(node.gpu_type for node in nodes))
        self._all_types = tuple(range(len(self.types)))
        #: The pool of each node, once a caller has asked for a pool.
        self._pool_of: list[Pool] = []
        self._room: Room | None = None
        declared = any(node.cpu_milli is not None or node.memory_mib is not None for node in nodes)
        if parts or beside is not None or declared:
            self._open_room(beside)

    def _open_room(self, beside: Sequence[tuple[int, int]] | None = None) -> Room:
        self._room = Room.of(self.nodes, self.free, beside)
        #: The indices of the GPUs that are held by count.
        self._held = [list(range(free, node.gpus)) for free, node in zip(self.free, self.nodes, strict=True)]
        return self._room

    @classmethod
    def of(cls, view: _Shown) -> Capacity:
        """Return the free resources that a view shows."""
        return cls(view.nodes, view.up, view.free, view.beside)

    @classmethod
    def idle(cls, view: _Shown, held: Iterable[Allocation] = ()) -> Capacity:
        """Return what would be free on the nodes that are up if only the jobs that hold `held` ran."""
        free = [node.gpus if up else 0 for node, up in zip(view.nodes, view.up, strict=True)]
        for allocation in held:
            for node, gpus in allocation:
                free[node] -= gpus
        return cls(view.nodes, view.up, free)

    def __repr__(self) -> str:
        """Show the free GPUs of each type."""
        return f"<Capacity {', '.join(f'{self.total_of(kind)} {name}' for kind, name in enumerate(self.types))} free>"

    @cached_property
    def pools(self) -> list[Pool]:
        """Return the free GPUs of each type."""
        domains = {node.index: node.domains for node in self.nodes if node.domains}
        sizes: dict[str, dict[int, int]] = {kind: {} for kind in self.types}
        for node, up in zip(self.nodes, self.up, strict=True):
            if up:
                sizes[node.gpu_type][node.index] = node.gpus
        pools = {kind: Pool(gpus, self.free, domains) for kind, gpus in sizes.items()}
        for pool in pools.values():
            pool.shaped = partial(self._shaped, pool)
        self._pool_of = [pools[node.gpu_type] for node in self.nodes]
        return list(pools.values())

    @cached_property
    def _type_of(self) -> list[int]:
        place = {kind: i for i, kind in enumerate(self.types)}
        return [place[node.gpu_type] for node in self.nodes]

    @property
    def room(self) -> Room | None:
        """The free cores, memory and parts of GPUs, None if only GPUs count."""
        return self._room

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
        return self.pools[kind].total

    def choose(self, placer: Placer, gpus: int, types: Iterable[int] | None = None) -> Allocation | None:
        """Ask a placer for GPUs of one of `types` (None: any), in order; changes nothing."""
        if gpus > self.total:
            return None
        for pool in self.pools if types is None else (self.pools[kind] for kind in types):
            found = placer.choose(pool, gpus) if pool.total >= gpus else None
            if found is not None:
                return found
        return None

    def choose_of(self, kind: int, placer: Placer, gpus: int) -> Allocation | None:
        """Ask a placer for GPUs of a type; changes nothing."""
        pool = self.pools[kind]
        return placer.choose(pool, gpus) if pool.total >= gpus else None

    def place(self, placer: Placer, gpus: int, types: Iterable[int] | None = None) -> Allocation | None:
        """Take what `choose` finds."""
        found = self.choose(placer, gpus, types)
        if found is not None:
            self.take(found)
        return found

    def holds(self, allocation: Allocation, shape: NodeShape | None = None) -> bool:
        """Return whether these GPUs are free, with the other resources of a shape."""
        return all(self.free[node] >= gpus for node, gpus in allocation) and (
            shape is None or all(self._room_beside(node, gpus, shape) for node, gpus in allocation)
        )

    def take(
        self,
        allocation: Sequence[tuple[int, int]],
        shape: NodeShape | None = None,
        sign: int = -1,
        *,
        singles: bool = True,
    ) -> None:
        """Mark whole GPUs as held, or with a `sign` of 1 as free, with the other resources of a shape.

        Single GPUs that are tracked are marked too, unless `singles` says that they have been.
        """
        if singles and (self._room is not None or shape is not None):
            self._take_single(allocation, shape, sign)
        free, pools = self.free, self._pool_of
        self.changes += 1
        for node, gpus in allocation:
            before, more = free[node], sign * gpus
            free[node] = after = before + more
            self.total += more
            if pools:
                pool, bit = pools[node], 1 << node
                pool.total += more
                nodes_with = pool.nodes_with
                nodes_with[before] ^= bit
                nodes_with[after] ^= bit

    def give_back(self, allocation: Sequence[tuple[int, int]], shape: NodeShape | None = None) -> None:
        """Mark whole GPUs as free, with the other resources of a shape."""
        self.take(allocation, shape, 1)

    def _take_single(self, allocation: Sequence[tuple[int, int]], shape: NodeShape | None, sign: int) -> None:
        """Take or give back single GPUs, and cores and memory, if they count."""
        room = self._room if shape is None else self._counted(shape, allocation, sign)
        if room is None:
            return
        for node, gpus in allocation:
            if sign > 0:
                room.gpu_milli[node, [self._held[node].pop() for _ in range(gpus)]] = GPU_MILLI
            else:
                places = np.flatnonzero(room.gpu_milli[node] == GPU_MILLI)[:gpus].tolist()
                room.gpu_milli[node, places] = 0
                self._held[node] += places

    def _counted(self, shape: NodeShape, allocation: Sequence[tuple[int, int]], sign: int) -> Room | None:
        """Take or give back cores and memory; return the room, None if only GPUs count."""
        room = self._room
        if room is not None or shape.exclusive:
            room = room or self._open_room()
            for node, (cpu, memory) in beside_of(self.nodes, shape, allocation):
                room.cpu_milli[node] += sign * cpu
                room.memory_mib[node] += sign * memory
        return room

    def fit(self, shape: NodeShape) -> Claim | None:
        """Return what a shape gets, None if it does not fit; changes nothing.

        It takes the first type that has room, its least free domain, and the least free nodes in it.
        """
        for pool in self._pools_of(shape):
            nodes = self._nodes_for(pool, shape)
            if nodes is not None:
                places = tuple(self._places(node, shape.each) for node in nodes)
                return Claim(tuple(nodes), shape.each, places, shape.exclusive)
        return None

    def _pools_of(self, shape: NodeShape) -> Iterator[Pool]:
        named = shape.gpu_types
        return (pool for kind, pool in zip(self.types, self.pools, strict=True) if named is None or kind in named)

    def place_of(self, shape: NodeShape, among: int = -1) -> Allocation | None:
        """Return whole GPUs for a shape on the nodes in the bits `among`, None if it does not fit; changes nothing."""
        found = (self._shaped(pool, shape, among) for pool in self._pools_of(shape))
        return next((one for one in found if one is not None), None)

    def hold(self, claim: Claim) -> None:
        """Mark what a shape gets as held."""
        self._settle(claim, -1)

    def let_go(self, claim: Claim) -> None:
        """Mark what a shape held as free."""
        self._settle(claim, 1)

    def copy(self) -> Capacity:
        """Return an independent copy."""
        twin = Capacity(self.nodes, self.up, self.free)
        if self._room is not None:
            twin._room = Room(*(column.copy() for column in self._room))
            twin._held = [list(places) for places in self._held]
        return twin

    def when(self, shape: NodeShape, ends: Iterable[tuple[float, Allocation | Claim]], now_s: float) -> float | None:
        """Return the earliest time at which a shape fits, given the `ends` of the jobs that run and what they hold.

        None if it does not fit the empty cluster. Ends in the past count as now.
        """
        later = self.copy()
        fits = later.fit if shape.nodes else later.place_of
        time_s = now_s
        for end_s, held in sorted(ends, key=lambda one: one[0]):
            if end_s > time_s:
                if fits(shape) is not None:
                    return time_s
                time_s = end_s
            if isinstance(held, Claim):
                later.let_go(held)
            else:
                later.give_back(held)
        return time_s if fits(shape) is not None else None

    def _shaped(self, pool: Pool, shape: NodeShape, among: int = -1) -> Allocation | None:
        """Choose whole GPUs for a shape, as `fit` does; without a number of nodes, on the least free that have any."""
        if shape.nodes:
            nodes = self._nodes_for(pool, shape, among)
            return None if nodes is None else tuple((node, shape.each.gpus) for node in nodes)
        for domain in pool.domains_at(shape.within):
            picked, missing = list[tuple[int, int]](), shape.each.gpus
            for node, free in pool.least_free(domain & among):
                most = next((n for n in range(min(free, missing), 0, -1) if self._room_beside(node, n, shape)), 0)
                if most:
                    picked.append((node, most))
                    missing -= most
                if not missing:
                    return tuple(picked)
        return None

    def _nodes_for(self, pool: Pool, shape: NodeShape, among: int = -1) -> list[int] | None:
        """Choose the nodes of a shape, None if there are too few."""
        found = (self._with_room(pool, domain & among, shape) for domain in pool.domains_at(shape.within))
        return next((nodes for nodes in found if len(nodes) == shape.nodes), None)

    def _with_room(self, pool: Pool, domain: int, shape: NodeShape) -> list[int]:
        """List the first nodes of a domain with room for a part of a shape, at most as many as it wants."""
        each, found = shape.each, list[int]()
        whole = each.gpu_milli == GPU_MILLI
        for node, _ in pool.least_free(domain, each.gpus if whole else 0):
            if len(found) == shape.nodes:
                break
            if self._room_beside(node, each.gpus, shape) and (whole or len(self._places(node, each)) == each.gpus):
                found.append(node)
        return found

    def _room_beside(self, node: int, gpus: int, shape: NodeShape) -> bool:
        """Return whether a node has the cores and memory for GPUs of a shape, and is idle if it must be."""
        room, one = self._room, self.nodes[node]
        if shape.exclusive and self.free[node] < one.gpus:
            return False
        if room is None:
            return True
        cpu, memory = shape.beside(gpus)
        if shape.exclusive:
            cpu, memory = cores_of(one), memory_of(one)
        return bool(room.cpu_milli[node] >= cpu and room.memory_mib[node] >= memory)

    def _places(self, node: int, each: Amount) -> tuple[int, ...]:
        """Choose single GPUs of a node: the fullest ones with room."""
        if self._room is None:
            return ()
        free = self._room.gpu_milli[node]
        able = [gpu for gpu in range(self.nodes[node].gpus) if free[gpu] >= each.gpu_milli]
        return tuple(sorted(able, key=lambda gpu: free[gpu])[: each.gpus])

    def _settle(self, claim: Claim, sign: int) -> None:
        shape = NodeShape(len(claim.nodes), claim.each, exclusive=claim.alone)
        allocation = tuple((node, claim.each.gpus) for node in claim.nodes)
        if self._room is None or not any(claim.gpus):
            (self.give_back if sign > 0 else self.take)(allocation, shape)
            return
        room = self._counted(shape, allocation, sign) or self._room
        for i, node in enumerate(claim.nodes):
            room.gpu_milli[node, list(claim.gpus[i])] += sign * claim.each.gpu_milli
            more = int((room.gpu_milli[node] == GPU_MILLI).sum()) - self.free[node]
            self.take(((node, more),), sign=1, singles=False)
