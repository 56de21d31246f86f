"""The input of every program of shares (rates, GPUs asked for and available), and linear programs solved by HiGHS.

`scipy.optimize.linprog` calls the same solver with the same answers (tested), but on a program of about 60 variables
HiGHS takes 0.6 ms, and scipy's checks around it 3 ms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from simsched.arithmetic import times
from simsched.errors import input_error

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Pairs:
    """Pairs of jobs that may share GPUs; both ask for the same number of GPUs.

    `jobs[pairs, 2]` are positions of jobs; `throughput[pairs, 2, types]` are the rates of both when they run together,
    in the unit of `ShareProblem.throughput`.
    """

    jobs: Integers
    throughput: Floats


@dataclass(frozen=True)
class ShareProblem:
    """An instance: n jobs on k GPU types.

    `throughput[n, k]` is the rate of a whole job on each type (for example steps per second; 0 if it cannot run),
    `scale_factor[n]` the GPUs that it holds when it runs, `num_gpus[k]` the GPUs of each type and `weights[n]` its
    weight, default 1. With `pairs`, `kinds[n]` may number the kinds of jobs: jobs of one kind have equal rates, alone
    and in pairs.

    A solution is an array of shares of time, one row for each job and then for each pair, one column for each type. The
    rows that contain a job add up to at most 1, and the use of no type exceeds its GPUs.
    """

    throughput: Floats
    scale_factor: Integers
    num_gpus: Integers | Floats
    weights: Floats = field(default_factory=lambda: np.ones(0))
    pairs: Pairs | None = None
    kinds: Integers | None = None

    def __post_init__(self) -> None:
        """Raise `InputError` if shapes or values are invalid."""
        jobs, types = self.throughput.shape
        if not len(self.weights):
            object.__setattr__(self, "weights", np.ones(jobs))
        shapes: Mapping[str, tuple[int, ...]] = {"scale_factor": (jobs,), "weights": (jobs,), "num_gpus": (types,)}
        for name, shape in shapes.items():
            if getattr(self, name).shape != shape:
                raise input_error("program", f"{name} has shape {getattr(self, name).shape}", f"give {shape}")
        if jobs and (self.scale_factor.min() < 1 or self.weights.min() <= 0):
            raise input_error("program", "a job has no GPUs or no weight", "give at least 1 GPU and a weight above 0")
        if not np.isfinite(self.throughput).all() or (self.throughput < 0).any():
            raise input_error("program", "a rate is negative or no number", "give rates of at least 0")
        if self.pairs is not None and len(self.pairs.jobs):
            first, second = self.scale_factor[self.pairs.jobs].T
            if (first != second).any():
                raise input_error("program", "a pair's jobs ask for different numbers of GPUs", "leave such pairs out")

    @property
    def num_jobs(self) -> int:
        """Count the jobs."""
        return len(self.throughput)

    def agnostic(self) -> ShareProblem:
        """Return the same instance with rate 1 everywhere and without pairs, for policies without rates."""
        return ShareProblem(np.ones_like(self.throughput), self.scale_factor, self.num_gpus, self.weights)

    def usable(self, rates: Floats) -> Floats:
        """Return rates by type (the last axis), 0 for types without GPUs."""
        return np.where(self.num_gpus > 0, rates, 0.0)

    def proportional_rate(self) -> Floats:
        """Return the rate of each job when its time is split over types in proportion to their GPUs, shape (n,)."""
        return times(self.throughput, self.num_gpus / self.num_gpus.sum())

    def rates(self, shares: Floats) -> Floats:
        """Return the rate of each job under `shares`, pairs included, shape (n,)."""
        jobs = self.num_jobs
        rates: Floats = np.asarray((self.throughput * shares[:jobs]).sum(axis=1))
        if self.pairs is not None:
            for side in (0, 1):
                gained = (self.pairs.throughput[:, side] * shares[jobs:]).sum(axis=1)
                np.add.at(rates, self.pairs.jobs[:, side], gained)
        return rates


def pairs_of_kinds(kinds: Integers, scale_factor: Integers, beside: Floats, slack: float = 0.0) -> Pairs:
    """Return all pairs of jobs of equal size with rates in the table of their kinds.

    `beside[kinds, kinds, types]` is the rate of the first kind next to the second, 0 if not measured. A pair is kept if
    both rates exceed `slack` on some type; its rates are 0 on the other types.
    """
    first, second = np.triu_indices(len(kinds), k=1)
    equal = scale_factor[first] == scale_factor[second]
    first, second = first[equal], second[equal]
    rates = np.stack([beside[kinds[first], kinds[second]], beside[kinds[second], kinds[first]]], axis=1)
    live = np.asarray(rates > slack).all(axis=1).reshape(len(rates), beside.shape[2])
    rates = np.where(live[:, None, :], rates, 0.0)
    some = np.asarray(live.any(axis=1))
    return Pairs(np.stack([first, second], axis=1)[some].astype(np.int64), rates[some])


def isolated(problem: ShareProblem) -> Floats:
    """Return each job's shares in a private n-th of the cluster: N_k / (n scale_factor), rows capped at 1.

    A row above 1 is divided by its sum (Gavel, OSDI'20, baseline "isolated"). Shape (n, k).
    """
    if not problem.num_jobs:
        return np.zeros(problem.throughput.shape)
    shares = problem.num_gpus / problem.num_jobs / problem.scale_factor[:, None].astype(np.float64)
    return np.asarray(shares / np.maximum(shares.sum(axis=1), 1.0)[:, None])


def proportional(problem: ShareProblem) -> Floats:
    """Return N_k / sum N for every job: all its time, split as the GPUs are. Shape (n, k).

    Ignores capacity: the round mechanism decides which jobs wait.
    """
    return np.tile(problem.num_gpus / problem.num_gpus.sum(), (problem.num_jobs, 1))


def gandiva_fair(problem: ShareProblem) -> Floats:
    """Return min(1, N / n) of the time for every job, whatever its size, split over types as the GPUs are.

    Shockwave (NSDI'23) compares with it under the name Gandiva-Fair, on one type. Shape (n, k).
    """
    if not problem.num_jobs:
        return np.zeros(problem.throughput.shape)
    return proportional(problem) * min(1.0, float(problem.num_gpus.sum()) / problem.num_jobs)


#: `auto` is the simplex method for small programs and the interior-point method, with crossover, for large ones.
#: `interior`, the same without crossover, ends in the middle of the best solutions, which is not always unique.
Method = Literal["auto", "highs-ds", "highs-ipm", "interior"]

#: A sparse matrix by rows, or a dense one if it is small. Scipy's stubs say little about their operations.
Rows = Any


#: The number of rows from which the interior-point method is faster (measured on max-min fairness).
_MANY_ROWS = 600

#: Tolerances of HiGHS, and the size below which it drops entries, at their tightest.
_TOLERANCE, _DROPPED = 1e-10, 1e-12
_OPTIONS: Mapping[str, Any] = MappingProxyType(
    {
        "primal_feasibility_tolerance": _TOLERANCE,
        "dual_feasibility_tolerance": _TOLERANCE,
        "small_matrix_value": _DROPPED,
        "output_flag": False,
        "threads": 1,
    }
)

#: The number of rows up to which the simplex method is faster without presolve and scaling.
_FEW_ROWS = 200
_AT_ONCE: Mapping[str, Any] = MappingProxyType({"presolve": "off", "simplex_scale_strategy": 0})
_USUAL: Mapping[str, Any] = MappingProxyType({"presolve": "choose", "simplex_scale_strategy": 2, "simplex_strategy": 1})

#: HiGHS's numbers of the variants of the simplex method.
_DUAL, _PRIMAL = 1, 4


class Optimum(NamedTuple):
    """A solution, its objective, and the price of each row (at least 0)."""

    x: Floats
    value: float
    prices: Floats


class SolverError(RuntimeError):
    """HiGHS failed on a program for a reason other than infeasibility."""


class Program:
    """Maximises over x >= 0 with `rows @ x <= bound`; small programs start from the previous solution.

    Reuse one object for many programs, since a new solver costs as much as a small program. Results equal those of a
    new one.
    """

    def __init__(self) -> None:
        """Start without rows; `load` provides them."""
        self._solver: Any = None

    def __reduce__(self) -> tuple[type[Program], tuple[()]]:
        """Copy to a program without rows, since HiGHS cannot be copied."""
        return Program, ()

    def load(self, rows: Rows, bound: Floats, method: Method = "auto") -> Program:
        """Replace the rows and return the program; objectives come with `maximise`."""
        if self._solver is None:
            import highspy  # slow to load

            self._solver = highspy.Highs()  # type: ignore[no-untyped-call]
            self._set(_OPTIONS)
        if method == "auto":
            method = "highs-ipm" if len(bound) > _MANY_ROWS else "highs-ds"
        self._set({"solver": "simplex" if method == "highs-ds" else "ipm"})
        self._set({"run_crossover": "off" if method == "interior" else "on"})
        self._small = method == "highs-ds" and len(bound) <= _FEW_ROWS
        self._set(_AT_ONCE if self._small else _USUAL)
        if self._small:
            # Presolve takes as long as such programs do. The primal method starts at x = 0 if it may.
            self._set({"simplex_strategy": _PRIMAL if (bound >= 0).all() else _DUAL})
        self._solver.passModel(_model(rows, bound))
        self._columns = np.arange(rows.shape[1], dtype=np.int32)
        return self

    def maximise(self, objective: Floats) -> Optimum | None:
        """Return the best x for this objective, None if nothing satisfies the rows; `SolverError` on other failures."""
        from highspy import HighsModelStatus  # slow to load

        solver = self._solver
        solver.changeColsCost(len(self._columns), self._columns, -objective)
        if not self._small:
            solver.clearSolver()
        solver.run()
        # An optimum reached from the previous solution may violate rows.
        exact = (
            solver.getModelStatus() == HighsModelStatus.kOptimal
            and solver.getInfo().max_primal_infeasibility <= _TOLERANCE
        )
        if self._small and not exact:
            self._set(_USUAL)
            solver.clearSolver()
            solver.run()
        status = solver.getModelStatus()
        if status == HighsModelStatus.kInfeasible:
            return None
        if status != HighsModelStatus.kOptimal:
            raise SolverError(solver.modelStatusToString(status))
        found = solver.getSolution()
        return Optimum(np.array(found.col_value), -float(solver.getObjectiveValue()), -np.array(found.row_dual))

    def _set(self, options: Mapping[str, Any]) -> None:
        for name, value in options.items():
            self._solver.setOptionValue(name, value)

    def keep_above(self, column: int, least: float) -> None:
        """Require `column` to be at least `least` from now on."""
        self._solver.changeColBounds(column, least, np.inf)


def maximise(objective: Floats, rows: Rows, bound: Floats, method: Method = "auto") -> Optimum | None:
    """Maximise `objective @ x` over x >= 0 with `rows @ x <= bound`; None if nothing satisfies the rows."""
    return Program().load(rows, bound, method).maximise(objective)


def _model(rows: Rows, bound: Floats) -> Any:
    """Return `rows @ x <= bound` and x >= 0 as highspy takes it, without costs."""
    import highspy  # slow to load

    if _dense(rows):
        row, index = np.nonzero(rows)
        start, entries = np.searchsorted(row, np.arange(len(bound) + 1)), rows[row, index]
    else:
        start, index, entries = rows.indptr, rows.indices, rows.data
    model = highspy.HighsLp()
    model.num_row_, model.num_col_ = rows.shape
    columns = rows.shape[1]
    model.col_cost_ = model.col_lower_ = np.zeros(columns)
    model.col_upper_ = np.full(columns, np.inf)
    model.row_lower_, model.row_upper_ = np.full(len(bound), -np.inf), bound
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_, model.a_matrix_.index_, model.a_matrix_.value_ = start, index, entries
    return model


def with_column(rows: Rows, column: Floats) -> Rows:
    """Append a column to a matrix."""
    if _dense(rows):
        return np.column_stack([rows, column])
    from scipy import sparse  # slow to load

    return sparse.hstack([rows, sparse.csr_array(column[:, None])], format="csr")


def on_top(*parts: Rows) -> Rows:
    """Stack matrices with the same number of columns."""
    if all(_dense(part) for part in parts):
        return np.vstack(parts)
    from scipy import sparse  # slow to load

    return sparse.vstack([sparse.csr_array(part) for part in parts], format="csr")


def scale_rows(rows: Rows, by: Floats) -> Rows:
    """Multiply each row of a matrix by a number."""
    if _dense(rows):
        return by[:, None] * rows
    from scipy import sparse  # slow to load

    return sparse.csr_array(sparse.diags_array(by) @ rows)


def scale_columns(rows: Rows, by: Floats) -> Rows:
    """Multiply each column of a matrix by a number."""
    if _dense(rows):
        return rows * by
    from scipy import sparse  # slow to load

    return sparse.csr_array(rows @ sparse.diags_array(by))


def apply(rows: Rows, x: Floats) -> Floats:
    """Multiply a matrix by a vector; numpy's dense product would depend on the processor."""
    return np.asarray(times(rows, x) if _dense(rows) else rows @ x)


def _dense(rows: Rows) -> bool:
    return isinstance(rows, np.ndarray)
