"""Earliest deadline first (Liu and Layland, JACM 20(1), 1973): the baseline of policies that know deadlines.

With `elastic` it is the baseline of ElasticFlow (ASPLOS'23, from memory): the job with the earliest deadline gets the
power-of-two number of GPUs on which it is fastest, however little the last doubling adds; the next job chooses among
the remaining GPUs, and so on. Placement and restarts are as in ElasticFlow. The remaining time on any number of GPUs is
an oracle in both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from simsched.agent import Agent, fixed_agent
from simsched.model import Allocation, ApplicationFacts, JobRequest
from simsched.policy import REMAINING_WORK, Becomes, Decision, JobView, Policy, Signal, Traits, View
from simsched.policy.physics import DEADLINES
from simsched.toolkit import (
    PLACERS,
    Key,
    PlacerName,
    PriorityScheduler,
    TypePool,
    available_gpus,
    place_consolidated,
    type_pools,
    usable_gpus,
)
from simsched.toolkit.deadlines import sizes
from simsched.toolkit.elastic import required_limits


@dataclass
class Edf(Policy):
    """Runs the jobs with the earliest deadlines, preempting others; jobs without one come last, in order of submission.

    No job is refused, and a late job keeps its position. Jobs that do not fit are skipped. With `elastic` jobs get the
    number of GPUs on which they are fastest, and `preempts` and `placement` have no effect.
    """

    name: ClassVar[str] = "edf"
    traits: ClassVar[Traits] = Traits(
        wants={DEADLINES: Becomes("serves jobs in the order of submission")}, forgets=True
    )

    preempts: bool = True
    placement: PlacerName = "most-free"
    elastic: bool = False
    _scheduler: PriorityScheduler = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Start without jobs."""
        self._scheduler = PriorityScheduler(preempts=self.preempts)

    @property
    def rigid(self) -> bool:
        """Return whether jobs keep the number of GPUs that they ask for."""
        return not self.elastic

    @property
    def signals(self) -> frozenset[Signal]:
        """Return the signal of remaining work if jobs are scaled, otherwise none."""
        return frozenset({REMAINING_WORK}) if self.elastic else super().signals

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Keep the requested batch; if jobs are scaled, refuse those described only by a duration."""
        if not self.elastic:
            return super().agent(request, facts)
        required_limits(self.name, "step times", request, facts)
        return fixed_agent(request, facts)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Admit by deadline."""
        if self.elastic:
            allocations: dict[str, Allocation] = {}
            for pool in type_pools(view):
                allocations |= _widest(pool)
            return Decision(allocations)
        self._scheduler.take_in(view, _key, PLACERS[self.placement])
        return Decision.change(*self._scheduler.schedule())


def _widest(pool: TypePool) -> dict[str, Allocation]:
    """Serve the jobs of a type by deadline, each on the number of GPUs on which it is fastest."""
    gpus = left = available_gpus(pool.view)
    counts: dict[str, int] = {}
    for job in sorted(pool.jobs.values(), key=_key):
        if left:
            usable = sizes(min(usable_gpus(job, gpus), left))
            left_s = {count: job[REMAINING_WORK].seconds_on(pool.gpu_type, count) for count in usable}
            counts[job.id] = min(usable, key=left_s.__getitem__)
            left -= counts[job.id]
    return place_consolidated(counts, pool.view, counts, lambda job_id: True)


def _key(job: JobView) -> Key:
    deadline_s = job.request.deadline_s
    return (math.inf if deadline_s is None else job.request.submit_time_s + deadline_s,)
