"""The free GPUs of the nodes of one type, and placers that choose among them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from simsched.model.placement import Allocation, NodeShape


class Pool:
    """The free GPUs of the nodes of one type.

    `nodes_with[n]` has a bit for every node with n GPUs free, so the lookup of the lowest index is immediate. `levels`
    has, for each level above the nodes, the bits of each domain's nodes and their GPUs. `shaped` chooses for a shape,
    through the capacity to which the pool belongs. `most_first` and `least_first` are the numbers of free GPUs that a
    node may have, in either order.
    """

    __slots__ = ("_fewest", "_largest", "least_first", "levels", "most_first", "nodes_with", "shaped", "total")

    def __init__(
        self, capacity: Mapping[int, int], free: Sequence[int], domains: Mapping[int, Sequence[int]] | None = None
    ) -> None:
        """Take nodes with their GPUs (`capacity`) and free GPUs (`free`), both by node index.

        `domains` gives, by node index, the domain at each level above the nodes; None without levels.
        """
        self.levels = _levels(capacity, domains or {})
        self.shaped: Callable[[NodeShape], Allocation | None] = _nowhere
        self._largest = sorted(capacity.values(), reverse=True)
        self._fewest: dict[int, int] = {}
        most = max(self._largest, default=0)
        self.nodes_with = [0] * (most + 1)
        self.most_first, self.least_first = range(most, 0, -1), range(1, most + 1)
        self.total = 0
        for node in sorted(capacity):
            self.nodes_with[free[node]] |= 1 << node
            self.total += free[node]

    def most_free(self, within: int = -1) -> Iterator[tuple[int, int]]:
        """Return the nodes in the bits `within` and their free GPUs, the most free first, ties by index."""
        return self._nodes(self.most_first, within)

    def least_free(self, within: int = -1, fewest: int = 1) -> Iterator[tuple[int, int]]:
        """Return nodes and their free GPUs, the least free first, ties by index, with at least `fewest` free GPUs."""
        return self._nodes(range(fewest, len(self.nodes_with)), within)

    def fill(self, gpus: int, counts: Sequence[int], within: int = -1) -> Allocation | None:
        """Return GPUs on nodes in the bits `within`, those with so many free first, ties by index; None if too few."""
        picked: list[tuple[int, int]] = []
        for count in counts:
            nodes = self.nodes_with[count] & within
            while nodes:
                lowest = nodes & -nodes
                nodes ^= lowest
                picked += [(lowest.bit_length() - 1, count if count < gpus else gpus)]
                gpus -= count
                if gpus <= 0:
                    return tuple(picked)
        return None

    def best_fit(self, gpus: int, within: int = -1) -> int | None:
        """Find the node with the fewest free GPUs that has `gpus`, in the bits `within`."""
        for count in range(gpus, len(self.nodes_with)):
            nodes = self.nodes_with[count] & within
            if nodes:
                return lowest_node(nodes)
        return None

    def free_within(self, nodes: int) -> int:
        """Count the free GPUs of the nodes whose bits are in `nodes`."""
        return sum(count * (having & nodes).bit_count() for count, having in enumerate(self.nodes_with))

    def fewest_nodes(self, gpus: int) -> int | None:
        """Return the least number of nodes for `gpus` GPUs in the empty cluster, None if it has fewer GPUs."""
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
        """Return the bits of each domain of a level, the least free first; without a level, those of all nodes."""
        if level is None:
            return [-1]
        return sorted((nodes for nodes, _ in self.levels[level]), key=self.free_within) if self.levels else []

    def _nodes(self, counts: range, within: int = -1) -> Iterator[tuple[int, int]]:
        for count in counts:
            nodes = self.nodes_with[count] & within
            while nodes:
                lowest = nodes & -nodes
                yield lowest.bit_length() - 1, count
                nodes ^= lowest


def _levels(
    capacity: Mapping[int, int], domains: Mapping[int, Sequence[int]]
) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Return, for each level and each domain with such nodes, the bits of its nodes and their GPUs."""
    found: list[dict[int, tuple[int, int]]] = [{} for _ in next(iter(domains.values()), ())]
    for node in sorted(capacity.keys() & domains.keys()):
        for level, domain in zip(found, domains[node], strict=False):
            bits, so_far = level.get(domain, (0, 0))
            level[domain] = bits | 1 << node, so_far + capacity[node]
    return tuple(tuple(level.values()) for level in found)


def lowest_node(nodes: int) -> int:
    """Return the lowest node of a set of bits."""
    return (nodes & -nodes).bit_length() - 1


@dataclass(frozen=True)
class Placer:
    """A way to choose GPUs; `waits` marks one that may refuse a job although enough GPUs are free."""

    name: str
    choose: Callable[[Pool, int], Allocation | None]
    waits: bool = False

    def within(self, shape: NodeShape | None) -> Placer:
        """Return the placer for a job of a shape: itself if the job's GPUs may be anywhere."""
        return self if shape is None or not shape.binds else _shaped(self.name, shape)


@lru_cache(maxsize=1 << 14)
def _shaped(name: str, shape: NodeShape) -> Placer:
    return Placer(f"{name} {shape}", partial(_choose_shaped, shape), waits=True)


def _choose_shaped(shape: NodeShape, pool: Pool, gpus: int) -> Allocation | None:
    return pool.shaped(shape)


def _nowhere(shape: NodeShape) -> Allocation | None:
    return None
