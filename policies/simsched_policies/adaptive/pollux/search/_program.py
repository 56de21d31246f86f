"""The mixed-integer program behind the bound: which configurations of jobs fit on the nodes together.

Variables: one for each configuration of each job; for each group of nodes the number of (changed) jobs on one node by
size; and the GPUs and nodes that changing distributed jobs use there, in total or job by job.
"""

from dataclasses import dataclass, field

import numpy as np

from .allocation_problem import AllocationProblem, BoolArray, FloatArray, IntArray

NOTHING, CURRENT = -2, -1
Term = tuple[IntArray, FloatArray | IntArray | float]  # variables and their coefficients


@dataclass(frozen=True)
class Columns:
    """Configurations, one entry for each: the job, ``group`` (NOTHING, CURRENT or a class of nodes), GPUs, worth."""

    job: IntArray
    group: IntArray
    gpus: IntArray
    value: FloatArray


@dataclass
class _Rows:
    """Constraints under construction: ``low`` <= sum of values x variables <= ``high``."""

    width: int
    row: list[int] = field(default_factory=list)
    column: list[int] = field(default_factory=list)
    value: list[float] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)

    def new(self, count: int) -> IntArray:
        """Add variables; returns their indices."""
        self.width += count
        return np.arange(self.width - count, self.width)

    def add(self, terms: list[Term], high: float, low: float = -np.inf) -> None:
        """Add one constraint, given as pairs of variables and coefficients."""
        for columns, values in terms:
            self.row += [len(self.low)] * columns.size
            self.column += columns.tolist()
            self.value += np.broadcast_to(np.asarray(values, dtype=np.float64), columns.shape).tolist()
        self.low.append(low)
        self.high.append(high)


@dataclass(frozen=True)
class _Nodes:
    """The variables of one group of identical nodes."""

    sizes: IntArray  # jobs on one node: their GPUs
    items: IntArray  # and the number of such jobs
    gpus: IntArray  # GPUs of distributed jobs, in total or one by one
    touched: IntArray  # nodes used by them


def program_bound(
    problem: AllocationProblem, columns: Columns, time_limit_s: float, *, whole: bool, split: bool
) -> float:
    """Return an upper bound of the summed worth; infinite if none is found in time.

    Args:
        problem: the round.
        columns: the configurations to choose from; no other can be part of a better allocation.
        time_limit_s: for the solver.
        whole: choices are integral, and busy nodes have separate constraints; otherwise the linear relaxation.
        split: track how each distributed job spreads over the nodes, instead of all of them in total.
    """
    from scipy import sparse  # slow to load
    from scipy.optimize import Bounds, LinearConstraint, milp  # slow to load

    rows = _constraints(problem, columns, _node_groups(problem, columns, whole, split), split)
    matrix = sparse.csr_array((rows.value, (rows.row, rows.column)), shape=(len(rows.low), rows.width))
    cost, upper = np.zeros(rows.width), np.full(rows.width, np.inf)
    cost[: columns.job.size] = -columns.value
    upper[: columns.job.size] = 1.0
    result = milp(
        cost,
        constraints=LinearConstraint(matrix, rows.low, rows.high),
        bounds=Bounds(0.0, upper),
        integrality=np.full(rows.width, int(whole)),
        options={"time_limit": time_limit_s, "mip_rel_gap": 1e-7},
    )
    if not whole:
        return -float(result.fun) if result.status == 0 else np.inf
    found = result.get("mip_dual_bound")
    return np.inf if found is None or not np.isfinite(found) else -float(found)


def _node_groups(problem: AllocationProblem, columns: Columns, whole: bool, split: bool) -> IntArray:
    """[N] a label for each node; nodes with one label share their constraints. Idle nodes of one size are identical."""
    labels = np.unique(problem.node_gpus, return_inverse=True)[1]
    if whole:
        kept = columns.job[columns.group == CURRENT]
        alone = problem.current[kept].any(axis=0) | split
        labels = np.where(alone, labels.max() + 1 + np.arange(problem.nodes), labels)
    return np.asarray(np.unique(labels, return_inverse=True)[1], dtype=np.int64)


def _constraints(problem: AllocationProblem, columns: Columns, labels: IntArray, split: bool) -> _Rows:
    rows = _Rows(columns.job.size)
    for job in np.unique(columns.job):
        rows.add([(np.flatnonzero(columns.job == job), 1.0)], 1.0, 1.0)
    parts = np.unique(columns.job[columns.group >= 1]).size if split else 1
    groups = [_one_group(problem, columns, rows, labels == label, parts) for label in range(labels.max() + 1)]
    for gpus in range(1, int(columns.gpus[columns.group == 0].max(initial=0)) + 1):
        need = np.flatnonzero((columns.group == 0) & (columns.gpus == gpus))
        items = np.concatenate([group.items[group.sizes == gpus] for group in groups])
        if need.size:
            rows.add([(need, 1.0), (items, -1.0)], 0.0)
    spread = np.flatnonzero(columns.group >= 1)
    shares = [spread[columns.job[spread] == job] for job in np.unique(columns.job[spread])] if split else [spread]
    for part, need in enumerate(shares):
        given = np.array([group.gpus[part] for group in groups])
        touched = np.array([group.touched[part] for group in groups])
        fewest = np.maximum(columns.group[need] + 1, -(-columns.gpus[need] // int(problem.node_gpus.max())))
        rows.add([(need, columns.gpus[need]), (given, -1.0)], 0.0)
        rows.add([(need, fewest), (touched, -1.0)], 0.0)
    return rows


def _one_group(problem: AllocationProblem, columns: Columns, rows: _Rows, mine: BoolArray, parts: int) -> _Nodes:
    """Add the variables and constraints of the nodes ``mine`` [N], all of one size."""
    size, many = int(problem.node_gpus[mine][0]), int(mine.sum())
    largest = int(columns.gpus[columns.group == 0].max(initial=0))
    sizes = np.arange(1, min(size, largest) + 1)
    items, gpus, touched = rows.new(sizes.size), rows.new(parts), rows.new(parts)
    kept = np.flatnonzero(columns.group == CURRENT)
    held = problem.current[columns.job[kept]]
    here = held[:, mine]
    rows.add([(items, sizes), (gpus, 1.0), (kept, here.sum(axis=1))], size * many)
    rows.add([(items, (sizes * 2 > size).astype(np.float64)), (kept, (here > size - here).sum(axis=1))], many)
    for i in range(parts):
        rows.add([(gpus[i : i + 1], 1.0), (touched[i : i + 1], -float(size))], 0.0)
        rows.add([(gpus[i : i + 1], -1.0), (touched[i : i + 1], 1.0)], 0.0)
    if problem.avoid_interference:
        crossing = np.where((held > 0).sum(axis=1) >= 2, (here > 0).sum(axis=1), 0)
        rows.add([(touched, 1.0), (kept, crossing)], many)
    elif parts > 1:
        for i in range(parts):
            rows.add([(touched[i : i + 1], 1.0)], many)
    return _Nodes(sizes, items, gpus, touched)
