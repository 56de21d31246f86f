"""Programs that maximise or minimise one number.

Max-min fairness and makespan raise one level as far as every job gets what it requires at it. The least mean completion
time assumes that shares stay constant. The largest total throughput is raw, normalised or per dollar, with or without
deadlines.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simsched.toolkit.programs.classes import Classes, classify
from simsched.toolkit.programs.problem import (
    Floats,
    Method,
    Optimum,
    Program,
    Rows,
    ShareProblem,
    SolverError,
    apply,
    maximise,
    on_top,
    scale_columns,
    scale_rows,
)

#: The relative amount of the first criterion that the second may give up; above the solver's tolerance.
SLACK = 1e-9


class Level(NamedTuple):
    """The largest `level` with rate >= level x required for all classes, and the price of each class's row.

    Prices times requirements add up to 1; a class with a positive price gets exactly its due in every best solution.
    """

    level: float
    prices: Floats


class Settled(NamedTuple):
    """Variables and the noise level of each, as `Classes.spread` takes them."""

    x: Floats
    noise: Floats


class Levels:
    """The program of one level for all classes, solved for their requirements and again for the second criterion."""

    def __init__(
        self, classes: Classes, required: Floats, method: Method = "auto", program: Program | None = None
    ) -> None:
        """Take what each class requires at level 1; classes that require 0 are left out. `program` is reused."""
        self._classes, self._required = classes, required
        self._scale = _scale(classes, required)
        self._asked = np.flatnonzero(required > 0) if self._scale > 0 else np.zeros(0, dtype=np.int64)
        self._due = required[self._asked] * self._scale
        self._columns = classes.columns(required * self._scale)
        bound = np.concatenate([classes.bound, np.zeros(len(self._due))])
        self._program = program or Program()
        self._program.load(classes.with_level(self._asked, self._due, self._columns), bound, method)

    def raised(self) -> Level:
        """Return the largest level at which every class gets its due."""
        prices = np.zeros(len(self._required))
        if not len(self._asked):
            return Level(0.0, prices)
        objective = np.zeros(self._classes.num_variables + 1)
        objective[-1] = 1.0
        best = _solved(self._program.maximise(objective))
        prices[self._asked] = np.maximum(best.prices[-len(self._asked) :], 0.0) / self._due * self._scale
        return Level(best.value * self._scale, prices)

    def settled(self, level: float) -> Settled:
        """Return the variables that reach a level, less `SLACK`, and are best by the second criterion."""
        variables, classes = self._classes.num_variables, self._classes
        if not len(self._asked):
            return Settled(np.zeros(variables), np.zeros(variables))
        least = level / self._scale
        self._program.keep_above(variables, least * (1.0 - SLACK))
        goal = classes.second_criterion(self._columns)
        found = _solved(self._program.maximise(np.append(goal, 0.0)))
        return Settled(found.x[:-1] * self._columns, classes.noise(level * self._required))


def settle(classes: Classes, least: Floats, method: Method = "auto") -> Settled:
    """Return the variables that meet `least`, a rate for each class, and are best by the second criterion."""
    columns = classes.columns(least)
    asked = np.flatnonzero(least > 0)
    rows, bound = classes.capacity
    every = on_top(rows, scale_rows(classes.rates[asked], -1.0 / least[asked]))
    limit = np.concatenate([bound, np.full(len(asked), SLACK - 1.0)])
    found = _solved(maximise(classes.second_criterion(columns), scale_columns(every, columns), limit, method))
    return Settled(found.x * columns, classes.noise(least))


def can_run(classes: Classes) -> Floats:
    """Return 1 for classes with a rate on some type, 0 for those that can never run."""
    return np.asarray(classes.best_rates > 0, dtype=np.float64)


def _scale(classes: Classes, required: Floats) -> float:
    """Return the level that the job with the most work reaches alone; in this unit, levels are near 1.

    The solver's tolerances are absolute.
    """
    best = classes.best_rates
    useful = (required > 0) & (best > 0)
    return float((best[useful] / required[useful]).min()) if useful.any() else 0.0


def _solved(optimum: Optimum | None) -> Optimum:
    if optimum is None:
        raise SolverError("the program has no solution")
    return optimum


def max_min(problem: ShareProblem, method: Method = "auto", program: Program | None = None) -> Floats:
    """Return the shares that maximise the least weighted rate, relative to the proportional share.

    The objective is min_i scale_factor_i / (weight_i p_i) x rate_i, where p_i is the rate under proportional shares
    (Gavel, OSDI'20, section 4.1, with the scale factor of its simulator). Among the best shares, those with the least
    GPU time win (`Classes.second_criterion`). A job that cannot run anywhere gets 0. Pass `problem.agnostic()` for the
    form without rates, and reuse `program` to save building one.
    """
    required = problem.weights * problem.proportional_rate() / problem.scale_factor
    return _at_level(classify(problem), required, method, program)


def makespan(
    problem: ShareProblem, remaining_steps: Floats, method: Method = "auto", program: Program | None = None
) -> Floats:
    """Return the shares under which the last job ends as early as possible (Gavel, OSDI'20, section 4.2).

    The objective is the largest s with rate_i >= s x remaining_i: the makespan is 1/s. `remaining_steps`, shape (n,),
    is in the unit of the rates; jobs without steps left or a type to run on do not count. Second criterion as in
    `max_min`.
    """
    return _at_level(classify(problem, remaining_steps), remaining_steps, method, program)


def _at_level(classes: Classes, required: Floats, method: Method, program: Program | None) -> Floats:
    if not classes.num_classes:
        return classes.spread(np.zeros(0))
    due = classes.of(required) * can_run(classes)
    levels = Levels(classes, due, method, program)
    return classes.spread(*levels.settled(levels.raised().level))


#: Relative gap between the best shares found and the bound at which the search stops.
_GAP = 1e-9
_MAX_CUTS = 200
#: The relative fall in the total below which units no longer change, and the most times that they do.
_NEAR, _MAX_UNITS = 0.01, 20
#: The position of the tangents of the least rates: a rate that loses this much is never optimal.
_LEAST = 1e-6


def min_jct(problem: ShareProblem, remaining_steps: Floats, method: Method = "auto", gap: float = _GAP) -> Floats:
    """Return the shares that minimise the sum of remaining / rate over jobs (`min_jct` of Sia's fork of Gavel).

    A job's age is a constant of the objective, hence not an input. Tangents approach the convex objective from below to
    the relative `gap`; the best rates are unique, and the second criterion of `max_min` picks the shares.
    """
    classes = classify(problem, remaining_steps)
    steps = classes.of(remaining_steps) * can_run(classes)
    if not (steps > 0).any():
        return classes.spread(np.zeros(classes.num_variables))
    rates = _best_rates(classes, steps, method, gap)
    return classes.spread(*settle(classes, rates * (1.0 - _GAP), method))


def _best_rates(classes: Classes, steps: Floats, method: Method, gap: float) -> Floats:
    """Return the rate of each class, solved in units of the best rates so far, since tolerances are absolute."""
    live = np.flatnonzero(steps > 0)
    rates = np.zeros(len(steps))
    rates[live] = Levels(classes, steps, method).raised().level * steps[live]
    for _ in range(_MAX_UNITS):
        relative, value = _improved(classes, classes.count * steps, rates, method, gap)
        rates[live] *= relative
        if value >= 1.0 - _NEAR:
            return rates
    raise SolverError("the least completion time did not settle")


def _improved(classes: Classes, work: Floats, rates: Floats, method: Method, gap: float) -> tuple[Floats, float]:
    """Return the best rates of the classes that have one, relative to those given, and their total of work / rate."""
    from scipy import sparse  # slow to load

    live = np.flatnonzero(rates > 0)
    weight = work[live] / rates[live]
    weight = weight / weight.sum()
    columns = classes.columns(rates)
    relative = scale_columns(scale_rows(classes.rates[live], 1.0 / rates[live]), columns)
    base, bound = classes.capacity
    base = scale_columns(base, columns)
    rows = [sparse.hstack([sparse.csr_array(base), sparse.csr_array((base.shape[0], len(live)))], format="csr")]
    limits = [bound]
    objective = np.concatenate([np.zeros(classes.num_variables), -weight])
    best, best_at = 1.0, np.ones(len(live))
    at = [best_at * factor for factor in (0.5, 1.0, 2.0, 4.0, 8.0)]
    for _ in range(_MAX_CUTS):
        for point in at:
            rows.append(_tangent(relative, point))
            limits.append(np.full(len(point), -2.0))
        found = maximise(objective, on_top(*rows), np.concatenate(limits), method)
        if found is None:
            raise SolverError("the program of least completion time has no solution")
        reached = np.maximum(apply(relative, found.x[: classes.num_variables]), _LEAST)
        value = float((weight / reached).sum())
        if value < best:
            best, best_at = value, reached
        if best + found.value <= gap * best:
            return best_at, best
        at = [reached, np.sqrt(reached * best_at)]
    raise SolverError("the least completion time did not settle")


def _tangent(relative: Rows, point: Floats) -> Rows:
    """Rows of r0 x cost >= 2 - r / r0, the tangent of 1 / r at r0 in a form whose entries the solver does not drop."""
    from scipy import sparse  # slow to load

    cost = sparse.diags_array(-point)
    return sparse.hstack([sparse.csr_array(scale_rows(relative, -1.0 / point)), cost], format="csr")


def total_throughput(
    problem: ShareProblem,
    *,
    normalised: bool = False,
    price: Floats | None = None,
    least_rate: Floats | None = None,
    method: Method = "auto",
) -> Floats:
    """Return the shares with the largest total of the jobs' rates (Gavel, OSDI'20, section 4.2 and its simulator).

    `normalised` divides each job's rates by its fastest, since raw steps favour models with short steps. `price[k]`
    divides the rates on a type by its price (dollars an hour): Gavel's "minimum cost". `least_rate[n]` is the rate that
    meets each job's deadline, 0 for no deadline; if they cannot all be met, all are dropped. Second criterion as in
    `max_min`. Raises `SolverError` if the solver fails.
    """
    demand = np.zeros(problem.num_jobs) if least_rate is None else least_rate
    classes = classify(problem, demand)
    if not classes.num_classes:
        return classes.spread(np.zeros(0))
    need = classes.of(demand)
    columns = classes.columns(need)
    goal = _goal(classes, price, normalised=normalised) * columns
    rows, bound = _with_deadlines(classes, need)
    best = _largest(goal, scale_columns(rows, columns), bound, method)
    if best is None:
        columns, goal = np.ones(len(goal)), goal / columns
        rows, bound = classes.capacity
        best = _largest(goal, rows, bound, method)
    if best is None or best <= 0:
        return classes.spread(np.zeros(classes.num_variables))
    kept = on_top(scale_columns(rows, columns), _row(-goal / best))
    chosen = maximise(classes.second_criterion(columns), kept, np.append(bound, SLACK - 1.0), method)
    if chosen is None:
        raise SolverError("the best total could not be reached again")
    return classes.spread(chosen.x * columns, classes.noise(need))


def _largest(goal: Floats, rows: Rows, bound: Floats, method: Method) -> float | None:
    """Return the largest total, solved in units of its largest part; None if nothing satisfies the rows."""
    unit = float(goal.max())
    best = maximise(goal / unit if unit > 0 else goal, rows, bound, method)
    return None if best is None else best.value * max(unit, 0.0)


def _goal(classes: Classes, price: Floats | None, *, normalised: bool) -> Floats:
    best = classes.best_rates
    per_class = classes.count.astype(np.float64)
    if normalised:
        per_class = np.divide(per_class, best, out=np.zeros(len(best)), where=best > 0)
    goal = apply(classes.rates.T, per_class)
    if price is not None:
        goal /= np.resize(price[classes.type_order], len(goal))
    return goal


def _with_deadlines(classes: Classes, need: Floats) -> tuple[Rows, Floats]:
    rows, bound = classes.capacity
    due = np.flatnonzero(need > 0)
    if not len(due):
        return rows, bound
    return on_top(rows, scale_rows(classes.rates[due], -1.0 / need[due])), np.append(bound, np.full(len(due), -1.0))


def _row(values: Floats) -> Rows:
    from scipy import sparse  # slow to load

    return sparse.csr_array(values[None, :])
