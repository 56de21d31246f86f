"""Give GPUs that would stay idle to jobs that cannot gain from them in this round."""

from dataclasses import replace

import numpy as np

from ._start import load, price_gpus
from ._tables import build, capacity_choices, empty_state, longest_row, middle, pack_rows, unpack_rows
from .allocation_problem import AllocationProblem, AnyIntArray, job_values


def fill_idle(problem: AllocationProblem, allocation: AnyIntArray, rng: np.random.Generator) -> AnyIntArray:
    """Return the allocation [J, N] with idle GPUs given to jobs that have none and whose restart factor is 0.

    Starting such a job adds nothing to the fitness of this round, so no search does it. But it costs nothing either,
    and in the next round the job keeps the GPUs without a restart.
    """
    waiting = (problem.restart_factor == 0) & ~problem.held & (problem.current_nodes == 0)
    if waiting.any():
        waiting &= ~allocation.any(axis=1)
    idle = int(problem.node_gpus.sum() - allocation.sum())
    if idle == 0 or not waiting.any():
        return allocation
    after = replace(problem, current=allocation, restart_factor=np.ones(problem.jobs), pinned=~waiting)
    tables = build(after, problem.fairness, middle(after, job_values(after, allocation), 0.0))
    price = price_gpus(
        capacity_choices(tables, problem.node_gpus), int(problem.node_gpus.sum()), np.zeros(problem.jobs)
    )
    state = empty_state(tables, problem.node_gpus, rng.integers(1, 2147483000, size=2))
    load(tables, state, pack_rows(after, allocation, longest_row(after)), price)
    return unpack_rows(problem, state.row)
