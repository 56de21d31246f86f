"""Nodes and GPUs for the grants of a round, by the number of free GPUs on each node."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from simsched.model import Allocation
from simsched.policy import Decision, View
from simsched.toolkit.placers import MOST_FREE, FreeGpus, Placer, Pool
from simsched.toolkit.rounds.mechanism import Grant


@dataclass
class Placed:
    """Allocations of a round by job; who is put onto whose GPUs; and who is placed anew although its nodes stay.

    Where it is not `complete`, `allocations` has the jobs whose GPUs change only, and none for those that stop.
    """

    allocations: dict[str, Allocation] = field(default_factory=dict)
    onto: dict[str, str] = field(default_factory=dict)
    anew: list[str] = field(default_factory=list)
    complete: bool = True

    def decision(self, wake_at_s: float | None, *, renew_leases: bool = False) -> Decision:
        """Return the decision that carries the round out."""
        return Decision(
            self.allocations,
            complete=self.complete,
            wake_at_s=wake_at_s,
            renew_leases=renew_leases,
            onto=self.onto,
            anew=self.anew,
        )


class Allocator:
    """Places the grants of one round after the other.

    A job that holds GPUs of its type keeps them, and so does a pair that has them to itself; of two that shared GPUs
    and no longer run together, the first keeps them. The others take what is free, largest first: the fullest node that
    can hold a job whole, else the emptiest nodes.
    """

    def __init__(self) -> None:
        """Know no cluster yet."""
        self._free: FreeGpus | None = None
        self._up: tuple[bool, ...] = ()

    def allocate(self, grants: Iterable[Grant], view: View) -> Placed:
        """Place the jobs of the grants that run."""
        runs = [grant for grant in grants if grant.runs]
        if view.max_jobs_per_gpu == 1:
            return Placed(self._whole(runs, view), complete=False)
        return _shared(sorted(runs, key=_by_size), view)

    def _whole(self, grants: Sequence[Grant], view: View) -> dict[str, Allocation]:
        """Return what differs from the round before where no GPU is shared, in the order of the jobs."""
        nodes = view.nodes
        wanted = {grant.unit[0]: grant for grant in grants}
        changed: dict[str, Allocation] = {}
        leaving: list[Allocation] = []
        for job_id, job in view.jobs.items():
            held, grant = job.allocation, wanted.get(job_id)
            if not held:
                if grant is not None:
                    changed[job_id] = ()
            elif grant is None or nodes[held[0][0]].gpu_type != grant.gpu_type:
                changed[job_id] = ()
                leaving.append(held)
        coming = [grant for job_id, grant in wanted.items() if job_id in changed]
        if coming:
            free = self._now_free(view)
            for allocation in leaving:
                free.give_back(allocation)
            for grant in sorted(coming, key=_by_size):
                changed[grant.unit[0]] = _take(free, grant)
        return changed

    def _now_free(self, view: View) -> FreeGpus:
        """Return the GPUs that are free as things stand: what is known from the round before, brought up to date."""
        up = tuple(view.up)
        if self._free is None or up != self._up:
            self._free, self._up = FreeGpus(view.nodes, up, view.free), up
        elif self._free.free != view.free:
            for node, (known, now) in enumerate(zip(list(self._free.free), view.free, strict=True)):
                if known != now:
                    self._free.give_back(((node, now - known),))
        return self._free


def _shared(grants: Sequence[Grant], view: View) -> Placed:
    """Place all grants, the largest first, where several jobs may hold a GPU."""
    kept: dict[str, Allocation] = {}
    coming = [grant for grant in grants if not _stays(grant, view, kept)]
    held = [kept[grant.unit[0]] for grant in grants if grant.unit[0] in kept]
    free = FreeGpus(view.nodes, view.up, _left(held, view))
    placed = Placed()
    for grant in coming:
        placed.allocations.update(dict.fromkeys(grant.unit, _take(free, grant)))
        placed.onto.update(dict.fromkeys(grant.unit[1:], grant.unit[0]))
        if len(grant.unit) > 1 or view.jobs[grant.unit[0]].neighbours:
            placed.anew += grant.unit
    placed.allocations = kept | placed.allocations
    return placed


def _take(free: FreeGpus, grant: Grant) -> Allocation:
    found = free.choose_of(free.types.index(grant.gpu_type), _BEST_FIT, grant.num_gpus)
    if found is None:
        message = f"{'+'.join(grant.unit)} needs {grant.num_gpus} GPUs of {grant.gpu_type}, too few are free"
        raise ValueError(message)
    free.take(found)
    return found


def _best_fit(pool: Pool, gpus: int) -> Allocation | None:
    node = pool.best_fit(gpus)
    return MOST_FREE.choose(pool, gpus) if node is None else ((node, gpus),)


_BEST_FIT = Placer("best-fit", _best_fit)


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
