"""What programs are compared with, and what solves them in parts.

AlloX: assigns jobs to GPUs and queue positions at the least mean completion time.

Gandiva's packing as in Gavel's comparison: pairs of jobs drawn at random and kept while they pay off.

POP: a program solved in parts, each with some of the jobs and its part of the GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random

import numpy as np

from simsched.errors import input_error
from simsched.toolkit.programs.problem import Floats, Integers, Pairs, ShareProblem


def allox(duration_s: Floats, free_gpus: Integers) -> Integers:
    """Return the GPU type on which each job starts now, or -1; shape (n,) (AlloX, EuroSys'20, section 4).

    `duration_s[n, k]` is each job's remaining time on each type, infinite if it cannot run there; `free_gpus[k]` counts
    GPUs, each taken by one job. The assignment minimises the sum of completion times: the j-th last job on a GPU adds j
    times its duration. GPUs of a type are alike, so columns are only the positions that an optimum can use, and the
    shortest jobs of a type start, one per GPU. Ties by array order. Raises `InputError` for a negative duration.
    """
    jobs = len(duration_s)
    starts = np.full(jobs, -1, dtype=np.int64)
    able = np.isfinite(duration_s[:, free_gpus > 0]).any(axis=1)
    if (duration_s < 0).any():
        raise input_error("program", "a duration is negative", "give the seconds that are left")
    if not able.any():
        return starts
    # Longest first: each then takes the next place, and augmenting paths stay short (8 times faster at 1,000 jobs).
    order = np.flatnonzero(able)[np.lexsort(np.sort(duration_s[able], axis=1).T[::-1])][::-1]
    assigned = _types(duration_s[order], free_gpus)
    for gpu_type in range(len(free_gpus)):
        queue = order[assigned == gpu_type]
        shortest = queue[np.argsort(duration_s[queue, gpu_type], kind="stable")]
        starts[shortest[: free_gpus[gpu_type]]] = gpu_type
    return starts


def candidates(age_s: Floats, free_gpus: int, alpha: float = 1.0) -> Integers:
    """Return the positions of the jobs to consider: the oldest max(floor(alpha n), free GPUs), oldest first."""
    count = max(int(alpha * len(age_s)), free_gpus)
    return np.argsort(-age_s, kind="stable")[:count].astype(np.int64)


def _types(duration_s: Floats, free_gpus: Integers) -> Integers:
    """Return each job's type in the best assignment to places."""
    from scipy.optimize import linear_sum_assignment  # slow to load

    jobs = len(duration_s)
    costs, types = [], []
    for gpu_type in np.flatnonzero(free_gpus > 0):
        gpus = int(free_gpus[gpu_type])
        place = np.repeat(np.arange(1, -(-jobs // gpus) + 1), gpus)[: jobs + gpus]
        costs.append(duration_s[:, gpu_type][:, None] * place)
        types.append(np.full(len(place), gpu_type, dtype=np.int64))
    _, column = linear_sum_assignment(np.concatenate(costs, axis=1))
    return np.concatenate(types)[column]


#: Rates of a job alone, or of both jobs of a pair, by GPU type: shape (types,) or (2, types).
Rates = Callable[[tuple[str, ...]], Floats]
Unit = tuple[str, ...]


class RandomPacking:
    """Units that persist across calls: each job is alone or in one pair.

    Nothing is packed while all jobs fit. Otherwise draws two of the jobs without a unit, as often as there are such
    jobs, and pairs them if both still have none and ask for the same number of GPUs. A pair breaks up when one of its
    rates is 0 or its normalised rates, summed over both jobs and all types, fall below 1 (Gavel's simulator; the sum
    over types makes this rare).
    """

    def __init__(self, rng: Random) -> None:
        """Start without units; `rng` draws the pairs."""
        self._rng = rng
        self._pairs: list[Unit] = []

    def shares(self, sizes: Mapping[str, int], num_gpus: Integers | Floats, rates: Rates) -> Mapping[Unit, Floats]:
        """Return the share of each unit on each type; `sizes` maps jobs to their GPUs in the order of arrival."""
        if sum(sizes.values()) <= num_gpus.sum():
            self._pairs = []
            return _equal([(job,) for job in sizes], sizes, num_gpus)
        self._pairs = [pair for pair in self._pairs if all(job in sizes for job in pair)]
        self._pairs = [pair for pair in self._pairs if _pays(pair, rates)]
        self._draw(sizes, rates)
        paired = {job for pair in self._pairs for job in pair}
        units = [*((job,) for job in sizes if job not in paired), *self._pairs]
        return _equal(units, sizes, num_gpus)

    def _draw(self, sizes: Mapping[str, int], rates: Rates) -> None:
        paired = {job for pair in self._pairs for job in pair}
        single = [job for job in sizes if job not in paired]
        for _ in range(len(single)):
            if len(single) < 2:
                break
            first, second = self._rng.sample(single, 2)
            if sizes[first] == sizes[second] and _pays((first, second), rates):
                self._pairs.append((first, second))
                single.remove(first)
                single.remove(second)


def _pays(pair: Unit, rates: Rates) -> bool:
    together = rates(pair)
    alone = np.stack([rates((job,)) for job in pair])
    if (together <= 0).any() or (alone <= 0).any():
        return False
    return bool((together / alone).sum() >= 1.0)


def _equal(units: Sequence[Unit], sizes: Mapping[str, int], num_gpus: Integers | Floats) -> Mapping[Unit, Floats]:
    """Return N_k / (units x GPUs) for every unit, rows capped at 1."""
    shares = {}
    for unit in units:
        row = num_gpus / len(units) / sizes[unit[0]]
        shares[unit] = np.asarray(row / max(1.0, float(row.sum())))
    return shares


#: Solves one part: the problem and the positions of its jobs in the whole problem.
Solve = Callable[[ShareProblem, Integers], Floats]


def partitioned(problem: ShareProblem, parts: int, solve: Solve, rng: np.random.Generator) -> Floats:
    """Return shares from `parts` independent programs (POP: Narayanan et al., SOSP'21, section 3).

    Jobs are distributed at random, each size evenly up to one job; each part has 1/parts of every type's GPUs, as a
    fraction. `solve` gets a part and the positions of its jobs. Pairs within a part remain, the others get 0. Raises
    `InputError` if `parts` is less than 1.
    """
    if parts < 1:
        raise input_error("pop", f"parts is {parts}", "give the number of parts, at least 1")
    jobs = problem.num_jobs
    pairs = 0 if problem.pairs is None else len(problem.pairs.jobs)
    shares = np.zeros((jobs + pairs, problem.throughput.shape[1]))
    part_of = _deal(problem.scale_factor, parts, rng)
    for part in range(parts):
        members = np.flatnonzero(part_of == part).astype(np.int64)
        if len(members):
            inner, kept = _part(problem, members, parts)
            solved = solve(inner, members)
            shares[members] = solved[: len(members)]
            shares[jobs + kept] = solved[len(members) :]
    return shares


def _deal(scale_factor: Integers, parts: int, rng: np.random.Generator) -> Integers:
    shuffled = rng.permutation(len(scale_factor))
    by_size = shuffled[np.argsort(-scale_factor[shuffled], kind="stable")]
    part_of = np.empty(len(scale_factor), dtype=np.int64)
    part_of[by_size] = np.arange(len(scale_factor)) % parts
    return part_of


def _part(problem: ShareProblem, members: Integers, parts: int) -> tuple[ShareProblem, Integers]:
    """Return the problem of some jobs, and which pairs of the whole are in it."""
    place = np.full(problem.num_jobs, -1, dtype=np.int64)
    place[members] = np.arange(len(members))
    kept, pairs = np.zeros(0, np.int64), None
    if problem.pairs is not None:
        inside = place[problem.pairs.jobs]
        kept = np.flatnonzero((inside >= 0).all(axis=1)).astype(np.int64)
        pairs = Pairs(inside[kept], problem.pairs.throughput[kept])
    inner = replace(
        problem,
        throughput=problem.throughput[members],
        scale_factor=problem.scale_factor[members],
        num_gpus=problem.num_gpus / parts,
        weights=problem.weights[members],
        pairs=pairs,
        kinds=None if problem.kinds is None else problem.kinds[members],
    )
    return inner, kept
