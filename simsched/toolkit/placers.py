"""Choosing GPUs: placers over free GPUs that are kept sorted by how many each node has free.

A placer looks at the free GPUs of the nodes of one type and says which of them a job gets, or that it has to wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from simsched.model import Allocation, ApplicationFacts, Node


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

    def change(self, node: int, before: int, after: int) -> None:
        """Note that a node has `after` GPUs free instead of `before`."""
        bit = 1 << node
        self.nodes_with[before] ^= bit
        self.nodes_with[after] ^= bit
        self.total += after - before

    def most_free(self, within: int = -1) -> Iterator[tuple[int, int]]:
        """Return nodes among the bits of `within` and their free GPUs, the most free first, by index on a tie."""
        return self._nodes(range(len(self.nodes_with) - 1, 0, -1), within)

    def least_free(self) -> Iterator[tuple[int, int]]:
        """Return nodes and their free GPUs, the least free first, by index on a tie; full nodes are left out."""
        return self._nodes(range(1, len(self.nodes_with)))

    def best_fit(self, gpus: int, within: int = -1) -> int | None:
        """Find the node with the fewest free GPUs that has `gpus`, among the bits of `within`."""
        for count in range(gpus, len(self.nodes_with)):
            nodes = self.nodes_with[count] & within
            if nodes:
                return _lowest(nodes)
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

    def _nodes(self, counts: range, within: int = -1) -> Iterator[tuple[int, int]]:
        for count in counts:
            nodes = self.nodes_with[count] & within
            while nodes:
                node = _lowest(nodes)
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


def _lowest(nodes: int) -> int:
    return (nodes & -nodes).bit_length() - 1


@dataclass(frozen=True)
class Placer:
    """A way to choose GPUs; `waits` tells that it may refuse a job although there are enough free GPUs."""

    name: str
    choose: Callable[[Pool, int], Allocation | None]
    waits: bool = False


class FreeGpus:
    """The free GPUs of a cluster, node by node, and sorted for each GPU type."""

    def __init__(self, nodes: Sequence[Node], up: Sequence[bool], free: Sequence[int]) -> None:
        """Take the state as a view shows it."""
        self.free = list(free)
        #: GPU types in the order of the nodes; elsewhere a type is named by its place here.
        self.types = types = list(dict.fromkeys(node.gpu_type for node in nodes))
        domains = {node.index: node.domains for node in nodes if node.domains}
        self._pools = [
            Pool(
                {node.index: node.gpus for node in nodes if node.gpu_type == kind and up[node.index]},
                self.free,
                domains,
            )
            for kind in types
        ]
        self._all_types = tuple(range(len(types)))
        self._type_of = [types.index(node.gpu_type) for node in nodes]
        self._pool_of = [self._pools[kind] for kind in self._type_of]
        self.total = sum(pool.total for pool in self._pools)

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
        for pool in self._pools if types is None else (self._pools[kind] for kind in types):
            found = placer.choose(pool, gpus) if pool.total >= gpus else None
            if found is not None:
                return found
        return None

    def choose_of(self, kind: int, placer: Placer, gpus: int) -> Allocation | None:
        """Ask a placer for GPUs of a type; changes nothing."""
        pool = self._pools[kind]
        return placer.choose(pool, gpus) if pool.total >= gpus else None

    def holds(self, allocation: Allocation) -> bool:
        """Return whether these very GPUs are free."""
        return all(self.free[node] >= gpus for node, gpus in allocation)

    def take(self, allocation: Allocation) -> None:
        """Mark GPUs as held."""
        for node, gpus in allocation:
            self._change(node, -gpus)

    def give_back(self, allocation: Allocation) -> None:
        """Mark GPUs as free."""
        for node, gpus in allocation:
            self._change(node, gpus)

    def _change(self, node: int, gpus: int) -> None:
        before = self.free[node]
        self.free[node] = before + gpus
        self._pool_of[node].change(node, before, before + gpus)
        self.total += gpus


def _fill(nodes: Iterator[tuple[int, int]], gpus: int) -> Allocation | None:
    picked: list[tuple[int, int]] = []
    for node, free in nodes:
        picked.append((node, min(free, gpus)))
        gpus -= free
        if gpus <= 0:
            return tuple(picked)
    return None


def _most_free(pool: Pool, gpus: int) -> Allocation | None:
    nodes_with = pool.nodes_with
    for count in range(len(nodes_with) - 1, gpus - 1, -1):
        nodes = nodes_with[count]
        if nodes:  # one node is enough, as it nearly always is
            return ((_lowest(nodes), gpus),)
    return _fill(pool.most_free(), gpus)


def _fragments(pool: Pool, gpus: int) -> Allocation | None:
    if gpus < len(pool.nodes_with) and pool.nodes_with[gpus]:
        return ((_lowest(pool.nodes_with[gpus]), gpus),)
    return _fill(pool.least_free(), gpus)


def _consolidated(pool: Pool, gpus: int) -> Allocation | None:
    count = pool.fewest_nodes(gpus)
    if count is None:
        return None
    picked: list[tuple[int, int]] = []
    taken = 0
    nodes = pool.most_free()
    while len(picked) < count - 1:
        found = next(nodes, None)
        if found is None:
            return None
        picked.append(found)
        taken |= 1 << found[0]
        gpus -= found[1]
    last = pool.best_fit(gpus, within=~taken)
    return None if last is None else (*picked, (last, gpus))


def _any(pool: Pool, gpus: int) -> Allocation | None:
    return _fill(iter(sorted(pool.least_free())), gpus)


def _fewest_domains(pool: Pool, gpus: int) -> Allocation | None:
    return tuple(_closest(pool, gpus, -1, len(pool.levels))) if pool.total >= gpus else None


def _one_domain(pool: Pool, gpus: int) -> Allocation | None:
    possible = next((level for level in pool.levels if any(size >= gpus for _, size in level)), ())
    if possible and all(pool.free_within(domain) < gpus for domain, _ in possible):
        return None
    return _fewest_domains(pool, gpus)


def _closest(pool: Pool, gpus: int, within: int, level: int) -> list[tuple[int, int]]:
    """Choose GPUs among nodes that have enough: on one node, else in one domain below `level`, else in few domains."""
    node = pool.best_fit(gpus, within)
    if node is not None:
        return [(node, gpus)]
    free: dict[int, int] = {}
    for below, domains in enumerate(pool.levels[:level]):
        free = {domain: pool.free_within(domain) for domain, _ in domains if domain & within}
        fit = min((domain for domain in free if free[domain] >= gpus), key=free.__getitem__, default=None)
        if fit is not None:
            return _closest(pool, gpus, fit, below)
    if not level:
        return _closest_nodes(pool, gpus, within)
    picked: list[tuple[int, int]] = []
    while max(free.values()) < gpus:
        most = max(free, key=free.__getitem__)
        picked += pool.most_free(most)
        gpus -= free.pop(most)
    last = min((domain for domain in free if free[domain] >= gpus), key=free.__getitem__)
    return picked + _closest(pool, gpus, last, level - 1)


def _closest_nodes(pool: Pool, gpus: int, within: int) -> list[tuple[int, int]]:
    """Choose GPUs on the fewest nodes, the most free first and the last by best fit."""
    picked: list[tuple[int, int]] = []
    nodes = pool.most_free(within)
    last = None
    while last is None:
        picked.append(next(nodes))
        within &= ~(1 << picked[-1][0])
        gpus -= picked[-1][1]
        last = pool.best_fit(gpus, within)
    return [*picked, (last, gpus)]


#: The node with the most free GPUs first, as the published Pollux simulator places jobs.
MOST_FREE = Placer("most-free", _most_free)
#: As few machines as the empty cluster would need, the last of them by best fit; waits until there are such machines.
CONSOLIDATED = Placer("consolidated", _consolidated, waits=True)
#: A node with just so many free GPUs, else the smallest fragments first: whole machines stay whole.
FRAGMENTS = Placer("fragments", _fragments)
#: The nodes of the lowest index first.
ANY = Placer("any", _any)
#: One node, else one domain of the lowest level above the nodes that has room, each by best fit, else few domains: the
#: most free first, the last by best fit.
FEWEST_DOMAINS = Placer("fewest-domains", _fewest_domains)
#: The same, but a job waits until it is in one domain of the lowest level of which an empty domain would hold it.
ONE_DOMAIN = Placer("one-domain", _one_domain, waits=True)

#: The names of the placers, for parameters of policies.
PlacerName = Literal["most-free", "consolidated", "fragments", "any", "fewest-domains", "one-domain"]
PLACERS: Mapping[str, Placer] = MappingProxyType(
    {placer.name: placer for placer in (MOST_FREE, CONSOLIDATED, FRAGMENTS, ANY, FEWEST_DOMAINS, ONE_DOMAIN)}
)
