"""Whether it may help to ask for quota again: a bound on what a queue could get now, quicker than a search."""

from __future__ import annotations

from collections.abc import Sequence

from simsched_policies.production.kueue.model import Asking, FlavourResource, Reclaim, Within
from simsched_policies.production.kueue.tree import Node

#: For every set of pods and resource group the flavours that would do, each with its amounts.
Needs = Sequence[Sequence[Sequence[tuple[FlavourResource, int]]]]


class Moment:
    """What cohorts may still use while the tree stays as it is; `number` counts how often that was looked at again."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self.number = 0
        self._known: dict[tuple[str, FlavourResource], tuple[int, int]] = {}

    def begin(self) -> None:
        """Look at the tree anew."""
        self.number += 1
        self._known.clear()

    def stands(self, node: Node, key: FlavourResource) -> tuple[int, int]:
        """Return what a node may still use, and the largest amount that fits into a subtree at or above it.

        The whole tree is no such subtree, unless the node is all of it.
        """
        left = node.subtree.get(key, 0) - node.usage.get(key, 0)
        if node.parent is None:
            return left, left if node.queue is not None else 0
        above = self._known.get((node.parent.name, key))
        if above is None:
            above = self._known[node.parent.name, key] = self.stands(node.parent, key)
        return node.available(key, above[0]), max(0, left, node.headroom(key) + above[1])


class Prospects:
    """What a queue could get at most, by preemption too.

    An amount can fit, or find victims, only if it is no more than what is available and what lower priorities of the
    queue hold together; or what is left of its nominal quota once these are gone; or what is left of the quota of a
    subtree below the root. Where workloads may preempt beyond that, nothing is ruled out.
    """

    def __init__(self, node: Node, moment: Moment, *, fair_sharing: bool) -> None:
        """Take the node of a queue; what it could get is worked out once for every number of `moment`."""
        self._moment, self._looked = moment, -1
        self._node, self._spec = node, node.queue
        reclaims = self._spec is not None and self._spec.reclaim is not Reclaim.NEVER
        self._bounded = self._spec is not None and not (self._spec.borrow_preempts_lower or (fair_sharing and reclaims))
        self._changes = -1
        self._most: dict[tuple[FlavourResource, int], int] = {}
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

    def allow(self, needs: Needs, priority: int) -> bool:
        """Say whether a workload of a priority may get what it needs at least."""
        if self._looked != self._moment.number:
            self._looked = self._moment.number
            self._most.clear()
        for flavours in needs:
            for wanted in flavours:
                if self._may_get(wanted, priority):
                    break
            else:
                return False
        return True

    def _may_get(self, wanted: Sequence[tuple[FlavourResource, int]], priority: int) -> bool:
        for key, amount in wanted:
            most = self._most.get((key, priority))
            if most is None:
                node = self._node
                available, reach = self._moment.stands(node, key)
                left = node.subtree.get(key, 0) - node.usage.get(key, 0)
                most = max(max(available, left) + self._of_lower(key, priority), reach)
                self._most[key, priority] = most
            if amount > most:
                return False
        return True

    def _of_lower(self, key: FlavourResource, priority: int) -> int:
        """Return what workloads of the queue hold that one of a priority may preempt, at most."""
        if self._changes != self._node.changes:
            self._changes = self._node.changes
            self._lower.clear()
        if (key, priority) not in self._lower:
            within = Within.NEVER if self._spec is None else self._spec.within
            most = priority if within is Within.LOWER_OR_NEWER_EQUAL_PRIORITY else priority - 1
            held = (amounts.get(key, 0) for other, amounts in self._node.held_by.items() if other <= most)
            self._lower[key, priority] = 0 if within is Within.NEVER else sum(held)
        return self._lower[key, priority]
