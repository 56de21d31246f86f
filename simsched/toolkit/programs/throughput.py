"""Largest total throughput: raw, normalised or per dollar, with or without deadlines."""

from __future__ import annotations

import numpy as np

from simsched.toolkit.programs.classes import Classes, classify
from simsched.toolkit.programs.level import SLACK
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
