"""POP: a program solved in parts, each with some of the jobs and its part of the GPUs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from simsched.errors import input_error
from simsched.toolkit.programs.problem import Floats, Integers, Pairs, ShareProblem

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
