"""Which waiting jobs may get GPUs at all when they far outnumber the GPUs.

If an optimal allocation gives a waiting job g GPUs on a class of nodes, the others hold at most G - g. Of the G - g + 1
waiting jobs that value these GPUs most, at least one holds nothing and can take its place without loss of fitness.
Hence it suffices to search jobs among the first G - g + 1 for some g and some class; ignoring the others loses no
optimum.
"""

from dataclasses import replace

import numpy as np

from .allocation_problem import AllocationProblem, BoolArray, FloatArray, IntArray

#: Up to this many waiting jobs are all searched, whatever the number of GPUs.
MANY = 1000


def contenders(problem: AllocationProblem) -> IntArray | None:
    """Return the jobs to search with: those that hold GPUs, are pinned, or may get some; None for all.

    All are searched if at most `MANY` jobs wait, or at most as many as there are GPUs.
    """
    gpus = int(problem.node_gpus.sum())
    waiting = ~problem.held & (problem.current_nodes == 0)
    places = np.flatnonzero(waiting)
    if places.size <= max(MANY, gpus):
        return None
    chosen = ~waiting
    chosen[places[_may_get_some(problem, places, gpus)]] = True
    return np.flatnonzero(chosen)


def part_of(problem: AllocationProblem, jobs: IntArray) -> AllocationProblem:
    """Return the problem of some jobs alone; the others hold nothing."""
    weight = problem.weight if np.ndim(problem.weight) == 0 else np.asarray(problem.weight)[jobs]
    return replace(
        problem,
        speedup=problem.speedup[jobs],
        max_gpus=problem.max_gpus[jobs],
        current=problem.current[jobs],
        restart_factor=problem.restart_factor[jobs],
        min_gpus=problem.lowest[jobs],
        pinned=problem.held[jobs],
        weight=weight,
    )


def _may_get_some(problem: AllocationProblem, places: IntArray, gpus: int) -> BoolArray:
    """Mark the waiting jobs at `places` that are among the first for some number of GPUs on some class of nodes."""
    worth = problem.scaled_after_restart[places]
    low, high = problem.lowest[places], problem.max_gpus[places]
    marked = np.zeros(places.size, dtype=np.bool_)
    for given in range(1, min(worth.shape[2] - 1, gpus) + 1):
        able = np.flatnonzero((low <= given) & (high >= given))
        for group in range(min(worth.shape[1], given)):
            values = worth[able, group, given]
            gain = np.flatnonzero(values > problem.floor)
            marked[able[gain[_first(values[gain], gpus - given + 1)]]] = True
    return marked


def _first(values: FloatArray, most: int) -> IntArray:
    """Return the indices of the `most` largest values; ties go to the first."""
    if values.size <= most:
        return np.arange(values.size)
    least = np.partition(values, values.size - most)[values.size - most]
    larger = np.flatnonzero(values > least)
    return np.concatenate([larger, np.flatnonzero(values == least)[: most - larger.size]])
