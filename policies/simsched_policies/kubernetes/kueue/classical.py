"""Classical preemption of Kueue: by priority within a queue, by reclaiming what other queues borrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from heapq import merge

from simsched_policies.kubernetes.kueue.candidates import (
    all_exceed,
    exceeds_any,
    in_order,
    own_candidates,
    reclaimable,
    uses,
)
from simsched_policies.kubernetes.kueue.model import (
    Amounts,
    ClusterQueue,
    FlavourResource,
    Incoming,
    Reason,
    Reclaim,
    Victim,
    Workload,
)
from simsched_policies.kubernetes.kueue.tree import Node, QuotaTree


class _Kind(Enum):
    """The reason for which a candidate may be preempted."""

    HIERARCHY = 0
    WITHOUT_BORROWING = 1
    WHILE_BORROWING = 2
    OWN_QUEUE = 3


_REASONS = {
    _Kind.HIERARCHY: Reason.RECLAMATION,
    _Kind.WITHOUT_BORROWING: Reason.RECLAMATION,
    _Kind.WHILE_BORROWING: Reason.WHILE_BORROWING,
    _Kind.OWN_QUEUE: Reason.IN_QUEUE,
}


@dataclass(frozen=True)
class _Candidate:
    workload: Workload
    kind: _Kind
    #: The nodes that must keep exceeding their quota for the candidate to remain one.
    borrowers: tuple[Node, ...] = ()


def classical_victims(tree: QuotaTree, incoming: Incoming, *, by_usage: bool = False) -> list[Victim]:
    """Choose the workloads to preempt to admit another; an empty list if that is impossible.

    `tree` is unchanged. Source: Kueue, preemption (classical), and hierarchical cohorts (KEP-79).
    """
    own = [_Candidate(workload, _Kind.OWN_QUEUE) for workload in own_candidates(tree, incoming)]
    lenders = _borrowing_queues(tree, incoming) if _may_reclaim(tree, incoming, own) else []
    outside = [one for one in lenders if next(iter(one), None) is not None]
    if not own and not outside:
        return []
    for borrow in _attempts(tree, incoming, outside):
        lenders = [one for one in outside if one.while_borrowing or not borrow]
        candidates = _in_order(incoming, own, lenders, by_usage=by_usage)
        victims = _attempt(tree, incoming, candidates, borrow=borrow)
        if victims:
            return victims
    return []


def _may_reclaim(tree: QuotaTree, incoming: Incoming, own: Sequence[_Candidate]) -> bool:
    """Return whether candidates of other queues could help.

    They cannot if the request exceeds the nominal quota even without all own candidates, no subtree below a common
    ancestor has room for it, and preemption while borrowing is not allowed: all others are then skipped.
    """
    node, asked = tree.queues[incoming.workload.queue], incoming.workload.usage
    if node.queue is None or node.queue.borrow_preempts_lower or any(_advantage(node, asked).values()):
        return True
    return all(
        node.usage.get(key, 0) - sum(one.workload.usage.get(key, 0) for one in own) + amount <= node.subtree.get(key, 0)
        for key, amount in asked.items()
    )


class _Lender:
    """Another queue that borrows: it and the borrowing cohorts above it, the rule, and which side has the advantage.

    It yields its candidates in the order of their queue, each with the reason; the search is lazy and ends once one of
    the borrowers no longer borrows. No candidate is `while_borrowing` if the preemptor may only reclaim what it owns.
    """

    def __init__(self, borrowers: tuple[Node, ...], spec: ClusterQueue, incoming: Incoming, *, advantage: bool) -> None:
        self.advantage, self.while_borrowing = advantage, advantage or spec.borrow_preempts_lower
        self._borrowers, self._contested = borrowers, incoming.contested
        self._found: list[_Candidate] = []
        self._more = self._search(borrowers, spec, incoming)

    def __iter__(self) -> Iterator[_Candidate]:
        at = 0
        while all_exceed(self._borrowers, self._contested):
            if at == len(self._found):
                self._found += [one for one in (next(self._more, None),) if one is not None]
            if at == len(self._found):
                return
            yield self._found[at]
            at += 1

    def _search(self, borrowers: tuple[Node, ...], spec: ClusterQueue, incoming: Incoming) -> Iterator[_Candidate]:
        for workload in borrowers[0].in_order():
            if uses(workload, incoming.contested) and reclaimable(spec.reclaim, workload, incoming.workload):
                yield _Candidate(
                    workload, _kind(spec, workload, incoming.workload, advantage=self.advantage), borrowers
                )


def _borrowing_queues(tree: QuotaTree, incoming: Incoming) -> list[_Lender]:
    """List the other queues that borrow contested amounts, and whose separate ancestors all borrow too."""
    node = tree.queues[incoming.workload.queue]
    if node.queue is None or node.queue.reclaim is Reclaim.NEVER:
        return []
    advantage = _advantage(node, incoming.workload.usage)
    done, found = node, []
    for ancestor in node.path():
        borrowers = (one for one in ancestor.children if one is not done and exceeds_any(one, incoming.contested))
        paths = (path for child in borrowers for path in _borrowing(child, incoming.contested))
        found += [_Lender(path, node.queue, incoming, advantage=advantage[id(ancestor)]) for path in paths]
        done = ancestor
    return found


def _borrowing(node: Node, contested: Iterable[FlavourResource]) -> Iterator[tuple[Node, ...]]:
    """Yield the borrowing queues at or below a borrowing node whose cohorts all borrow, each with these cohorts."""
    if node.queue is not None:
        yield (node,)
    for child in node.children:
        if exceeds_any(child, contested):
            yield from ((*path, node) for path in _borrowing(child, contested))


def _advantage(queue: Node, amounts: Amounts) -> dict[int, bool]:
    """Return for every node above `queue` whether the request fits the quota of a subtree below it."""
    told: dict[int, bool] = {}
    fits, left = False, dict(amounts)
    for node in queue.path():
        told[id(node)] = fits
        fits = fits or not any(node.exceeds(resource, amount) for resource, amount in left.items())
        left = {resource: max(0, amount - node.headroom(resource)) for resource, amount in left.items()}
    return told


def _kind(spec: ClusterQueue, candidate: Workload, preemptor: Workload, *, advantage: bool) -> _Kind:
    if advantage:
        return _Kind.HIERARCHY
    limit = spec.borrow_max_priority
    low = candidate.priority < preemptor.priority and (limit is None or candidate.priority <= limit)
    return _Kind.WHILE_BORROWING if spec.borrow_preempts_lower and low else _Kind.WITHOUT_BORROWING


_GROUPS = {_Kind.HIERARCHY: 0, _Kind.WITHOUT_BORROWING: 1, _Kind.WHILE_BORROWING: 1, _Kind.OWN_QUEUE: 2}


def _in_order(
    incoming: Incoming, own: Sequence[_Candidate], outside: Sequence[_Lender], *, by_usage: bool
) -> Iterable[_Candidate]:
    """Yield candidates: evicted ones, those below the preemptor in the tree, other queues, then its own queue."""

    def key(one: _Candidate) -> tuple[bool, int, int, float, str]:
        workload = one.workload
        return (not workload.evicted, _GROUPS[one.kind], workload.priority, -workload.admitted_s, workload.id)

    if not by_usage:
        return merge(sorted(own, key=key), *outside, key=key)
    known = {c.workload.id: c for c in (*own, *(c for lender in outside for c in lender))}
    ranked = in_order((c.workload for c in known.values()), incoming.workload.queue, by_usage=True)
    return sorted((known[w.id] for w in ranked), key=lambda c: (not c.workload.evicted, _GROUPS[c.kind]))


def _attempts(tree: QuotaTree, incoming: Incoming, outside: Sequence[_Lender]) -> Iterator[bool]:
    """Yield, for each attempt in order, whether the preemptor may borrow."""
    node = tree.queues[incoming.workload.queue]
    forbidden = node.queue is None or not node.queue.borrow_preempts_lower
    full = any(node.usage.get(r, 0) >= node.subtree.get(r, 0) for r in incoming.contested)
    if not outside or (forbidden and full):
        yield True
    elif forbidden and not any(lender.advantage for lender in outside):
        yield from (False, True)
    else:
        yield from (True, False)


def _attempt(tree: QuotaTree, incoming: Incoming, candidates: Iterable[_Candidate], *, borrow: bool) -> list[Victim]:
    """Take candidates until the workload fits, then spare those that were not needed."""
    asked, taken, done = incoming.workload, [], False
    for candidate in candidates:
        if borrow and candidate.kind is _Kind.WITHOUT_BORROWING:
            continue
        if not all_exceed(candidate.borrowers, incoming.contested):
            continue
        tree.count(candidate.workload, -1)
        taken.append(Victim(candidate.workload, _REASONS[candidate.kind]))
        done = tree.fits(asked.queue, asked.usage, borrow=borrow) and has_place(incoming)
        if done:
            break
    victims = fill_back(tree, incoming, taken, borrow=borrow) if done else taken
    for victim in victims:
        tree.count(victim.workload)
    return victims if done else []


def has_place(incoming: Incoming) -> bool:
    """Return whether a workload that a topology places finds a place now."""
    return incoming.has_place is None or incoming.has_place()


def fill_back(tree: QuotaTree, incoming: Incoming, taken: Sequence[Victim], *, borrow: bool = True) -> list[Victim]:
    """Spare unneeded victims, latest first; list the others."""
    asked, kept = incoming.workload, list(taken[-1:])
    for victim in reversed(taken[:-1]):
        tree.count(victim.workload)
        if not (tree.fits(asked.queue, asked.usage, borrow=borrow) and has_place(incoming)):
            tree.count(victim.workload, -1)
            kept.append(victim)
    return kept[::-1]
