"""Least mean completion time, assuming that shares stay constant."""

from __future__ import annotations

import numpy as np

from simsched.toolkit.programs.classes import Classes, classify
from simsched.toolkit.programs.level import Levels, can_run, settle
from simsched.toolkit.programs.problem import Floats, ShareProblem
from simsched.toolkit.programs.solver import (
    Method,
    Rows,
    SolverError,
    apply,
    maximise,
    on_top,
    scale_columns,
    scale_rows,
)

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
