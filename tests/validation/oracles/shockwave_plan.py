"""Shockwave's plan of a window of rounds (NSDI'23) as a program for scipy's solver, and a run that follows such plans.

Written anew from `../shared/reference/peers.md` (section b.7) and `shockwave.md`, by somebody who had not seen the code
of simsched; it imports nothing of simsched. The utility is concave, so that the binaries for its pieces are not needed.

What the page leaves open is as in the cases worked by hand in `tests/toolkit/test_shockwave_plan.py`: "next scheduled"
is the end of the coming round, an estimated ratio is (age + time left at the uniform share) over the averaged fair
completion time, that of the whole job at that share. In a window the jobs that must run in every round left go first,
then those with the largest ratio; the page only says that a second program makes the order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import lil_array

from tests.validation.oracles.shockwave_replay import EXAMPLES, ROUND_S, Job, Regimes, ceil_div

BASES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
LOGS = (math.log(1e-6), *(math.log(base) for base in BASES[1:]))
MOMENTUM = 0.9


@dataclass(frozen=True)
class Setting:
    """A window: rounds, GPUs, and the weights of the program."""

    gpus: int
    rounds: int = 20
    makespan_weight: float = 1e-3
    fairness_power: float = 12.0
    most_unfair: float = 1.0
    gap: float = 0.0


@dataclass(frozen=True)
class Waiting:
    """A job to be planned: GPUs, part that is done, part that a round adds, and seconds left, since arrival, fair."""

    gpus: int
    progress: float
    gain: float
    left_s: float
    age_s: float
    fair_s: float


@dataclass(frozen=True)
class Plan:
    """Rounds of every job, the value of the program, and whether everybody can be treated fairly."""

    rounds: list[int]
    value: float
    fair: bool


def utility(progress: float) -> float:
    """Return the log of what is done, a chord between the bases."""
    return float(np.interp(progress, BASES, LOGS))


def share(setting: Setting, jobs: Sequence[Waiting]) -> float:
    return min(1.0, setting.gpus / len(jobs))


def ratio(setting: Setting, jobs: Sequence[Waiting], job: Waiting) -> float:
    return (job.age_s + job.left_s / share(setting, jobs)) / job.fair_s


def weights_of(setting: Setting, jobs: Sequence[Waiting]) -> list[float]:
    """Return the weights of the utilities where fairness cannot be had; jobs in their last round are not covered."""
    return [max(1.0, ratio(setting, jobs, job)) ** setting.fairness_power for job in jobs]


def value(setting: Setting, jobs: Sequence[Waiting], rounds: Sequence[int], weights: Sequence[float]) -> float:
    """Return what the program says a plan is worth."""
    pairs = list(zip(jobs, rounds, strict=True))
    gained = sum(w * utility(job.progress + job.gain * n) for w, (job, n) in zip(weights, pairs, strict=True))
    longest_s = max(max(0.0, job.left_s - ROUND_S * n) for job, n in pairs)
    return gained / (len(jobs) * setting.rounds) - setting.makespan_weight * longest_s


def keeps_fair(setting: Setting, jobs: Sequence[Waiting], rounds: Sequence[int]) -> bool:
    """Return whether every job, given these rounds, would still end within the bound of fairness."""
    after_s = [max(0.0, job.left_s - ROUND_S * n) / share(setting, jobs) for job, n in zip(jobs, rounds, strict=True)]
    return all(
        job.age_s + ROUND_S + rest_s <= setting.most_unfair * job.fair_s + 1e-6
        for job, rest_s in zip(jobs, after_s, strict=True)
    )


def plan(setting: Setting, jobs: Sequence[Waiting], *, by_round: bool = True) -> Plan:
    """Solve the program, without the bound of fairness and with weights where it cannot be kept.

    With `by_round` a job runs in named rounds, as on the page; without it only their numbers count, and the GPUs of the
    window as a whole: never less in value, and the same where all jobs have one GPU.
    """
    found = _solve(setting, jobs, [1.0] * len(jobs), by_round, fair=True)
    fair = found is not None
    if found is None:
        found = _solve(setting, jobs, weights_of(setting, jobs), by_round, fair=False)
    assert found is not None
    return Plan(found[0], found[1], fair)


def _solve(
    setting: Setting, jobs: Sequence[Waiting], weights: Sequence[float], by_round: bool, *, fair: bool
) -> tuple[list[int], float] | None:
    # Columns: the runs of each job (in each round, or in all), its seconds planned, its utility; the longest time left.
    n, turns = len(jobs), setting.rounds if by_round else 1
    planned, useful, longest = n * turns, n * turns + n, n * turns + 2 * n
    rows: list[tuple[dict[int, float], float, float]] = []
    for turn in range(turns):
        room = setting.gpus * setting.rounds / turns
        rows.append(({i * turns + turn: job.gpus for i, job in enumerate(jobs)}, 0.0, room))
    for i, job in enumerate(jobs):
        runs = dict.fromkeys(range(i * turns, (i + 1) * turns), -ROUND_S)
        rows.append((runs | {planned + i: 1.0}, -np.inf, 0.0))
        rows.append(({longest: 1.0, planned + i: 1.0}, job.left_s, np.inf))
        for low, high, at_low, at_high in zip(BASES, BASES[1:], LOGS, LOGS[1:], strict=False):
            slope = (at_high - at_low) / (high - low)
            chord = at_low + slope * (job.progress - low)
            rows.append(({useful + i: 1.0, planned + i: -slope * job.gain / ROUND_S}, -np.inf, chord))
        if fair:
            within_s = (setting.most_unfair * job.fair_s - job.age_s - ROUND_S) * share(setting, jobs)
            rows.append(({planned + i: 1.0}, job.left_s - within_s, np.inf))
    matrix = lil_array((len(rows), longest + 1))
    for at, (row, _, _) in enumerate(rows):
        for column, entry in row.items():
            matrix[at, column] = entry
    cost = np.zeros(longest + 1)
    cost[useful:longest] = -np.asarray(weights) / (n * setting.rounds)
    cost[longest] = setting.makespan_weight
    most = np.full(longest + 1, np.inf)
    most[:planned] = setting.rounds / turns
    most[planned:useful] = [job.left_s for job in jobs]
    most[useful:longest] = 0.0
    least = np.zeros(longest + 1)
    least[useful:longest] = -np.inf
    whole = np.append(np.ones(planned), np.zeros(2 * n + 1))
    limits = LinearConstraint(matrix.tocsr(), [low for _, low, _ in rows], [high for _, _, high in rows])
    solved = milp(
        cost, integrality=whole, bounds=Bounds(least, most), constraints=limits, options={"mip_rel_gap": setting.gap}
    )
    if solved.status == 2:
        return None
    assert solved.status == 0, solved.message
    rounds = np.rint(solved.x[:planned]).astype(int).reshape(n, turns).sum(axis=1).tolist()
    return rounds, -float(solved.fun)


@dataclass
class Planner:
    """Chooses the jobs of each round by plans made on events, and every eight rounds at least."""

    regimes: Regimes
    setting: Setting
    replan_rounds: int = 8
    plans: int = 0
    fair_plans: int = 0
    fair_s: dict[int, float] = field(default_factory=dict)
    due: dict[int, int] = field(default_factory=dict)
    ratios: dict[int, float] = field(default_factory=dict)
    seen: dict[int, int] = field(default_factory=dict)
    since: int = 0

    def __call__(self, now_s: float, jobs: Sequence[Job], _last: Sequence[Job]) -> list[Job]:
        """Return the jobs of the coming round: planned ones, then whoever has the longest time left."""
        now = {job.id: job.batch for job in jobs}
        if jobs and (now != self.seen or self.since >= self.replan_rounds):
            self.replan(now_s, jobs)
            self.seen, self.since = now, 0
        rounds_left = self.setting.rounds - self.since
        self.since += 1
        free, chosen = self.setting.gpus, []
        by_plan = sorted(
            (job for job in jobs if self.due[job.id] > 0),
            key=lambda job: (self.due[job.id] < rounds_left, -self.ratios[job.id]),
        )
        by_length = sorted(jobs, key=lambda job: -self.left(job)[1])
        for job in (*by_plan, *by_length):
            if job not in chosen and job.gpus <= free:
                free -= job.gpus
                chosen.append(job)
                self.due[job.id] -= 1
        return chosen

    def left(self, job: Job) -> tuple[float, float]:
        """Return the epochs that are done, with fractions, and the seconds that the profile leaves."""
        done = min(job.done / ceil_div(EXAMPLES[job.model], job.batch), float(len(job.epochs_s)))
        at_s = np.append(0.0, np.cumsum(job.epochs_s))
        return done, float(at_s[-1] - np.interp(done, range(len(at_s)), at_s))

    def within(self, job: Job, done: float, seconds: float) -> float:
        """Return the epochs that fit into so many seconds."""
        epochs, at_s = len(job.epochs_s), np.append(0.0, np.cumsum(job.epochs_s))
        begun_s = float(np.interp(done, range(epochs + 1), at_s))
        return float(np.interp(begun_s + seconds, at_s, range(epochs + 1))) - done

    def replan(self, now_s: float, jobs: Sequence[Job]) -> None:
        window_s, waiting = ROUND_S * self.setting.rounds, []
        fair_share = min(1.0, self.setting.gpus / len(jobs))
        for job in jobs:
            done, left_s = self.left(job)
            left_s = max(left_s, 1.0)
            age_s = now_s - job.arrival_s
            fair_s = sum(job.epochs_s) / fair_share
            self.fair_s[job.id] = MOMENTUM * self.fair_s.get(job.id, fair_s) + (1 - MOMENTUM) * fair_s
            gain = self.within(job, done, window_s) / (min(window_s, left_s) / ROUND_S) / len(job.epochs_s)
            waiting.append(Waiting(job.gpus, done / len(job.epochs_s), gain, left_s, age_s, self.fair_s[job.id]))
        made = plan(self.setting, waiting, by_round=False)
        self.plans, self.fair_plans = self.plans + 1, self.fair_plans + made.fair
        self.due = {job.id: rounds for job, rounds in zip(jobs, made.rounds, strict=True)}
        self.ratios = {job.id: ratio(self.setting, waiting, one) for job, one in zip(jobs, waiting, strict=True)}
