"""Least mean completion time if shares stayed as they are."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from simsched.programs.classes import Classes, classify
from simsched.programs.level import Levels, can_run, settle
from simsched.programs.problem import Floats, ShareProblem
from simsched.programs.solver import Method, Rows, SolverError, maximise, on_top, scale_rows

#: Relative gap between the best shares found and the bound at which the search ends.
_GAP = 1e-9
_MAX_CUTS = 200


def min_jct(problem: ShareProblem, remaining_steps: Floats, method: Method = "auto", gap: float = _GAP) -> Floats:
    """Return the shares that minimise the sum of remaining / rate over jobs (`min_jct` of Sia's fork of Gavel).

    A job's age is a constant of the objective, so it is not asked for. The convex objective is approached from below by
    tangents until the relative `gap` is reached; the best rates are unique, the shares behind them follow the second
    criterion of `max_min`.
    """
    classes = classify(problem, remaining_steps)
    steps = classes.of(remaining_steps) * can_run(classes)
    if not (steps > 0).any():
        return classes.spread(np.zeros(classes.num_variables))
    rates = _best_rates(classes, steps, method, gap)
    return classes.spread(settle(classes, rates * (1.0 - _GAP), method))


def jct_value(problem: ShareProblem, remaining_steps: Floats, shares: Floats) -> float:
    """Return the sum of remaining / rate under `shares`; infinite where a job with steps left has no rate."""
    live = remaining_steps > 0
    rates = problem.rates(shares)[live]
    return float((remaining_steps[live] / rates).sum()) if (rates > 0).all() else np.inf


def _best_rates(classes: Classes, steps: Floats, method: Method, gap: float) -> Floats:
    """Return the rate of each class; costs are in units of the total at the start, rates in those of the start."""
    live = np.flatnonzero(steps > 0)
    start = Levels(classes, steps, method).raised().level * steps[live]
    weight = classes.count[live] * steps[live] / start
    weight = weight / weight.sum()
    relative = scale_rows(classes.rates[live], 1.0 / start)
    base, bound = classes.capacity
    base = sparse.hstack([sparse.csr_array(base), sparse.csr_array((base.shape[0], len(live)))], format="csr")
    rows, limits = [base], [bound]
    objective = np.concatenate([np.zeros(classes.num_variables), -weight])
    at = [np.ones(len(live)) * factor for factor in (1.0, 2.0, 4.0, 8.0)]
    best, best_at = np.inf, at[0]
    for _ in range(_MAX_CUTS):
        for point in at:
            rows.append(_tangent(relative, point))
            limits.append(-2.0 / point)
        found = maximise(objective, on_top(*rows), np.concatenate(limits), method)
        if found is None:
            raise SolverError("the program of least completion time has no solution")
        point = np.maximum(np.asarray(relative @ found.x[: classes.num_variables]), 1e-3)
        value = float((weight / point).sum())
        if value < best:
            best, best_at = value, point
        if best + found.value <= gap * best:
            break
        at = [point, np.sqrt(point * best_at)]
    else:
        raise SolverError("the least completion time did not settle")
    rates = np.zeros(len(steps))
    rates[live] = best_at * start
    return rates


def _tangent(relative: Rows, point: Floats) -> Rows:
    """Rows of cost >= 2 / r0 - r / r0^2, the tangent of 1 / r at r0."""
    cost = sparse.diags_array(-np.ones(len(point)))
    return sparse.hstack([sparse.csr_array(scale_rows(relative, -1.0 / point**2)), cost], format="csr")
