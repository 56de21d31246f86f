"""Water filling of many different jobs, where those that get all they can use are found together."""

import importlib

import numpy as np
import pytest

from simsched.toolkit.programs.problem import ShareProblem
from simsched.toolkit.programs.solver import SolverError
from simsched.toolkit.programs.water_filling import Entities, water_filling

MODULE = importlib.import_module("simsched.toolkit.programs.water_filling")


def drawn(jobs, gpus, seed):
    """Draw different jobs on three GPU types."""
    rng = np.random.default_rng(seed)
    speed = np.stack([np.ones(jobs), rng.uniform(1.5, 4, jobs), rng.uniform(2, 10, jobs)], axis=1)
    scale = rng.choice([1, 2, 4, 8], jobs, p=[0.7, 0.1, 0.15, 0.05])
    weights = rng.choice([1.0, 5.0], jobs, p=[0.8, 0.2])
    return ShareProblem(speed * rng.uniform(1, 50, jobs)[:, None], scale, np.array(gpus), weights)


def rates(problem, shares):
    return (problem.throughput * shares).sum(axis=1)


@pytest.mark.parametrize("case", [*range(4), "one left"])
def test_jobs_found_together_are_those_found_one_by_one(monkeypatch, case):
    solved = []

    def maximise(*given):
        solved.append(given)
        return once(*given)

    once = MODULE.maximise
    monkeypatch.setattr(MODULE, "maximise", maximise)
    if (
        case == "one left"
    ):  # three jobs have all their time, and only the fourth can rise then, on two of its eight GPUs
        scale = np.array([1, 1, 1, 8])
        problem = ShareProblem(np.array([[1.0], [2.0], [3.0], [4.0]]), scale, np.array([5]))
    else:
        problem = drawn(30, np.random.default_rng(case).integers(4, 20, 3), case)
    one_by_one, before = rates(problem, water_filling(problem)), len(solved)
    monkeypatch.setattr(MODULE, "_MANY_CLASSES", 0)
    assert rates(problem, water_filling(problem)) == pytest.approx(one_by_one, rel=1e-6)
    assert len(solved) - before <= 10, "they are searched for by bisection"


def test_jobs_of_entities_are_never_found_together(monkeypatch):
    """An entity's weight is split again after each job that can rise no further: here all of it goes to the next."""
    monkeypatch.setattr(MODULE, "_MANY_CLASSES", 0)
    problem = ShareProblem(np.ones((3, 1)), np.ones(3, int), np.array([2]))
    entities = Entities(np.array([0, 1, 1]), np.array([5.0, 1.0]), ["fairness", "fifo"])
    assert water_filling(problem, entities)[:, 0] == pytest.approx([1, 1, 0], abs=1e-6)


def test_levels_that_stay_out_of_reach_are_an_error(monkeypatch):
    tried = []
    monkeypatch.setattr(MODULE, "maximise", lambda *given: tried.append(given))
    with pytest.raises(SolverError, match="lost its footing"):
        water_filling(drawn(3, [1, 1, 1], 0))
    assert len(tried) == 101, "as they are, and lowered a hundred times"


def test_few_gpus_for_many_jobs_leave_a_solution():
    """Levels are small here, and what the solver reaches is exact to an absolute tolerance only."""
    problem = drawn(20, [11, 13, 2], 31)
    found = water_filling(problem)
    assert (rates(problem, found) > 0).all()
    assert (problem.scale_factor @ found <= np.array([11, 13, 2]) + 1e-6).all()
