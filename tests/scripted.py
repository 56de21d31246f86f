"""A policy that decides as it is told, and jobs for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from simsched.model.cluster import Cluster
from simsched.model.job import JobSpec
from simsched.model.placement import Allocation
from simsched.policy import Decision, Policy, Traits, Triggers, View

ONE_GPU = Cluster.uniform(1, 1)


@dataclass
class Script(Policy):
    """Decides at given seconds as told; in between everything stays."""

    name: ClassVar[str] = "script"
    traits: ClassVar[Traits] = Traits(rigid=False)

    steps: Mapping[int, Mapping[str, Allocation]]
    interval_s: int = 10
    seen: dict[int, tuple[list[str], list[str], list[str]]] = field(default_factory=dict)
    watch: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    rent: Mapping[int, set[int]] = field(default_factory=dict)

    @property
    def triggers(self) -> Triggers:
        return Triggers(interval_s=self.interval_s)

    def decide(self, view: View, rng) -> Decision:
        names = [job.id for job in view.arrived], list(view.finished), [job.id for job in view.reached_threshold]
        self.seen[view.now_s] = names
        here = self.steps.get(view.now_s, {})
        stop = [job_id for job_id, new in here.items() if not new]
        start = {job_id: new for job_id, new in here.items() if new}
        watch, nodes = self.watch.get(view.now_s, {}), self.rent.get(view.now_s)
        return Decision.change(start, stop, watch=watch, nodes=nodes)


def fixed(job_id: str, submit_s: int = 0, gpus: int = 1, duration_s: int = 100) -> JobSpec:
    return JobSpec(job_id, submit_s, gpus, duration_s=duration_s)


def toy(job_id: str, submit_s: int = 0, gpus: int = 1, batch: int = 16) -> JobSpec:
    return JobSpec(job_id, submit_s, gpus, application="toy", batch_size=batch)
