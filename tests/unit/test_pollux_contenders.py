"""Waiting jobs that no optimum needs, which Pollux's search leaves out where there are very many."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from simsched_policies.adaptive.pollux.search import AllocationProblem, _contenders, fitness, is_feasible, search
from simsched_policies.adaptive.pollux.search._contenders import contenders, part_of

SMALL = np.array([2, 1])


def problem_of(jobs, rng, *, node_gpus=SMALL, running=0, fairness=-1.0):
    """Draw a round in which the first jobs hold a GPU each and the others wait."""
    current = np.zeros((jobs, node_gpus.size), np.int64)
    for job in range(running):
        current[job, job % node_gpus.size] = 1
    most = int(node_gpus.sum())
    speedup = np.sort(rng.uniform(0.1, 3.0, (jobs, 2, most + 1)), axis=2).round(1)
    speedup[:, :, 0] = 0
    return AllocationProblem(
        speedup=speedup,
        max_gpus=rng.integers(1, most + 1, jobs),
        node_gpus=node_gpus,
        current=current,
        restart_factor=rng.choice([0.0, 0.5, 0.9], jobs),
        fairness=fairness,
        avoid_interference=False,
    )


def best(problem):
    """Return the highest fitness of all feasible allocations, every GPU being held by some job or none."""
    nodes = np.repeat(np.arange(problem.nodes), problem.node_gpus)
    found = -np.inf
    for holders in product(range(problem.jobs + 1), repeat=nodes.size):
        allocation = np.zeros((problem.jobs + 1, problem.nodes), np.int64)
        np.add.at(allocation, (np.array(holders), nodes), 1)
        if is_feasible(problem, allocation[:-1]):
            found = max(found, fitness(problem, allocation[:-1]))
    return found


@settings(max_examples=10)
@given(st.integers(0, 10_000), st.integers(0, 1), st.sampled_from([-1.0, 1.0]))
def test_no_optimum_is_lost(seed, running, fairness):
    problem = problem_of(6, np.random.default_rng(seed), running=running, fairness=fairness)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_contenders, "MANY", 0)
        jobs = contenders(problem)
    rest = np.setdiff1d(np.arange(problem.jobs), jobs)
    without = replace(problem, max_gpus=np.where(np.isin(np.arange(problem.jobs), rest), 0, problem.max_gpus))
    assert best(without) == pytest.approx(best(problem), rel=1e-12)
    part = part_of(problem, jobs)
    np.testing.assert_array_equal(part.scaled_after_restart, problem.scaled_after_restart[jobs])


def test_of_jobs_that_are_worth_the_same_the_first_are_looked_at():
    jobs = 1200
    alike = AllocationProblem(
        speedup=np.tile([[0.0, 1.0], [0.0, 0.0]], (jobs, 1, 1)),
        max_gpus=np.ones(jobs, np.int64),
        node_gpus=np.array([2, 2]),
        current=np.eye(jobs, 2, k=-7, dtype=np.int64),  # the eighth job and the ninth hold a GPU
        restart_factor=np.where(np.arange(jobs) < 3, 0.0, 0.9),  # the first three have only just arrived
    )
    assert contenders(alike).tolist() == [3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize(("waiting", "node_gpus"), [(1000, [4] * 16), (1500, [4] * 400)])
def test_all_are_looked_at_where_they_are_not_very_many(waiting, node_gpus):
    problem = problem_of(waiting, np.random.default_rng(1), node_gpus=np.array([2, 1]))
    assert contenders(problem) is None or waiting > 1000
    wide = AllocationProblem(
        speedup=np.tile([[0.0, 1.0], [0.0, 0.0]], (waiting, 1, 1)),
        max_gpus=np.ones(waiting, np.int64),
        node_gpus=np.array(node_gpus),
        current=np.zeros((waiting, len(node_gpus)), np.int64),
        restart_factor=np.ones(waiting),
    )
    assert contenders(wide) is None


def test_a_round_of_very_many_jobs_is_as_good_as_that_of_its_contenders(monkeypatch):
    rng = np.random.default_rng(3)
    problem = problem_of(150, rng, node_gpus=np.full(4, 4), running=8)
    of_all = search(problem, seed_or_rng=1)
    monkeypatch.setattr(_contenders, "MANY", 50)
    found = search(problem, seed_or_rng=1)
    assert is_feasible(problem, found.allocation)
    assert found.fitness == pytest.approx(fitness(problem, found.allocation), rel=1e-12)
    assert found.population.shape[1:] == problem.current.shape
    again = search(problem, seed_or_rng=1, population=found.population)
    assert again.fitness >= found.fitness * (1 - 1e-12)
    assert max(found.evaluations, of_all.evaluations) <= 40 * 16 + 3000  # moves go by GPUs where there are more jobs
    assert found.fitness >= of_all.fitness * (1 - 1e-4)
