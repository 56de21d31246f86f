"""Builds the tables of a round for the kernels: the only place where powers are computed, always by numpy."""

import numpy as np

from simsched.arithmetic import exp, log

from ._state import BLOCK, COUNT, FIRST, FREE, JOBS, KEPT, TOTAL, FloatArray, IntArray, Problem, State
from .allocation_problem import AllocationProblem, AnyIntArray, places_of, power_mean

STEEPEST = 600.0  # largest exponent of e in a table; values beyond it are all equally bad
GENTLE = 12.0  # exponents up to here are searched directly


def worth(values: FloatArray, exponent: float, scale: float) -> FloatArray:
    """Turn terms of the power mean into numbers whose sum is to be maximised: ``+-(values / scale) ** p`` or logs.

    Increasing in ``values`` for every exponent and of order one where ``values`` is near ``scale``.
    """
    if exponent == -1:
        return -scale / values  # the usual exponent, at a fraction of the cost
    logs = log(values / scale)
    if exponent == 0:
        return logs
    powers = exp(np.clip(exponent * logs, -STEEPEST, STEEPEST))
    return powers if exponent > 0 else -powers


def pack_rows(problem: AllocationProblem, allocation: AnyIntArray, longest: int) -> IntArray:
    """Write an allocation [J, N] as rows [J, 3 + 2 * longest]; rows on more than ``longest`` nodes are emptied."""
    jobs = allocation.shape[0]
    row, node, gpus = problem.places if allocation is problem.current else places_of(allocation)
    count = np.bincount(row, minlength=jobs)
    if count.max(initial=0) > longest:
        short = count[row] <= longest
        row, node, gpus, count = row[short], node[short], gpus[short], np.where(count <= longest, count, 0)
    kept = np.bincount(row[gpus == problem.current[row, node]], minlength=jobs)
    rows = np.zeros((jobs, FIRST + 2 * longest), np.int64)
    column = FIRST + 2 * (np.arange(row.size) - np.repeat(np.cumsum(count) - count, count))
    rows[:, COUNT] = count
    np.add.at(rows[:, TOTAL], row, gpus)
    rows[:, KEPT] = (kept == count) & (count == problem.current_nodes)
    rows[row, column] = node
    rows[row, column + 1] = gpus
    return rows


def unpack_rows(problem: AllocationProblem, rows: IntArray) -> AnyIntArray:
    """Undo ``pack_rows``: the allocation [J, N]."""
    allocation = np.zeros(problem.current.shape, problem.current.dtype)  # touch only the pages of nodes that hold jobs
    used = np.arange((rows.shape[1] - FIRST) // 2)[None, :] < rows[:, COUNT, None]
    job, place = np.nonzero(used)
    allocation[job, rows[job, FIRST + 2 * place]] = rows[job, FIRST + 2 * place + 1]
    return allocation


def longest_row(problem: AllocationProblem) -> int:
    """Return the largest number of nodes that a row may touch."""
    now = int(problem.current_nodes.max(initial=1))
    return max(1, now, min(problem.nodes, int(problem.max_gpus.max(initial=1))))


def middle(problem: AllocationProblem, values: FloatArray, exponent: float) -> float:
    """Return the power mean of values [J] without jobs that no allocation could serve: the unit of the tables."""
    served = problem.attainable > problem.floor * (1 + 1e-9)
    return power_mean(values[served], exponent) if served.any() else problem.floor


def build(problem: AllocationProblem, exponent: float, scale: float) -> Problem:
    """Build the kernels' view of a round for one exponent; terms are measured in units of ``scale``.

    A job's worth is relative to the best that it could reach: with a negative exponent, jobs that cannot be served
    would otherwise dominate all others.
    """
    best = worth(problem.attainable, exponent, scale)
    keep = pack_rows(problem, problem.current, longest_row(problem))
    keep[:, KEPT] = problem.keepable & (keep[:, TOTAL] > 0)
    return Problem(
        value=worth(problem.scaled_after_restart, exponent, scale) - best[:, None, None],
        keep_value=worth(problem.current_values, exponent, scale) - best,
        limits=np.stack([problem.lowest, problem.max_gpus], axis=1),
        keep=keep,
        movable=np.flatnonzero(~problem.held),
        exclusive=int(problem.avoid_interference),
    )


def capacity_choices(problem: Problem, node_gpus: IntArray) -> FloatArray:
    """[J, W] the largest worth of a job on each number of GPUs if only node sizes limit it; -inf if there is none."""
    jobs, classes, width = problem.value.shape
    gpus = np.arange(width)
    allowed = (gpus >= problem.limits[:, :1]) & (gpus <= problem.limits[:, 1:])
    choices: FloatArray = np.full((jobs, width), -np.inf)
    for group in range(classes):
        most = node_gpus.sum() if group == classes - 1 else (group + 1) * node_gpus.max(initial=0)
        fitting = allowed & (gpus > group) & (gpus <= most)
        np.maximum(choices, problem.value[:, group], out=choices, where=fitting)
    choices[:, 0] = problem.value[:, 0, 0]
    kept = np.flatnonzero(problem.keep[:, KEPT])
    place = kept, problem.keep[kept, TOTAL]
    choices[place] = np.maximum(choices[place], problem.keep_value[kept])
    return choices


def empty_state(problem: Problem, node_gpus: IntArray, random: IntArray) -> State:
    """Return a state in which no job holds a GPU, on nodes of ``node_gpus`` [N] GPUs."""
    largest = int(node_gpus.max(initial=0))
    node = np.zeros((node_gpus.shape[0], JOBS + max(1, largest)), np.int64)
    node[:, FREE] = node_gpus
    nodes = np.arange(node_gpus.shape[0])
    levels = np.zeros((largest + 1, 1 + -(-nodes.size // BLOCK)), np.int64)
    levels[:, 0] = np.bincount(node_gpus, minlength=largest + 1)
    np.add.at(levels, (node_gpus, 1 + nodes // BLOCK), 1 << (nodes % BLOCK))
    row = np.zeros_like(problem.keep)
    row[:, KEPT] = problem.keep[:, COUNT] == 0
    return State(row, problem.value[:, 0, 0].copy(), node, np.stack([levels, levels]), random)


def stages(exponent: float) -> list[float]:
    """List the exponents to search with in turn: terms of an extreme one would exceed the range of a double."""
    gentle = float(np.clip(exponent, -GENTLE, GENTLE))
    return [exponent] if gentle == exponent else [gentle, exponent]
