"""Which workloads may be preempted for another, and the order in which candidates are tried."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cmp_to_key

from simsched_policies.kubernetes.kueue.model import FlavourResource, Incoming, Reclaim, Within, Workload
from simsched_policies.kubernetes.kueue.tree import Node, QuotaTree


def in_order(candidates: Iterable[Workload], queue: str, *, by_usage: bool = False) -> list[Workload]:
    """Sort candidates: evicted ones, those outside the preemptor's `queue`, low priority, latest admission.

    With `by_usage` (admission fair sharing) two of one queue are compared by the usage of their local queues before
    that, larger first.
    """

    def key(workload: Workload) -> tuple[bool, bool, int, float, str]:
        own = workload.queue == queue
        return (not workload.evicted, own, workload.priority, -workload.admitted_s, workload.id)

    def compare(one: Workload, other: Workload) -> int:
        first, second = key(one), key(other)
        if first[:2] == second[:2] and one.queue == other.queue and one.local_queue_usage != other.local_queue_usage:
            return 1 if one.local_queue_usage < other.local_queue_usage else -1
        return (first > second) - (first < second)

    return sorted(candidates, key=cmp_to_key(compare) if by_usage else key)


def uses(workload: Workload, resources: Iterable[FlavourResource]) -> bool:
    """Return whether a workload holds any of `resources`."""
    return any(workload.usage.get(resource, 0) > 0 for resource in resources)


def exceeds_any(node: Node, resources: Iterable[FlavourResource]) -> bool:
    """Return whether a node uses more than the quota of its subtree of any of `resources`."""
    usage, subtree = node.usage, node.subtree
    for resource in resources:  # noqa: SIM110 - searches for victims ask this most of all
        if usage.get(resource, 0) > subtree.get(resource, 0):
            return True
    return False


def all_exceed(nodes: Iterable[Node], resources: Iterable[FlavourResource]) -> bool:
    """Return whether each of some nodes uses more than the quota of its subtree of any of `resources`."""
    for node in nodes:  # noqa: SIM110 - as above
        if not exceeds_any(node, resources):
            return False
    return True


def own_candidates(tree: QuotaTree, incoming: Incoming) -> list[Workload]:
    """List the workloads of the preemptor's own queue that it may preempt."""
    node = tree.queues[incoming.workload.queue]
    if node.queue is None or node.queue.within is Within.NEVER:
        return []
    return [
        workload
        for workload in node.held.values()
        if _below(workload, incoming.workload, node.queue.within) and uses(workload, incoming.contested)
    ]


def _below(candidate: Workload, preemptor: Workload, rule: Within) -> bool:
    if candidate.priority < preemptor.priority:
        return True
    newer = candidate.priority == preemptor.priority and candidate.created_s > preemptor.created_s
    return rule is Within.LOWER_OR_NEWER_EQUAL_PRIORITY and newer


def reclaimable(rule: Reclaim, candidate: Workload, preemptor: Workload) -> bool:
    """Return whether priorities allow preempting a workload of another queue."""
    if rule is Reclaim.LOWER_PRIORITY:
        return candidate.priority < preemptor.priority
    return rule is Reclaim.ANY


def common_ancestor(one: Node, other: Node) -> Node | None:
    """Return the lowest node above both, None if they share no tree."""
    above = {id(node) for node in one.path()}
    return next((node for node in other.path() if id(node) in above), None)


def below_ancestor(node: Node, ancestor: Node) -> list[Node]:
    """List the nodes from `node` up to `ancestor`, excluding `ancestor`."""
    found = []
    for step in node.path():
        if step is ancestor:
            break
        found.append(step)
    return found
