"""Checks which physics an experiment offers to a cell's policy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

from simsched.engine import EngineOptions
from simsched.model import Application, ApplicationSource, Cluster, JobSpec
from simsched.model.cluster import TENANTS_PARAMETER
from simsched.model.job import values_of
from simsched.policy import Policy, physics
from simsched.policy.physics import Physics


@dataclass(frozen=True)
class Conditions:
    """The conditions of a policy in a cell: cluster, engine settings, jobs and its parameters."""

    cluster: Cluster
    engine: EngineOptions
    jobs: Sequence[JobSpec]
    applications: ApplicationSource
    params: Mapping[str, Any]

    def values(self, name: str) -> Iterator[Any]:
        """Yield the value of a field of each job."""
        return values_of(self.jobs, name)

    def kinds(self) -> list[Application]:
        """List the distinct applications of the jobs."""
        picked = first_of_each(self.jobs, "application")
        return [self.applications.for_job(job.request, job.truth) for job in picked]


def first_of_each(jobs: Sequence[JobSpec], *names: str) -> list[JobSpec]:
    """Return the first job for each combination of values of some fields, in one pass over the jobs."""
    picked: dict[Any, int] = {}
    for place, found in enumerate(values_of(jobs, *names)):
        picked.setdefault(found, place)
    return [jobs[place] for place in picked.values()]


_Value = TypeVar("_Value")


def _several(values: Iterable[_Value]) -> bool:
    return len(set(values)) > 1


#: For each physics, whether conditions offer it.
OFFERED: Mapping[Physics, Callable[[Conditions], bool]] = MappingProxyType(
    {
        physics.SHARED_GPUS: lambda at: at.engine.max_jobs_per_gpu > 1,
        physics.GPU_PARTS: lambda at: at.engine.gpu_shares and any(share < 1 for share in at.values("gpu_share")),
        physics.STAGES: lambda at: (
            any(one is not None for one in at.values("profile")) or any(kind.stages_s for kind in at.kinds())
        ),
        physics.BUSY_GPUS: lambda at: any(one is not None for one in at.values("profile")),
        physics.GUARANTEED_JOBS: lambda at: any(at.values("guaranteed")),
        physics.OPPORTUNISTIC_JOBS: lambda at: not all(at.values("guaranteed")),
        physics.DEADLINES: lambda at: any(one is not None for one in at.values("deadline_s")),
        physics.TIME_LIMITS: lambda at: any(one is not None for one in at.values("time_limit_s")),
        physics.GPU_TYPES: lambda at: len(at.cluster.gpu_types) > 1,
        physics.QUOTAS: lambda at: bool(at.params.get(TENANTS_PARAMETER)),
        physics.JOBS_OF_TENANTS: lambda at: _several(at.values("tenant")),
        physics.JOBS_OF_USERS: lambda at: _several(at.values("user")),
        physics.GROUPS: lambda at: any(at.values("group")),
        physics.BATCH_RULES: lambda at: any(at.values("batch_rule")),
        physics.TENSORS: lambda at: any(kind.tensor_skew is not None for kind in at.kinds()),
    }
)


def lacking(policy: Policy, conditions: Conditions) -> dict[str, str]:
    """Return what a policy loses without the missing physics it relies on, one sentence by name."""
    return {
        wanted.name: f"{wanted.missing}, and it {becomes.words}"
        for wanted, becomes in policy.counts_on.items()
        if not OFFERED[wanted](conditions)
    }
