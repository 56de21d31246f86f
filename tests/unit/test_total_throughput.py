"""The largest total of rates, against a program written job by job."""

import numpy as np
import pytest
from scipy.optimize import linprog

from simsched.toolkit.programs.problem import ShareProblem
from simsched.toolkit.programs.throughput import total_throughput


def largest(problem, worth, least_rate):
    """Return the most that shares are `worth` (n, k) where all rates reach the least; None where they cannot."""
    jobs, types = worth.shape
    time = np.kron(np.eye(jobs), np.ones(types))
    gpus = np.kron(problem.scale_factor[None, :], np.eye(types))
    rates = np.kron(np.eye(jobs), np.ones(types)) * problem.throughput.ravel()
    found = linprog(
        -worth.ravel(),
        A_ub=np.vstack([time, gpus, -rates]),
        b_ub=np.concatenate([np.ones(jobs), problem.num_gpus, -least_rate]),
    )
    return None if found.x is None else -found.fun


@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("priced", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_the_total_is_the_largest_that_meets_the_deadlines(seed, priced, normalised):
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 4, 7)  # some jobs are alike
    speed = 10 ** rng.uniform(-1, 1.5, (4, 3)) * (rng.random((4, 3)) < 0.8)
    problem = ShareProblem(speed[kinds], np.array([1, 2, 1, 4])[kinds], rng.integers(1, 4, 3))
    price = rng.uniform(0.5, 8, 3) if priced else None
    fastest = np.maximum(problem.throughput.max(axis=1), 1e-9)
    worth = problem.throughput / (fastest[:, None] if normalised else 1) / (price if priced else 1)
    # Nothing, or a part of its best rate, is due to each second job; the largest part is often too much.
    for part in (0.0, 0.2, 0.2 if seed % 2 else 0.9):
        least_rate = part * problem.throughput.max(axis=1) * (np.arange(7) % 2)
        best = largest(problem, worth, least_rate)
        shares = total_throughput(problem, normalised=normalised, price=price, least_rate=least_rate)
        if best is None:  # all deadlines are dropped
            best = largest(problem, worth, np.zeros(7))
        else:
            assert (problem.rates(shares) >= least_rate * (1 - 1e-6)).all()
        assert (worth * shares).sum() == pytest.approx(best, rel=1e-6)
        assert (shares.sum(axis=1) <= 1 + 1e-9).all()
        assert (problem.scale_factor @ shares <= problem.num_gpus + 1e-6).all()


def test_where_nothing_can_run_nobody_has_a_share():
    problem = ShareProblem(np.zeros((2, 1)), np.ones(2, int), np.array([1]))
    assert total_throughput(problem).tolist() == [[0], [0]]
    assert total_throughput(problem, normalised=True, least_rate=np.ones(2)).tolist() == [[0], [0]]
