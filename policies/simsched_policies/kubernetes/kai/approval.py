"""Which jobs may be victims of which action, and whether a found solution is allowed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from simsched_policies.kubernetes.kai.board import Board
from simsched_policies.kubernetes.kai.ledger import Entry, Ledger
from simsched_policies.kubernetes.kai.model import NOTHING, UNLIMITED, Amounts, Job, Pod, plus, within

#: Pods of a victim that are evicted together.
Unit = tuple[Job, Sequence[Pod]]


def is_elastic(job: Job) -> bool:
    """Return whether a job has more pods than it needs."""
    return any(sum(pod.group == group.name for pod in job.pods) > group.min_member for group in job.leaves())


def parting(ledger: Ledger, one: str, other: str) -> tuple[Entry, Entry]:
    """Return the ancestors of two leaves at the level where they diverge."""
    ours, theirs = (list(ledger.entries[name].lineage())[::-1] for name in (one, other))
    return next((mine, its) for mine, its in zip(ours, theirs, strict=False) if mine is not its)


def protected(board: Board, victim: Job, reclaimer: Job | None) -> bool:
    """Return whether a victim has run for less than its minimum, against preemption or a reclaimer of another leaf."""
    entry: Entry | None = board.ledger.entries[victim.queue]
    if reclaimer is not None and board.rules.reclaim_min_runtime_by == "lca":
        entry = parting(board.ledger, reclaimer.queue, victim.queue)[1]
    for one in entry.lineage() if entry is not None else ():
        queue = one.queue
        least_s = queue.preempt_min_runtime_s if reclaimer is None else queue.reclaim_min_runtime_s
        if least_s is not None:
            return board.now_s - victim.started_s < least_s
    return False


def keeps_minimum(board: Board, job: Job) -> bool:
    """Return whether a job still has its minimum."""
    return all(len(board.active(job, group)) >= group.min_member for group in job.leaves())


def may_lose(
    ledger: Ledger,
    job: Job,
    request: Amounts,
    victim: Job,
    held: Mapping[str, Amounts],
    remaining: Mapping[str, Amounts],
) -> bool:
    """Return whether a victim's side keeps more than its share, or than it deserves while the job's side is in need."""
    ours, theirs = parting(ledger, job.queue, victim.queue)
    left = remaining[theirs.name]
    if not within(left, theirs.allocatable):
        return True
    return within(plus(held[ours.name], request), ours.deserved) and not within(left, theirs.deserved)


def may_reclaim(
    ledger: Ledger,
    job: Job,
    request: Amounts,
    units: Iterable[Unit],
    held: Mapping[str, Amounts],
    amounts: Mapping[str, Amounts],
    multiplier: float,
) -> bool:
    """Return whether a job may reclaim what its victims hold; `held` is what queues held before.

    Source: KAI, plugin proportion, reclaimable.
    """
    remaining, lost = dict(held), dict.fromkeys(held, NOTHING)
    for victim, pods in units:
        if not may_lose(ledger, job, request, victim, held, remaining):
            return False
        for pod in pods:
            for entry in ledger.entries[victim.queue].lineage():
                remaining[entry.name] = plus(remaining[entry.name], amounts[pod.id], -1.0)
                lost[entry.name] = plus(lost[entry.name], amounts[pod.id])
    for entry in ledger.entries[job.queue].lineage():
        after = plus(remaining[entry.name], request)
        siblings = entry.parent.children if entry.parent is not None else ledger.roots
        for sibling in siblings:
            if sibling is entry:
                continue
            for r in range(3):
                if lost[sibling.name][r] <= 0 or sibling.fair_share[r] <= 0:
                    continue
                mine = _saturation(after[r], entry, r)
                theirs_after = _saturation(remaining[sibling.name][r], sibling, r)
                if mine > 1 + 1e-9 and mine * max(multiplier, 1.0) >= theirs_after - 1e-9:
                    return False
    return True


def _saturation(held: float, entry: Entry, resource: int) -> float:
    """Return the held amount as a fraction of the fair share."""
    share = entry.fair_share[resource]
    if share == UNLIMITED or (share == 0 and held <= 1e-9):
        return 0.0
    return held / share if share > 0 else float("inf")
