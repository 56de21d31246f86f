"""The search of Pollux on rounds small enough to work out by hand."""

import os
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from simsched_policies.adaptive.pollux.search import (
    AllocationProblem,
    SearchOptions,
    fitness,
    is_feasible,
    match_population,
    power_mean,
    run,
    search,
    upper_bound,
    violations,
)
from simsched_policies.adaptive.pollux.search.run import contenders, part_of

METHODS = ["hybrid", "genetic"]


def linear_round(jobs=3, nodes=4, gpus=4, **changes):
    """Jobs that speed up with the square root of their GPUs, less across nodes, all idle now."""
    counts = np.sqrt(np.arange(nodes * gpus + 1))
    table = np.stack([counts, 0.8 * counts])
    given = {
        "speedup": np.repeat(table[None], jobs, axis=0),
        "max_gpus": np.full(jobs, nodes * gpus),
        "node_gpus": np.full(nodes, gpus),
        "current": np.zeros((jobs, nodes), int),
        "restart_factor": np.full(jobs, 0.9),
        "weight": 1 / gpus,
    }
    return AllocationProblem(**{**given, **changes})


def test_power_mean_of_known_numbers():
    values = np.array([1.0, 4.0])
    assert power_mean(values, 1) == pytest.approx(2.5)
    assert power_mean(values, 0) == pytest.approx(2.0)
    assert power_mean(values, -1) == pytest.approx(1.6)
    assert power_mean(np.array([]), -1) == 0.0


def test_violations_name_what_is_wrong():
    problem = linear_round(3, 2, 2, max_gpus=np.array([2, 4, 4]), min_gpus=np.array([0, 0, 2]))
    assert violations(problem, np.array([[1, 1], [1, 1], [0, 0]])) == [
        "node 0 has 2 distributed jobs",
        "node 1 has 2 distributed jobs",
    ]
    assert violations(problem, np.array([[2, 1], [0, 0], [0, 0]])) == ["job 0 holds 3 GPUs, at most 2"]
    assert violations(problem, np.array([[0, 0], [0, 0], [1, 0]])) == ["job 2 holds 1 GPUs, at least 2"]
    assert violations(problem, np.array([[2, 0], [1, 0], [0, 0]])) == ["node 0 has 2 GPUs, 3 are given"]
    assert violations(problem, np.array([[-1, 0], [0, 0], [0, 0]])) == ["a job holds a negative number of GPUs"]
    assert "shape" in violations(problem, np.zeros((2, 2)))[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"speedup": np.zeros((3, 17))}, "speedup must have shape"),
        ({"current": np.zeros((2, 4), int)}, "current must have shape"),
        ({"max_gpus": np.full(3, 17)}, "speedup ends at 16"),
        ({"restart_factor": np.array([1.0, -0.1, 1.0])}, "restart_factor must be finite"),
        ({"node_gpus": np.array([4, 4, 4, -1])}, "node_gpus must not be negative"),
        ({"speedup": np.ones((3, 2, 17))}, "0 at 0 GPUs"),
        ({"fairness": np.inf}, "fairness must be finite"),
        ({"min_gpus": np.zeros(2, int)}, "min_gpus must have shape"),
        ({"weight": np.ones(2)}, "weight must be a number"),
        ({"pinned": np.ones(3, bool), "current": np.full((3, 4), 2)}, "pinned jobs cannot stay"),
    ],
)
def test_a_wrong_round_is_refused_with_the_name_of_the_array(changes, message):
    with pytest.raises(ValueError, match=message):
        linear_round(**changes)


@pytest.mark.parametrize("method", METHODS)
def test_no_jobs_no_nodes_and_nodes_that_are_down(method):
    empty = linear_round(0)
    assert search(empty, method=method).allocation.shape == (0, 4)
    assert search(empty, method=method).fitness == 0.0
    down = linear_round(2, node_gpus=np.zeros(4, int))
    assert search(down, method=method).fitness == pytest.approx(1e-3)
    homeless = linear_round(2, node_gpus=np.zeros(0, int), current=np.zeros((2, 0), int))
    assert search(homeless, method=method).allocation.shape == (2, 0)


@pytest.mark.parametrize("method", METHODS)
def test_a_row_is_kept_where_a_restart_costs_more_than_it_gains(method):
    current = np.array([[2, 0, 0, 0], [0, 4, 0, 0], [0, 0, 3, 0]])
    dear = linear_round(3, current=current, restart_factor=np.full(3, 0.01))
    assert (search(dear, method=method).allocation == current).all()
    cheap = linear_round(3, current=current, restart_factor=np.full(3, 0.99))
    assert search(cheap, method=method).allocation.sum() > current.sum()


@pytest.mark.parametrize("method", METHODS)
def test_all_jobs_pinned(method):
    current = np.array([[1, 1, 0, 0], [0, 0, 2, 0]])
    problem = linear_round(2, current=current, pinned=np.ones(2, bool))
    found = search(problem, method=method)
    assert (found.allocation == current).all()
    assert upper_bound(problem) == found.fitness


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("exponent", [-1000.0, -1.0, 0.0, 1.0])
def test_a_poor_start_is_left_for_a_good_allocation(method, exponent):
    found = search(linear_round(8, fairness=exponent), method=method, seed_or_rng=1)
    gpus = found.allocation.sum(axis=1)
    assert gpus.sum() == 16
    if exponent <= 0:
        assert gpus.tolist() == [2] * 8 if method == "hybrid" else gpus.min() >= 1


def test_idle_gpus_go_to_jobs_that_gain_nothing_in_this_round():
    problem = linear_round(3, max_gpus=np.array([2, 2, 2]), restart_factor=np.array([1.0, 0.0, 0.0]))
    without = search(problem, options=SearchOptions(fill_idle=False))
    assert without.allocation.sum(axis=1).tolist() == [2, 0, 0]
    filled = search(problem)
    assert filled.allocation.sum(axis=1).tolist() == [2, 2, 2]
    assert filled.fitness == without.fitness
    assert (filled.population[0] == filled.allocation).all()


@pytest.mark.parametrize("method", METHODS)
def test_a_previous_population_is_used_and_need_not_be_feasible(method):
    problem = linear_round(4)
    population = np.full((3, 4, 4), 7)
    population[1] = np.eye(4, dtype=int) * 4
    found = search(problem, method=method, population=population, options=SearchOptions(effort=0, generations=1))
    assert found.fitness >= fitness(problem, population[1])
    assert all(not violations(problem, one) for one in found.population)


def test_wrong_arguments_are_refused():
    problem = linear_round(2)
    with pytest.raises(ValueError, match="method"):
        search(problem, method="magic")
    with pytest.raises(ValueError, match="population"):
        search(problem, population=np.zeros((1, 3, 4), int))
    with pytest.raises(ValueError, match="not feasible"):
        upper_bound(problem, allocation=np.full((2, 4), 4))


@pytest.mark.parametrize("method", METHODS)
def test_the_same_seed_gives_the_same_result(method):
    problem = linear_round(6)
    first, second = (search(problem, method=method, seed_or_rng=np.random.default_rng(5)) for _ in range(2))
    assert (first.allocation == second.allocation).all()
    assert first.population.tobytes() == second.population.tobytes()
    assert first.evaluations == second.evaluations


def test_rows_are_matched_by_job():
    population = np.arange(12).reshape(2, 3, 2)
    matched = match_population(population, ["a", "b", "c"], ["c", "new", "a"])
    assert matched.tolist() == [[[4, 5], [0, 0], [0, 1]], [[10, 11], [0, 0], [6, 7]]]
    assert match_population(population, ["a", "b", "c"], []).shape == (2, 0, 2)
    with pytest.raises(ValueError, match="old ids"):
        match_population(population, ["a"], ["a"])
    with pytest.raises(ValueError, match="of its own"):
        match_population(population, ["a", "a", "c"], ["a"])


@pytest.mark.parametrize("exponent", [-1000.0, -1.0, 0.0, 2.0])
def test_the_bound_holds_and_is_tight_on_an_easy_round(exponent):
    problem = linear_round(4, max_gpus=np.full(4, 4), fairness=exponent)
    found = search(problem)
    assert found.fitness <= upper_bound(problem, allocation=found.allocation) <= found.fitness * (1 + 1e-4)


def test_the_bound_of_a_large_round_needs_no_whole_numbers():
    problem = linear_round(80, nodes=64, gpus=2, max_gpus=np.full(80, 8))
    found = search(problem, options=SearchOptions(effort=0.2))
    assert found.fitness <= upper_bound(problem, allocation=found.allocation) <= 1.2 * found.fitness


SCRIPT = """
import numpy as np
from simsched_policies.adaptive.pollux.search import AllocationProblem, SearchOptions, search
rng = np.random.default_rng(3)
for exponent, nodes, jobs in ((-1.0, 4, 5), (-30.0, 3, 4), (0.5, 3, 3)):
    speedup = np.sort(rng.random((jobs, 2, 13)), axis=2)
    speedup[:, :, 0] = 0
    current = np.zeros((jobs, nodes), int)
    current[np.arange(jobs), np.arange(jobs) % nodes] = 1
    problem = AllocationProblem(
        speedup=speedup, max_gpus=rng.integers(1, 13, jobs), node_gpus=np.full(nodes, 4), current=current,
        restart_factor=rng.random(jobs), weight=0.25, fairness=exponent,
    )
    for method in ("hybrid", "genetic"):
        options = SearchOptions(effort=0.1, generations=3, population_size=10)
        found = search(problem, method=method, seed_or_rng=7, options=options)
        print(found.allocation.tolist(), found.fitness.hex(), found.evaluations)
"""


def test_the_compiler_changes_nothing():
    policies = Path(__file__).parents[2]
    paths = os.pathsep.join([str(policies), str(policies / "policies"), os.environ.get("PYTHONPATH", "")])
    outputs = [
        subprocess.run(
            [sys.executable, "-W", "error", "-c", SCRIPT],
            env={**os.environ, "NUMBA_DISABLE_JIT": disabled, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for disabled in ("0", "1")
    ]
    assert outputs[0] == outputs[1]
    assert len(outputs[0].splitlines()) == 6


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
        patch.setattr(run, "MANY", 0)
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
    monkeypatch.setattr(run, "MANY", 50)
    found = search(problem, seed_or_rng=1)
    assert is_feasible(problem, found.allocation)
    assert found.fitness == pytest.approx(fitness(problem, found.allocation), rel=1e-12)
    assert found.population.shape[1:] == problem.current.shape
    again = search(problem, seed_or_rng=1, population=found.population)
    assert again.fitness >= found.fitness * (1 - 1e-12)
    assert max(found.evaluations, of_all.evaluations) <= 40 * 16 + 3000  # moves go by GPUs where there are more jobs
    assert found.fitness >= of_all.fitness * (1 - 1e-4)
