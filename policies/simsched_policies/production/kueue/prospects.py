"""Whether it may help to ask for quota again: a bound on what a queue could get now, quicker than a search."""

from __future__ import annotations

from collections.abc import Sequence

from simsched_policies.production.kueue.model import Asking, FlavourResource, Reclaim, Within
from simsched_policies.production.kueue.tree import Node, reach

#: For every set of pods and resource group the flavours that would do, each with its amounts.
Needs = Sequence[Sequence[Sequence[tuple[FlavourResource, int]]]]


class Prospects:
    """What a queue could get at most, by preemption too.

    An amount can fit, or find victims, only if it is no more than what is available and what lower priorities of the
    queue hold together; or what is left of its nominal quota once these are gone; or what is left of the quota of a
    subtree below the root. Where workloads may preempt beyond that, nothing is ruled out.
    """

    def __init__(self, node: Node, above: dict[tuple[str, FlavourResource], int], *, fair_sharing: bool) -> None:
        """Take the node of a queue; `above` keeps what cohorts may still use, until somebody clears it."""
        self._above = above
        self._node, self._spec = node, node.queue
        reclaims = self._spec is not None and self._spec.reclaim is not Reclaim.NEVER
        self._bounded = self._spec is not None and not (self._spec.borrow_preempts_lower or (fair_sharing and reclaims))
        self._held: dict[int, dict[FlavourResource, int]] = {}
        self._changes = -1
        self._most: dict[FlavourResource, int] = {}
        self._reach: dict[FlavourResource, int] = {}
        self._lower: dict[tuple[FlavourResource, int], int] = {}

    def needs(self, asking: Asking) -> Needs | None:
        """Return what a workload needs at least, None where nothing can be ruled out."""
        if not self._bounded:
            return None
        found: list[list[list[tuple[FlavourResource, int]]]] = []
        for pods in asking.pod_sets:
            count = pods.count if pods.min_count is None else pods.min_count
            for group, flavours in set(self._node.groups.values()):
                wanted = [(name, count * pods.requests[name]) for name in group if name in pods.requests]
                suit = flavours if asking.flavours is None else [name for name in flavours if name in asking.flavours]
                if wanted:
                    found.append([[((flavour, name), amount) for name, amount in wanted] for flavour in suit])
        return found

    def now(self) -> Prospects:
        """Look at the tree as it is."""
        self._most.clear()
        self._reach.clear()
        if self._changes != self._node.changes:
            self._changes = self._node.changes
            self._held.clear()
            self._lower.clear()
            for workload in self._node.held.values():
                held = self._held.setdefault(workload.priority, {})
                for key, amount in workload.usage.items():
                    held[key] = held.get(key, 0) + amount
        return self

    def allow(self, needs: Needs, priority: int) -> bool:
        """Say whether a workload of a priority may get what it needs at least."""
        return all(
            any(all(self._may_get(key, amount, priority) for key, amount in wanted) for wanted in flavours)
            for flavours in needs
        )

    def _may_get(self, key: FlavourResource, amount: int, priority: int) -> bool:
        if key not in self._most:
            node = self._node
            left = node.subtree.get(key, 0) - node.usage.get(key, 0)
            self._most[key] = max(node.available(key, self._of_parent(key)), left)
        if amount <= self._most[key] + self._of_lower(key, priority):
            return True
        if key not in self._reach:
            self._reach[key] = reach(self._node, key)
        return amount <= self._reach[key]

    def _of_parent(self, key: FlavourResource) -> int | None:
        parent = self._node.parent
        if parent is None:
            return None
        if (parent.name, key) not in self._above:
            self._above[parent.name, key] = parent.available(key)
        return self._above[parent.name, key]

    def _of_lower(self, key: FlavourResource, priority: int) -> int:
        """Return what workloads of the queue hold that one of a priority may preempt, at most."""
        if (key, priority) not in self._lower:
            within = Within.NEVER if self._spec is None else self._spec.within
            most = priority if within is Within.LOWER_OR_NEWER_EQUAL_PRIORITY else priority - 1
            held = (amounts.get(key, 0) for other, amounts in self._held.items() if other <= most)
            self._lower[key, priority] = 0 if within is Within.NEVER else sum(held)
        return self._lower[key, priority]
