"""Fair sharing: the dominant resource share of a node, and the tournament that chooses whom to preempt."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from simsched_policies.kubernetes.kueue.candidates import (
    below_ancestor,
    common_ancestor,
    exceeds_any,
    in_order,
    own_candidates,
    reclaimable,
    uses,
)
from simsched_policies.kubernetes.kueue.classical import fill_back, has_place
from simsched_policies.kubernetes.kueue.model import BOTH, Amounts, Incoming, Reason, Reclaim, Rule, Victim, Workload
from simsched_policies.kubernetes.kueue.tree import Node, QuotaTree, queues_below

#: A share of one is represented as 1,000.
SCALE = 1000


@dataclass(frozen=True)
class Share:
    """A node's share: the largest ratio of borrowed to lendable over its resources, in thousandths, and its weight."""

    ratio: float
    weight: float
    resource: str = ""

    @property
    def borrowing(self) -> bool:
        """Return whether the node uses more than the quota of its subtree."""
        return self.ratio > 0

    @property
    def weighted(self) -> float:
        """Return the ratio over the weight, infinite if a node of weight 0 borrows."""
        if not self.borrowing:
            return 0.0
        return math.inf if self.weight == 0 else self.ratio / self.weight

    def key(self) -> tuple[float, float]:
        """Order shares: by the weighted share, and by the bare ratio among infinite ones."""
        return (self.weighted, self.ratio if math.isinf(self.weighted) else 0.0)


def dominant_share(node: Node, added: Amounts | None = None) -> Share:
    """Return the share of a node with `added` on top of its usage.

    Only resources for which the subtree has an entry count. A resource's ratio is what the node uses above the quota of
    its subtree, summed over flavours, over the most that its parent could use; a root does not borrow. Source:
    Kueue, fair sharing (KEP-1714).
    """
    if node.parent is None:
        return Share(0.0, node.weight)
    borrowed: dict[str, int] = {}
    added = added or {}
    for resource, quota in node.subtree.items():
        over = node.usage.get(resource, 0) + added.get(resource, 0) - quota
        if over > 0:
            borrowed[resource[1]] = borrowed.get(resource[1], 0) + over
    lendable = node.parent.lendable
    best, name = 0.0, ""
    for kind in sorted(borrowed):
        if lendable.get(kind, 0) > 0 and (ratio := borrowed[kind] * SCALE / lendable[kind]) > best:
            best, name = ratio, kind
    return Share(best, node.weight, name)


class Tournament:
    """Repeatedly picks the queue with candidates whose share is the largest.

    Follows the child with the largest share from the root down; a cohort wins a tie against a queue, and among queues
    the one whose next candidate comes first. Nodes that do not borrow are left out, except the preemptor and its
    ancestors.
    """

    def __init__(self, tree: QuotaTree, queue: str, candidates: Iterable[Workload], *, by_usage: bool = False) -> None:
        """Take `candidates` in any order; they leave the tournament by `pop` or `drop`."""
        self._tree, self._queue, self._by_usage = tree, queue, by_usage
        self._above = {id(node) for node in tree.queues[queue].path()}
        self._waiting: dict[str, list[Workload]] = {}
        for workload in reversed(in_order(candidates, queue, by_usage=by_usage)):
            self._waiting.setdefault(workload.queue, []).append(workload)

    def next_queue(self) -> str | None:
        """Return the queue to take from next, None if there is none."""
        *_, root = self._tree.queues[self._queue].path()
        if root.queue is not None:
            return self._queue if self._waiting.get(self._queue) else None
        found = self._descend(root)
        return None if found is None else found.name

    def has(self, queue: str) -> bool:
        """Return whether a queue has candidates left."""
        return bool(self._waiting.get(queue))

    def pop(self, queue: str) -> Workload:
        """Take the next candidate of a queue out of the tournament."""
        return self._waiting[queue].pop()

    def drop(self, queue: str) -> None:
        """Take all candidates of a queue out of the tournament."""
        self._waiting.pop(queue, None)

    def _descend(self, node: Node) -> Node | None:
        if node.queue is not None:
            return node if self.has(node.name) else None
        ranked = [(share, child) for child in node.children if (share := self._stands(child)) is not None]
        for _, child in sorted(ranked, key=self._rank):
            if (found := self._descend(child)) is not None:
                return found
        return None

    def _stands(self, node: Node) -> Share | None:
        """Return a node's share, None if it takes no part."""
        if node.queue is not None and not self.has(node.name):
            return None
        share = dominant_share(node)
        return share if share.borrowing or id(node) in self._above else None

    def _rank(
        self, entry: tuple[Share, Node]
    ) -> tuple[float, float, bool, tuple[bool, bool, float, int, float, str], str]:
        share, node = entry
        weighted, ratio = share.key()
        first = (False, False, 0.0, 0, 0.0, "")
        if node.queue is not None:
            head = self._waiting[node.name][-1]
            own = head.queue == self._queue
            usage = -head.local_queue_usage if self._by_usage and own else 0.0
            first = (not head.evicted, own, usage, head.priority, -head.admitted_s, head.id)
        return (-weighted, -ratio, node.queue is not None, first, node.name)


def fair_victims(
    tree: QuotaTree,
    incoming: Incoming,
    *,
    rules: Sequence[Rule] = BOTH,
    by_usage: bool = False,
    within_nominal: bool = True,
) -> list[Victim]:
    """Choose the workloads to preempt under fair sharing; an empty list if that cannot admit the workload.

    `tree` is unchanged. The first of `rules` is tried for every candidate, the second for those that it spared, once
    per queue. With `within_nominal`, a request within the nominal quota needs no rule. Source: Kueue, fair sharing
    (KEP-1714).
    """
    asked = incoming.workload
    candidates = [*own_candidates(tree, incoming), *_outside(tree, incoming)]
    if not candidates:
        return []
    search = _Search(tree, incoming, by_usage=by_usage, within_nominal=within_nominal)
    tree.add(asked.queue, asked.usage)
    done = search.run(candidates, rules)
    tree.remove(asked.queue, asked.usage)
    victims = fill_back(tree, incoming, search.taken) if done else search.taken
    for victim in victims:
        tree.count(victim.workload)
    return victims if done else []


def _outside(tree: QuotaTree, incoming: Incoming) -> list[Workload]:
    node = tree.queues[incoming.workload.queue]
    if node.queue is None or node.queue.reclaim is Reclaim.NEVER:
        return []
    return [
        workload
        for other in queues_below(node.root())
        if other is not node and exceeds_any(other, incoming.contested)
        for workload in other.held.values()
        if uses(workload, incoming.contested) and reclaimable(node.queue.reclaim, workload, incoming.workload)
    ]


class _Search:
    """One search for victims; the tree counts the incoming workload as admitted while it runs."""

    def __init__(self, tree: QuotaTree, incoming: Incoming, *, by_usage: bool, within_nominal: bool) -> None:
        self._tree, self._asked, self._by_usage = tree, incoming.workload, by_usage
        self._incoming = incoming
        node = tree.queues[incoming.workload.queue]
        amounts = incoming.workload.usage
        #: Whether the request stays within the nominal quota of contested amounts: it then reclaims its own quota.
        self._nominal = within_nominal and not any(
            node.exceeds(resource, amounts.get(resource, 0)) for resource in incoming.contested
        )
        self.taken: list[Victim] = []

    def run(self, candidates: list[Workload], rules: Sequence[Rule]) -> bool:
        """Take victims by each rule in turn; return whether the workload then fits."""
        if rules[0] is Rule.INITIAL_SHARE:
            return self._first(candidates, Rule.INITIAL_SHARE)[0]
        done, spared = self._first(candidates, Rule.FINAL_SHARE)
        return done or (Rule.INITIAL_SHARE in rules and self._second(spared))

    def _first(self, candidates: list[Workload], rule: Rule) -> tuple[bool, list[Workload]]:
        order = Tournament(self._tree, self._asked.queue, candidates, by_usage=self._by_usage)
        spared: list[Workload] = []
        while (queue := order.next_queue()) is not None:
            if queue == self._asked.queue:
                if self._take(order.pop(queue), Reason.IN_QUEUE):
                    return True, spared
                continue
            mine, theirs = self._sides(queue)
            while order.has(queue):
                candidate = order.pop(queue)
                if self._allows(rule, mine, theirs, candidate):
                    if self._take(candidate, self._outside_reason()):
                        return True, spared
                    break
                spared.append(candidate)
        return False, spared

    def _second(self, candidates: list[Workload]) -> bool:
        order = Tournament(self._tree, self._asked.queue, candidates, by_usage=self._by_usage)
        while (queue := order.next_queue()) is not None:
            mine, theirs = self._sides(queue)
            if dominant_share(mine).key() < dominant_share(theirs).key() and self._take(
                order.pop(queue), self._outside_reason()
            ):
                return True
            order.drop(queue)
        return False

    def _allows(self, rule: Rule, mine: Node, theirs: Node, candidate: Workload) -> bool:
        if self._nominal:
            return True
        share = dominant_share(mine).key()
        if rule is Rule.INITIAL_SHARE:
            return share < dominant_share(theirs).key()
        with self._tree.without(candidate.queue, candidate.usage):
            return share <= dominant_share(theirs).key()

    def _outside_reason(self) -> Reason:
        return Reason.RECLAMATION if self._nominal else Reason.FAIR_SHARING

    def _sides(self, queue: str) -> tuple[Node, Node]:
        """Return the two children of the lowest common ancestor, above the preemptor and above the other queue."""
        one, other = self._tree.queues[self._asked.queue], self._tree.queues[queue]
        ancestor = common_ancestor(one, other)
        if ancestor is None:
            raise ValueError(f"queues {one.name} and {queue} share no cohort")
        return below_ancestor(one, ancestor)[-1], below_ancestor(other, ancestor)[-1]

    def _take(self, workload: Workload, reason: Reason) -> bool:
        """Remove a workload's usage; return whether the incoming one then fits."""
        self._tree.count(workload, -1)
        self.taken.append(Victim(workload, reason))
        asked = self._asked
        with self._tree.without(asked.queue, asked.usage):
            return self._tree.fits(asked.queue, asked.usage) and has_place(self._incoming)
