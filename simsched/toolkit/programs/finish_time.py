"""Finish-time fairness: minimises the largest ratio of a job's finish time to that in a private slice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simsched.arithmetic import dot
from simsched.errors import input_error
from simsched.toolkit.programs.classes import Classes, classify
from simsched.toolkit.programs.objectives import Levels, can_run
from simsched.toolkit.programs.problem import Floats, ShareProblem, isolated
from simsched.toolkit.programs.solver import Method, Program, SolverError

#: Relative accuracy of the level at a ratio.
_ACCURACY = 1e-9
_MAX_CUTS = 100
#: How far above the least conceivable ratio the search starts, relative to it.
_ABOVE = 1e-8


@dataclass(frozen=True)
class Elapsed:
    """The progress of jobs: seconds since arrival, steps left, and the seconds their past steps take in isolation.

    All have shape (n,). Over calls, `isolated_s` sums the steps done divided by the isolated rate of the previous call.
    """

    age_s: Floats
    remaining_steps: Floats
    isolated_s: Floats


def finish_time(
    problem: ShareProblem, progress: Elapsed, method: Method = "auto", program: Program | None = None
) -> Floats:
    """Return the shares that minimise the largest finish-time ratio (Gavel, OSDI'20, section 4.2; Themis, NSDI'20).

    A job's ratio is (age + remaining / rate) / (isolated so far + remaining / isolated rate), the isolated rate being
    that under `isolated` shares; weights are not used. Cutting planes find it exactly: the prices of the program at one
    ratio bound it from below. Second criterion as in `max_min`. Raises `InputError` for a negative age or number of
    steps.
    """
    for name in ("age_s", "remaining_steps", "isolated_s"):
        if (getattr(progress, name) < 0).any():
            raise input_error("program", f"{name} holds a negative number", "give what is left and what has passed")
    classes = classify(problem, progress.age_s, progress.remaining_steps, progress.isolated_s)
    if not (classes.of(progress.remaining_steps) * can_run(classes)).any():
        return classes.spread(np.zeros(classes.num_variables))
    levels = _least_ratio(classes, _Ratios(classes, progress), method, program or Program())
    return classes.spread(*levels.settled(1.0))


def finish_time_ratio(problem: ShareProblem, progress: Elapsed, shares: Floats) -> Floats:
    """Return each job's ratio under `shares`, shape (n,); infinite for jobs without a rate that have steps left.

    NaN for a job of age 0 that never had work.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        left_s = np.where(progress.remaining_steps > 0, progress.remaining_steps / problem.rates(shares), 0.0)
        return np.asarray((progress.age_s + left_s) / _due_s(problem, progress))


def _due_s(problem: ShareProblem, progress: Elapsed) -> Floats:
    rate = (problem.throughput * isolated(problem)).sum(axis=1)
    left_s = np.divide(progress.remaining_steps, rate, out=np.zeros(len(rate)), where=rate > 0)
    return np.asarray(progress.isolated_s + left_s)


class _Ratios:
    """The rates that classes require for a ratio; some class can run and has steps left."""

    def __init__(self, classes: Classes, progress: Elapsed) -> None:
        self.age_s = classes.of(progress.age_s)
        self.steps = classes.of(progress.remaining_steps) * can_run(classes)
        self.due_s = classes.of(_due_s(classes.problem, progress))
        live = self.steps > 0
        #: Every class can meet ratios above this one.
        self.floor = float((self.age_s[live] / self.due_s[live]).max())
        #: The ratio under isolated shares, which every class can meet.
        alone_s = self.age_s + self.due_s - classes.of(progress.isolated_s)
        self.isolated = float((alone_s[live] / self.due_s[live]).max())

    def required(self, ratio: float) -> Floats:
        time_s = ratio * self.due_s - self.age_s
        return np.divide(self.steps, time_s, out=np.zeros(len(time_s)), where=self.steps > 0)


def _least_ratio(classes: Classes, ratios: _Ratios, method: Method, program: Program) -> Levels:
    """Return the program with the rates that the least feasible ratio requires: the root of level(ratio) = 1.

    Prices are exact only to the solver's tolerance; ratios seen so far keep a cut from leading past the root.
    """
    low, high = ratios.floor + _ABOVE * max(ratios.floor, _ABOVE), np.inf
    ratio = max(ratios.isolated, low)
    for _ in range(_MAX_CUTS):
        required = ratios.required(ratio)
        levels = Levels(classes, required, method, program)
        best = levels.raised()
        enough = best.level >= 1.0 - _ACCURACY
        if enough and (best.level <= 1.0 + _ACCURACY or ratio <= low * (1 + _ACCURACY)):
            return levels
        low, high = (low, ratio) if enough else (ratio, high)
        ratio = _next(ratios, best.prices, best.level, required, ratio, low)
        if not ratio < high:
            ratio = 0.5 * (low + high)
    raise SolverError("the finish-time ratio did not settle")


def _next(ratios: _Ratios, prices: Floats, level: float, required: Floats, ratio: float, low: float) -> float:
    """Return the least ratio, at least `low`, that these prices allow: their greatest value must cover what is due."""
    from scipy.optimize import brentq  # slow to load

    most = level * dot(prices, required)

    def missing(candidate: float) -> float:
        return dot(prices, ratios.required(candidate)) / most - 1.0

    if missing(low) <= 0:
        return low
    high = ratio if ratio > low else low * 2
    while missing(high) > 0:
        high += high - ratios.floor
    return float(brentq(missing, low, high, xtol=1e-300))
