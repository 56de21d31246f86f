"""Muri-S and Muri-L, with given matchings or without Blossom, replayed in plain loops.

Written as `muri.py` is: from the description alone, by somebody who had seen neither the engine's code nor an earlier
replay. [figures] marks what the published figures decided where the description is open.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

from tests.validation.oracles.muri import GPUS, FirstFit, Job, arrivals_of, ends_of, first_of, leave

#: Given the weights of a bucket's groups, a square of numbers with 0 where two must not join, pairs of positions.
Matcher = Callable[[list[list[float]]], list[tuple[int, int]]]


@dataclass
class Muri:
    """A variant: by remaining or attained service; `matcher` None is the version without Blossom."""

    least_attained: bool
    matcher: Matcher | None
    split_slow: bool = False
    group_size: int = 4

    def __post_init__(self) -> None:
        self.periods: dict[tuple[object, ...], float] = {}

    def period_s(self, group: list[Job]) -> float:
        """T(group): the time in which each member does an iteration."""
        if len(group) == 1:
            return group[0].iteration_s
        stages = tuple(job.stages_s for job in group)
        if stages not in self.periods:
            overhead = {2: 1.33, 3: 1.5, 4: 1.37 if self.matcher else 1.3}[len(group)]
            self.periods[stages] = overhead / 1.015 * interleaved_s(stages)  # in this order [figures]
        return self.periods[stages]

    def weights(self, groups: list[list[Job]]) -> list[list[float]]:
        """The share of the resources that two groups keep busy together, in either order.

        The description leaves open how the quotient is rounded, by which pairs that weigh the same are told apart: it
        is taken as simsched takes it, lest ties fall otherwise.
        """
        square = [[0.0] * len(groups) for _ in groups]
        for (left, first), (right, second) in itertools.permutations(enumerate(groups), 2):
            both = first + second
            if len(both) <= self.group_size:
                square[left][right] = sum(sum(job.stages_s) for job in both) / self.period_s(both) / 4
        return square


def interleaved_s(stages: tuple[tuple[float, float, float], ...]) -> float:
    """The best period over the orders of the members, who take the first slots of four [figures]."""
    empty = (None,) * (4 - len(stages))
    times_s = [pipeline_s(order + empty) for order in itertools.permutations(stages)]
    if len(stages) == 2:
        (data, gpu, net), (other_data, other_gpu, other_net) = stages
        times_s.append(max(data, other_gpu + other_net) + max(other_data, gpu + net))
    return min(times_s)


def pipeline_s(slots: tuple[tuple[float, float, float] | None, ...]) -> float:
    """Play the pipeline until its period settles."""
    times = [0.0]
    for step in range(8):
        net, gpu, data = slots[(step + 1) % 4], slots[(step + 2) % 4], slots[(step + 3) % 4]
        latest = [0.0]
        if net:
            latest.append(times[step] + net[2])
        if gpu:
            latest.append(times[step] + gpu[1])
        if data and step > 0:
            latest.append(times[step - 1] + data[0])
        times.append(max(latest))
        if step >= 4:
            new, old = times[step + 1] - times[step - 3], times[step] - times[step - 4]
            if abs(new - old) <= 1e-3 * max(abs(new), abs(old)):
                return new
    return times[8] - times[4]


def replay_muri(jobs: list[Job], muri: Muri) -> None:
    arrivals, active, ends = arrivals_of(jobs), [], []
    keys = {job: 0.0 if muri.least_attained else job.duration_s * job.gpus for job in jobs}
    while arrivals or ends:
        arrive_s, end_s = first_of(arrivals), first_of(ends)
        both = bool(arrivals and ends) and abs(arrive_s - end_s) <= 1e-4
        now = arrive_s if both else min(arrive_s, end_s)
        for job in active:
            if job.running:
                job.progress(now)
                service = job.executed_s if muri.least_attained else job.remaining * job.iteration_s
                keys[job] = service * job.gpus
        if both or end_s < arrive_s:
            leave(ends[0][1], now, active)
        if both or arrive_s < end_s:
            active += arrivals.pop(0)[1]
        active.sort(key=keys.__getitem__)
        run_groups(active, groups_of(active, keys, muri), now, muri)
        ends = ends_of(active, now)


def groups_of(active: list[Job], keys: dict[Job, float], muri: Muri) -> list[list[Job]]:
    """Who shares GPUs with whom, from a list in the order of the keys."""
    buckets: dict[int, list[Job]] = {}
    for job in active:
        buckets.setdefault(job.gpus, []).append(job)
    chosen: dict[int, list[list[Job]]] = {gpus: [] for gpus in buckets}  # for each leader the jobs that it takes
    taken: set[Job] = set()
    nodes = FirstFit()
    for job in active:
        if job not in taken and nodes.place(job.gpus):
            own = [other for other in buckets[job.gpus] if other not in taken][: muri.group_size]
            taken.update(own)
            chosen[job.gpus].append(own)
    required = sum(job.gpus for job in taken)
    groups = followed(chosen, required) if muri.matcher is None else matched(chosen, required, muri, muri.matcher)
    if muri.split_slow:
        groups = [part for group in groups for part in split(group, muri)]
        groups.sort(key=lambda group: min(keys[job] for job in group))
        nodes = FirstFit()
        groups = [group for group in groups if nodes.place(group[0].gpus)]
    return groups


def split(group: list[Job], muri: Muri) -> list[list[Job]]:
    slow = len(group) > 1 and muri.period_s(group) / sum(job.iteration_s for job in group) > 1
    return [[job] for job in group] if slow else [group]


def followed(chosen: dict[int, list[list[Job]]], required: int) -> list[list[Job]]:
    """Without Blossom: followers join their leader while more GPUs are required than there are."""
    groups = []
    for gpus, leaders in chosen.items():
        for leader, *followers in leaders:
            group = [leader]
            for job in followers:
                if required > GPUS:
                    group.append(job)
                    required -= gpus
                else:
                    groups.append([job])
            groups.append(group)
    return groups


def matched(chosen: dict[int, list[list[Job]]], required: int, muri: Muri, matcher: Matcher) -> list[list[Job]]:
    """At most four passes over all buckets; the first is made whatever is required [recorded matchings]."""
    buckets = {gpus: [[job] for own in leaders for job in own] for gpus, leaders in chosen.items()}
    for _ in range(4):
        for gpus, groups in buckets.items():
            weights = muri.weights(groups)
            if not any(weight for row in weights for weight in row):
                continue  # where no two may join, nothing was recorded
            mates = {}
            for left, right in matcher(weights):
                mates[left], mates[right] = right, left
            after = []
            for index, group in enumerate(groups):
                mate = mates.get(index, index)
                if mate == index:
                    after.append(group)
                elif mate < index and required > GPUS:
                    after.append(groups[mate] + group)
                    required -= gpus
                elif mate < index:
                    after += [groups[mate], group]
            buckets[gpus] = after
        if required <= GPUS:
            break
    return [group for groups in buckets.values() for group in groups]


def run_groups(active: list[Job], groups: list[list[Job]], now: float, muri: Muri) -> None:
    """The first job of each group, largest first, takes the GPUs for all of it. Leaves the list sorted by GPUs."""
    active.sort(key=lambda job: -job.gpus)
    group_of = {job: group for group in groups for job in group}
    nodes, placed = FirstFit(), {}
    for job in active:
        job.running, job.checked_s = False, now
        group = group_of.get(job)
        if group is None:
            continue
        if id(group) not in placed:
            placed[id(group)] = nodes.place(job.gpus)
        if placed[id(group)]:
            job.start(now, muri.period_s(group), sum(member.restart_s for member in group))


def recorded(matchings: list[list[list[int]]]) -> Matcher:
    """A matcher that plays back what was recorded, in the order of the calls."""
    calls = iter(matchings)
    return lambda weights: [(left, right) for left, right in next(calls)]
