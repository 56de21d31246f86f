"""Jobs that a program cannot tell apart form one class of variables.

A program that treats equal jobs alike has a solution with equal shares (the average over their permutations). Solving
for classes finds it at a cost that depends on the number of distinct jobs, whatever the order of jobs and GPU types,
because classes are sorted by content.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from simsched.toolkit.programs.problem import (
    Floats,
    Integers,
    Rows,
    ShareProblem,
    on_top,
    scale_columns,
    scale_rows,
    with_column,
)

#: The spread of the weights of the second criterion, and the least fraction of a job's time at which they still
#: distinguish uses of it.
_SPREAD, _LEAST_WEIGHED = 0.01, 1e-6
#: Significant bits of a share, 5e-10 of it: the solver's noise is smaller. Decimal digits would take a logarithm, whose
#: last bit depends on the processor.
_BITS = 31
#: The fraction of a job's needs below which a share is solver noise; a fraction of all its time if nothing is due to
#: it.
_NOISE = 1e-8
#: The number of entries up to which a dense matrix is faster (scipy takes longer to build sparse ones).
_MOST_DENSE = 40_000


@dataclass(frozen=True)
class Classes:
    """The classes of a problem; c of them, q pairs of classes, k types in a canonical order.

    Variables: for each class and type the share of each member alone, then for each pair of classes and type the share
    that a member of the first spends with members of the second, all treated alike.
    """

    problem: ShareProblem
    type_order: Integers
    member: Integers
    first: Integers
    count: Integers
    pair_member: Integers
    pair_classes: Integers
    pair_rates: Floats
    partners: Floats

    @property
    def num_classes(self) -> int:
        """Count the classes."""
        return len(self.first)

    @property
    def num_variables(self) -> int:
        """Count the variables."""
        return (len(self.first) + len(self.pair_classes)) * len(self.type_order)

    def of(self, values: Floats) -> Floats:
        """Return one value per class from one per job; values within a class are equal."""
        return np.asarray(values[self.first])

    @cached_property
    def rates(self) -> Rows:
        """The rate of a member of each class, by variable: shape (c, variables)."""
        data = [self._alone.ravel()]
        for side, part in enumerate(self._part_of_pair):
            data.append((self.pair_rates[:, side] * part[:, None]).ravel())
        return self._by_class(np.concatenate(data))

    @cached_property
    def time(self) -> Rows:
        """The share of time of a member of each class, by variable: shape (c, variables)."""
        types = len(self.type_order)
        data = [np.ones(self.num_classes * types), *(np.repeat(part, types) for part in self._part_of_pair)]
        return self._by_class(np.concatenate(data))

    @cached_property
    def gpus(self) -> Rows:
        """The GPUs of each type in use on average, by variable: shape (k, variables)."""
        types, held = len(self.type_order), self._held
        both = self.pair_classes
        paired = held[both[:, 0]] * np.where(both[:, 0] == both[:, 1], 0.5, 1.0)
        data = np.repeat(np.concatenate([held, paired]), types).astype(np.float64)
        column = np.arange(self.num_variables)
        return self._matrix(data, column % types, column, types)

    @cached_property
    def best_rates(self) -> Floats:
        """The best rate of a member of each class if it runs all the time, shape (c,)."""
        best = self._alone.max(axis=1)
        for side in (0, 1):
            np.maximum.at(best, self.pair_classes[:, side], self.pair_rates[:, side].max(axis=1))
        return np.asarray(best)

    def columns(self, due: Floats) -> Floats:
        """Return a unit for each variable: the fraction of time in which it gives its jobs what is `due`, at most 1.

        `due` is a rate for each class, shape (c,). The solver's tolerances are absolute and rates span orders of
        magnitude; in these units variables are about 1.
        """
        return self._times_of(due, np.maximum, 0.0)

    def noise(self, due: Floats) -> Floats:
        """Return the noise level of each variable: 1e-8 of the time in which it gives one job what is `due`."""
        return _NOISE * self._times_of(due, np.minimum, 1.0)

    def _times_of(self, due: Floats, either: np.ufunc, start: float) -> Floats:
        """Return for each variable the fraction of time in which it gives `either` of its jobs what is due."""
        types = len(self.type_order)
        own = _time_of(np.repeat(due, types), self._alone.ravel(), 1.0)
        paired = np.full((len(self.pair_classes), types), start)
        for side, part in enumerate(self._part_of_pair):
            one = due[self.pair_classes[:, side]][:, None]
            paired = either(paired, _time_of(one, self.pair_rates[:, side] * part[:, None], start))
        return np.concatenate([own, np.where(paired > 0, paired, 1.0).ravel()])

    @property
    def capacity(self) -> tuple[Rows, Floats]:
        """The rows and bounds that every solution satisfies: time of each class, GPUs of each type."""
        return on_top(self.time, self.gpus), self.bound

    @property
    def bound(self) -> Floats:
        """The right-hand side of the rows of `capacity`."""
        return np.concatenate([np.ones(self.num_classes), self.problem.num_gpus[self.type_order]])

    def with_level(self, asked: Integers, due: Floats, columns: Floats) -> Rows:
        """Return the rows of `capacity` and, for each class in `asked`, s - rate / due, in units of `columns`.

        s is an extra variable.
        """
        rows, bound = self.capacity
        need = scale_rows(self.rates[asked], -1.0 / due)
        every = scale_columns(on_top(rows, need), columns)
        return with_column(every, np.repeat([0.0, 1.0], [len(bound), len(due)]))

    def second_criterion(self, columns: Floats) -> Floats:
        """Return the objective, to be maximised, that chooses among the best solutions, shape (variables,).

        It is minus the GPU time used, with weights between 1 and 1.01 from a fixed hash of each variable's place in the
        canonical order. It leaves time that no job needs to the round mechanism, which hands it out by priority; handed
        out here, it would let jobs compete with those whose share is tight. In the units of `columns`, a job that needs
        less than a millionth of its time, the solver's resolution, weighs as if it needed that much.
        """
        held = np.asarray(self.gpus.sum(axis=0)).ravel()
        generic = (1.0 + _SPREAD * _scatter(self.num_variables)) * np.maximum(columns, _LEAST_WEIGHED)
        return np.asarray(-held * generic / held.max())

    def spread(self, x: Floats, noise: Floats | float = _NOISE) -> Floats:
        """Return the shares of jobs and pairs in the problem's order from variables, rounded to nine digits.

        A variable below `noise` counts as 0.
        """
        types = len(self.type_order)
        table = np.clip(np.where(x < noise, 0.0, x).reshape(-1, types), 0.0, 1.0)
        alone, paired = table[: self.num_classes], table[self.num_classes :]
        shares = np.zeros((len(self.member) + len(self.pair_member), types))
        shares[: len(self.member), self.type_order] = alone[self.member]
        shares[len(self.member) :, self.type_order] = (paired / self.partners[:, None])[self.pair_member]
        return _rounded(shares)

    @cached_property
    def _alone(self) -> Floats:
        """The rate of a member of each class alone on each type in the canonical order, shape (c, k)."""
        return self.problem.usable(self.problem.throughput)[self.first][:, self.type_order]

    @cached_property
    def _held(self) -> Floats:
        """The GPUs that all members of each class hold when they run, shape (c,)."""
        return np.asarray(self.problem.scale_factor[self.first] * self.count, dtype=np.float64)

    @property
    def _part_of_pair(self) -> tuple[Floats, Floats]:
        """For each pair of classes, the time of a member of the first and the second for one unit of the variable."""
        first, second = self.count[self.pair_classes].T.astype(np.float64)
        same = self.pair_classes[:, 0] == self.pair_classes[:, 1]
        return np.where(same, 0.5, 1.0), np.where(same, 0.5, first / second)

    def _by_class(self, data: Floats) -> Rows:
        types, alone = len(self.type_order), self.num_classes
        row = [np.repeat(np.arange(alone), types)]
        column = [np.arange(alone * types)]
        for side in (0, 1):
            row.append(np.repeat(self.pair_classes[:, side], types))
            column.append(np.arange(alone * types, self.num_variables))
        return self._matrix(data, np.concatenate(row), np.concatenate(column), alone)

    def _matrix(self, data: Floats, row: Integers, column: Integers, rows: int) -> Rows:
        """Build a matrix from entries; entries in the same place add up."""
        shape = (rows, self.num_variables)
        if self.num_classes * self.num_variables > _MOST_DENSE:
            from scipy import sparse  # slow to load

            return sparse.csr_array((data, (row, column)), shape=shape)
        dense = np.zeros(shape)
        np.add.at(dense, (row, column), data)
        return dense


def classify(problem: ShareProblem, *facts: Floats) -> Classes:
    """Group the jobs of a problem that agree in everything that a program may read.

    `facts` are further values by job, for example remaining steps. With pairs, jobs stay separate unless `kinds` says
    which are alike and every pair of the two kinds is present.
    """
    order = _type_order(problem)
    jobs = problem.num_jobs
    label = problem.kinds if problem.kinds is not None else np.zeros(jobs)
    if problem.pairs is not None and problem.kinds is None:
        label = np.arange(jobs)
    columns = [*facts, problem.scale_factor, problem.weights, *problem.throughput[:, order].T, label]
    table = np.stack(columns, axis=1).astype(np.float64)
    first, member, count = _unique(table)
    classes = _with_pairs(problem, order, first, member, count)
    if classes is None:
        first, member, count = _unique(np.column_stack([table, np.arange(jobs)]))
        classes = _with_pairs(problem, order, first, member, count)
    if classes is None:
        raise ValueError("a pair of jobs is listed twice")
    return classes


def _unique(table: Floats) -> tuple[Integers, Integers, Integers]:
    if not len(table):
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64)
    order = np.lexsort(table.T[::-1])
    new = np.concatenate([[True], (np.diff(table[order], axis=0) != 0).any(axis=1)])
    member = np.empty(len(table), np.int64)
    member[order] = np.cumsum(new) - 1
    first = order[new].astype(np.int64)
    return first, member, np.bincount(member, minlength=len(first)).astype(np.int64)


def _type_order(problem: ShareProblem) -> Integers:
    sums = np.sort(problem.throughput, axis=0).sum(axis=0)
    return np.lexsort((sums, problem.num_gpus)).astype(np.int64)


def _with_pairs(
    problem: ShareProblem, order: Integers, first: Integers, member: Integers, count: Integers
) -> Classes | None:
    pairs, types = problem.pairs, len(order)
    if pairs is None or not len(pairs.jobs):
        none = np.zeros(0, np.int64)
        empty = np.zeros((0, 2), np.int64)
        return Classes(problem, order, member, first, count, none, empty, np.zeros((0, 2, types)), np.zeros(0))
    both = member[pairs.jobs]
    swapped = both[:, 0] > both[:, 1]
    low, high = both.min(axis=1), both.max(axis=1)
    key = low * len(first) + high
    keys, where, pair_member, found = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    classes = np.stack([keys // len(first), keys % len(first)], axis=1)
    same = classes[:, 0] == classes[:, 1]
    n_low, n_high = count[classes].T
    expected = np.where(same, n_low * (n_low - 1) // 2, n_low * n_high)
    if (found != expected).any():
        return None
    rates = problem.usable(pairs.throughput)[where][:, :, order]
    rates = np.where(swapped[where][:, None, None], rates[:, ::-1], rates)
    partners = np.where(same, n_low - 1, n_high).astype(np.float64)
    return Classes(problem, order, member, first, count, pair_member, classes, rates, partners)


def _time_of(due: Floats, rates: Floats, otherwise: float) -> Floats:
    """Return the fraction of time, at most 1, in which `rates` give what is due; `otherwise` if a rate is 0."""
    due, rates = np.broadcast_arrays(due, rates)
    some = (due > 0) & (rates > 0)
    time = np.divide(due, rates, out=np.full(rates.shape, otherwise), where=some)
    return np.asarray(np.minimum(time, 1.0), dtype=np.float64)


def _rounded(values: Floats) -> Floats:
    part, exponent = np.frexp(values)
    return np.asarray(np.ldexp(np.round(np.ldexp(part, _BITS)), exponent - _BITS))


def _scatter(count: int) -> Floats:
    """Return fixed numbers in [0, 1) without visible pattern: the output function of the SplitMix64 generator."""
    state = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray((state ^ (state >> np.uint64(31))) / 2.0**64)
