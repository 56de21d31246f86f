"""Muri: jobs whose iterations keep different resources busy share GPUs in groups of up to four.

Idea: the stages of an iteration (loading, GPU, network) of several jobs interleave (Zhao et al., Muri, SIGCOMM'22,
section 4). Jobs are taken in order of priority, up to four times as many as fit; those that ask for the same number of
GPUs are matched in pairs, and pairs of pairs, to keep the resources as busy as possible, only while the cluster is too
small for all. Muri-S takes the jobs with the least remaining service first (an oracle), Muri-L those with the least
attained service.

Deviations: decisions are made every `interval_s` (its simulator decides at every event, and charges every job for a
restart each time); unchanged groups stay where they are, the others go to the nodes with the most free GPUs. A job
without profiled stages runs alone, and so do all jobs if GPUs may not be shared. Speeds in a group are those of
`engine.sharing.model: stages`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from simsched.arithmetic import ordered_sum
from simsched.model import Allocation, Capacity
from simsched.model.colocation import StageInterleaving
from simsched.policy import REMAINING_WORK, Action, Becomes, Decision, JobView, Onto, Place, Policy, Traits, View, Wants
from simsched.policy.physics import SHARED_GPUS, STAGES
from simsched.policy.signals import STAGE_TIMES
from simsched.toolkit import TypePool, type_pools
from simsched.toolkit.grouping import Rules, efficiency, merge_by_matching, placement_order, take
from simsched.toolkit.placers import MOST_FREE

_MOST = 4
_RESOURCES = 3


@dataclass(frozen=True, eq=False)
class _Candidate:
    """A job with its priority."""

    view: JobView
    key: float

    @property
    def gpus(self) -> int:
        return self.view.num_gpus

    @property
    def stages_s(self) -> tuple[float, ...]:
        return self.view[STAGE_TIMES]


#: What Muri becomes if jobs cannot be grouped.
UNGROUPED = Becomes("groups no jobs, as with most_jobs: 1", params={"most_jobs": 1})


class _Muri(Policy):
    """The common part of both variants."""

    traits: ClassVar[Traits] = Traits(
        interval="interval_s", wants={SHARED_GPUS: UNGROUPED, STAGES: Becomes("groups no jobs")}
    )

    def __init__(self, interval_s: int = 360, most_jobs: int = 4) -> None:
        """Group up to `most_jobs` jobs every `interval_s` seconds."""
        if not 1 <= most_jobs <= _MOST:
            raise ValueError(f"most_jobs must lie in 1 to {_MOST}, not {most_jobs}")
        self.interval_s = interval_s
        self.most_jobs = most_jobs
        self._model = StageInterleaving()

    @property
    def counts_on(self) -> Wants:
        """Return the signals that grouping needs, if jobs are grouped."""
        return {} if self.most_jobs == 1 else self.traits.wants

    @abstractmethod
    def key(self, job: JobView) -> float:
        """Return the priority of a job; smaller is served first."""

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Group and place the jobs of each GPU type."""
        jobs: dict[str, Allocation | Action] = {}
        most = min(self.most_jobs, view.max_jobs_per_gpu)
        for pool in type_pools(view, rigid=True):
            for group, place, stays in self._places(pool, most):
                first, *others = (one.view.id for one in group)
                jobs[first] = place if stays else Place(place, restart=True)
                jobs |= dict.fromkeys(others, place if stays else Place(place, more=(Onto(first),), restart=True))
        return Decision(jobs)

    def _places(self, pool: TypePool, most: int) -> list[tuple[tuple[_Candidate, ...], Allocation, bool]]:
        """Return the groups that run, their places, and whether they were already there together."""
        free = Capacity.idle(pool.view)
        capacity = free.total
        order = sorted((_Candidate(job, self.key(job)) for job in pool.jobs.values()), key=lambda one: one.key)
        if pool.view.reasons is not None:
            pool.view.reasons.order({one.view.id: one.key for one in order})
        buckets = take(order, _counter(capacity), most)
        groups = merge_by_matching(buckets, Rules(capacity, most), self._weight, kind=_kind)
        kept = placement_order(order, groups, lambda one: one.key, _counter(capacity))
        staying = [group for group in kept if _together(group)]
        for group in staying:
            free.take(group[0].view.allocation)
        placed = [(group, group[0].view.allocation, True) for group in staying]
        for group in kept:
            picked = None if group in staying else free.place(MOST_FREE, group[0].gpus)
            if picked is not None:
                placed.append((group, picked, False))
        return placed

    def _weight(self, group: Sequence[_Candidate]) -> float:
        stages = [one.stages_s for one in group]
        if not all(len(one) == _RESOURCES for one in stages):
            return 0.0
        together_s = self._model.iteration_s([(one[0], one[1], one[2]) for one in stages])
        return efficiency([ordered_sum(one) for one in stages], together_s)


class MuriS(_Muri):
    """Muri with known durations: least remaining GPU-time first."""

    name: ClassVar[str] = "muri-s"
    traits: ClassVar[Traits] = replace(_Muri.traits, needs={REMAINING_WORK, STAGE_TIMES})

    def key(self, job: JobView) -> float:
        """Return the remaining GPU-seconds."""
        return job[REMAINING_WORK].seconds * job.num_gpus


class MuriL(_Muri):
    """Muri with unknown durations: least attained GPU-time first."""

    name: ClassVar[str] = "muri-l"
    traits: ClassVar[Traits] = replace(_Muri.traits, needs={STAGE_TIMES})

    def key(self, job: JobView) -> float:
        """Return the attained GPU-seconds."""
        return job.attained_gpu_s


def _kind(group: Sequence[_Candidate]) -> tuple[tuple[float, ...], ...]:
    return tuple(one.stages_s for one in group)


def _counter(gpus: int) -> Callable[[int], bool]:
    """Return a function that takes GPUs from the free ones, or reports that too few are left."""
    left = gpus

    def fits(wanted: int) -> bool:
        nonlocal left
        if wanted > left:
            return False
        left -= wanted
        return True

    return fits


def _together(group: Sequence[_Candidate]) -> bool:
    """Return whether a group already runs as it is, on GPUs that it shares with no other job."""
    ids = {one.view.id for one in group}
    return all(one.view.running and {one.view.id, *one.view.neighbours} == ids for one in group)
