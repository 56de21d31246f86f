"""Finish-time fairness: the largest ratio of a job's finish time to that in a private slice is as small as possible."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from simsched.errors import input_error
from simsched.programs.classes import Classes, classify
from simsched.programs.level import Levels, can_run
from simsched.programs.problem import Floats, ShareProblem
from simsched.programs.shares import isolated
from simsched.programs.solver import Method, Program, SolverError

#: Relative accuracy of the ratio.
_ACCURACY = 1e-10
_MAX_CUTS = 100


@dataclass(frozen=True)
class Elapsed:
    """How far jobs are: seconds since arrival, steps left, and the seconds their past steps take in isolation.

    All of shape (n,). `isolated_s` adds up, call by call, the steps done divided by the isolated rate of the call
    before.
    """

    age_s: Floats
    remaining_steps: Floats
    isolated_s: Floats


def finish_time(
    problem: ShareProblem, progress: Elapsed, method: Method = "auto", program: Program | None = None
) -> Floats:
    """Return the shares that minimise the largest finish-time ratio (Gavel, OSDI'20, section 4.2; Themis, NSDI'20).

    A job's ratio is (age + remaining / rate) / (isolated so far + remaining / isolated rate), the isolated rate being
    that under `isolated` shares; weights are not used. The ratio is found exactly, by cutting planes: the prices of the
    program at one ratio bound the ratio from below, and a few bounds reach it. Second criterion as in `max_min`.
    Raises `InputError` for a negative age or number of steps.
    """
    for name in ("age_s", "remaining_steps", "isolated_s"):
        if (getattr(progress, name) < 0).any():
            raise input_error("program", f"{name} holds a negative number", "give what is left and what has passed")
    classes = classify(problem, progress.age_s, progress.remaining_steps, progress.isolated_s)
    if not classes.num_classes:
        return classes.spread(np.zeros(0))
    ratios = _Ratios(classes, progress)
    if not (ratios.steps > 0).any():
        return classes.spread(np.zeros(classes.num_variables))
    return classes.spread(_least_ratio(classes, ratios, method, program or Program()).settled(1.0))


def finish_time_ratio(problem: ShareProblem, progress: Elapsed, shares: Floats) -> Floats:
    """Return each job's ratio under `shares`, shape (n,); infinite for jobs without a rate that have steps left."""
    with np.errstate(divide="ignore", invalid="ignore"):
        left_s = np.where(progress.remaining_steps > 0, progress.remaining_steps / problem.rates(shares), 0.0)
    return np.asarray((progress.age_s + left_s) / _due_s(problem, progress))


def _due_s(problem: ShareProblem, progress: Elapsed) -> Floats:
    rate = (problem.throughput * isolated(problem)).sum(axis=1)
    left_s = np.divide(progress.remaining_steps, rate, out=np.zeros(len(rate)), where=rate > 0)
    return np.asarray(progress.isolated_s + left_s)


class _Ratios:
    """The rate that each class requires for a ratio."""

    def __init__(self, classes: Classes, progress: Elapsed) -> None:
        self.age_s = classes.of(progress.age_s)
        self.steps = classes.of(progress.remaining_steps) * can_run(classes)
        self.due_s = classes.of(_due_s(classes.problem, progress))
        live = self.steps > 0
        #: Ratios above this one can be required of everybody.
        self.floor = float((self.age_s[live] / self.due_s[live]).max()) if live.any() else 0.0

    def required(self, ratio: float) -> Floats:
        time_s = ratio * self.due_s - self.age_s
        return np.divide(self.steps, time_s, out=np.zeros(len(time_s)), where=self.steps > 0)


def _least_ratio(classes: Classes, ratios: _Ratios, method: Method, program: Program) -> Levels:
    """Return the program of the rates that the least feasible ratio requires: the root of level(ratio) = 1."""
    ratio = ratios.floor + 1e-6 * max(ratios.floor, 1e-3)
    for _ in range(_MAX_CUTS):
        required = ratios.required(ratio)
        levels = Levels(classes, required, method, program)
        best = levels.raised()
        if best.level >= 1.0 - _ACCURACY:
            return levels
        ratio = _next(ratios, best.prices, best.level, required, ratio)
    raise SolverError("the finish-time ratio did not settle")


def _next(ratios: _Ratios, prices: Floats, level: float, required: Floats, ratio: float) -> float:
    """Return the least ratio that these prices allow: what they value at most must cover what is required."""
    most = level * float(prices @ required)

    def missing(candidate: float) -> float:
        return float(prices @ ratios.required(candidate)) / most - 1.0

    high = ratio
    while missing(high) > 0:
        high += high - ratios.floor
    return float(brentq(missing, ratio, high, xtol=1e-300, rtol=4 * np.finfo(float).eps))
