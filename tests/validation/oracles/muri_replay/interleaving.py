"""Muri-S and Muri-L: groups of up to four jobs that take turns on data loading, GPU and network."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import permutations

from tests.validation.oracles.muri_replay.inputs import NODE_GPUS, NODES, Job, first_fit
from tests.validation.oracles.muri_replay.record import Moment, advance, arrivals, earliest_end

Matching = Sequence[Sequence[int]]
#: Matches the vertices 0..n-1, given the weight of every pair; pairs of weight 0 and less do not exist.
Matcher = Callable[[list[list[float]]], Matching]

_PACKING = 4
_CAPACITY = NODES * NODE_GPUS
_SLOTS = 4


@dataclass(eq=False)
class Muri:
    """The rules of one run: the order of jobs, and how they are grouped.

    `matcher` None groups without matching; `longest` takes the worst order within a group; `split_slow` is Muri's
    autopack, which undoes groups that are slower than their members one after the other.
    """

    least_attained: bool
    matcher: Matcher | None
    split_slow: bool = False
    longest: bool = False
    most_jobs: int = 4

    def __post_init__(self) -> None:
        self._times: dict[tuple[tuple[float, float, float, float], ...], float] = {}

    def key(self, job: Job) -> float:
        if self.least_attained:
            return job.executed_s * job.gpus
        if not job.executed_s:
            return job.duration_s * job.gpus
        return job.remaining * job.iteration_s * job.gpus

    def group_s(self, jobs: Sequence[Job]) -> float:
        """Compute the seconds of one iteration of every job in a group."""
        if len(jobs) == 1:
            return jobs[0].iteration_s
        stages = tuple((*job.stages_s, job.iteration_s) for job in jobs)
        known = self._times.get(stages)
        if known is None:
            four = 1.37 if self.matcher else 1.3
            factor = {2: 1.33, 3: 1.5, 4: four}[len(jobs)] / 1.015
            pick = max if self.longest else min
            times = [_pipeline_s([job.stages_s for job in order]) for order in permutations(jobs)]
            if len(jobs) == 2:
                (a0, a1, a2), (b0, b1, b2) = jobs[0].stages_s, jobs[1].stages_s
                times.append(max(a0, b1 + b2) + max(b0, a1 + a2))
            known = self._times[stages] = pick(times) * factor
        return known

    def weight(self, one: Sequence[Job], other: Sequence[Job]) -> float:
        """Compute how well two groups fill the stages together, 0 where they are too many."""
        jobs = [*one, *other]
        if len(jobs) > self.most_jobs:
            return 0.0
        busy_s = 0.0
        for job in jobs:
            busy_s += sum(job.stages_s)
        return busy_s / self.group_s(jobs) / _SLOTS


def recorded(matchings: Sequence[Matching]) -> Matcher:
    """Return a matcher that plays back recorded matchings, in the order of the calls."""
    calls: Iterator[Matching] = iter(matchings)
    return lambda weights: next(calls)


def replay_muri(jobs: Sequence[Job], muri: Muri) -> None:
    """Group and place all jobs anew at every event."""
    waiting = arrivals(jobs)
    active: list[Job] = []
    end: Moment | None = None
    while waiting or end:
        arrives_s = waiting[0].time_s if waiting else math.inf
        ends_s = end.time_s if end else math.inf
        both = abs(arrives_s - ends_s) <= 1e-4
        now_s = arrives_s if both else min(arrives_s, ends_s)
        for job in active:
            if job.running:
                advance(job, now_s)
        if end and (both or ends_s < arrives_s):
            for job in end.jobs:
                job.end_s, job.running = now_s, False
                active.remove(job)
        if both or arrives_s < ends_s:
            active.extend(waiting.pop(0).jobs)
        _regroup(active, muri, now_s)
        end = earliest_end((job for job in active if job.running), now_s)


def _regroup(active: list[Job], muri: Muri, now_s: float) -> None:
    active.sort(key=muri.key)
    groups = _groups(active, muri)
    groups.sort(key=lambda group: min(muri.key(job) for job in group))
    free = [NODE_GPUS] * NODES
    kept = {job: group for group in groups if first_fit(free, group[0].gpus) for job in group}
    active.sort(key=lambda job: -job.gpus)
    free = [NODE_GPUS] * NODES
    placed: set[Job] = set()
    for job in active:
        if job in kept and job not in placed and first_fit(free, job.gpus):
            placed.update(kept[job])
    for job in active:
        job.running = job in placed
        if job.running:
            group = kept[job]
            job.checked_s = now_s
            job.now_iteration_s = muri.group_s(group)
            job.now_overhead_s = sum(member.overhead_s for member in group)


def _groups(active: list[Job], muri: Muri) -> list[list[Job]]:
    buckets, leaders = _take(active)
    required = sum(job.gpus for bucket in buckets.values() for job in bucket)
    groups = _matched(buckets, required, muri) if muri.matcher else _in_order(buckets, leaders, required)
    if not muri.split_slow:
        return groups
    return [part for group in groups for part in _split_if_slow(group, muri)]


def _take(active: list[Job]) -> tuple[dict[int, list[Job]], dict[int, int]]:
    """Choose the jobs that may run: every leader that fits brings the next jobs of its bucket along.

    Returns the jobs taken by number of GPUs, and the number of leaders in each bucket.
    """
    buckets: dict[int, list[Job]] = {}
    for job in active:
        buckets.setdefault(job.gpus, []).append(job)
    taken = dict.fromkeys(buckets, 0)
    leaders = dict.fromkeys(buckets, 0)
    chosen: set[Job] = set()
    free = [NODE_GPUS] * NODES
    for job in active:
        if job in chosen or not first_fit(free, job.gpus):
            continue
        first = taken[job.gpus]
        brought = buckets[job.gpus][first : first + _PACKING]
        chosen.update(brought)
        taken[job.gpus] += len(brought)
        leaders[job.gpus] += 1
    return {gpus: bucket[: taken[gpus]] for gpus, bucket in buckets.items()}, leaders


def _in_order(buckets: dict[int, list[Job]], leaders: dict[int, int], required: int) -> list[list[Job]]:
    groups = []
    for gpus, bucket in buckets.items():
        for leader in range(leaders[gpus]):
            group = bucket[_PACKING * leader : _PACKING * leader + 1]
            for follower in bucket[_PACKING * leader + 1 : _PACKING * (leader + 1)]:
                if required > _CAPACITY:
                    group.append(follower)
                    required -= gpus
                else:
                    groups.append([follower])
            groups.append(group)
    return groups


def _matched(buckets: dict[int, list[Job]], required: int, muri: Muri) -> list[list[Job]]:
    assert muri.matcher is not None
    groups = {gpus: [[job] for job in bucket] for gpus, bucket in buckets.items()}
    for _ in range(_PACKING):
        for gpus, bucket in groups.items():
            groups[gpus], required = _match(bucket, gpus, required, muri)
        if required <= _CAPACITY:
            break
    return [group for bucket in groups.values() for group in bucket]


def _match(bucket: list[list[Job]], gpus: int, required: int, muri: Muri) -> tuple[list[list[Job]], int]:
    """Match the groups of a bucket once, and merge pairs for as long as the cluster is too small for all."""
    assert muri.matcher is not None
    weights = [[0.0 if u is v else muri.weight(u, v) for v in bucket] for u in bucket]
    pairs = muri.matcher(weights) if any(map(any, weights)) else ()
    mate = {one: other for pair in pairs for one, other in (tuple(pair), tuple(reversed(pair)))}
    merged: list[list[Job]] = []
    for index, group in enumerate(bucket):
        partner = mate.get(index)
        if partner is None:
            merged.append(group)
        elif partner < index:
            if required > _CAPACITY:
                merged.append([*bucket[partner], *group])
                required -= gpus
            else:
                merged += [bucket[partner], group]
    return merged, required


def _split_if_slow(group: list[Job], muri: Muri) -> list[list[Job]]:
    if muri.group_s(group) / sum(job.iteration_s for job in group) > 1:
        return [[job] for job in group]
    return [group]


def _pipeline_s(order: Sequence[tuple[float, float, float]]) -> float:
    """Compute the steady time between two rounds of a pipeline of four slots, in which jobs follow in this order."""
    slots = [*order, *[None] * (_SLOTS - len(order))]
    ends = [0.0]
    for i in range(8):
        data, gpu, net = slots[(i + 3) % 4], slots[(i + 2) % 4], slots[(i + 1) % 4]
        end_s = 0.0
        if net:
            end_s = max(end_s, ends[i] + net[2])
        if gpu:
            end_s = max(end_s, ends[i] + gpu[1])
        if data and i > 0:
            end_s = max(end_s, ends[i - 1] + data[0])
        ends.append(end_s)
        if i >= 4 and math.isclose(ends[i + 1] - ends[i - 3], ends[i] - ends[i - 4], rel_tol=1e-3):
            return ends[i + 1] - ends[i - 3]
    return ends[8] - ends[4]
