"""Whether retrying admission may help: bounds on what the queues could get now, cheaper than a search."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from simsched_policies.kubernetes.kueue.model import Asking, FlavourResource, PodSet, Reclaim, Within
from simsched_policies.kubernetes.kueue.topology import PODS, Domains
from simsched_policies.kubernetes.kueue.topology_assignment import most_pods
from simsched_policies.kubernetes.kueue.tree import Node, QuotaTree

#: For every pod set and resource group, the suitable flavours, each with its amounts by the index of a bound.
Needs = Sequence[Sequence[Sequence[tuple[int, int]]]]
#: The pod sets that a topology places, each with its flavour.
Homes = Sequence[tuple[str, PodSet]]
#: More than any request; its sums along a path still fit in 64 bits.
_ENDLESS = 1 << 56
_NOBODY = np.iinfo(np.int64).max


class Prospects:
    """The most that queues could get, including by preemption.

    An amount can fit, or find victims, only if it is at most one of: the available amount plus what lower priorities of
    the queue hold; the nominal quota that remains without these; the quota that remains in a subtree below the root. If
    workloads may preempt beyond that, nothing is ruled out. Each bound is for a queue, a flavour and resource, and a
    priority. Admissions never raise a bound: a hopeless workload stays so until quota is released.
    """

    def __init__(self, tree: QuotaTree, *, fair_sharing: bool) -> None:
        """Start from the tree, whose quotas do not change."""
        self._tree, self._fair_sharing = tree, fair_sharing
        self._depths: list[slice] = []
        nodes: list[Node] = []
        level = [node for node in tree.nodes() if node.parent is None]
        while level:
            self._depths.append(slice(len(nodes), len(nodes) + len(level)))
            nodes += level
            level = [child for node in level for child in node.children]
        groups = [group for node in nodes for group in node.groups.values()]
        offered = [(flavour, name) for names, flavours in groups for name in names for flavour in flavours]
        self._keys = list(dict.fromkeys((*(key for node in nodes for key in node.subtree), *offered)))
        self._rows = {id(node): row for row, node in enumerate(nodes)}
        self._parents = np.array([self._rows.get(id(node.parent), -1) for node in nodes], np.int64)
        self._subtree = self._table([node.subtree for node in nodes])
        self._local = self._table([node.local for node in nodes])
        limits = [{key: one.borrowing_limit for key, one in node.quotas.items()} for node in nodes]
        self._limits = self._table([{k: n for k, n in one.items() if n is not None} for one in limits], _ENDLESS)
        self._used = self._table([node.usage for node in nodes])
        self._alone = np.array([node.queue is not None for node in nodes[self._depths[0]]])[:, None]
        #: The index of each bound, those of each queue, and by index: the queue, the position of the bound in the
        #: tables, what may be preempted in the queue, and the least amount for which a workload waits.
        self._numbers: dict[tuple[str, FlavourResource, int], int] = {}
        self._of_queue: dict[str, list[tuple[int, FlavourResource, int]]] = {}
        self._queues: list[str] = []
        self._at = np.zeros((0, 2), np.int64)
        self._lower, self._least, self._bounds = (np.zeros(0, np.int64) for _ in range(3))
        self._most: list[int] = []
        #: The part of each bound that counts if other queues are to release quota.
        self._claims = np.zeros(0, np.int64)

    def _table(self, amounts: Sequence[dict[FlavourResource, int]], default: int = 0) -> npt.NDArray[np.int64]:
        return np.array([[min(one.get(key, default), _ENDLESS) for key in self._keys] for one in amounts], np.int64)

    def needs(self, asking: Asking) -> Needs | None:
        """Return what a workload needs at least, None if nothing can be ruled out."""
        node = self._tree.queues[asking.queue]
        spec = node.queue
        reclaims = self._fair_sharing and spec is not None and spec.reclaim is not Reclaim.NEVER
        if spec is None or spec.borrow_preempts_lower or reclaims:
            return None
        found: list[list[list[tuple[int, int]]]] = []
        for pods in asking.pod_sets:
            count = pods.count if pods.min_count is None else pods.min_count
            for group, flavours in sorted(set(node.groups.values())):
                wanted = [(name, count * pods.requests[name]) for name in group if name in pods.requests]
                suit = flavours if asking.flavours is None else [name for name in flavours if name in asking.flavours]
                if any(amount >= _ENDLESS for _, amount in wanted):
                    return None
                if wanted:
                    found.append([[(self._number(asking, (f, name)), n) for name, n in wanted] for f in suit])
        return found or None

    def _number(self, asking: Asking, key: FlavourResource) -> int:
        bound = (asking.queue, key, asking.priority)
        if bound not in self._numbers:
            self._numbers[bound] = len(self._queues)
            self._of_queue.setdefault(asking.queue, []).append((len(self._queues), key, asking.priority))
            self._queues.append(asking.queue)
            at = (self._rows[id(self._tree.queues[asking.queue])], self._keys.index(key))
            self._at = np.append(self._at, [at], axis=0)
            self._lower = np.append(self._lower, 0)
            self._least = np.append(self._least, _NOBODY)
            self._tree.moved.add(asking.queue)
        return self._numbers[bound]

    def look(self) -> None:
        """Compute the bounds for the current tree."""
        if not self._tree.moved:
            return
        for name in self._tree.moved:
            node = self._tree.queues[name]
            for step in node.path():
                self._used[self._rows[id(step)]] = [step.usage.get(key, 0) for key in self._keys]
            for number, key, priority in self._of_queue.get(name, ()):
                self._lower[number] = _of_lower(node, key, priority)
        self._tree.moved.clear()
        left, own = self._subtree - self._used, np.maximum(self._local - self._used, 0)
        available, reach, limits = left.copy(), np.zeros_like(left), left - own + self._limits
        reach[self._depths[0]] = left[self._depths[0]] * self._alone
        for depth in self._depths[1:]:
            above = self._parents[depth]
            available[depth] = own[depth] + np.minimum(available[above], limits[depth])
            reach[depth] = np.maximum(np.maximum(left[depth], 0), own[depth] + reach[above])
        at = (self._at[:, 0], self._at[:, 1])
        self._bounds = np.maximum(np.maximum(available, left)[at] + self._lower, reach[at])
        self._most = self._bounds.tolist()
        self._claims = np.maximum(left[at] + self._lower, reach[at])

    def allow(self, needs: Needs) -> bool:
        """Return whether a workload may get what it needs at least, as of the last update."""
        most = self._most
        for flavours in needs:
            for wanted in flavours:
                for number, amount in wanted:
                    if amount > most[number]:
                        break
                else:
                    break  # this flavour may suffice
            else:
                return False
        return True

    def homes(self, asking: Asking) -> Homes | None:
        """Return the flavour in whose topology each pod set needs a place, None if nothing can be ruled out.

        Defined only if every resource has one flavour.
        """
        node, found = self._tree.queues[asking.queue], list[tuple[str, PodSet]]()
        for pods in asking.pod_sets:
            offered = {node.groups[name][1] for name in pods.requests if name in node.groups}
            placed = {flavour for flavours in offered for flavour in flavours} & set(self._tree.topologies)
            if placed and (len(placed) > 1 or any(len(flavours) > 1 for flavours in offered)):
                return None
            found += [(flavour, pods) for flavour in placed]
        return found

    def may_be_placed(self, asking: Asking, needs: Needs, homes: Homes) -> bool:
        """Return whether a workload with quota may find its missing place now, as of the last update.

        Other queues have victims for it only if it claims quota; otherwise its pods must fit in the free room plus that
        of the workloads that it may preempt in its own queue.
        """
        claims = self._claims
        if all(amount <= claims[number] for (wanted,) in needs for number, amount in wanted):
            return True
        for flavour, pods in homes:
            domains = self._tree.topologies[flavour]
            lacks = (pods.count if pods.min_count is None else pods.min_count) - most_pods(domains, pods)
            if lacks > 0 and self._freed(asking, domains, pods) < lacks:
                return False
        return True

    def _freed(self, asking: Asking, domains: Domains, pods: PodSet) -> int:
        """Return how many more pods fit without those that a workload may preempt in its own queue."""
        node = self._tree.queues[asking.queue]
        most, gone = _highest_victim(node, asking.priority), dict[int, dict[str, int]]()
        if not any(any(amounts.values()) for other, amounts in node.held_by.items() if other <= most):
            return 0
        for part in (part for one in node.held.values() if one.priority <= most for part in one.assigned):
            for values, number in part.places or ():
                if (leaf := domains.leaf(values)) is not None:
                    freed = gone.setdefault(leaf, {})
                    for resource, amount in {**part.pod, PODS: 1}.items():
                        freed[resource] = freed.get(resource, 0) + number * amount
        return sum(domains.more_pods(leaf, pods.requests, freed) for leaf, freed in gone.items())

    def wait(self, queue: str, waiting: Iterable[Needs]) -> None:
        """Record everything that workloads of a queue wait for."""
        self._least[[number for number, _, _ in self._of_queue.get(queue, ())]] = _NOBODY
        for needs in waiting:
            for (number, amount), *_ in needs[0]:
                self._least[number] = min(self._least[number], amount)

    def hopeful(self) -> set[str]:
        """Return the queues in which a workload may get the first amount that it waits for, as of the last update."""
        return {self._queues[number] for number in np.flatnonzero(self._bounds >= self._least)}


def _highest_victim(node: Node, priority: int) -> float:
    """Return the highest priority that a workload of this priority may preempt in its queue."""
    within = Within.NEVER if node.queue is None else node.queue.within
    if within is Within.NEVER:
        return -np.inf
    return priority if within is Within.LOWER_OR_NEWER_EQUAL_PRIORITY else priority - 1


def _of_lower(node: Node, key: FlavourResource, priority: int) -> int:
    """Return an upper bound of what workloads hold in the queue that one of a priority may preempt."""
    most = _highest_victim(node, priority)
    return sum(amounts.get(key, 0) for other, amounts in node.held_by.items() if other <= most)
