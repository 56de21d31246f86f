"""One cycle of admission: the heads of all queues, their flavours, their order, and who gets in or makes room."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from simsched_policies.production.kueue.classical import classical_victims
from simsched_policies.production.kueue.fair import BOTH, Rule, fair_victims
from simsched_policies.production.kueue.model import (
    Amounts,
    ClusterQueue,
    FlavourResource,
    Incoming,
    Mode,
    Reclaim,
    Victim,
    Workload,
)
from simsched_policies.production.kueue.share import dominant_share
from simsched_policies.production.kueue.tree import Node, QuotaTree, potential


@dataclass(frozen=True)
class Asking:
    """A pending workload: what it asks of each resource, whatever the flavour; other fields as `Workload`.

    `flavours` are those whose nodes suit it (None: all).
    """

    id: str
    queue: str
    request: Mapping[str, int]
    priority: int = 0
    created_s: float = 0.0
    flavours: frozenset[str] | None = None


@dataclass(frozen=True)
class Rules:
    """How a cycle orders workloads and preempts: by priority, or for fair sharing; and who comes first in a queue.

    `queue_usage` returns the decayed usage of a pending workload's local queue (admission fair sharing), None where
    that is off.
    """

    fair_sharing: bool = False
    strategies: Sequence[Rule] = BOTH
    queue_usage: Callable[[Asking], float] | None = None


@dataclass(frozen=True)
class Entry:
    """What a cycle found for one head: the flavour, how it stands to the quota, whether it borrows, its victims."""

    asking: Asking
    usage: Amounts
    mode: Mode
    borrows: bool = False
    victims: tuple[Victim, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """The result of a cycle, each list in the order of decision.

    `admitted` may start; `preempting` wait for their victims to go; `skipped` lost their place to earlier entries and
    are asked again; `parked` fit nowhere until capacity changes.
    """

    admitted: tuple[Entry, ...]
    preempting: tuple[Entry, ...]
    skipped: tuple[Entry, ...]
    parked: tuple[Entry, ...]


def heads(pending: Iterable[Asking], rules: Rules | None = None) -> list[Asking]:
    """Return the first workload of every queue: highest priority, then oldest, then by name.

    Under admission fair sharing the local queue that used least comes first.
    """
    first: dict[str, Asking] = {}
    for asking in sorted(pending, key=_queue_order(rules or Rules())):
        first.setdefault(asking.queue, asking)
    return [first[name] for name in sorted(first)]


def _queue_order(rules: Rules) -> Callable[[Asking], tuple[float, int, float, str]]:
    def key(asking: Asking) -> tuple[float, int, float, str]:
        usage = rules.queue_usage(asking) if rules.queue_usage else 0.0
        return (usage, -asking.priority, asking.created_s, asking.id)

    return key


def run_cycle(tree: QuotaTree, asking: Sequence[Asking], admitted: Sequence[Workload], rules: Rules) -> Outcome:
    """Decide on the heads of the queues; `tree` counts `admitted` and is unchanged.

    An entry is checked again against what earlier ones of the cycle took, their victims taken off. One that needs
    preemption keeps its amounts reserved for the cycle, but is skipped if it shares a victim with an earlier entry. One
    that finds no victim is parked, but keeps what its queue may still use from those behind it, unless its queue can
    reclaim that at any time. Source: Kueue, scheduling cycle.
    """
    entries = [_assign(tree, head, admitted, rules) for head in asking]
    parked = [entry for entry in entries if entry.mode is Mode.NO_FIT]
    live = [entry for entry in entries if entry.mode is not Mode.NO_FIT]
    done: dict[Mode, list[Entry]] = {Mode.FIT: [], Mode.PREEMPT: []}
    skipped: list[Entry] = []
    taken: dict[str, Victim] = {}
    reserved: list[tuple[str, Amounts]] = []
    for entry in _ordered(tree, live, fair=rules.fair_sharing):
        usage = entry.usage
        if entry.mode is Mode.PREEMPT and not entry.victims:
            parked.append(entry)
            usage = _kept(tree.queues[entry.asking.queue], entry)
        elif not _still(tree, entry, taken):
            skipped.append(entry)
            continue
        else:
            done[entry.mode].append(entry)
            taken |= {victim.workload.id: victim for victim in entry.victims}
        tree.add(entry.asking.queue, usage)
        reserved.append((entry.asking.queue, usage))
    for queue, usage in reserved:
        tree.remove(queue, usage)
    return Outcome(tuple(done[Mode.FIT]), tuple(done[Mode.PREEMPT]), tuple(skipped), tuple(parked))


def _still(tree: QuotaTree, entry: Entry, taken: Mapping[str, Victim]) -> bool:
    """Say whether an entry can proceed after those before it: it fits, and nobody preempts its victims already."""
    if any(victim.workload.id in taken for victim in entry.victims):
        return False
    gone = [*taken.values(), *entry.victims]
    for victim in gone:
        tree.remove(victim.workload.queue, victim.workload.usage)
    fits = tree.fits(entry.asking.queue, entry.usage)
    for victim in gone:
        tree.add(victim.workload.queue, victim.workload.usage)
    return fits


def _kept(node: Node, entry: Entry) -> Amounts:
    """Return what an entry without victims keeps from others: up to the nominal quota, or the limit of borrowing."""
    if node.queue is None or node.queue.reclaim is Reclaim.ANY:
        return {}
    kept: dict[FlavourResource, int] = {}
    for resource, amount in entry.usage.items():
        quota = node.queue.quotas[resource]
        limit = quota.borrowing_limit if entry.borrows else 0
        left = quota.nominal - node.usage.get(resource, 0)
        kept[resource] = amount if limit is None else max(0, min(amount, left + limit))
    return kept


def _assign(tree: QuotaTree, asking: Asking, admitted: Sequence[Workload], rules: Rules) -> Entry:
    """Choose a flavour for each group of resources of a workload, and victims where it needs them."""
    node = tree.queues[asking.queue]
    nothing = Entry(asking, {}, Mode.NO_FIT)
    usage: dict[FlavourResource, int] = {}
    mode, left = Mode.FIT, set(asking.request)
    for resources, flavours in _groups(node):
        wanted = {name: asking.request[name] for name in resources if name in asking.request}
        if not wanted:
            continue
        search = _Search(tree, replace(asking, request=wanted), admitted, rules)
        suit = flavours if asking.flavours is None else [name for name in flavours if name in asking.flavours]
        best = search.best(suit)
        if best is None:
            return nothing
        usage |= best.usage
        mode = best.mode if best.mode is Mode.PREEMPT else mode
        left -= set(wanted)
    if left or not usage:
        return nothing
    borrows = tree.borrows(asking.queue, usage)
    if mode is Mode.FIT:
        return Entry(asking, usage, mode, borrows)
    return Entry(asking, usage, mode, borrows, _victims(tree, asking, usage, admitted, rules))


def _groups(node: Node) -> list[tuple[list[str], list[str]]]:
    """List the resource groups of a queue, resources and flavours: resources that share one list of flavours."""
    flavours: dict[str, list[str]] = {}
    for flavour, resource in node.queue.quotas if node.queue else ():
        flavours.setdefault(resource, []).append(flavour)
    groups: dict[tuple[str, ...], list[str]] = {}
    for resource, names in flavours.items():
        groups.setdefault(tuple(names), []).append(resource)
    return [(resources, list(names)) for names, resources in groups.items()]


def _victims(
    tree: QuotaTree, asking: Asking, usage: Amounts, admitted: Sequence[Workload], rules: Rules
) -> tuple[Victim, ...]:
    contested = frozenset(r for r, amount in usage.items() if tree.available(asking.queue, r) < amount)
    workload = Workload(asking.id, asking.queue, usage, asking.priority, asking.created_s)
    incoming = Incoming(workload, contested)
    by_usage = rules.queue_usage is not None
    if rules.fair_sharing:
        return tuple(fair_victims(tree, incoming, admitted, rules=rules.strategies, by_usage=by_usage))
    return tuple(classical_victims(tree, incoming, admitted, by_usage=by_usage))


@dataclass(frozen=True)
class _Flavour:
    """How a request stands with one flavour; a higher `rank` is better: fitting, then whom it would preempt."""

    usage: Amounts
    mode: Mode
    rank: tuple[int, bool]
    borrows: bool


#: Ranks of a flavour: nobody can be preempted for it, somebody of the own queue, only those who borrow; it fits.
_NOBODY, _OWN, _BORROWERS, _FITS = range(4)


@dataclass(frozen=True)
class _Search:
    """The search for the flavour of one group of resources."""

    tree: QuotaTree
    asking: Asking
    admitted: Sequence[Workload]
    rules: Rules

    def best(self, flavours: Sequence[str]) -> _Flavour | None:
        """Try flavours in turn, until the queue's rules end the search; return the best, the first of equals."""
        node = self.tree.queues[self.asking.queue]
        found: list[_Flavour] = []
        for flavour in flavours:
            one = self._try(node, flavour, alone=len(flavours) == 1)
            if one is None:
                continue
            found.append(one)
            if node.queue is not None and _stops(node.queue, one):
                break
        return max(found, key=lambda one: one.rank, default=None)

    def _try(self, node: Node, flavour: str, *, alone: bool) -> _Flavour | None:
        usage = {(flavour, resource): amount for resource, amount in self.asking.request.items()}
        mode = _mode(node, self.tree, usage, self.rules)
        if mode is Mode.NO_FIT:
            return None
        borrows = self.tree.borrows(node.name, usage)
        grade = _FITS if mode is Mode.FIT else _OWN if alone else self._grade(usage)
        return _Flavour(usage, mode, (grade, not borrows), borrows)

    def _grade(self, usage: Amounts) -> int:
        victims = _victims(self.tree, self.asking, usage, self.admitted, self.rules)
        if not victims:
            return _NOBODY
        own = any(victim.workload.queue == self.asking.queue for victim in victims)
        return _OWN if own else _BORROWERS


def _stops(spec: ClusterQueue, found: _Flavour) -> bool:
    """Say whether the search for a flavour ends with this one."""
    grade = found.rank[0]
    if grade == _NOBODY or (grade != _FITS and not spec.preempt_before_next_flavour):
        return False
    return not found.borrows or spec.borrow_before_next_flavour


def _mode(node: Node, tree: QuotaTree, usage: Amounts, rules: Rules) -> Mode:
    worst = Mode.FIT
    for resource, amount in usage.items():
        mode = _mode_of_one(node, tree, resource, amount, rules)
        if mode is Mode.NO_FIT:
            return mode
        worst = mode if mode is Mode.PREEMPT else worst
    return worst


def _mode_of_one(node: Node, tree: QuotaTree, resource: FlavourResource, amount: int, rules: Rules) -> Mode:
    spec = node.queue
    if spec is None or resource not in spec.quotas or amount > potential(node, resource):
        return Mode.NO_FIT
    if amount <= tree.available(node.name, resource):
        return Mode.FIT
    borrowing = spec.borrow_preempts_lower or (rules.fair_sharing and spec.reclaim is not Reclaim.NEVER)
    within_nominal = amount <= node.subtree.get(resource, 0)
    reclaims = within_nominal or _fits_below_root(node, resource, amount)
    return Mode.PREEMPT if reclaims or borrowing else Mode.NO_FIT


def _fits_below_root(node: Node, resource: FlavourResource, amount: int) -> bool:
    """Say whether a request fits into the quota of a subtree that lends to others and may reclaim it."""
    left = amount
    for step in node.path():
        if not step.exceeds(resource, left):
            return step.parent is not None
        left = max(0, left - step.headroom(resource))
    return False


def _ordered(tree: QuotaTree, entries: Sequence[Entry], *, fair: bool) -> Iterable[Entry]:
    """Yield entries in the order of decision; under fair sharing it depends on what was yielded before."""
    if not fair:
        yield from sorted(entries, key=lambda e: (e.borrows, -e.asking.priority, e.asking.created_s, e.asking.id))
        return
    left = list(entries)
    while left:
        best = _winner(tree, left)
        left.remove(best)
        yield best


def _winner(tree: QuotaTree, entries: Sequence[Entry]) -> Entry:
    """Return the entry that wins from the leaves up: lowest share with itself added, then priority, then age."""
    standing: dict[int, list[Entry]] = {}
    roots: list[Entry] = []
    for entry in entries:
        *_, root = tree.queues[entry.asking.queue].path()
        if root.queue is not None:
            roots.append(entry)
        else:
            standing.setdefault(id(root), []).append(entry)
    if roots:
        return min(roots, key=lambda e: (-e.asking.priority, e.asking.created_s, e.asking.id))
    first = next(iter(standing.values()))
    *_, root = tree.queues[first[0].asking.queue].path()
    winner = _tournament(tree, root, {entry.asking.queue: entry for entry in first})
    if winner is None:
        raise ValueError("no entry under a root that has some")
    return winner


def _tournament(tree: QuotaTree, node: Node, entries: Mapping[str, Entry]) -> Entry | None:
    if node.queue is not None:
        return entries.get(node.name)
    rivals = [(child, found) for child in node.children if (found := _tournament(tree, child, entries)) is not None]
    if not rivals:
        return None

    def key(rival: tuple[Node, Entry]) -> tuple[tuple[float, float], int, float, str]:
        child, entry = rival
        tree.add(entry.asking.queue, entry.usage)
        share = dominant_share(child).key()
        tree.remove(entry.asking.queue, entry.usage)
        return (share, -entry.asking.priority, entry.asking.created_s, entry.asking.id)

    return min(rivals, key=key)[1]


def admit(entry: Entry, now_s: float) -> Workload:
    """Return the workload of an entry as it holds quota from `now_s` on."""
    asking = entry.asking
    held = Workload(asking.id, asking.queue, entry.usage, asking.priority, asking.created_s)
    return replace(held, admitted_s=now_s)
