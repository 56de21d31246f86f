"""Adds deadlines, an offered load (both from solo times) and guarantees to the jobs of a workload."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from simsched.engine import TrueRemainingWork, stream
from simsched.errors import input_error
from simsched.model import FIXED_DURATION, Application, ApplicationSource, Cluster, JobRequest, JobSpec
from simsched.model.job import JobTruth, values_of


def _submitted(request: JobRequest, app: Application, cluster: Cluster) -> Any:
    """Return what `TrueRemainingWork` reads of a job that has not run yet."""
    return SimpleNamespace(request=request, app=app, cluster=cluster, epoch=0, site=None)


def with_deadlines(
    jobs: Iterable[JobSpec],
    applications: ApplicationSource,
    cluster: Cluster,
    factor: float | tuple[float, float],
    share: float,
    seed: int,
) -> list[JobSpec]:
    """Return the jobs with deadlines: `factor`, or one drawn between two, times a job's solo time in seconds.

    The solo time is that of the job alone and consolidated, on its requested GPUs and batch, on the fastest usable
    type, without delays. A random `share` of the jobs gets deadlines, the same jobs over a sweep of factors. Raises
    `InputError` for a job that no type of the cluster can run.
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
        return TrueRemainingWork(_submitted(job.request, app, cluster), 0.0).seconds
    except (ValueError, LookupError) as error:
        types = ", ".join(cluster.gpu_types)
        message = f"job '{job.id}' ({app.name}) cannot run on {job.num_gpus} GPUs of any of the types {types}"
        raise input_error("workload.deadline_factor", message, "name types that it knows, or leave it out") from error


def with_offered_load(
    jobs: Sequence[JobSpec], applications: ApplicationSource, cluster: Cluster, load: float, *, parts: bool
) -> list[JobSpec]:
    """Return the jobs with interarrival times scaled to the offered load `load`; see `offered_load`.

    Whole seconds stay whole. Raises `InputError` if all jobs come at once or one can run nowhere.
    """
    found = offered_load(jobs, applications, cluster, parts=parts)
    if found is None:
        message = "nothing to scale: the jobs come at once, or one runs on no type of the cluster"
        raise input_error("workload.offered_load", message, "take jobs that come one after the other")
    first_s, factor = jobs[0].submit_time_s, found / load
    scaled = [first_s + factor * (job.submit_time_s - first_s) for job in jobs]
    if all(job.submit_time_s == int(job.submit_time_s) for job in jobs):
        scaled = [round(time_s) for time_s in scaled]
    return [replace(job, submit_time_s=time_s) for job, time_s in zip(jobs, scaled, strict=True)]


def offered_load(
    jobs: Sequence[JobSpec], applications: ApplicationSource, cluster: Cluster, *, parts: bool
) -> float | None:
    """Return the GPU time that jobs request relative to that of all GPUs from the first submission to the last.

    A job requests its GPUs (with `parts`, its part of them) for its solo time on them, consolidated, with the requested
    batch; on GPUs of several types at their mean speed for it. None if all come at once or one runs nowhere.
    """
    known: dict[object, float] = {}
    gpu_s, first_s, last_s = 0.0, float("inf"), 0.0
    told = values_of(jobs, "submit_time_s", "application", "num_gpus", "duration_s", "gpu_share")
    for place, (submit_s, application, gpus, duration_s, share) in enumerate(told):
        fixed = application == FIXED_DURATION
        key: object = gpus
        if not fixed:
            job = jobs[place]
            key = (job.truth, application, gpus, job.batch_size, job.profile)
        if key not in known:
            mean_s = _mean_s(jobs[place], applications, cluster)
            if mean_s is None:
                return None
            known[key] = mean_s / duration_s if fixed else mean_s
        gpu_s += known[key] * (duration_s if fixed else 1) * gpus * (share if parts else 1)
        first_s, last_s = min(first_s, submit_s), max(last_s, submit_s)
    return gpu_s / (cluster.total_gpus * (last_s - first_s)) if last_s > first_s else None


def _mean_s(job: JobSpec, applications: ApplicationSource, cluster: Cluster) -> float | None:
    """Return a job's solo time in seconds at the mean speed of all GPUs; None if it runs on no type."""
    work = TrueRemainingWork(_submitted(job.request, applications.for_job(job.request, job.truth), cluster), 0.0)
    speed = 0.0
    for gpu_type, gpus in cluster.gpus_by_type.items():
        try:
            speed += gpus / work.seconds_on(gpu_type)
        except (ValueError, LookupError, ZeroDivisionError):
            continue  # it does not run there
    return cluster.total_gpus / speed if speed else None


def with_guarantees(jobs: Iterable[JobSpec], share: float, seed: int) -> list[JobSpec]:
    """Return the jobs with a random `share` of them guaranteed; a larger share includes those of a smaller one."""
    rng = stream(seed, "guarantees")
    return [replace(job, guaranteed=job.guaranteed or bool(rng.random() < share)) for job in jobs]
