"""Nodes and GPUs for the grants of a round, by the number of free GPUs on each node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from simsched.model.placement import Allocation
from simsched.policy.decision import Decision
from simsched.policy.placers import Pool
from simsched.policy.rounds.mechanism import Grant
from simsched.policy.view import View


@dataclass
class Placed:
    """Allocations of a round by job; who is put onto whose GPUs; and who is placed anew although its nodes stay."""

    allocations: dict[str, Allocation] = field(default_factory=dict)
    onto: dict[str, str] = field(default_factory=dict)
    anew: list[str] = field(default_factory=list)

    def decision(self, wake_at_s: float, *, renew_leases: bool = False) -> Decision:
        """Return the complete decision that carries the round out."""
        return Decision(
            self.allocations, wake_at_s=wake_at_s, renew_leases=renew_leases, onto=self.onto, anew=self.anew
        )


def allocate(grants: Iterable[Grant], view: View) -> Placed:
    """Place the jobs of the grants that run.

    A job that holds GPUs of its type keeps them, and so does a pair that has them to itself; of two that shared GPUs
    and no longer run together, the first keeps them. The others take what is free, largest first: the fullest node that
    can hold a job whole, else the emptiest nodes.
    """
    order = sorted((grant for grant in grants if grant.runs), key=lambda grant: -grant.num_gpus)
    free = [node.gpus if up else 0 for node, up in zip(view.nodes, view.up, strict=True)]
    placed = Placed()
    staying = [grant for grant in order if _stays(grant, view, placed.allocations)]
    for grant in staying:
        for node, gpus in placed.allocations[grant.unit[0]]:
            free[node] -= gpus
    pools: dict[str, Pool] = {}
    for grant in order:
        if grant.unit[0] not in placed.allocations:
            if grant.gpu_type not in pools:
                pools[grant.gpu_type] = _pool(grant.gpu_type, view, free)
            found = _first_fit(pools[grant.gpu_type], grant.num_gpus, free)
            placed.allocations.update(dict.fromkeys(grant.unit, found))
            placed.onto.update(dict.fromkeys(grant.unit[1:], grant.unit[0]))
            if len(grant.unit) > 1 or view.jobs[grant.unit[0]].neighbours:
                placed.anew += grant.unit
    return placed


def _stays(grant: Grant, view: View, kept: dict[str, Allocation]) -> bool:
    """Tell whether a unit stays where it is, and if so note what it holds."""
    first = view.jobs[grant.unit[0]]
    held = first.allocation
    if not held or view.nodes[held[0][0]].gpu_type != grant.gpu_type:
        return False
    beside = first.neighbours if view.max_jobs_per_gpu > 1 else ()
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
        node.index: node.gpus for node, up in zip(view.nodes, view.up, strict=True) if up and node.gpu_type == gpu_type
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
