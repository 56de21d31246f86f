"""The tree of queues in a round: their fair shares, what they hold, and their order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from simsched_policies.kubernetes.kai.division import Claim, divide
from simsched_policies.kubernetes.kai.model import (
    NOTHING,
    RESOURCES,
    SLACK,
    UNLIMITED,
    Amounts,
    Queue,
    Quota,
    exceeds,
    plus,
    within,
)


@dataclass
class Entry:
    """A queue of the round; its amounts include all queues below it."""

    queue: Queue
    parent: Entry | None = None
    children: list[Entry] = field(default_factory=list)
    allocated: Amounts = NOTHING
    non_preemptible: Amounts = NOTHING
    request: Amounts = NOTHING
    fair_share: Amounts = NOTHING

    @property
    def name(self) -> str:
        """Its name."""
        return self.queue.name

    @cached_property
    def deserved(self) -> Amounts:
        """Its quota."""
        return _amounts(quota.quota for quota in self.queue.quotas)

    @cached_property
    def limit(self) -> Amounts:
        """The most that it may hold."""
        return _amounts(quota.limit for quota in self.queue.quotas)

    @cached_property
    def allocatable(self) -> Amounts:
        """The larger of what it deserves and its fair share, within its limit; valid once shares are divided."""
        return _amounts(map(_allocatable, self.queue.quotas, self.fair_share))

    def lineage(self) -> Iterator[Entry]:
        """Yield the queue and those above it, up to the root."""
        entry: Entry | None = self
        while entry is not None:
            yield entry
            entry = entry.parent


def _amounts(three: Iterator[float] | map[float]) -> Amounts:
    cpu, memory, gpu = three
    return (cpu, memory, gpu)


def _allocatable(quota: Quota, fair_share: float) -> float:
    if quota.quota == UNLIMITED:
        return quota.limit
    most = max(quota.quota, fair_share)
    return most if quota.limit == UNLIMITED else min(quota.limit, most)


class Ledger:
    """The tree of queues, by name, on a cluster with `total` resources."""

    def __init__(self, queues: Sequence[Queue], total: Amounts) -> None:
        """Build the tree; raises `KeyError` for an unknown parent."""
        self.total = total
        self.entries = {queue.name: Entry(queue) for queue in queues}
        self.roots: list[Entry] = []
        self._root_of: dict[str, str] = {}
        for entry in self.entries.values():
            if entry.queue.parent is None:
                self.roots.append(entry)
            else:
                entry.parent = self.entries[entry.queue.parent]
                entry.parent.children.append(entry)

    def root_of(self, name: str) -> str:
        """Return the root above a queue."""
        if name not in self._root_of:
            self._root_of[name] = list(self.entries[name].lineage())[-1].name
        return self._root_of[name]

    def hold(self, leaf: str, amounts: Amounts, times: float = 1.0, *, preemptible: bool = True) -> None:
        """Count what a pod of a leaf holds, up to the root; `times` -1 subtracts it."""
        for entry in self.entries[leaf].lineage():
            entry.allocated = plus(entry.allocated, amounts, times)
            if not preemptible:
                entry.non_preemptible = plus(entry.non_preemptible, amounts, times)

    def ask(self, leaf: str, amounts: Amounts) -> None:
        """Count what a pod of a leaf holds or waits for, up to the root."""
        for entry in self.entries[leaf].lineage():
            entry.request = plus(entry.request, amounts)

    def divide(self, usage: Mapping[str, Amounts], k: float) -> None:
        """Divide the cluster into fair shares, and each queue's share among those below it."""
        self._divide(self.total, self.roots, usage, k)

    def _divide(self, amounts: Amounts, entries: Sequence[Entry], usage: Mapping[str, Amounts], k: float) -> None:
        shares = [
            divide(amount, [_claim(entry, resource, usage) for entry in entries], k)
            for resource, amount in enumerate(amounts)
        ]
        for entry in entries:
            entry.fair_share = _amounts(iter([of[entry.name] for of in shares]))
            if entry.children:
                self._divide(entry.fair_share, entry.children, usage, k)

    def refuses(self, leaf: str, amounts: Amounts, *, preemptible: bool) -> bool:
        """Return whether a limit, or for a non-preemptible job the deserved quota, forbids holding more."""
        asked = [resource for resource in range(len(RESOURCES)) if amounts[resource] > 0]
        for entry in self.entries[leaf].lineage():
            held = plus(entry.allocated, amounts)
            fixed = plus(entry.non_preemptible, amounts)
            if any(exceeds(held[r], entry.limit[r]) for r in asked):
                return True
            if not preemptible and any(exceeds(fixed[r], entry.deserved[r]) for r in asked):
                return True
        return False

    def compare(
        self, one: Entry, other: Entry, job: tuple[Amounts, Amounts], gone: tuple[Amounts, Amounts] | None = None
    ) -> int:
        """Return which of two siblings goes first (negative: the first), each with the request of its first `job`.

        `gone` is what the victims of each, including the next one, would release; it counts only in the dominant share.
        """
        first, second = self._rank(one, job[0], gone and gone[0]), self._rank(other, job[1], gone and gone[1])
        if first[0] != second[0]:
            return -1 if first[0] < second[0] else 1
        for mine, theirs in zip(first[1], second[1], strict=True):
            if abs(mine - theirs) > SLACK:
                return -1 if mine < theirs else 1
        small, large = one.allocatable, other.allocatable
        for sign, low, high in ((-1, small, large), (1, large, small)):
            if within(low, high) and low != high:
                return sign
        order = (one.queue.created_s, one.name), (other.queue.created_s, other.name)
        return -1 if order[0] < order[1] else 1

    def _rank(
        self, entry: Entry, job: Amounts, gone: Amounts | None
    ) -> tuple[tuple[bool, bool, int, bool], tuple[float, float]]:
        over = all(held > fair + SLACK for held, fair in zip(entry.allocated, entry.fair_share, strict=True))
        held = plus(entry.allocated, job)
        allocatable = entry.allocatable
        uses_nothing = any(h > SLACK and share == 0 for h, share in zip(held, allocatable, strict=True))
        moved = held if gone is None else plus(entry.allocated, gone, -1.0)
        shares = (self._dominant(moved, allocatable), self._dominant(entry.allocated, allocatable))
        return (over, not within(held, entry.deserved), -entry.queue.priority, uses_nothing), shares

    def _dominant(self, held: Amounts, allocatable: Amounts) -> float:
        return max(map(_part, held, allocatable, self.total))


def _part(held: float, allocatable: float, total: float) -> float:
    if allocatable == 0:
        return held * 1000
    of = total if allocatable == UNLIMITED else allocatable
    return held / of if of > 0 else 0.0


def _claim(entry: Entry, resource: int, usage: Mapping[str, Amounts]) -> Claim:
    return Claim(
        entry.name,
        entry.queue.quotas[resource],
        entry.request[resource],
        entry.queue.priority,
        entry.queue.created_s,
        usage.get(entry.name, NOTHING)[resource],
    )
