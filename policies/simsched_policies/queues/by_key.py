"""Policies defined by a sort key: the jobs with the smallest keys that fit run; ties go to the first submitted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from simsched.policy import REMAINING_WORK, Decision, JobView, Policy, Quantum, Traits, View
from simsched.toolkit import PLACERS, Key, PlacerName, PriorityScheduler


def _nothing(job: JobView) -> Key:
    return ()


def _gpus(job: JobView) -> Key:
    return (job.num_gpus,)


def _time_left(job: JobView) -> Key:
    return (job[REMAINING_WORK].seconds,)


def _service_left(job: JobView) -> Key:
    return (job[REMAINING_WORK].seconds * job.num_gpus,)


def _attained_service(job: JobView) -> Key:
    return (job.attained_gpu_s,)


@dataclass
class Fifo(Policy):
    """First in, first out: gang-schedules jobs in order of arrival, without preemption.

    A job at the head that does not fit blocks those behind it, unless `backfill` lets later ones that fit go first.
    Source: the common baseline, for instance YARN-CS with one queue in Tiresias, section 5.1.
    """

    name: ClassVar[str] = "fifo"
    traits: ClassVar[Traits] = Traits(forgets=True)

    backfill: bool = False
    placement: PlacerName = "most-free"
    _scheduler: PriorityScheduler = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Start without jobs."""
        self._scheduler = PriorityScheduler(preempts=False, blocking=not self.backfill)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Start the longest waiting."""
        self._scheduler.take_in(view, _nothing, PLACERS[self.placement])
        return Decision.change(*self._scheduler.schedule())


@dataclass
class _ByKey(Policy):
    """Runs the jobs with the smallest keys; with `updates` the keys of running jobs are read at each decision."""

    traits: ClassVar[Traits] = Traits(needs={REMAINING_WORK}, forgets=True)
    key: ClassVar[staticmethod[[JobView], Key]]
    updates: ClassVar[bool] = True

    placement: PlacerName = "most-free"
    _scheduler: PriorityScheduler = field(default_factory=PriorityScheduler, init=False, repr=False)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Admit by key."""
        key = type(self).key
        self._scheduler.take_in(view, key, PLACERS[self.placement])
        return Decision.change(
            *self._scheduler.schedule((lambda job_id: key(view.jobs[job_id])) if self.updates else None)
        )


@dataclass
class Sjf(_ByKey):
    """Shortest job first: starts the shortest waiting jobs that fit; a running job keeps its GPUs until it finishes.

    The duration is the true one, on the requested GPUs.
    """

    name: ClassVar[str] = "sjf"
    key = staticmethod(_time_left)
    updates: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Start without jobs."""
        self._scheduler = PriorityScheduler(preempts=False)


@dataclass
class Srtf(_ByKey):
    """Shortest remaining time first: runs the jobs with the least remaining time, preempting others.

    Source: the baseline of Tiresias, section 5.1. The remaining time is the true one, on the requested GPUs.
    """

    name: ClassVar[str] = "srtf"
    key = staticmethod(_time_left)


@dataclass
class Srsf(_ByKey):
    """Shortest remaining service first: runs the jobs with the least remaining GPU-time, preempting others.

    Source: the ideal of Tiresias's two-dimensional policies (section 3.1, Table 1): remaining time times requested
    GPUs.
    """

    name: ClassVar[str] = "srsf"
    key = staticmethod(_service_left)


@dataclass
class SmallestFirst(_ByKey):
    """Smallest first: runs the jobs that ask for the fewest GPUs, preempting larger ones.

    Without `preempt` a running job keeps its GPUs. Source: Tiresias (NSDI'19), Table 1, where this one dimension alone
    gives 1.52 times the mean JCT of shortest remaining service first.
    """

    name: ClassVar[str] = "smallest-first"
    traits: ClassVar[Traits] = Traits(forgets=True)
    key = staticmethod(_gpus)
    updates: ClassVar[bool] = False

    preempt: bool = True

    def __post_init__(self) -> None:
        """Start without jobs."""
        self._scheduler = PriorityScheduler(preempts=self.preempt)


@dataclass
class Las(Policy):
    """Least attained service: runs the jobs with the fewest GPU-seconds so far, compared every `quantum_s` seconds.

    Between quanta only arrivals and completions change which jobs run. Approximates sharing the GPUs infinitely finely
    among jobs of equal service. Source: 2D-LAS, Tiresias (NSDI'19), section 3.2.1.
    """

    name: ClassVar[str] = "las"
    traits: ClassVar[Traits] = Traits(quantum="quantum_s", forgets=True)

    quantum_s: int = 60
    placement: PlacerName = "most-free"
    _scheduler: PriorityScheduler = field(init=False, repr=False)
    _quantum: Quantum = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Start without jobs."""
        self._scheduler = PriorityScheduler(by_service=True)
        self._quantum = Quantum(self.name, self.quantum_s)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Admit by attained service."""
        scheduler = self._scheduler
        scheduler.take_in(view, _attained_service, PLACERS[self.placement])
        if self._quantum.over(view):
            scheduler.attain()
        start, stop = scheduler.schedule()
        return Decision.change(start, stop, wake_at_s=self._quantum.end_s(view.now_s) if scheduler.waits else None)
