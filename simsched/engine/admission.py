"""Rejects jobs that can never run, before the simulation starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from typing import Any

import numpy as np

from simsched.errors import InputError, Problem
from simsched.model import FIXED_DURATION, Application, ApplicationSource, Capacity, Cluster, JobSpec, NodeShape
from simsched.model.job import values_of

_MOST_PROBLEMS = 20

#: A fault of a job and its remedy.
_Fault = tuple[str, str]


#: The remedy for jobs larger than `most` GPUs, unless the workload has its own.
LEAVE_OUT = "leave out jobs of more than {most} GPUs"


def check_jobs(
    jobs: Sequence[JobSpec],
    cluster: Cluster,
    applications: ApplicationSource,
    *,
    rigid: bool,
    leave_out: str = LEAVE_OUT,
    tick_s: float = 0,
) -> None:
    """Reject a workload with jobs that are malformed or never fit; `InputError` names up to 20 of them.

    A duration is at least a tick of `tick_s` seconds, as the engine rounds times to ticks. `rigid` policies grant a
    full request or nothing; `leave_out` is the remedy for jobs larger than `{most}` GPUs.
    """
    problems: list[Problem] = []
    if not jobs:
        problems.append(Problem("workload", "there are no jobs", "use a longer trace or a wider window"))
    repeated, seen = _repeated_hashes(jobs), set[str]()
    before = -inf
    shapes: dict[NodeShape, str] = {}
    right: set[Any] = set()
    columns = values_of(jobs, "submit_time_s", "duration_s", "application", "num_gpus", "gpu_share", "shape")
    nodes, idle = cluster.nodes, None
    for place, (submit_s, duration_s, *kind) in enumerate(columns):
        alike = (*kind, 0 < duration_s >= tick_s) if kind[0] == FIXED_DURATION else None
        if alike in right and before <= submit_s and not repeated:
            before = submit_s
            continue
        spec = jobs[place]
        faults = _faults(spec, cluster, applications, leave_out, rigid=rigid)
        if 0 < spec.duration_s < tick_s:
            message = f"its duration is {spec.duration_s:g} s, and the engine counts ticks of {tick_s:g} s"
            faults.append((message, "round it up, or let ticks be shorter (engine.tick_s)"))
        if spec.shape is not None and not faults:
            if spec.shape not in shapes:
                idle = idle or Capacity(nodes, [True] * len(nodes), [node.gpus for node in nodes])
                shapes[spec.shape] = _misfit(spec.shape, cluster, idle, rigid=rigid)
            faults += [(shapes[spec.shape], "enlarge the cluster, or leave the job out")] if shapes[spec.shape] else []
        if hash(spec.id) in repeated:
            if spec.id in seen:
                faults.append(("its id is used twice", "give each job an id of its own"))
            seen.add(spec.id)
        if spec.submit_time_s < before:
            faults.append(("the jobs are not sorted by submit time", "sort them"))
        before = max(before, spec.submit_time_s)
        if faults:
            problems += [_problem(spec, fault) for fault in faults]
            if len(problems) >= _MOST_PROBLEMS:
                break
        elif alike is not None:  # valid for one job with only GPUs and seconds, valid for others like it
            right.add(alike)
    if problems:
        raise InputError(*problems)


def _repeated_hashes(jobs: Sequence[JobSpec]) -> set[int]:
    """Return the hashes of repeated ids and of collisions, because a set of ten million ids takes a gigabyte."""
    hashes = np.fromiter(map(hash, values_of(jobs, "id")), np.int64, len(jobs))
    hashes.sort()
    return set(hashes[1:][hashes[1:] == hashes[:-1]].tolist())


def _problem(spec: JobSpec, fault: _Fault) -> Problem:
    return Problem(f"workload, job '{spec.id}'", *fault)


def _faults(
    spec: JobSpec, cluster: Cluster, applications: ApplicationSource, leave_out: str, *, rigid: bool
) -> list[_Fault]:
    faults: list[_Fault] = []
    if spec.submit_time_s < 0:
        message = f"it is submitted at {spec.submit_time_s} s, before the workload starts"
        faults.append((message, "count seconds from the first submission"))
    app = None if spec.application == FIXED_DURATION else applications.for_job(spec.request, spec.truth)
    room = cluster.gpus_by_type if app is None else _room_for(app, cluster)
    most = max(room.values())
    without = spec.num_gpus == 0 and spec.shape is not None and spec.shape.nodes > 0
    if spec.num_gpus < 1 and not without:
        faults.append((f"it asks for {spec.num_gpus} GPUs", "ask for one at least"))
    elif rigid and spec.num_gpus > most:
        message = f"it asks for {spec.num_gpus} GPUs and can never fit {_said(room, cluster)}"
        faults.append((message, f"enlarge the cluster, or {leave_out.format(most=most)}"))
    if not 0 < spec.gpu_share <= 1:
        message = f"it asks for {spec.gpu_share:g} of each GPU"
        faults.append((message, "ask for more than 0 and at most 1"))
    if app is None:
        if spec.duration_s <= 0:
            said = f"its duration is {spec.duration_s} s" if spec.duration_s else "it has no duration"
            faults.append((said, "give one above 0 seconds"))
        return faults
    return faults + _batch_faults(spec, app, rigid=rigid)


def _misfit(shape: NodeShape, cluster: Cluster, idle: Capacity, *, rigid: bool) -> str:
    """Explain why a shape never fits the empty cluster, all of which is `idle`; empty if it does."""
    types = shape.gpu_types
    if types is not None and not any(kind in types for kind in cluster.gpus_by_type):
        return f"it asks for GPUs of type {' or '.join(types)}, of which the cluster has none"
    if not rigid or idle.place_of(shape) is not None:
        return ""
    return f"it asks for {shape.said}, for which the empty cluster has no room"


def _room_for(app: Application, cluster: Cluster) -> Mapping[str, int]:
    """Count the usable GPUs by type; all types if the application is known to run on none."""
    types = app.gpu_types
    counts = {kind: gpus for kind, gpus in cluster.gpus_by_type.items() if types is None or kind in types}
    return counts or cluster.gpus_by_type


def _said(room: Mapping[str, int], cluster: Cluster) -> str:
    if len(cluster.gpus_by_type) == 1:
        return f"a cluster of {cluster.total_gpus}"
    return f"GPUs of one type ({', '.join(f'{count} {kind}' for kind, count in room.items())})"


def _batch_faults(spec: JobSpec, app: Application, *, rigid: bool) -> list[_Fault]:
    limits = app.limits
    if limits is None or not spec.batch_size:
        return []
    low, high = limits.init_batch_size, limits.max_batch_size
    if not low <= spec.batch_size <= high:
        message = f"its batch size {spec.batch_size} is out of range for {app.name} ({low} to {high})"
        return [(message, "ask for one within it")]
    if rigid and spec.batch_size < spec.num_gpus * limits.min_local_bsz and not app.fixed_batch_size:
        least = f"{app.name}'s least of {limits.min_local_bsz} per GPU"
        message = f"its batch size {spec.batch_size} on {spec.num_gpus} GPUs is below {least}"
        return [(message, "ask for a larger batch or fewer GPUs")]
    return []
