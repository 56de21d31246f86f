"""The tree of cohorts and cluster queues, and the usage of quota in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from simsched.errors import InputError, Problem
from simsched_policies.production.kueue.model import Amounts, ClusterQueue, Cohort, FlavourResource, Quota

_NO_QUOTA = Quota(0)


class Node:
    """One cluster queue or cohort with its usage; `parent` is None at a root.

    `subtree` is the quota of the node and of what its children lend it; `local` the part that it lends to nobody.
    """

    __slots__ = ("children", "local", "name", "parent", "queue", "quotas", "subtree", "usage", "weight")

    def __init__(self, spec: ClusterQueue | Cohort) -> None:
        """Make a node without parent and usage."""
        self.name = spec.name
        self.weight = spec.weight
        self.quotas = dict(spec.quotas)
        self.queue = spec if isinstance(spec, ClusterQueue) else None
        self.parent: Node | None = None
        self.children: list[Node] = []
        self.subtree: dict[FlavourResource, int] = {}
        self.local: dict[FlavourResource, int] = {}
        self.usage: dict[FlavourResource, int] = {}

    def path(self) -> Iterator[Node]:
        """Yield the node, its parent and so on up to the root."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent

    def headroom(self, resource: FlavourResource) -> int:
        """Return how much is free of the quota that the node lends to nobody."""
        return max(0, self.local.get(resource, 0) - self.usage.get(resource, 0))

    def exceeds(self, resource: FlavourResource, more: int = 0) -> bool:
        """Say whether usage, with `more` added, is above the quota of the subtree."""
        return self.usage.get(resource, 0) + more > self.subtree.get(resource, 0)


class QuotaTree:
    """The quotas of a cluster and what is used of them.

    Usage above what a node keeps for itself counts in its parent too. Checking or changing an amount costs the depth of
    the tree. Raises `InputError` for duplicate names, cycles of cohorts and negative quotas.
    """

    def __init__(self, queues: Iterable[ClusterQueue], cohorts: Iterable[Cohort] = ()) -> None:
        """Build the tree; a cohort that is named but not described has no quota of its own."""
        queues, cohorts = list(queues), list(cohorts)
        _check(queues, cohorts)
        self.cohorts = {cohort.name: Node(cohort) for cohort in cohorts}
        self.queues = {queue.name: Node(queue) for queue in queues}
        for cohort in cohorts:
            self._attach(self.cohorts[cohort.name], cohort.parent)
        for queue in queues:
            self._attach(self.queues[queue.name], queue.cohort)
        for node in self.nodes():
            _check_circle(node)
        for node in self.nodes():
            if node.parent is None:
                _sum_quota(node)

    def _attach(self, node: Node, parent: str | None) -> None:
        if not parent:
            return
        node.parent = self.cohorts.setdefault(parent, Node(Cohort(parent)))
        node.parent.children.append(node)

    def nodes(self) -> Iterator[Node]:
        """Yield all cohorts, then all queues, in the order in which they were named."""
        yield from list(self.cohorts.values())
        yield from self.queues.values()

    def available(self, queue: str, resource: FlavourResource) -> int:
        """Return how much a queue may still admit, borrowing included."""
        return max(0, _available(self.queues[queue], resource))

    def potentially_available(self, queue: str, resource: FlavourResource) -> int:
        """Return how much a queue could use if nothing were in use."""
        return potential(self.queues[queue], resource)

    def fits(self, queue: str, amounts: Amounts, *, borrow: bool = True) -> bool:
        """Say whether a queue may admit `amounts` now, and do so without borrowing where `borrow` is False."""
        node = self.queues[queue]
        if not borrow and any(node.exceeds(resource, amount) for resource, amount in amounts.items()):
            return False
        return all(max(0, _available(node, resource)) >= amount for resource, amount in amounts.items())

    def borrows(self, queue: str, amounts: Amounts) -> bool:
        """Say whether a queue would use more than its nominal quota of any resource with `amounts` added."""
        node = self.queues[queue]
        return any(node.exceeds(resource, amount) for resource, amount in amounts.items())

    def add(self, queue: str, amounts: Amounts) -> None:
        """Count `amounts` as used by a queue."""
        for resource, amount in amounts.items():
            _add(self.queues[queue], resource, amount)

    def remove(self, queue: str, amounts: Amounts) -> None:
        """Take `amounts` off the usage of a queue."""
        for resource, amount in amounts.items():
            _remove(self.queues[queue], resource, amount)

    @contextmanager
    def without(self, queue: str, amounts: Amounts) -> Iterator[None]:
        """Take `amounts` off for the time of a question."""
        self.remove(queue, amounts)
        try:
            yield
        finally:
            self.add(queue, amounts)


def potential(node: Node, resource: FlavourResource) -> int:
    """Return how much a node could use if nothing were in use in the tree."""
    subtree = node.subtree.get(resource, 0)
    if node.parent is None:
        return subtree
    most = node.local.get(resource, 0) + potential(node.parent, resource)
    limit = node.quotas.get(resource, _NO_QUOTA).borrowing_limit
    return most if limit is None else min(subtree + limit, most)


def _available(node: Node, resource: FlavourResource) -> int:
    """Return what a node may still use; negative where the tree is overcommitted."""
    subtree, used = node.subtree.get(resource, 0), node.usage.get(resource, 0)
    if node.parent is None:
        return subtree - used
    above = _available(node.parent, resource)
    limit = node.quotas.get(resource, _NO_QUOTA).borrowing_limit
    if limit is not None:
        local = node.local.get(resource, 0)
        above = min(above, subtree - local - max(0, used - local) + limit)
    return node.headroom(resource) + above


def _add(node: Node, resource: FlavourResource, amount: int) -> None:
    above = amount - node.headroom(resource)
    node.usage[resource] = node.usage.get(resource, 0) + amount
    if node.parent is not None and above > 0:
        _add(node.parent, resource, above)


def _remove(node: Node, resource: FlavourResource, amount: int) -> None:
    above = node.usage.get(resource, 0) - node.local.get(resource, 0)
    node.usage[resource] = node.usage.get(resource, 0) - amount
    if node.parent is not None and above > 0:
        _remove(node.parent, resource, min(amount, above))


def _sum_quota(node: Node) -> None:
    """Fill in the quota of every subtree from the leaves up."""
    subtree = {resource: quota.nominal for resource, quota in node.quotas.items()}
    for child in node.children:
        _sum_quota(child)
        for resource, amount in child.subtree.items():
            subtree[resource] = subtree.get(resource, 0) + amount - child.local[resource]
    node.subtree = subtree
    for resource, amount in subtree.items():
        limit = node.quotas.get(resource, _NO_QUOTA).lending_limit
        node.local[resource] = 0 if limit is None else max(0, amount - limit)


def _check(queues: list[ClusterQueue], cohorts: list[Cohort]) -> None:
    problems = []
    for kind, specs in (("queue", queues), ("cohort", cohorts)):
        seen: set[str] = set()
        for spec in specs:
            if spec.name in seen:
                problems.append(Problem(f"{kind} '{spec.name}'", "is named twice", "give every one its own name"))
            seen.add(spec.name)
            if spec.weight < 0:
                problems.append(
                    Problem(f"{kind} '{spec.name}'", f"weight {spec.weight:g} is negative", "use 0 or more")
                )
            for resource, quota in spec.quotas.items():
                amounts = (quota.nominal, quota.borrowing_limit, quota.lending_limit)
                if any(amount is not None and amount < 0 for amount in amounts):
                    place = f"{kind} '{spec.name}', {'/'.join(resource)}"
                    problems.append(Problem(place, "a quota or limit is negative", "use 0 or more"))
    if problems:
        raise InputError(*problems)


def _check_circle(node: Node) -> None:
    seen: set[int] = set()
    for step in node.path():
        if id(step) in seen:
            raise InputError(Problem(f"cohort '{step.name}'", "is its own ancestor", "break the circle of parents"))
        seen.add(id(step))
