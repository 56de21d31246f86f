"""Nodes and GPUs for the grants of a round, by the number of free GPUs on each node."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from simsched.model.placement import Allocation
from simsched.policy.decision import Decision
from simsched.policy.placers import Pool
from simsched.policy.rounds.mechanism import Grant
from simsched.policy.view import View


@dataclass
class Placed:
    """Allocations of a round by job; who is put onto whose GPUs; and who is placed anew although its nodes stay.

    Where it is not `complete`, `allocations` has the jobs whose GPUs change only, and none for those that stop.
    """

    allocations: dict[str, Allocation] = field(default_factory=dict)
    onto: dict[str, str] = field(default_factory=dict)
    anew: list[str] = field(default_factory=list)
    complete: bool = True

    def decision(self, wake_at_s: float, *, renew_leases: bool = False) -> Decision:
        """Return the decision that carries the round out."""
        return Decision(
            self.allocations,
            complete=self.complete,
            wake_at_s=wake_at_s,
            renew_leases=renew_leases,
            onto=self.onto,
            anew=self.anew,
        )


def allocate(grants: Iterable[Grant], view: View) -> Placed:
    """Place the jobs of the grants that run.

    A job that holds GPUs of its type keeps them, and so does a pair that has them to itself; of two that shared GPUs
    and no longer run together, the first keeps them. The others take what is free, largest first: the fullest node that
    can hold a job whole, else the emptiest nodes.
    """
    order = sorted((grant for grant in grants if grant.runs), key=_by_size)
    shared = view.max_jobs_per_gpu > 1
    kept: dict[str, Allocation] = {}
    coming = [grant for grant in order if not _stays(grant, view, kept)] if shared else _coming(order, view, kept)
    placed = Placed(complete=shared)
    if coming:
        free = _left([kept[grant.unit[0]] for grant in order if grant.unit[0] in kept], view)
    pools: dict[str, Pool] = {}
    for grant in coming:
        if grant.gpu_type not in pools:
            pools[grant.gpu_type] = _pool(grant.gpu_type, view, free)
        found = _first_fit(pools[grant.gpu_type], grant.num_gpus, free)
        placed.allocations.update(dict.fromkeys(grant.unit, found))
        placed.onto.update(dict.fromkeys(grant.unit[1:], grant.unit[0]))
        if len(grant.unit) > 1 or (shared and view.jobs[grant.unit[0]].neighbours):
            placed.anew += grant.unit
    placed.allocations = kept | placed.allocations if shared else _changes(kept, placed.allocations, view)
    return placed


def _left(held: Iterable[Allocation], view: View) -> list[int]:
    """Count, for each node that is up, the GPUs beside those held."""
    free = [node.gpus if up else 0 for node, up in zip(view.nodes, view.up, strict=True)]
    for allocation in held:
        for node, gpus in allocation:
            free[node] -= gpus
    return free


def _by_size(grant: Grant) -> int:
    return -grant.num_gpus


def _changes(kept: Collection[str], placed: Mapping[str, Allocation], view: View) -> dict[str, Allocation]:
    """Return what differs from the round before, in the order of the jobs: quicker to check than a complete round."""
    changed: dict[str, Allocation] = {}
    for job_id, job in view.jobs.items():
        if job_id in placed:
            changed[job_id] = placed[job_id]
        elif job_id not in kept and job.allocation:
            changed[job_id] = ()
    return changed


def _coming(order: Iterable[Grant], view: View, kept: dict[str, Allocation]) -> list[Grant]:
    """Return the grants of jobs that do not stay where they are, no GPU being shared; note what the others hold."""
    jobs, nodes = view.jobs, view.nodes
    coming = []
    for grant in order:
        job_id = grant.unit[0]
        held = jobs[job_id].allocation
        if held and nodes[held[0][0]].gpu_type == grant.gpu_type:
            kept[job_id] = held
        else:
            coming.append(grant)
    return coming


def _stays(grant: Grant, view: View, kept: dict[str, Allocation]) -> bool:
    """Return whether a unit stays where it is, and if so note what it holds."""
    first = view.jobs[grant.unit[0]]
    held, beside = first.allocation, first.neighbours
    if not held or view.nodes[held[0][0]].gpu_type != grant.gpu_type:
        return False
    if len(grant.unit) == 1:
        if any(other in kept for other in beside):
            return False
    elif set(beside) != set(grant.unit[1:]):
        return False
    kept.update(dict.fromkeys(grant.unit, held))
    return True


def emptiest(loads: Mapping[int, int], gpus: Sequence[int], wanted: int) -> Allocation:
    """Return `wanted` GPUs on the nodes with the least load per GPU; `loads` counts jobs' GPUs by node.

    A node gives at most all its GPUs; `gpus` counts those of every node of the cluster.
    """
    picked: list[tuple[int, int]] = []
    missing = wanted
    for node in sorted(loads, key=lambda node: (loads[node] / gpus[node], node)):
        taken = min(gpus[node], missing)
        picked.append((node, taken))
        missing -= taken
        if not missing:
            break
    return tuple(sorted(picked))


def _pool(gpu_type: str, view: View, free: list[int]) -> Pool:
    capacity = {
        index: view.nodes[index].gpus
        for index, left in enumerate(free)
        if left and view.nodes[index].gpu_type == gpu_type
    }
    return Pool(capacity, free)


def _first_fit(pool: Pool, gpus: int, free: list[int]) -> Allocation:
    node = pool.best_fit(gpus)
    picked: list[tuple[int, int]] = []
    missing = gpus
    for index, count in [(node, gpus)] if node is not None else list(pool.most_free()):
        taken = min(count, missing)
        picked.append((index, taken))
        missing -= taken
        if not missing:
            break
    for index, taken in picked:
        pool.change(index, free[index], free[index] - taken)
        free[index] -= taken
    return tuple(picked)
