"""Scheduling rounds captured from the published Pollux simulator, against its own allocations."""

import json

import numpy as np
import pytest
from simsched_policies.adaptive.pollux.search import AllocationProblem, fitness, is_feasible, search, upper_bound

EVERY = 8  # a sample


def read_round(record):
    """Build the problem of one line, and the allocation that was published."""
    jobs, delay = record["jobs"], record["restart_delay_s"]
    caps = [job["max_gpus"] for job in jobs]
    speedup = np.zeros((len(jobs), 2, 1 + max(max(caps), *(sum(job["current"]) for job in jobs))))
    for table, job in zip(speedup, jobs, strict=True):
        for row, first, values in ((table[0], 1, job["speedup_one_node"]), (table[1], 2, job["speedup_multi_node"])):
            room = max(0, row.size - first)
            row[first : first + len(values)] = values[:room]
    ages = np.array([job["age_s"] for job in jobs])
    restarts = np.array([job["restarts"] for job in jobs])
    problem = AllocationProblem(
        speedup=speedup,
        max_gpus=np.array(caps),
        node_gpus=np.full(record["nodes"], record["gpus_per_node"]),
        current=np.array([job["current"] for job in jobs]),
        restart_factor=np.maximum(ages - delay * restarts, 0) / (ages + delay),
        weight=1 / record["gpus_per_node"],
        fairness=record["fairness"],
    )
    return problem, np.array([job["published"] for job in jobs])


@pytest.fixture(scope="module")
def records(shared):
    with (shared / "pollux-osdi21" / "rounds" / "rounds.jsonl").open() as lines:
        return [json.loads(line) for line in lines]


def test_every_published_fitness_is_recomputed(records):
    for record in records:
        problem, published = read_round(record)
        assert is_feasible(problem, published)
        assert fitness(problem, published) == pytest.approx(record["published_fitness"], rel=1e-9)


def test_the_search_reaches_the_published_fitness(records):
    ratios, busy = [], []
    for record in records[::EVERY]:
        problem, _ = read_round(record)
        found = search(problem, seed_or_rng=record["round"])
        assert is_feasible(problem, found.allocation)
        ratios.append(found.fitness / record["published_fitness"])
        if problem.jobs >= 8:
            busy.append(ratios[-1])
    assert min(ratios) >= 0.995
    assert np.mean(np.array(ratios) >= 1 - 1e-6) >= 0.95
    assert np.mean(busy) > 1


def test_the_genetic_search_comes_near_the_published_fitness(records):
    for record in records[:: 8 * EVERY]:
        problem, _ = read_round(record)
        found = search(problem, method="genetic", seed_or_rng=record["round"])
        assert found.fitness >= 0.97 * record["published_fitness"]


def test_the_bound_is_above_the_published_fitness_and_close(records):
    for record in records[:: 4 * EVERY]:
        problem, published = read_round(record)
        bound = upper_bound(problem, time_limit_s=5.0, allocation=published)
        assert record["published_fitness"] <= bound <= 1.1 * record["published_fitness"]
