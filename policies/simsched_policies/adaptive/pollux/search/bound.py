"""An upper bound on the fitness of a round that no feasible allocation exceeds.

For a fixed exponent the power mean is monotone in a sum over jobs, and a round chooses one configuration per job: no
GPU, the current row, or g GPUs on a class of nodes. The relaxations, from coarse to fine: only the number of GPUs
counts (by a price for a GPU); nodes, packing and interference count (a mixed-integer program solved by HiGHS through
scipy); and how each distributed job spreads over the nodes counts too.

Variables of the program: one for each configuration of each job; for each group of nodes the number of (changed) jobs
on one node by size; and the GPUs and nodes that changing distributed jobs use there, in total or job by job.
"""

from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from simsched.arithmetic import exp, log

from ._tables import worth
from .allocation_problem import AllocationProblem, AnyIntArray, BoolArray, FloatArray, IntArray, fitness, is_feasible

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


SAFETY = 1e-6  # the solver's tolerances, as a share of the sum of terms
CLOSE = 1e-5  # relative gap below which no finer relaxation is tried
WHOLE_CELLS = 4096  # jobs x nodes up to which choices are integral and every busy node has its own constraints
MOST_COLUMNS = 60_000  # configurations beyond which only the number of GPUs is relaxed


def upper_bound(problem: AllocationProblem, time_limit_s: float = 10.0, allocation: AnyIntArray | None = None) -> float:
    """Return a number that the fitness of no feasible allocation of this round exceeds.

    A program that is not solved in time gives a weaker bound, never a wrong one; the bound includes the solver's
    tolerances.

    Args:
        problem: the round.
        time_limit_s: wall time for the solver.
        allocation: [J, N] a feasible allocation; a good one makes the bound tighter and quicker. Default: a quick
            search.

    Raises:
        ValueError: if ``allocation`` breaks a rule of the round.
    """
    if problem.jobs == 0:
        return 0.0
    if allocation is None:
        from .run import search

        allocation = search(problem, seed_or_rng=0).allocation
    elif not is_feasible(problem, allocation):
        raise ValueError("the allocation is not feasible")
    reached = fitness(problem, allocation)
    if problem.held.all() or problem.nodes == 0:
        return reached
    columns = _columns(problem, reached)
    bound = _as_fitness(problem, _capacity_bound(problem, columns), reached)
    whole = problem.jobs * problem.nodes <= WHOLE_CELLS
    end = perf_counter() + time_limit_s
    for split in (False, True) if whole else (False,):
        left = end - perf_counter()
        if columns.job.size > MOST_COLUMNS or bound <= reached * (1 + CLOSE) or left <= 0:
            break
        total = program_bound(problem, columns, left, whole=whole, split=split)
        bound = min(bound, _as_fitness(problem, total, reached))
    return max(reached, bound)


def _columns(problem: AllocationProblem, reached: float) -> Columns:
    """List the configurations that some allocation at least as fit as ``reached`` could use."""
    changed = problem.scaled_after_restart
    current = problem.current_values
    usable = np.flatnonzero(problem.node_gpus > 0).size
    biggest = int(problem.node_gpus.max(initial=0))
    counts = np.arange(changed.shape[2])
    parts: list[tuple[IntArray, IntArray, IntArray, FloatArray]] = []
    movable = np.flatnonzero(~problem.held)
    parts.append((movable, np.full(movable.size, NOTHING), np.zeros(movable.size, np.int64), changed[movable, 0, 0]))
    stay = np.flatnonzero(problem.keepable & ((problem.current_gpus > 0) | problem.held))
    parts.append((stay, np.full(stay.size, CURRENT), problem.current_gpus[stay], current[stay]))
    for k in range(changed.shape[1] if usable else 0):
        most = biggest if k == 0 else problem.node_gpus.sum()
        fewest, top = np.maximum(problem.lowest, k + 1), np.minimum(problem.max_gpus, most)
        allowed = (counts >= fewest[:, None]) & (counts <= top[:, None]) & ~problem.held[:, None] & (k < usable)
        masked = np.where(allowed, changed[:, k], -np.inf)
        before = np.maximum.accumulate(np.concatenate([changed[:, 0, :1], masked[:, :-1]], axis=1), axis=1)
        job, gpus = np.nonzero(masked > before)
        parts.append((job, np.full(job.size, k), gpus, changed[job, k, gpus]))
    job, group, gpus, terms = (np.concatenate([part[i] for part in parts]) for i in range(4))
    keep = np.ones(job.size, np.bool_)
    if problem.fairness < 0:  # one term this small alone would push the mean below what is reached
        keep = terms >= reached * (1 - 1e-9) * problem.jobs ** (1.0 / problem.fairness)
    value = worth(terms, problem.fairness, _scale(problem, reached))
    return Columns(job[keep], group[keep], gpus[keep], value[keep])


def _scale(problem: AllocationProblem, reached: float) -> float:
    if problem.fairness > 0:
        return max(float(problem.scaled_after_restart.max()), float(problem.current_values.max()))
    return reached


def _as_fitness(problem: AllocationProblem, total: float, reached: float) -> float:
    """Turn a bound on the summed worth of the columns into one on the fitness, including the solver's tolerances."""
    p, scale = problem.fairness, _scale(problem, reached)
    if not np.isfinite(total):
        return np.inf
    if p == 0:
        return float(scale * exp(total / problem.jobs + SAFETY))
    if p < 0:
        mean = -total / problem.jobs - SAFETY
        return float(scale * exp(log(mean) / p)) if mean > 0 else np.inf
    return float(scale * exp(log(max(total, 0.0) / problem.jobs + SAFETY) / p))


def _capacity_bound(problem: AllocationProblem, columns: Columns) -> float:
    """Bound the sum by Lagrangian relaxation of the number of GPUs alone, the price found by bisection."""
    gpus = int(problem.node_gpus.sum())
    order = np.argsort(columns.job, kind="stable")
    job, used, value = columns.job[order], columns.gpus[order], columns.value[order]
    starts = np.flatnonzero(np.diff(job, prepend=-1))
    lengths = np.diff(np.append(starts, job.size))
    lowest = np.repeat(np.minimum.reduceat(value, starts), lengths)
    low, high, best, price = 0.0, float(((value - lowest) / np.maximum(used, 1)).max()), np.inf, 0.0
    for _ in range(60):
        scores = value - price * used
        top = np.maximum.reduceat(scores, starts)
        best = min(best, float(top.sum()) + price * gpus)
        wanted = np.where(scores >= np.repeat(top, lengths), used, used.max())
        if int(np.minimum.reduceat(wanted, starts).sum()) > gpus:
            low = price
        else:
            high = price
        if high - low <= 1e-12 * high:
            break
        price = 0.5 * (low + high)
    return best
