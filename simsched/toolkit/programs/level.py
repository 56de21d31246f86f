"""The program for fairness and makespan: the largest level at which every job gets what it requires."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simsched.toolkit.programs.classes import Classes
from simsched.toolkit.programs.problem import Floats
from simsched.toolkit.programs.solver import (
    Method,
    Optimum,
    Program,
    SolverError,
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
