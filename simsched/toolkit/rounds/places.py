"""Nodes and GPUs for the units of a round: the ones they had, if possible."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from simsched.model import Allocation, Capacity
from simsched.policy import Action, Decision, Onto, Place, View
from simsched.toolkit.placers import BEST_FIT
from simsched.toolkit.rounds.mechanism import Grant, Unit


class Allocator:
    """Places the grants of successive rounds.

    A job, or a pair on its own, keeps the GPUs of its type that it holds; if two jobs no longer run together, the first
    keeps them. The others take free GPUs, largest first: the fullest node that can hold a job whole, else the emptiest
    nodes.
    """

    def __init__(self) -> None:
        self._free = Capacity((), (), ())

    def allocate(self, grants: Iterable[Grant], view: View) -> Decision:
        """Place the jobs of running grants."""
        runs = [grant for grant in grants if grant.runs]
        if view.max_jobs_per_gpu == 1:
            return Decision.change(self._whole(runs, view))
        return Decision(_shared(sorted(runs, key=_by_size), view))

    def _whole(self, grants: Sequence[Grant], view: View) -> dict[str, Allocation]:
        """Return the changes since the last round, in the order of the jobs, if no GPU is shared."""
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
                changed[grant.unit[0]] = _taken(free, grant)
        return changed

    def _now_free(self, view: View) -> Capacity:
        """Return the GPUs that are free now, updated from the last round."""
        if view.up != self._free.up:
            self._free = Capacity.of(view)
        elif self._free.free != view.free:
            for node, (known, now) in enumerate(zip(list(self._free.free), view.free, strict=True)):
                if known != now:
                    self._free.give_back(((node, now - known),))
        return self._free


def whole_places(grants: Iterable[Grant], view: View) -> dict[Unit, Allocation]:
    """Return the GPUs of each unit that runs, as an `Allocator` places jobs; nodes ascend."""
    runs = [grant for grant in grants if grant.runs]
    placed = Decision(_shared(sorted(runs, key=_by_size), view)).allocations
    return {grant.unit: tuple(sorted(placed[grant.unit[0]])) for grant in runs}


def _shared(grants: Sequence[Grant], view: View) -> dict[str, Allocation | Action]:
    """Place all grants, the largest first, if several jobs may hold a GPU."""
    kept: dict[str, Allocation] = {}
    coming = [grant for grant in grants if not _stays(grant, view, kept)]
    held = [kept[grant.unit[0]] for grant in grants if grant.unit[0] in kept]
    free = Capacity.idle(view, held)
    jobs: dict[str, Allocation | Action] = {**kept}
    for grant in coming:
        at, (first, *others) = _taken(free, grant), grant.unit
        jobs[first] = Place(at, restart=bool(others or view.jobs[first].neighbours))
        jobs |= dict.fromkeys(others, Place(at, more=(Onto(first),), restart=True))
    return jobs


def _taken(free: Capacity, grant: Grant) -> Allocation:
    found = free.place(BEST_FIT, grant.num_gpus, (free.types.index(grant.gpu_type),))
    if found is None:
        raise ValueError(f"{'+'.join(grant.unit)} needs {grant.num_gpus} GPUs of {grant.gpu_type}, too few are free")
    return found


def _by_size(grant: Grant) -> int:
    return -grant.num_gpus


def _stays(grant: Grant, view: View, kept: dict[str, Allocation]) -> bool:
    """Return whether a unit stays in place; if it does, record what it holds."""
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
    """Return `wanted` GPUs on the nodes with the least load per GPU; `loads` counts the GPUs of jobs by node.

    A node contributes at most all its GPUs; `gpus` counts the GPUs of every node of the cluster.
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
