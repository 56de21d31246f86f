"""Nodes and GPUs for the grants of a round, by the number of free GPUs on each node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress

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
    if view.max_jobs_per_gpu == 1:
        return Placed(_whole({grant.unit[0]: grant for grant in grants if grant.runs}, view), complete=False)
    order = sorted((grant for grant in grants if grant.runs), key=_by_size)
    kept: dict[str, Allocation] = {}
    coming = [grant for grant in order if not _stays(grant, view, kept)]
    placed = Placed()
    places = _Places(_left([kept[grant.unit[0]] for grant in order if grant.unit[0] in kept], view), view)
    for grant in coming:
        found = places.take(grant)
        placed.allocations.update(dict.fromkeys(grant.unit, found))
        placed.onto.update(dict.fromkeys(grant.unit[1:], grant.unit[0]))
        if len(grant.unit) > 1 or view.jobs[grant.unit[0]].neighbours:
            placed.anew += grant.unit
    placed.allocations = kept | placed.allocations
    return placed


def _whole(wanted: Mapping[str, Grant], view: View) -> dict[str, Allocation]:
    """Return what differs from the round before where no GPU is shared, in the order of the jobs."""
    nodes = view.nodes
    changed: dict[str, Allocation] = {}
    leaving: list[Allocation] = []
    for job_id, job in view.jobs.items():
        held, grant = job.allocation, wanted.get(job_id)
        if grant is None:
            if held:
                changed[job_id] = ()
                leaving.append(held)
        elif not held:
            changed[job_id] = ()
        elif nodes[held[0][0]].gpu_type != grant.gpu_type:
            changed[job_id] = ()
            leaving.append(held)
    coming = [grant for job_id, grant in wanted.items() if job_id in changed]
    if coming:
        free = list(view.free)
        for allocation in leaving:
            for node, gpus in allocation:
                free[node] += gpus
        places = _Places(free, view)
        for grant in sorted(coming, key=_by_size):
            changed[grant.unit[0]] = places.take(grant)
    return changed


def _left(held: Iterable[Allocation], view: View) -> list[int]:
    """Count, for each node that is up, the GPUs beside those held."""
    free = [node.gpus if up else 0 for node, up in zip(view.nodes, view.up, strict=True)]
    for allocation in held:
        for node, gpus in allocation:
            free[node] -= gpus
    return free


def _by_size(grant: Grant) -> int:
    return -grant.num_gpus


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


class _Places:
    """The GPUs that are free in a round, of which grants take theirs in turn."""

    def __init__(self, free: list[int], view: View) -> None:
        self._free, self._nodes = free, view.nodes
        self._pools: dict[str, Pool] = {}

    def take(self, grant: Grant) -> Allocation:
        """Return the GPUs of a grant: of the fullest node that can hold it whole, else of the emptiest ones."""
        pool = self._pools.get(grant.gpu_type)
        if pool is None:
            pool = self._pools[grant.gpu_type] = self._pool(grant.gpu_type)
        node = pool.best_fit(grant.num_gpus)
        picked: list[tuple[int, int]] = []
        missing = grant.num_gpus
        for index, count in [(node, missing)] if node is not None else list(pool.most_free()):
            taken = min(count, missing)
            picked.append((index, taken))
            missing -= taken
            if not missing:
                break
        for index, taken in picked:
            pool.change(index, self._free[index], self._free[index] - taken)
            self._free[index] -= taken
        return tuple(picked)

    def _pool(self, gpu_type: str) -> Pool:
        nodes, free = self._nodes, self._free
        some = (nodes[index] for index in compress(range(len(free)), free))
        capacity = {node.index: node.gpus for node in some if node.gpu_type == gpu_type}
        return Pool(capacity, free)
