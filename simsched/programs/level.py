"""The program behind fairness and makespan: the largest level at which every job gets what it requires."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simsched.programs.classes import Classes
from simsched.programs.problem import Floats
from simsched.programs.solver import (
    Method,
    Optimum,
    SolverError,
    largest_in_rows,
    maximise,
    on_top,
    scale_rows,
    with_column,
)

#: By how much, relatively, the second criterion may fall short of the first; above the solver's tolerance.
SLACK = 1e-9

#: The part of its best rate below which a class counts as getting nothing.
_NOTHING = 1e-8


class Level(NamedTuple):
    """The largest `level` with rate >= level x required for all classes, and the price of each class's row.

    Prices times requirements add up to 1; a class with a price above 0 has exactly its due in every best solution.
    """

    level: float
    prices: Floats


def largest_level(classes: Classes, required: Floats, method: Method = "auto") -> Level:
    """Maximise s such that every class has a rate of at least s x `required` (classes that require 0 are left out)."""
    scale = _scale(classes, required)
    asked = required > 0
    if scale == 0 or not asked.any():
        return Level(0.0, np.zeros(len(required)))
    due = (required * scale)[asked]
    rows, bound = classes.capacity
    need = with_column(scale_rows(classes.rates[np.flatnonzero(asked)], -1.0 / due), np.ones(len(due)))
    rows = on_top(with_column(rows, np.zeros(rows.shape[0])), need)
    objective = np.zeros(rows.shape[1])
    objective[-1] = 1.0
    best = _solved(maximise(objective, rows, np.concatenate([bound, np.zeros(len(due))]), method))
    prices = np.zeros(len(required))
    prices[asked] = np.maximum(best.prices[-len(due) :], 0.0) / due * scale
    return Level(best.value * scale, prices)


def settle(classes: Classes, least: Floats, method: Method = "auto") -> Floats:
    """Return the variables that meet `least`, a rate for each class, and are best by the second criterion."""
    asked = np.flatnonzero(least > _NOTHING * largest_in_rows(classes.rates))
    rows, bound = classes.capacity
    every = on_top(rows, scale_rows(classes.rates[asked], -1.0 / least[asked]))
    limit = np.concatenate([bound, np.full(len(asked), SLACK - 1.0)])
    return _solved(maximise(classes.second_criterion, every, limit, method)).x


def can_run(classes: Classes) -> Floats:
    """Return 1 for classes that have a rate somewhere, 0 for those that can never run."""
    return np.asarray(largest_in_rows(classes.rates) > 0, dtype=np.float64)


def _scale(classes: Classes, required: Floats) -> float:
    """Return a factor on requirements that brings levels near 1, since the solver's tolerances are absolute."""
    best = largest_in_rows(classes.rates)
    useful = (required > 0) & (best > 0)
    return float(np.median(best[useful] / required[useful])) if useful.any() else 0.0


def _solved(optimum: Optimum | None) -> Optimum:
    if optimum is None:
        raise SolverError("the program has no solution")
    return optimum
