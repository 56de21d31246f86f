"""ElasticFlow (`ef-accessctrl`) in its artifact: least plans in time, admission by group, and spare GPUs by growth."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from simsched.errors import input_error
from simsched.model import Cluster
from simsched.policy import JobView, Traits

from .books import LEVELS, RESTART_S, Account, Artifact, Books, aligned, gathered, stand_still_s

#: The most GPUs of a job where they are fewer than for EDF, by model and batch size.
_MOST = {
    ("gpt2", 128): 16, ("gpt2", 256): 32, ("bert", 64): 8, ("bert", 128): 16, ("inception3", 64): 16,
    ("inception3", 128): 32, ("resnet50", 64): 32, ("vgg16", 64): 32,
}  # fmt: skip
_NODE_GPUS = 8
#: The pause of a job on GPUs on which some job has stood before.
_CACHED_S = 2


@dataclass
class Elastic(Artifact):
    """Gives jobs the least plans that are in time, and doubles shares of jobs while GPUs are spare.

    `renew_ends` is the version of 2024. The other options depart from the artifact: whose GPU time spare GPUs let grow,
    and whether jobs pause in full or not at all when GPUs are assigned.
    """

    name: ClassVar[str] = "elasticflow-artifact"
    traits: ClassVar[Traits] = replace(Artifact.traits, rigid=False)

    renew_ends: bool = False
    spare_to: Literal["most-growth", "least-growth", "none"] = "most-growth"
    stand_still: Literal["cached", "full", "none"] = "cached"
    _grants: list[tuple[Any, ...]] = field(default_factory=list, init=False, repr=False)

    def check_jobs(self, jobs: Sequence[JobView], cluster: Cluster) -> None:
        """Refuse jobs without a deadline, and nodes on which the artifact cannot place."""
        super().check_jobs(jobs, cluster)
        if any(job.request.deadline_s is None for job in jobs):
            raise input_error("workload", "a job has no deadline", "best-effort jobs are not replayed")
        if {node.gpus for node in cluster.nodes} != {_NODE_GPUS}:
            raise input_error("cluster", "nodes do not all have 8 GPUs", "the artifact places on nodes with 8 GPUs")

    def keep(self, accounts: Sequence[Account], gpus: int) -> Books:
        """Decide at arrivals, ends and steps of plans, until all ends have been noticed."""
        books, coming, active = Books(), [_Job(account) for account in accounts], list[_Job]()
        stood, last_s, now_s = _Stood(), accounts[0].submit_s, accounts[0].submit_s
        while True:
            for job in active:
                job.train(now_s, last_s)
            ended = [job for job in active if job.account.end_s <= now_s]
            for job in sorted(ended, key=lambda job: -job.account.gpus):
                books.end(job.account, now_s)
            came = [job for job in coming if job.account.submit_s <= now_s]
            coming = coming[len(came) :]
            active = self._admit([job for job in active if job not in ended], came, books, now_s, gpus)
            free = _plan(active, now_s, gpus)
            if self.spare_to != "none":
                active = self._share(active, free, len(books.turns))
            arrivals_s = [job.account.submit_s for job in coming]
            firsts_s = [*arrivals_s, *(job.plan.end_s for job in active)]
            steps_s = [job.plan.changes(now_s) for job in active]
            self._start(active, now_s, stood, restarts=books.restarts)
            books.turn(now_s, (job.account for job in active))
            if not firsts_s:
                return books
            times_s = [*arrivals_s, *(job.account.end_s for job in active)]
            times_s += [step_s for step_s in steps_s if step_s < min(firsts_s)]
            last_s, now_s = now_s, gathered(now_s, times_s)

    @staticmethod
    def _admit(active: list[_Job], came: list[_Job], books: Books, now_s: float, gpus: int) -> list[_Job]:
        """Return the active jobs, with those that came if all are in time, in order of deadline."""
        tried = sorted(active + came, key=lambda job: job.account.deadline_s)
        _plan(tried, now_s, gpus)
        if not came or all(job.plan.real_s <= job.account.deadline_s for job in tried):
            return tried
        books.declined += [(now_s, job.account.id) for job in came]
        return [job for job in tried if job not in came]

    def _share(self, jobs: list[_Job], free: _Free, decision: int) -> list[_Job]:
        """Give spare GPUs; return the jobs in the order of the last gains."""
        spare = free.gpus[free.now_s]
        gains = dict.fromkeys(jobs, -math.inf)
        while True:
            grown = {}
            for job in (job for job in jobs if job.account.gpus < job.most):
                more = job.next_level - job.account.gpus
                gains[job] = -math.inf
                if more <= spare:
                    grown[job] = job.grown(free)
                    gains[job] = (grown[job].gpu_time() - job.plan.gpu_time()) / more if job.account.gpus else math.inf
            if not grown:
                return jobs
            if self.spare_to == "least-growth":
                jobs = sorted(jobs, key=lambda job: gains[job] if math.isfinite(gains[job]) else -gains[job])
            else:
                jobs = sorted(jobs, key=lambda job: -gains[job])
            first = next(job for job in jobs if job in grown)
            before = first.account.gpus
            plan = grown[first] if self.renew_ends else replace(grown[first], real_s=first.plan.real_s)
            free = free.with_plan(first.plan, -1).with_plan(plan)
            first.follow(plan, free.now_s)
            spare -= first.account.gpus - before
            grant = (free.now_s, decision, first.account.id, before, first.account.gpus, gains[first])
            self._grants.append((*grant, plan.end_s, plan))

    def _start(self, jobs: Sequence[_Job], now_s: float, stood: _Stood, *, restarts: bool) -> None:
        """Start jobs, and put off the ends by the pauses."""
        pauses_s = stood.pauses_s([job.account for job in jobs], restarts=restarts, cached=self.stand_still == "cached")
        for job in jobs:
            account = job.account
            if account.gpus and account.start_s is None:
                account.start_s, account.pending_s = now_s, now_s - account.submit_s
            job.still_s = pauses_s.get(account.id, 0.0) if self.stand_still != "none" else 0.0
            account.end_s = job.plan.end_s + job.still_s

    def artifacts(self) -> Mapping[str, str]:
        """Return the log of jobs, and each grant of spare GPUs with the plan that it makes."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(("time_s", "decision", "job_id", "gpus_before", "gpus_after", "gain", "end_s", "plan"))
        writer.writerows((*grant[:-1], grant[-1].text()) for grant in self._grants)
        return {**super().artifacts(), "grants.csv": text.getvalue()}


@dataclass(frozen=True)
class _Plan:
    """The GPUs from which time on, one step for each of the profile before the deadline; and the ends.

    `end_s` is in whole slots, `real_s` is not.
    """

    steps: Mapping[float, int]
    end_s: float
    real_s: float

    def gpu_time(self) -> float:
        """Return the GPU time as the artifact counts it: the last GPUs until the next step, not until the end."""
        times_s = list(self.steps)
        until_s = [*times_s[1:], max(self.end_s, times_s[-1])]
        return sum(self.steps[time_s] * (next_s - time_s) for time_s, next_s in zip(times_s, until_s, strict=True))

    def changes(self, now_s: float) -> float:
        """Return when the GPUs next change."""
        return next((time_s for time_s in _merged(self.steps) if time_s > now_s), math.inf)

    def text(self) -> str:
        """Return time:GPUs for each change."""
        return ";".join(f"{time_s:g}:{gpus}" for time_s, gpus in _merged(self.steps).items())


@dataclass(frozen=True)
class _Free:
    """The profile at a decision: the free GPUs from which time on, in order of time."""

    now_s: float
    gpus: Mapping[float, int]

    def with_plan(self, plan: _Plan, sign: int = 1) -> _Free:
        """Return what a plan leaves free, or with a sign of -1 what is free without it."""
        times_s = sorted({*self.gpus, plan.end_s, *(time_s for time_s in plan.steps if time_s < plan.end_s)})
        found, free, held = {}, 0, 0
        for time_s in times_s:
            free, held = self.gpus.get(time_s, free), plan.steps.get(time_s, held)
            found[time_s] = free - sign * held if time_s < plan.end_s else free
        return _Free(self.now_s, _merged(found))

    def since(self, time_s: float) -> _Free:
        """Return the profile from a time on, which is one of its steps or later than all of them."""
        kept = {at_s: gpus for at_s, gpus in self.gpus.items() if at_s >= time_s}
        return _Free(time_s, kept or {time_s: self.gpus[max(self.gpus)]})


@dataclass(eq=False)
class _Job:
    """An account, its plan and its pause."""

    account: Account
    plan: _Plan = _Plan({}, math.inf, math.inf)
    still_s: float = 0.0

    def __post_init__(self) -> None:
        account = self.account
        self.most = account.most_gpus(_MOST.get((account.model, account.batch_size), LEVELS[-1]))

    @property
    def next_level(self) -> int:
        """Return the number of GPUs after the present one."""
        return 2 * self.account.gpus or 1

    def follow(self, plan: _Plan, now_s: float) -> None:
        """Take a plan."""
        self.plan, self.account.gpus = plan, plan.steps[now_s]

    def train(self, now_s: float, last_s: float) -> None:
        """Train since the last decision; a job that finishes before its end ends when it finishes."""
        account = self.account
        if account.gpus:
            rate = account.rates[account.gpus]
            made = rate * max(0, now_s - last_s - max(0, now_s - self.plan.real_s) - self.still_s)
            if account.left <= made and account.end_s > now_s:
                account.end_s = last_s + math.ceil(account.left / rate)
            account.left -= made

    def least(self, free: _Free, left: float, beyond: int) -> _Plan:
        """Return the plan of fewest GPUs that is in time, else that of most, and `beyond` after all steps."""
        deadline_s = self.account.deadline_s
        due_s = aligned(free.now_s, deadline_s)
        gpus = dict(free.gpus)
        if due_s > free.now_s and due_s not in gpus:
            gpus[due_s] = gpus[max(time_s for time_s in gpus if time_s < due_s)]
        steps = sorted(gpus.items())
        until_s = [*(time_s for time_s, _ in steps[1:]), math.inf]
        early = sum(time_s < due_s for time_s, _ in steps)
        levels = [level for level in LEVELS if level <= self.most]
        for smaller, cap in zip([0, *levels], levels, strict=False):
            done = 0.0
            for place in reversed(range(early)):
                time_s, unused = steps[place]
                used = self.account.floor(unused, cap)
                next_s = deadline_s if place == early - 1 else until_s[place]
                done += self.account.rates[used] * (next_s - time_s) if used else 0
                if done >= left:
                    return self._walk(steps, until_s, [smaller] * place + [cap] * (len(steps) - place), early, left)
        return self._walk(steps, until_s, [self.most] * (len(steps) - 1) + [beyond], early, left)

    def _walk(
        self, steps: list[tuple[float, int]], until_s: list[float], caps: list[int], early: int, left: float
    ) -> _Plan:
        plan = {time_s: 0 for time_s, _ in steps[:early]}
        for (time_s, unused), next_s, cap in zip(steps, until_s, caps, strict=True):
            used = plan[time_s] = self.account.floor(unused, cap)
            rate = self.account.rates[used] if used else 0.0
            if used and left <= rate * (next_s - time_s):
                rest_s = math.ceil(left / rate)
                return _Plan(plan, aligned(time_s, time_s + rest_s), time_s + rest_s)
            left -= rate * (next_s - time_s) if used else 0
        raise AssertionError(f"job {self.account.id} never ends")

    def grown(self, free: _Free) -> _Plan:
        """Return the plan with the next level until the profile's next step, and the least one from there."""
        free, now_s, level = free.with_plan(self.plan, -1), free.now_s, self.next_level
        rate, deadline_s = self.account.rates[level], self.account.deadline_s
        next_s = next((time_s for time_s in free.gpus if time_s > now_s), aligned(now_s, deadline_s))
        rest_s = math.ceil(self.account.left / rate)
        if self.account.left <= rate * (next_s - now_s) and now_s + rest_s <= deadline_s:
            return _Plan({now_s: level}, aligned(now_s, now_s + rest_s), now_s + rest_s)
        rest = self.least(free.since(next_s), self.account.left - rate * (next_s - now_s), level)
        return replace(rest, steps={now_s: level, **rest.steps})


def _plan(jobs: Iterable[_Job], now_s: float, gpus: int) -> _Free:
    """Give jobs, in order of deadline, their least plans on what the former leave; return what is left."""
    free = _Free(now_s, {now_s: gpus})
    for job in jobs:
        job.follow(job.least(free, job.account.left, job.most), now_s)
        free = free.with_plan(job.plan)
    return free


def _merged(steps: Mapping[float, int]) -> dict[float, int]:
    found: dict[float, int] = {}
    last = None
    for time_s, gpus in steps.items():
        if gpus != last:
            found[time_s] = last = gpus
    return found


@dataclass
class _Stood:
    """The ranges of GPUs, as first one and number, on which some job has stood since all jobs restarted."""

    ranges: set[tuple[int, int]] = field(default_factory=set)

    def pauses_s(self, accounts: Sequence[Account], *, restarts: bool, cached: bool) -> Mapping[str, float]:
        """Place jobs, and return how long each pauses."""
        if restarts:
            self.ranges.clear()
        places = _placed(accounts)
        pauses_s = {
            job_id: (_CACHED_S if cached and place in self.ranges else stand_still_s(place[1])) + RESTART_S * restarts
            for job_id, place in places.items()
        }
        self.ranges |= set(places.values())
        return pauses_s


def _placed(accounts: Sequence[Account]) -> dict[str, tuple[int, int]]:
    """Return the ranges of jobs: whole nodes for the largest first, then parts of nodes that others use."""
    found, nodes = {}, 0
    for account in sorted((one for one in accounts if one.gpus >= _NODE_GPUS), key=lambda one: -one.gpus):
        found[account.id] = (_NODE_GPUS * nodes, account.gpus)
        nodes += account.gpus // _NODE_GPUS
    used: dict[int, int] = {}
    filed: dict[int, list[int]] = {level: [] for level in LEVELS}  # nodes by what divides their free GPUs
    for account in sorted((one for one in accounts if 0 < one.gpus < _NODE_GPUS), key=lambda one: -one.gpus):
        size = account.gpus
        larger = [level for level in reversed(LEVELS) if level > size]
        fit = [level for level in (size, *larger) if filed[level] and used[filed[level][0]] + size <= _NODE_GPUS]
        node = filed[fit[0]].pop(0) if fit else nodes
        nodes += not fit
        found[account.id] = (_NODE_GPUS * node + used.setdefault(node, 0), size)
        used[node] += size
        left = _NODE_GPUS - used[node]
        place = filed[max(level for level in LEVELS if left % level == 0) if left else size]
        place.append(node)
        place.sort(key=used.__getitem__)
    return found
