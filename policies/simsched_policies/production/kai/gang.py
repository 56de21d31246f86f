"""Which pods of a job are tried together, in which order, and which are evicted first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Literal

from simsched_policies.production.kai.board import Board
from simsched_policies.production.kai.model import Job, Pod, SubGroup

Urgency = tuple[float, int, float, str]


def pod_order(pod: Pod) -> tuple[bool, int, float, str]:
    """Rank the pods of a sub-group: leader first, then by priority and age."""
    return (not pod.leader, -pod.priority, pod.created_s, pod.id)


def group_order(board: Board, job: Job, group: SubGroup) -> tuple[bool, float, str]:
    """Rank sub-groups: those below their minimum first, then those with the smallest share of it."""
    active = len(board.active(job, group))
    return (active >= group.min_member, active / group.min_member if group.min_member else float(active), group.name)


def step(board: Board, job: Job, free: Collection[Pod]) -> list[Pod]:
    """Return which of the `free` pods are tried next: those missing to the minima, or one more pod.

    Empty if the free pods cannot complete a minimum.
    """
    groups = sorted(job.leaves(), key=lambda group: group_order(board, job, group))
    found: list[Pod] = []
    for group in groups:
        lacking = group.min_member - len(board.active(job, group))
        if lacking > 0:
            own = sorted((pod for pod in free if pod.group == group.name), key=pod_order)
            if len(own) < lacking:
                return []
            found += own[:lacking]
    if found:
        return found
    for group in groups:
        own = sorted((pod for pod in free if pod.group == group.name), key=pod_order)
        if own:
            return own[:1]
    return []


def elastic_state(job: Job, active: Collection[Pod]) -> Literal[0, 1, 2]:
    """Return 0 if a job with active pods is below its minimum, 1 if it is at its minimum, 2 if it is above."""
    numbers = Counter(pod.group for pod in active)
    margins = [numbers[group.name] - group.min_member for group in job.leaves()]
    return 0 if min(margins) < 0 else 2 if max(margins) > 0 else 1


def urgency(job: Job, active: Collection[Pod]) -> Urgency:
    """Rank the jobs of a leaf queue; the most urgent has the lowest rank."""
    return (-job.priority, elastic_state(job, active), job.created_s, job.id)


def next_victims(job: Job, left: Collection[Pod]) -> list[Pod]:
    """Return which of the pods `left` are evicted next: the worst above a minimum, or all."""
    worst_first = [
        (group, sorted((pod for pod in left if pod.group == group.name), key=pod_order, reverse=True))
        for group in job.leaves()
    ]
    above = [(group, pods) for group, pods in worst_first if len(pods) > group.min_member]
    if above:
        fullest = max(above, key=lambda one: (len(one[1]) / max(one[0].min_member, 1), one[0].name))
        return fullest[1][:1]
    return [pod for _, pods in worst_first for pod in pods]
