"""Water filling, and finish-time fairness.

Water filling raises all jobs together, freezes those that can rise no further, and continues with the rest. Finish-time
fairness minimises the largest ratio of a job's finish time to that in a private slice.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simsched.arithmetic import dot
from simsched.errors import input_error
from simsched.toolkit.programs.classes import Classes, classify
from simsched.toolkit.programs.objectives import SLACK, Levels, can_run, settle
from simsched.toolkit.programs.problem import (
    Floats,
    Integers,
    Method,
    Program,
    ShareProblem,
    SolverError,
    isolated,
    maximise,
    on_top,
    scale_columns,
    scale_rows,
    with_column,
)

Flags = npt.NDArray[np.bool_]

RULES = ("fairness", "fifo")

#: The least part of the total price at which a class counts as unable to rise; prices add up to 1.
_PRICED = 1e-6

#: The most times that levels drop by `SLACK` when the solver's answer is not quite feasible.
_MOST_LOWERED = 100

#: With more classes than this, the search for those that reach their best rate handles them together.
_MANY_CLASSES = 250


@dataclass(frozen=True)
class Entities:
    """Groups of jobs that share the cluster by weight, each with a rule for its members.

    `member[n]` numbers each job's entity; `weights[entities]` are above 0; `rules` says how an entity's jobs share: by
    their weights (`fairness`) or in the order listed (`fifo`).
    """

    member: Integers
    weights: Floats
    rules: Sequence[str]

    def __post_init__(self) -> None:
        """Raise `InputError` for an unknown rule, a weight not above 0, or a job of an unknown entity."""
        unknown = sorted(set(self.rules) - set(RULES))
        if unknown:
            raise input_error("entities", f"rule '{unknown[0]}' is not known", f"known: {', '.join(RULES)}")
        if len(self.rules) != len(self.weights) or (self.weights <= 0).any():
            raise input_error("entities", "each needs one rule and one weight above 0", "give lists of equal length")
        if len(self.member) and not 0 <= self.member.min() <= self.member.max() < len(self.weights):
            raise input_error(
                "entities", "a job belongs to none of them", f"number them from 0 to {len(self.weights) - 1}"
            )


def water_filling(problem: ShareProblem, entities: Entities | None = None, method: Method = "auto") -> Floats:
    """Return the shares whose weighted normalised rates are lexicographically max-min (Gavel, OSDI'20, section 4.3).

    Normalised is a job's rate divided by its rate under proportional shares, times its scale factor, as in `max_min`.
    With `entities`, each pass splits an entity's weight over its jobs that can still rise: by their weights, or all of
    it to the first in the queue. A class freezes when its row has a price, that is, when no best solution gives it
    more; Gavel finds those jobs by a mixed-integer program. Second criterion as in `max_min`.
    """
    facts = _facts(entities, problem.num_jobs)
    classes = classify(problem, *facts)
    if not classes.num_classes:
        return classes.spread(np.zeros(0))
    levels = _fill(classes, entities, facts, method)
    return classes.spread(*settle(classes, levels * (1.0 - SLACK) * classes.of(problem.proportional_rate()), method))


def _facts(entities: Entities | None, jobs: int) -> list[Floats]:
    """Return, by job, what distinguishes jobs besides the problem: the entity and the position in a queue."""
    if entities is None:
        return []
    queued = np.array([rule == "fifo" for rule in entities.rules])[entities.member]
    return [entities.member.astype(np.float64), np.where(queued, np.arange(1.0, jobs + 1), 0.0)]


def _fill(classes: Classes, entities: Entities | None, facts: list[Floats], method: Method) -> Floats:
    """Return the normalised rate (before scale factors) at which each class freezes."""
    problem = classes.problem
    usual = classes.of(problem.proportional_rate())
    scale = classes.of(problem.scale_factor.astype(np.float64))
    level = np.zeros(classes.num_classes)
    rising = can_run(classes) > 0
    unit = np.where(usual > 0, usual, 1.0)
    most = classes.best_rates / unit
    lowered = 0
    while rising.any():
        step = _weights(classes, entities, facts, rising) / scale
        if entities is None and classes.num_classes > _MANY_CLASSES:
            done = _capped(classes, unit, level, step, method)
            level[done] = most[done]
            rising &= ~done
            step = step * rising
            if not rising.any():
                break
        raised = _raise(classes, unit, level, step, method)
        while raised is None:  # solutions are exact to an absolute tolerance only, which may be more than the slack
            level *= 1.0 - SLACK
            lowered += 1
            if lowered > _MOST_LOWERED:
                raise SolverError("water filling lost its footing: the levels reached are not feasible")
            raised = _raise(classes, unit, level, step, method)
        height, stuck = raised
        level += height * step
        rising &= ~stuck
    return level


def _raise(classes: Classes, unit: Floats, level: Floats, step: Floats, method: Method) -> tuple[float, Flags] | None:
    """Return how far all can rise in proportion to `step`, and which classes are then stuck; None below the levels.

    Rates are in units of `unit`; the program is in units of the height at which the first class reaches its best rate.
    """
    rising = step > 0
    most = classes.best_rates / unit
    top = float((most[rising] / step[rising]).min())
    columns = classes.columns(np.minimum(level + step * top, most) * unit)
    rows, bound = classes.capacity
    rates = scale_rows(classes.rates, 1.0 / unit)
    kept = with_column(scale_columns(rows, columns), np.zeros(rows.shape[0]))
    every = on_top(kept, with_column(scale_columns(-rates, columns), step * top))
    objective = np.zeros(every.shape[1])
    objective[-1] = 1.0
    best = maximise(objective, every, np.concatenate([bound, -level * (1.0 - SLACK)]), method)
    if best is None:
        return None
    paid = best.prices[-len(level) :] * step * top
    return max(best.value, 0.0) * top, paid > _PRICED


def _capped(classes: Classes, unit: Floats, level: Floats, step: Floats, method: Method) -> Flags:
    """Return the classes that reach their best rate before any GPU is short.

    As all rise, one class after the other gets its fastest type all the time; bisection finds how many do. Not for
    entities, which split weights again after each class.
    """
    most = classes.best_rates / unit
    rising = np.flatnonzero(step > 0)
    heights = (most[rising] - level[rising]) / step[rising]
    order = np.argsort(heights, kind="stable")

    def fits(number: int) -> bool:
        reached = np.minimum(most, level + step * heights[order[number - 1]])
        raised = _raise(classes, unit, np.zeros(len(level)), reached, method)
        return raised is not None and raised[0] >= 1.0 - SLACK

    flags = np.zeros(len(level), dtype=np.bool_)
    if fits(1):  # often not even the first does
        too_many = bisect_left(range(len(order) + 1), True, lo=2, key=lambda number: not fits(number))
        flags[rising[order[: too_many - 1]]] = True
    return flags


def _weights(classes: Classes, entities: Entities | None, facts: list[Floats], rising: Flags) -> Floats:
    """Return the weight of a member of each class in this pass, 0 for those that do not rise."""
    weights = classes.of(classes.problem.weights) * rising
    if entities is None:
        return weights
    entity, place = classes.of(facts[0]).astype(np.int64), classes.of(facts[1])
    split = np.zeros(len(weights))
    for number, total in enumerate(entities.weights):
        inside = (entity == number) & rising
        if not inside.any():
            continue
        if entities.rules[number] == "fifo":
            queue = np.flatnonzero(inside)
            split[queue[np.argmin(place[queue])]] = total
        else:
            split[inside] = total * weights[inside] / (weights * classes.count)[inside].sum()
    return split


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
