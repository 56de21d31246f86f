"""What must hold of the search of Pollux in every round, and brute force where a round is small enough."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from simsched_policies.adaptive.pollux.search import (
    AllocationProblem,
    SearchOptions,
    fitness,
    is_feasible,
    search,
    upper_bound,
)

EXPONENTS = [-1000.0, -10.0, -1.0, -0.5, 0.0, 0.5, 1.0, 3.0, 1000.0]
QUICK = SearchOptions(effort=0.3, population_size=20, generations=10)
few = settings(max_examples=50, deadline=None, derandomize=True)
fewer = settings(max_examples=30, deadline=None, derandomize=True)


@st.composite
def rounds(draw, sizes, most_jobs):
    """Rounds of any kind: tables need not be monotone, current rows may break caps, nodes may be down."""
    node_gpus = draw(st.sampled_from(sizes))
    jobs = draw(st.integers(0, most_jobs))
    classes = draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    total = sum(node_gpus)
    speedup = rng.random((jobs, classes, total + 1)) * 3
    if draw(st.booleans()):
        speedup.sort(axis=2)
    speedup[:, :, 0] = 0
    speedup[:, :, rng.random(total + 1) < 0.1] = 0
    current, free = np.zeros((jobs, len(node_gpus)), int), np.array(node_gpus)
    for job in range(jobs):
        if rng.random() < 0.7:
            current[job] = rng.integers(0, free + 1)
            free = free - current[job]
    arguments = {
        "speedup": speedup,
        "max_gpus": rng.integers(0, total + 1, jobs),
        "min_gpus": np.where(rng.random(jobs) < 0.3, rng.integers(0, 3, jobs), 0),
        "node_gpus": np.where(rng.random(len(node_gpus)) < 0.1, 0, node_gpus),
        "current": current,
        "restart_factor": rng.choice([0.0, 0.3, 0.9, 1.0], jobs),
        "weight": draw(st.sampled_from([0.25, 1.0])),
        "fairness": draw(st.sampled_from(EXPONENTS)),
        "avoid_interference": draw(st.booleans()),
    }
    try:
        return AllocationProblem(**arguments, pinned=rng.random(jobs) < 0.2)
    except ValueError:  # pinned rows that contradict each other, or a node that is down
        return AllocationProblem(**arguments)


def check(problem, found):
    """The rules of a round, one by one and apart from ``violations``."""
    allocation = found.allocation
    held = allocation.sum(axis=1)
    free = ~problem.held
    assert allocation.min(initial=0) >= 0
    assert (allocation.sum(axis=0) <= problem.node_gpus).all()
    assert (held <= problem.max_gpus)[free].all()
    assert ((held == 0) | (held >= problem.lowest))[free].all()
    assert (allocation == problem.current)[problem.held].all()
    distributed = (allocation > 0).sum(axis=1) > 1
    if problem.avoid_interference:
        assert ((allocation[distributed] > 0).sum(axis=0) <= 1).all()
    assert is_feasible(problem, allocation)
    assert found.fitness == pytest.approx(plain_fitness(problem, allocation), rel=1e-9)
    assert all(is_feasible(problem, individual) for individual in found.population)


def plain_fitness(problem, allocation):
    """The formula of the paper, in logarithms so that no exponent overflows."""
    terms = []
    for job, row in enumerate(allocation):
        used = int((row > 0).sum())
        group = max(min(used, problem.speedup.shape[1]) - 1, 0)
        factor = 1.0 if (row == problem.current[job]).all() else problem.restart_factor[job]
        terms.append(problem.speedup[job, group, row.sum()] * problem.weight * factor + problem.floor)
    if not terms:
        return 0.0
    logs, p = np.log(terms), problem.fairness
    if p == 0:
        return float(np.exp(logs.mean()))
    return float(np.exp(np.logaddexp.reduce(p * logs) / p - np.log(len(terms)) / p))


def best_of_all(problem):
    """The best fitness of all feasible allocations, one by one."""
    rows = [np.array(row) for row in itertools.product(*[range(g + 1) for g in problem.node_gpus])]
    choices = []
    for job in range(problem.jobs):
        fits = [r for r in rows if r.sum() == 0 or problem.lowest[job] <= r.sum() <= problem.max_gpus[job]]
        choices.append([problem.current[job]] if problem.held[job] else fits)
    best = 0.0
    for allocation in itertools.product(*choices):
        stacked = np.array(allocation).reshape(problem.jobs, problem.nodes)
        if (stacked.sum(axis=0) <= problem.node_gpus).all() and is_feasible(problem, stacked):
            best = max(best, fitness(problem, stacked))
    return best


@few
@given(rounds([(4, 4, 4, 4), (2, 5, 0, 3, 2), (1, 1, 1), (8,), (4, 4, 2, 1)], 8), st.integers(0, 1000))
def test_every_allocation_keeps_the_rules_and_reports_its_fitness(problem, seed):
    population = np.random.default_rng(seed).integers(0, 3, (3, *problem.current.shape))
    for method in ("hybrid", "genetic"):
        check(problem, search(problem, method=method, seed_or_rng=seed, options=QUICK))
        check(problem, search(problem, method=method, seed_or_rng=seed, options=QUICK, population=population))


@few
@given(rounds([(4, 4, 4), (2, 5, 0, 3)], 6), st.integers(0, 1000))
def test_a_search_is_never_worse_than_a_feasible_current_allocation(problem, seed):
    if is_feasible(problem, problem.current):
        kept = fitness(problem, problem.current)
        for method in ("hybrid", "genetic"):
            found = search(problem, method=method, seed_or_rng=seed, options=QUICK)
            assert found.fitness >= kept * (1 - 1e-12)


@few
@given(rounds([(2, 2), (2, 1), (1, 1, 1), (3,), (2, 0, 1)], 3), st.integers(0, 1000))
def test_the_search_finds_the_best_of_all_allocations_and_the_bound_is_above_it(problem, seed):
    best = best_of_all(problem)
    found = search(problem, seed_or_rng=seed)
    check(problem, found)
    assert found.fitness == pytest.approx(best, rel=1e-9)
    assert upper_bound(problem, time_limit_s=5.0) >= best * (1 - 1e-12)
    assert upper_bound(problem, 5.0, np.where(problem.held[:, None], problem.current, 0)) >= best * (1 - 1e-12)


@fewer
@given(rounds([(4, 4, 4, 4), (2, 5, 0, 3, 2)], 7), st.integers(0, 1000))
def test_no_search_exceeds_the_bound(problem, seed):
    bound = upper_bound(problem, 2.0, search(problem, seed_or_rng=seed, options=QUICK).allocation)
    for method in ("hybrid", "genetic"):
        assert search(problem, method=method, seed_or_rng=seed + 1).fitness <= bound * (1 + 1e-12)
