"""Relaxes a task's jobs for bounds, and describes what the relaxation leaves out of the physics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, isfinite
from typing import Any

import numpy as np

from simsched.applications import catalogue
from simsched.bounds import RelaxedJobs, Speeds, least_cost, relaxed_jobs
from simsched.errors import input_error
from simsched.experiment import SharingSpec, Task
from simsched.experiment.physics import applications_of, colocation_of
from simsched.model import Application, Cluster, JobSpec, Site
from simsched.model.application import NO_BATCH
from simsched.model.colocation import ConstantSharing, PairTable, TimeSlicing
from simsched.model.placement import consolidated_shape
from simsched.model.plans import EVERYTHING, Plan, PlannedJob, PlannedModel, TabledModel, best_plan
from simsched.model.tabulated import FixedDuration, StagedJob, TabulatedJob
from simsched.model.tensors import TensorModelJob
from simsched.operators.fitted_speeds import TrainedApplication, fitted_speeds

#: Units per GPU for widths, if GPUs differ or are shared.
_PARTS = 1000
#: Unit of times in seconds, if they are not whole.
_FINE_S = 1e-3
_HOUR_S = 3600
#: Above the first number of GPUs, numbers up to the second's ratio are grouped at the speed of the largest.
_EACH_COUNT, _RATIO = 8, 1.25

#: The speed, in progress per second, by GPU type and number of GPUs.
_Points = Mapping[tuple[str, int], float]

_ALWAYS = "starting, moving and stopping cost nothing, nodes never fail, and GPUs of a type are equivalent"
_TYPES = "a GPU counts as a fixed fraction of the best type, and the capacity is the sum of these"
_ELASTIC = "a job's speed is the concave envelope over all numbers of GPUs on their best placement, with no delay"
FITTED = "a trained job always has the best batch and placement, and gains from GPUs as in the epoch that gains most"
_PLANS = "a large model always trains with the fastest plan that fits its GPUs' memory, as if they were in one node"
_SHARING = "GPUs together do {sum:g} times the work that they do unshared, the most that sharing jobs do on one"
_SHORTER = "jobs are shorter by half a tick for each epoch, as completions are rounded to ticks"
#: What is left out without making bounds loose.
HARMLESS = frozenset((_ALWAYS, _SHORTER))


@dataclass(frozen=True)
class Relaxed:
    """Relaxed jobs in units of `unit_s` seconds; `said` names what is left out.

    `count` is the number of all jobs, `ahead_s` the total that rounding down releases adds to flow times, and
    `served_s` the least seconds for which they hold GPUs, if all hold the same GPUs at the same speed under every
    scheduler.
    """

    jobs: RelaxedJobs
    unit_s: float
    count: int
    ahead_s: float
    served_s: float | None
    said: tuple[str, ...]

    def cell(self, jobs_hash: str) -> dict[str, Any]:
        """Return all that the check of a bound reads, with the digest of the jobs as they were before."""
        return {
            **self.jobs.plain,
            "ticks_per_s": round(1 / self.unit_s),
            "count": self.count,
            "ahead_s": self.ahead_s,
            "served_s": self.served_s,
            "relaxed": list(self.said),
            "jobs_hash": jobs_hash,
        }


def relaxed(task: Task, *, on_one_gpu: bool = False) -> Relaxed:
    """Return the relaxed jobs of a task; raises `InputError` with the reason if nothing bounds them.

    `on_one_gpu` counts the work of fitted applications as `fitted_speeds` does.
    """
    _refuse(task)
    source = applications_of(task)
    applications = [source.for_job(job.request, job.truth) for job in task.jobs]
    known: dict[tuple[object, ...], _Points] = {}
    points = [
        _points(app, job, task.cluster, known, on_one_gpu=on_one_gpu)
        for app, job in zip(applications, task.jobs, strict=True)
    ]
    types, sharing = task.cluster.gpu_types, task.sharing if task.engine.max_jobs_per_gpu > 1 else None
    parts = task.engine.gpu_shares and sharing is not None
    worth = _worth(points, types) if len(types) > 1 else {types[0]: _PARTS if parts else 1}
    gained, fastest = _sharing(sharing, task.engine.max_jobs_per_gpu)
    elastic = any(len({count for _, count in found}) > 1 for found in known.values())
    steady = len(types) == 1 and not task.gpu_speed and sharing is None and not task.engine.interference
    exact = steady and _on_ticks(task, applications)
    _refuse_limits(task, steady=steady and not elastic)
    unit_s = 1.0 if exact else _FINE_S
    released, work, speeds, ahead_s, served_s = [], [], [], 0.0, 0.0
    envelopes: dict[tuple[int, float], Speeds] = {}
    for app, job, found in zip(applications, task.jobs, points, strict=True):
        share = job.gpu_share if parts else 1.0
        key = id(found), share
        if key not in envelopes:
            envelopes[key] = _envelope(found, share, worth, fastest)
        seconds = app.epoch_end(app.epochs - 1) / max(found.values())
        if task.engine.kill_at_time_limit and job.time_limit_s is not None:
            seconds = min(seconds, job.time_limit_s)
        if not exact:
            seconds -= task.engine.tick_s / 2 * app.epochs
        units = floor(seconds / unit_s) if len(envelopes[key].points) == 1 else seconds / unit_s
        release = floor(job.submit_time_s / unit_s)
        ahead_s += job.submit_time_s - release * unit_s
        served_s += max(0, units) * unit_s
        if units > 0:
            released.append(release)
            work.append(units)
            speeds.append(envelopes[key])
    gpus = {kind: sum(node.gpus for node in task.cluster.nodes if node.gpu_type == kind) for kind in types}
    units_in_all = ceil(sum(worth[kind] * count for kind, count in gpus.items()) * gained)
    told = {
        _TYPES: len(types) > 1,
        _ELASTIC: elastic,
        FITTED: any(isinstance(app, TrainedApplication) for app in applications),
        _PLANS: any(isinstance(app, PlannedJob) for app in applications),
        _SHARING.format(sum=gained): sharing is not None,
        _SHORTER: not exact and task.engine.tick_s > 0,
    }
    return Relaxed(
        jobs=relaxed_jobs(released, work, speeds, units_in_all, on_ticks=exact),
        unit_s=unit_s,
        count=len(task.jobs),
        ahead_s=ahead_s,
        served_s=served_s if steady and not elastic else None,
        said=(_ALWAYS, *(words for words, holds in told.items() if holds)),
    )


def least_gpu_cost(task: Task) -> float | None:
    """Return the least dollars for which all jobs of a task can meet their deadlines on its market, each alone.

    Jobs start, move and stop at whole steps of the market's series from their submission. None if there is no market,
    or a job has no deadline, no fixed duration and GPUs, no submission at such a step, or no way to meet its deadline.
    """
    market = None if task.failures is None else task.failures.market
    steps = (
        set()
        if market is None
        else {
            one.step_s
            for group in market.groups
            for one in (group.prices, group.available)
            if one is not None and one.source
        }
    )
    if market is None or len(steps) != 1:
        return None
    (step_s,), total = steps, 0.0
    source, sizes = catalogue(task.applications), [node.gpus for node in task.cluster.nodes]
    for job in task.jobs:
        app = source.for_job(job.request, job.truth)
        fixed = isinstance(app, FixedDuration) and app.only_gpus is not None
        if job.deadline_s is None or not fixed or job.submit_time_s % step_s:
            return None
        times = [job.submit_time_s + tick * step_s for tick in range(floor(job.deadline_s / step_s))]
        prices = [
            [group.prices.at(s) / sizes[group.nodes[0]] if group.available is None or group.available.at(s) else np.inf
             for s in times] for group in market.groups
        ]  # fmt: skip
        work_s = app.epoch_end(0) - task.engine.tick_s / 2
        total += job.num_gpus / _HOUR_S * least_cost(work_s, task.engine.restart_delay_s, step_s, np.array(prices))
    return total if isfinite(total) else None


def _envelope(points: _Points, share: float, worth: Mapping[str, float], fastest: Sequence[float]) -> Speeds:
    """Return the largest speed of a job, relative to its fastest, by units of weighted GPUs."""
    best = max(points.values())
    return Speeds(
        tuple((max(1, floor(worth[kind] * count * share * more)), speed / best * more)
              for (kind, count), speed in sorted(points.items()) for more in fastest)
    )  # fmt: skip


def _refuse(task: Task) -> None:
    """Raise `InputError` if the jobs or their durations depend on the schedule."""
    if task.tuning is not None:
        raise input_error("tuning", "has no bound, as trials follow from the results of others", "bound a list of jobs")
    if task.failures is not None and task.failures.jobs != "never":
        raise input_error("failures.jobs", "has no bound, as failing changes how long a job runs", "set it to never")
    refuse_processes(task.processes)
    if task.cuts is not None:
        raise input_error("shards", "have no bound, as jobs of different shards share no GPUs", "set shards.parts=1")
    if not task.jobs:
        raise input_error("workload", "has no jobs, so there is nothing to bound")


def refuse_processes(processes: Sequence[object]) -> None:
    """Raise `InputError` if there are any: nothing bounds the jobs that processes submit, cancel and stop."""
    if processes:
        message = "have no bound, as they may submit, cancel and stop jobs at any time"
        raise input_error("processes", message, "bound the experiment with processes=[]")


def _refuse_limits(task: Task, *, steady: bool) -> None:
    """Raise `InputError` if jobs end at their limits and their speeds are not `steady`."""
    if task.engine.kill_at_time_limit and not steady and any(job.time_limit_s for job in task.jobs):
        message = "has no bound, as what a job has done by then depends on its GPUs"
        raise input_error("engine.kill_at_time_limit", message, "set it to false")


def _on_ticks(task: Task, applications: Sequence[Application]) -> bool:
    """Return whether submissions, runs and pauses are whole ticks, so that no completion is rounded."""
    if task.engine.tick_s != 1 or task.failures is not None:
        return False
    if not all(isinstance(app, FixedDuration) and app.only_gpus is not None for app in applications):
        return False
    times = [(job.submit_time_s, job.duration_s, job.time_limit_s or 0) for job in task.jobs]
    return all(time == int(time) for row in [*times, (task.engine.restart_delay_s,)] for time in row)


def _points(
    app: Application, job: JobSpec, cluster: Cluster, known: dict[tuple[object, ...], _Points], *, on_one_gpu: bool
) -> _Points:
    """Return a job's speeds by type and number of GPUs; raises `InputError` if they are not completely known."""
    if isinstance(app, TabulatedJob):
        key: tuple[object, ...] = (app.model, app.asked)
    elif isinstance(app, TrainedApplication):
        key = (type(app), app.name)
    elif isinstance(app, PlannedJob):
        key = (app.plans.name, app.global_batch, job.plan)
    else:
        key = (type(app), app.name, job.num_gpus, job.speedup, job.profile)
    if key not in known:
        if isinstance(app, TrainedApplication):
            found = _fitted(app, cluster, on_one_gpu=on_one_gpu)
        elif isinstance(app, PlannedJob):
            gpus = sum(node.gpus for node in cluster.nodes)
            found = planned_speeds(app, job.plan, _counts(app, job, gpus), cluster)
        else:
            found = _tabulated(app, cluster) if isinstance(app, TabulatedJob) else _by_count(app, job, cluster)
        if not found:
            raise input_error(f"job '{job.id}'", "cannot run on any GPUs of the cluster, so nothing bounds it")
        known[key] = found
    return known[key]


def _fitted(app: TrainedApplication, cluster: Cluster, *, on_one_gpu: bool) -> _Points:
    if cluster.levels:
        message = "has no bound if there are levels above the nodes, across which synchronisation may have any cost"
        raise input_error(f"application '{app.name}'", message, "leave cluster.topology out")
    return fitted_speeds(app, cluster, on_one_gpu=on_one_gpu)


def _tabulated(app: TabulatedJob, cluster: Cluster) -> _Points:
    found: dict[tuple[str, int], float] = {}
    own = app.asked.batch_size
    for kind in cluster.gpu_types:
        for (batch, count), rate in app.model.rates.get(kind, {}).items():
            speed = rate * (batch / own if own and batch else 1.0)
            found[kind, count] = max(speed, found.get((kind, count), 0.0))
    return {place: speed for place, speed in found.items() if speed > 0}


def _by_count(app: Application, job: JobSpec, cluster: Cluster) -> _Points:
    """Return the speeds of a job that does not gain from more nodes."""
    if not isinstance(app, FixedDuration | TensorModelJob | StagedJob):
        message = "has no bound, as no largest speed of it is known"
        remedy = "bound jobs known by durations, profiles, rates, plans, measurements or fitted models"
        raise input_error(f"application '{app.name}'", message, remedy)
    found: dict[tuple[str, int], float] = {}
    for kind in cluster.gpu_types:
        nodes = [node.gpus for node in cluster.nodes if node.gpu_type == kind]
        for least, most in _counts(app, job, sum(nodes)):
            site = Site(consolidated_shape(most, max(nodes)), kind)
            found[kind, least] = app.run(site, NO_BATCH, 0).rate
    return found


def _counts(app: Application, job: JobSpec, gpus: int) -> list[tuple[int, int]]:
    """Return ranges of numbers of GPUs; a job is fastest in a range at its largest number."""
    only = getattr(app, "only_gpus", None)
    if only is not None:
        return [(only, only)]
    ranges, least = [], 1
    while least <= gpus:
        most = least if least <= _EACH_COUNT else min(gpus, int(least * _RATIO))
        ranges.append((least, most))
        least = most + 1
    return ranges


def _worth(points: Sequence[_Points], types: Sequence[str]) -> Mapping[str, int]:
    """Weight types by the mean speed of a job on a GPU, relative to its best; any positive weights give a bound."""
    sums, jobs = dict.fromkeys(types, 0.0), dict.fromkeys(types, 0)
    for found in points:
        each = {kind: max(v / n for (k, n), v in found.items() if k == kind) for kind in {k for k, _ in found}}
        for kind, speed in each.items():
            sums[kind] += speed / max(each.values())
            jobs[kind] += 1
    return {kind: max(1, round(_PARTS * sums[kind] / max(1, jobs[kind]))) for kind in types}


def _sharing(spec: SharingSpec | None, most: int) -> tuple[float, tuple[float, ...]]:
    """Return the largest sum of speeds on a GPU, and a job's possible speeds relative to running alone, from 1 up."""
    model = colocation_of(spec)
    if model is None or isinstance(model, TimeSlicing):
        return 1.0, (1.0,)
    if isinstance(model, ConstantSharing):
        alike = [1.0, *(1.0 if model.factor is None else jobs * model.factor for jobs in range(2, most + 1))]
        return max(alike), (1.0,)
    if isinstance(model, PairTable):
        pairs = [*model.pairs.values(), *([(model.default, model.default)] if model.default else [])]
        fastest = max(max(pair) for pair in pairs)
        return max(1.0, *(sum(pair) for pair in pairs)), (1.0, fastest) if fastest > 1 else (1.0,)
    return float(most), (1.0,)  # each at most as fast as when alone


def planned_speeds(
    app: PlannedJob, asked: Plan | None, ranges: Sequence[tuple[int, int]], cluster: Cluster
) -> Mapping[tuple[str, int], float]:
    """Bound a model's steps per second by GPU type and the least of each of some `ranges` of numbers of GPUs.

    The step is that of the fastest plan on at most the largest number of GPUs of the range, including the `asked` one,
    with all GPUs in one node: a network tier only adds to collectives, and messages gain at most what a slower stage
    loses. Measured plans count as measured; others use the analytic step scaled by the least ratio of a measured to an
    analytic step, since no nearest row scales by less.
    """
    model = app.plans
    analytic = model.model if isinstance(model, TabledModel) else model
    rows = model.rows if isinstance(model, TabledModel) else {}
    found: dict[tuple[str, int], float] = {}
    for kind in sorted(set(cluster.gpu_types) & set(model.gpu_types)):
        scale = min((seconds / analytic.modelled(plan, Site(shape, kind), app.global_batch).total
                     for (plan, shape), seconds in rows.items()), default=1.0) if analytic else 1.0  # fmt: skip
        for least, most in ranges:
            steps = [seconds for (_, shape), seconds in rows.items() if sum(shape) <= most]
            if analytic is not None:
                steps += [scale * seconds for seconds in _analytic(analytic, kind, most, app.global_batch, asked)]
            if steps:
                found[kind, least] = 1 / min(steps)
    return found


def _analytic(model: PlannedModel, kind: str, gpus: int, batch: int, asked: Plan | None) -> list[float]:
    """Return the seconds of a step in one node of the fastest plan on at most `gpus` GPUs, and of the requested one."""
    hardware = model.on(kind)
    fastest = best_plan(model.shape, hardware, gpus, batch, (), EVERYTHING, at_least=1)
    within = [plan for plan in (asked,) if plan is not None and model.refusal(plan, kind, gpus, batch) is None]
    one_node = [model.modelled(plan, Site((plan.gpus,), kind), batch) for plan in within]
    return [float(parts.total) for parts in (*one_node, *(() if fastest is None else (fastest.parts,)))]
