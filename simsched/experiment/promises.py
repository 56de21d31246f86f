"""Adds deadlines (multiples of solo time) and guarantees to the jobs of a workload."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from simsched.engine import TrueRemainingWork, stream
from simsched.errors import input_error
from simsched.model import Application, ApplicationSource, Cluster, JobRequest, JobSpec, JobTruth, Site


@dataclass(frozen=True)
class _Submitted:
    request: JobRequest
    app: Application
    cluster: Cluster
    epoch: int = 0
    site: Site | None = None


def with_deadlines(
    jobs: Iterable[JobSpec],
    applications: ApplicationSource,
    cluster: Cluster,
    factor: float | tuple[float, float],
    share: float,
    seed: int,
) -> list[JobSpec]:
    """Return the jobs with deadlines: `factor`, or one drawn between two, times a job's time alone in seconds.

    Alone means consolidated, on the requested GPUs and batch, of the fastest usable type, without delays. A drawn
    `share` of the jobs gets deadlines, the same over a sweep of factors. Raises `InputError` for a job that no type of
    the cluster can run.
    """
    rng = stream(seed, "deadlines")
    low, high = factor if isinstance(factor, tuple) else (factor, factor)
    known: dict[tuple[JobTruth, str, int, int], float] = {}
    made = []
    for job in jobs:
        chosen, place = rng.random(2)
        if chosen < share:
            key = (job.truth, job.application, job.num_gpus, job.batch_size)
            if key not in known:
                known[key] = _alone_s(job, applications.for_job(job.request, job.truth), cluster)
            job = replace(job, deadline_s=(low + (high - low) * float(place)) * known[key])
        made.append(job)
    return made


def _alone_s(job: JobSpec, app: Application, cluster: Cluster) -> float:
    try:
        return TrueRemainingWork(_Submitted(job.request, app, cluster), 0.0).seconds
    except (ValueError, LookupError) as error:
        types = ", ".join(cluster.gpu_types)
        message = f"job '{job.id}' ({app.name}) runs on {job.num_gpus} GPUs of none of the types {types}"
        raise input_error("workload.deadline_factor", message, "name types that it knows, or leave it out") from error


def with_guarantees(jobs: Iterable[JobSpec], share: float, seed: int) -> list[JobSpec]:
    """Return the jobs, a drawn `share` of them guaranteed; a larger share keeps those of a smaller one."""
    rng = stream(seed, "guarantees")
    return [replace(job, guaranteed=job.guaranteed or bool(rng.random() < share)) for job in jobs]
