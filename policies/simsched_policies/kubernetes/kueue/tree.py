"""The tree of cohorts and cluster queues, and its quota usage."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from simsched.errors import InputError, Problem
from simsched_policies.kubernetes.kueue.model import (
    Amounts,
    Assigned,
    ClusterQueue,
    Cohort,
    FlavourResource,
    Quota,
    Workload,
)
from simsched_policies.kubernetes.kueue.topology import Domains, Usage

_NO_QUOTA = Quota(0)
#: More than any quota.
_ENDLESS = 1 << 100


class Node:
    """One cluster queue or cohort with its usage; `parent` is None at a root.

    `subtree` is the quota of the node plus what its children lend it, `local` the part that it does not lend, and
    `most` what it could use if nothing were in use. `height` is the longest path down to a leaf, `held` lists the
    workloads that have quota in a queue, and `held_by` sums their usage by priority.
    """

    __slots__ = (
        *("children", "groups", "height", "held", "held_by", "lendable", "local", "most", "name", "parent", "queue"),
        *("_ladders", "flavours", "ordered", "quotas", "releases", "subtree", "usage", "weight"),
    )

    def __init__(self, spec: ClusterQueue | Cohort) -> None:
        """Create a node without parent and usage."""
        self.name = spec.name
        self.weight = spec.weight
        self.quotas = dict(spec.quotas)
        self.flavours = {flavour for flavour, _ in spec.quotas}
        self.queue = spec if isinstance(spec, ClusterQueue) else None
        self.parent: Node | None = None
        self.children: list[Node] = []
        self.subtree: dict[FlavourResource, int] = {}
        self.local: dict[FlavourResource, int] = {}
        self.most: dict[FlavourResource, int] = {}
        self.usage: dict[FlavourResource, int] = {}
        self.height = 0
        self._ladders: dict[FlavourResource, list[tuple[dict[FlavourResource, int], int, int | None]]] = {}
        self.held: dict[str, Workload] = {}
        self.held_by: dict[int, dict[FlavourResource, int]] = {}
        #: The most of each resource, over all flavours, that could be used if nothing were in use.
        self.lendable: dict[str, int] = {}
        #: The resource group of each resource: all its resources, and its flavours in order.
        self.groups = {} if self.queue is None else _groups(self.queue)
        #: The sorted holders, cached until workloads get or release quota.
        self.ordered: list[Workload] = []
        #: The number of releases of quota below a root.
        self.releases = 0

    def root(self) -> Node:
        """Return the top of the node's tree."""
        node = self
        while node.parent is not None:
            node = node.parent
        return node

    def path(self) -> Iterator[Node]:
        """Yield the node, its parent and so on up to the root."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent

    def note(self, workload: Workload, sign: int = 1) -> None:
        """Record that a workload got quota in a queue, or with sign -1 released it."""
        at = bisect_left(self.ordered, _turn(workload), key=_turn)
        self.ordered[at : at + (sign < 0)] = [workload] if sign > 0 else []
        held = self.held_by.setdefault(workload.priority, {})
        for resource, amount in workload.usage.items():
            held[resource] = held.get(resource, 0) + sign * amount

    def in_order(self) -> Iterator[Workload]:
        """Yield the workloads that have quota, ordered: evicted ones, low priority, latest admission, name."""
        held = self.held
        yield from (held[one.id] for one in self.ordered if one.id in held)

    def headroom(self, resource: FlavourResource) -> int:
        """Return the free part of the quota that the node does not lend."""
        return max(0, self.local.get(resource, 0) - self.usage.get(resource, 0))

    def available(self, resource: FlavourResource) -> int:
        """Return what the node may still use; negative if the tree is overcommitted."""
        left = _ENDLESS
        for usage, local, most in self.ladder(resource):
            used = usage.get(resource, 0)
            own = local - used if local > used else 0
            left = own + (left if most is None else min(left, most - used - own))
        return left

    def ladder(self, resource: FlavourResource) -> list[tuple[dict[FlavourResource, int], int, int | None]]:
        """Return, from the root down, each node's usage, the quota that it does not lend, and its largest usage.

        The most includes borrowing, None without a limit. A root lends nothing and may use its quota.
        """
        if resource not in self._ladders:
            quota, subtree = self.quotas.get(resource, _NO_QUOTA), self.subtree.get(resource, 0)
            limit = None if quota.borrowing_limit is None else subtree + quota.borrowing_limit
            if self.parent is None:
                self._ladders[resource] = [(self.usage, 0, subtree)]
            else:
                above = self.parent.ladder(resource)
                self._ladders[resource] = [*above, (self.usage, self.local.get(resource, 0), limit)]
        return self._ladders[resource]

    def exceeds(self, resource: FlavourResource, more: int = 0) -> bool:
        """Return whether usage, with `more` added, exceeds the quota of the subtree."""
        return self.usage.get(resource, 0) + more > self.subtree.get(resource, 0)


class QuotaTree:
    """The quotas of a cluster and what is used of them.

    Usage above what a node keeps for itself counts in its parent too. Checking or changing an amount costs the depth of
    the tree. Raises `InputError` for duplicate names, cycles of cohorts and negative quotas.
    """

    def __init__(self, queues: Iterable[ClusterQueue], cohorts: Iterable[Cohort] = ()) -> None:
        """Build the tree; a cohort that is named but not declared has no quota."""
        queues, cohorts = list(queues), list(cohorts)
        _check(queues, cohorts)
        #: The topologies of flavours, with the pods placed there.
        self.topologies: Mapping[str, Domains] = {}
        #: Whether flavours with the same hosts see each other's pods.
        self._shares_hosts = True
        #: Queues in which workloads got or released quota: since the last check, and since the last record.
        self.moved: set[str] = set()
        self.unrecorded: set[str] = {queue.name for queue in queues}
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
                _fill_most(node)

    def admit(self, workload: Workload) -> None:
        """Give a workload its quota and its places."""
        node = self.queues[workload.queue]
        node.held[workload.id] = workload
        node.note(workload)
        self._note_moved(workload)
        self.count(workload)

    def release(self, workload: Workload) -> None:
        """Take a workload's quota back for good."""
        node = self.queues[workload.queue]
        del node.held[workload.id]
        node.note(workload, -1)
        self._note_moved(workload)
        self.count(workload, -1)
        node.root().releases += 1

    def _note_moved(self, workload: Workload) -> None:
        self.moved.add(workload.queue)
        self.unrecorded.add(workload.queue)

    def mark_evicted(self, workload: Workload) -> Workload:
        """Mark a workload that still has its quota as about to leave; return it as marked."""
        node, gone = self.queues[workload.queue], replace(workload, evicted=True)
        node.note(workload, -1)
        node.note(gone)
        node.held[workload.id] = gone
        return gone

    def use(self, topologies: Mapping[str, Domains], *, shares_hosts: bool = True) -> None:
        """Set the topologies of flavours, and count there what workloads hold."""
        self.topologies, self._shares_hosts = topologies, shares_hosts
        for node in self.queues.values():
            for workload in node.held.values():
                for one in workload.assigned:
                    self.place(one)

    def count(self, workload: Workload, sign: int = 1) -> None:
        """Add what a workload uses, or subtract it with sign -1."""
        (self.add if sign > 0 else self.remove)(workload.queue, workload.usage)
        for one in workload.assigned:
            if one.places is not None:
                self.place(one, sign)

    def place(self, one: Assigned, sign: int = 1) -> None:
        """Add pods at their places, or subtract them with sign -1; flavours with the same hosts share them."""
        for flavour in set(one.flavours.values()) & set(self.topologies):
            own = self.topologies[flavour]
            for domains in self.topologies.values() if own.by_host and self._shares_hosts else (own,):
                if domains is own or domains.by_host:
                    for values, count in one.places or ():
                        domains.change(Usage(values, one.pod, count), sign)

    def has_room(self, placed: Iterable[Assigned]) -> bool:
        """Return whether uncounted pods still fit at their places."""
        placed = [one for one in placed if one.places]
        for one in placed:
            self.place(one)
        fits = all(
            self.topologies[flavour].holds(values)
            for one in placed
            for flavour in set(one.flavours.values()) & set(self.topologies)
            for values, _ in one.places or ()
        )
        for one in placed:
            self.place(one, -1)
        return fits

    def _attach(self, node: Node, parent: str | None) -> None:
        if not parent:
            return
        node.parent = self.cohorts.setdefault(parent, Node(Cohort(parent)))
        node.parent.children.append(node)

    def nodes(self) -> Iterator[Node]:
        """Yield all cohorts, then all queues, in declaration order."""
        yield from list(self.cohorts.values())
        yield from self.queues.values()

    def available(self, queue: str, resource: FlavourResource) -> int:
        """Return how much a queue may still admit, borrowing included."""
        return max(0, self.queues[queue].available(resource))

    def fits(self, queue: str, amounts: Amounts, *, borrow: bool = True) -> bool:
        """Return whether a queue may admit `amounts` now, without borrowing if `borrow` is False."""
        node = self.queues[queue]
        if not borrow and any(node.exceeds(resource, amount) for resource, amount in amounts.items()):
            return False
        return all(max(0, node.available(resource)) >= amount for resource, amount in amounts.items())

    def add(self, queue: str, amounts: Amounts) -> None:
        """Count `amounts` as used by a queue."""
        for resource, amount in amounts.items():
            _add(self.queues[queue], resource, amount)

    def remove(self, queue: str, amounts: Amounts) -> None:
        """Subtract `amounts` from the usage of a queue."""
        for resource, amount in amounts.items():
            _remove(self.queues[queue], resource, amount)

    @contextmanager
    def without_all(self, workloads: Iterable[Workload]) -> Iterator[None]:
        """Remove workloads temporarily."""
        gone = list(workloads)
        for workload in gone:
            self.queues[workload.queue].held.pop(workload.id)
            self.count(workload, -1)
        try:
            yield
        finally:
            for workload in gone:
                self.queues[workload.queue].held[workload.id] = workload
                self.count(workload)

    @contextmanager
    def without(self, queue: str, amounts: Amounts) -> Iterator[None]:
        """Subtract `amounts` temporarily."""
        self.remove(queue, amounts)
        try:
            yield
        finally:
            self.add(queue, amounts)


def queues_below(node: Node) -> Iterator[Node]:
    """Yield the queues at or below a node."""
    if node.queue is not None:
        yield node
    for child in node.children:
        yield from queues_below(child)


def level_of(node: Node, resource: FlavourResource, amount: int) -> tuple[int, bool]:
    """Return the level at which a queue must borrow `amount`, and whether that is below the root.

    It is 0 without borrowing, else the height of the lowest cohort whose quota has room for it; the root's height if
    none has. Source: Kueue, flavour assignment (borrowing level).
    """
    if node.parent is None or not node.exceeds(resource, amount):
        return 0, node.parent is not None
    left, step = amount - node.headroom(resource), node.parent
    while step.exceeds(resource, left):
        if step.parent is None:
            return step.height, False
        left -= step.headroom(resource)
        step = step.parent
    return step.height, step.parent is not None


def _turn(workload: Workload) -> tuple[bool, int, float, str]:
    return (not workload.evicted, workload.priority, -workload.admitted_s, workload.id)


def _groups(spec: ClusterQueue) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    flavours: dict[str, tuple[str, ...]] = {}
    for flavour, resource in spec.quotas:
        flavours[resource] = (*flavours.get(resource, ()), flavour)
    named: list[tuple[str, ...]] = list(spec.groups)
    if not named:
        alike: dict[tuple[str, ...], tuple[str, ...]] = {}
        for resource, names in flavours.items():
            alike[names] = (*alike.get(names, ()), resource)
        named = list(alike.values())
    merged: list[tuple[str, ...]] = []
    for group in named:  # groups that share a resource are one
        apart = [other for other in merged if not set(other) & set(group)]
        shared = [r for other in merged if set(other) & set(group) for r in other]
        merged = [*apart, tuple(dict.fromkeys((*shared, *group)))]
    return {
        resource: (group, tuple(dict.fromkeys(flavour for flavour, other in spec.quotas if other in group)))
        for group in merged
        for resource in group
    }


def _add(node: Node, resource: FlavourResource, amount: int) -> None:
    """Add an amount to a node, and pass on to its parents what exceeds the quota that each node does not lend."""
    for usage, local, _ in reversed(node.ladder(resource)):
        used = usage.get(resource, 0)
        usage[resource] = used + amount
        amount -= max(0, local - used)
        if amount <= 0:
            break


def _remove(node: Node, resource: FlavourResource, amount: int) -> None:
    for usage, local, _ in reversed(node.ladder(resource)):
        used = usage.get(resource, 0)
        usage[resource] = used - amount
        amount = min(amount, used - local)
        if amount <= 0:
            break


def _sum_quota(node: Node) -> None:
    """Compute the quota of every subtree from the leaves up."""
    subtree = {resource: quota.nominal for resource, quota in node.quotas.items()}
    for child in node.children:
        _sum_quota(child)
        node.height = max(node.height, child.height + 1)
        for resource, amount in child.subtree.items():
            subtree[resource] = subtree.get(resource, 0) + amount - child.local[resource]
    node.subtree = subtree
    for resource, amount in subtree.items():
        limit = node.quotas.get(resource, _NO_QUOTA).lending_limit
        node.local[resource] = 0 if limit is None else max(0, amount - limit)


def _fill_most(node: Node) -> None:
    """Compute what every node could use, from the root down."""
    above = {} if node.parent is None else node.parent.most
    for resource in {**node.subtree, **above}:
        subtree = node.subtree.get(resource, 0)
        most = subtree if node.parent is None else node.local.get(resource, 0) + above.get(resource, 0)
        limit = node.quotas.get(resource, _NO_QUOTA).borrowing_limit
        most = most if limit is None or node.parent is None else min(subtree + limit, most)
        node.most[resource] = most
        node.lendable[resource[1]] = node.lendable.get(resource[1], 0) + most
    for child in node.children:
        _fill_most(child)


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
