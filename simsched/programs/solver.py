"""Linear programs solved by HiGHS through scipy."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from scipy import optimize, sparse

from simsched.programs.problem import Floats

#: `auto` is the dual simplex method for small programs and the interior-point method, with crossover, for large ones.
Method = Literal["auto", "highs-ds", "highs-ipm"]

#: A sparse matrix by rows, or a dense one where it is small. Scipy's stubs say little about operations on these.
Rows = Any

#: From how many rows on the interior-point method is faster (measured on max-min fairness).
_MANY_ROWS = 600

#: Tolerances of HiGHS, its tightest: shares are rounded to eight digits after the point.
_TOLERANCE = 1e-10
_OPTIONS = {"primal_feasibility_tolerance": _TOLERANCE, "dual_feasibility_tolerance": _TOLERANCE}
_INFEASIBLE = 2


class Optimum(NamedTuple):
    """A solution, its objective, and the price of each row (at least 0)."""

    x: Floats
    value: float
    prices: Floats


class SolverError(RuntimeError):
    """HiGHS gave up on a program for a reason other than that it has no solution."""


def maximise(objective: Floats, rows: Rows, bound: Floats, method: Method = "auto") -> Optimum | None:
    """Maximise `objective @ x` over x >= 0 with `rows @ x <= bound`; None where nothing satisfies the rows."""
    if method == "auto":
        method = "highs-ipm" if len(bound) > _MANY_ROWS else "highs-ds"
    solve: Any = optimize.linprog
    result = solve(-objective, A_ub=rows, b_ub=bound, bounds=(0, None), method=method, options=_OPTIONS)
    if result.status == _INFEASIBLE:
        return None
    if result.x is None:
        raise SolverError(result.message)
    return Optimum(np.asarray(result.x), -float(result.fun), -np.asarray(result.ineqlin.marginals))


def with_column(rows: Rows, column: Floats) -> Rows:
    """Append a column to a matrix."""
    if _dense(rows):
        return np.column_stack([rows, column])
    return sparse.hstack([rows, sparse.csr_array(column[:, None])], format="csr")


def on_top(*parts: Rows) -> Rows:
    """Put matrices with equally many columns on top of each other."""
    if all(_dense(part) for part in parts):
        return np.vstack(parts)
    return sparse.vstack([sparse.csr_array(part) for part in parts], format="csr")


def scale_rows(rows: Rows, by: Floats) -> Rows:
    """Multiply each row of a matrix by a number."""
    if _dense(rows):
        return by[:, None] * rows
    return sparse.csr_array(sparse.diags_array(by) @ rows)


def largest_in_rows(rows: Rows) -> Floats:
    """Return the largest entry of each row, at least 0."""
    if not rows.shape[0]:
        return np.zeros(0)
    if _dense(rows):
        return np.asarray(np.maximum(rows.max(axis=1), 0.0), dtype=np.float64)
    return np.asarray(rows.max(axis=1).toarray(), dtype=np.float64).ravel()


def _dense(rows: Rows) -> bool:
    return isinstance(rows, np.ndarray)
