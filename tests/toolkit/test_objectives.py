"""Programs of one number against programs written job by job, and cases by hand.

The largest total of rates, against a program written job by job.

Water filling of many different jobs, where those that get all they can use are found together.

Programs that are searched for, on one type of GPUs against closed forms, and in how many steps they are found.
"""

from __future__ import annotations

import importlib
from math import sqrt

import numpy as np
import pytest
from scipy.optimize import linprog

from simsched.toolkit.programs.objectives import total_throughput
from simsched.toolkit.programs.problem import ShareProblem, SolverError
from simsched.toolkit.programs.water_filling import Entities, water_filling


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


fair = importlib.import_module("simsched.toolkit.programs.water_filling")
mean = importlib.import_module("simsched.toolkit.programs.objectives")


@pytest.fixture
def programs(monkeypatch):
    """Count the programs that a search solves."""
    solved = []

    class Counted(fair.Levels):
        def raised(self):
            solved.append(self)
            return super().raised()

    def maximise(*given):
        solved.append(given)
        return once(*given)

    once = mean.maximise
    monkeypatch.setattr(fair, "Levels", Counted)
    monkeypatch.setattr(mean, "maximise", maximise)
    return solved


def bisected(holds, low, high):
    """Return where a condition begins to hold between two numbers above 0, halving their logarithms."""
    for _ in range(200):
        middle = sqrt(low * high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


class OneType:
    """Jobs on one type of GPUs; the first is done, the second cannot run."""

    def __init__(self, seed, jobs=7, least=0.0):
        self.rng = rng = np.random.default_rng(seed)
        self.rates, self.sizes, self.gpus = (
            rng.uniform(0.2, 3, jobs),
            rng.choice([1, 2, 4], jobs),
            int(rng.integers(4, 9)),
        )
        self.steps = 10 ** rng.uniform(least, 4, jobs)
        self.rates[1] = self.steps[0] = 0.0
        self.problem = ShareProblem(self.rates[:, None], self.sizes, np.array([self.gpus]))
        self.live = range(2, jobs)


# The steps left are from 1 to 10,000, or so few that the age alone decides.
@pytest.mark.parametrize(("seed", "least"), [(0, 0.0), (1, 0.0), (2, 0.0), (3, -9.0), (4, -9.0), (5, -9.0)])
def test_the_least_ratio_of_finish_times_is_found_at_once(seed, least, programs):
    one = OneType(seed, least=least)
    if least < 0:
        one.steps[2:] *= 1e-6
    age_s, so_far_s = one.rng.uniform(0, 5000, 7), one.rng.uniform(1, 1000, 7)
    slices = np.minimum(one.gpus / 7 / one.sizes, 1.0)
    due_s = {job: so_far_s[job] + one.steps[job] / (one.rates[job] * slices[job]) for job in one.live}

    def reachable(ratio):
        left_s = {job: ratio * due_s[job] - age_s[job] for job in one.live}
        if min(left_s.values()) <= 0:
            return False
        shares = {job: one.steps[job] / one.rates[job] / left_s[job] for job in one.live}
        return max(shares.values()) <= 1 and sum(one.sizes[job] * shares[job] for job in one.live) <= one.gpus

    progress = fair.Elapsed(age_s, one.steps, so_far_s)
    shares = fair.finish_time(one.problem, progress)
    ratios = fair.finish_time_ratio(one.problem, progress, shares)
    assert ratios[2:].max() == pytest.approx(bisected(reachable, 1e-6, 1e9), rel=1e-6)
    assert len(programs) <= 4
    assert shares[:2].tolist() == [[0], [0]]


def test_jobs_whose_finish_times_are_alike_have_shares_alike():
    # Two of three GPUs' time and 100 s for 200 steps each: a ratio of (100 + 200 / (2 / 3)) / (200 / (2 / 3)).
    problem = ShareProblem(np.ones((3, 1)), np.ones(3, int), np.array([2]))
    progress = fair.Elapsed(np.full(3, 100.0), np.full(3, 200.0), np.zeros(3))
    shares = fair.finish_time(problem, progress)
    assert shares[:, 0] == pytest.approx([2 / 3] * 3)
    assert fair.finish_time_ratio(problem, progress, shares) == pytest.approx([4 / 3] * 3)


@pytest.mark.parametrize("seed", range(4))
def test_the_least_mean_completion_time_follows_square_roots_up_to_all_of_the_time(seed, programs):
    one = OneType(seed)

    def shares_at(price):
        """Let each job have time until a GPU-second more saves less than its price, as the derivative says."""
        return [min(1.0, sqrt(one.steps[job] / (one.rates[job] * one.sizes[job] * price))) for job in one.live]

    def fits(price):
        return sum(one.sizes[job] * share for job, share in zip(one.live, shares_at(price), strict=True)) <= one.gpus

    best = shares_at(bisected(fits, 1e-12, 1e12))
    shares = mean.min_jct(one.problem, one.steps)
    assert shares[2:, 0] == pytest.approx(best, rel=1e-3)
    assert shares[:2].tolist() == [[0], [0]]
    total_s = sum(one.steps[job] / one.rates[job] / share for job, share in zip(one.live, best, strict=True))
    assert (one.steps[2:] / one.rates[2:] / shares[2:, 0]).sum() == pytest.approx(total_s, rel=1e-8)
    assert len(programs) <= 25


@pytest.mark.parametrize(("rates", "steps"), [([0.0, 0.0], [5.0, 3.0]), ([1.0, 2.0], [0.0, 0.0])])
def test_where_nobody_can_run_or_all_are_done_nobody_has_a_share(rates, steps, programs):
    problem, nothing = ShareProblem(np.array(rates)[:, None], np.ones(2, int), np.array([1])), np.zeros(2)
    assert mean.min_jct(problem, np.array(steps)).tolist() == [[0], [0]]
    assert fair.finish_time(problem, fair.Elapsed(nothing, np.array(steps), nothing)).tolist() == [[0], [0]]
    assert not programs


def test_searches_that_do_not_end_are_errors(monkeypatch, programs):
    one, units = OneType(0), []
    monkeypatch.setattr(mean, "_improved", lambda *given: units.append(given) or (1.0, 0.98))
    with pytest.raises(SolverError, match="least completion time did not settle"):
        mean.min_jct(one.problem, one.steps)
    assert len(units) == 20
    programs.clear()
    monkeypatch.setattr(fair, "_next", lambda ratios, prices, level, required, ratio, low: low)
    with pytest.raises(SolverError, match="finish-time ratio did not settle"):
        fair.finish_time(one.problem, fair.Elapsed(one.rng.uniform(0, 5000, 7), one.steps, np.full(7, 100.0)))
    assert len(programs) == 100


def test_parts_of_a_step_count():
    problem, nothing = ShareProblem(np.ones((2, 1)), np.ones(2, int), np.array([1])), np.zeros(2)
    assert mean.min_jct(problem, np.array([0.1, 0.4]))[:, 0] == pytest.approx([1 / 3, 2 / 3], rel=1e-4)
    progress = fair.Elapsed(np.ones(2), np.array([0.5, 0.5]), nothing)
    shares = fair.finish_time(problem, progress)
    assert shares[:, 0] == pytest.approx([0.5, 0.5])
    # A second and then a second at half the rate, in place of a second alone.
    assert fair.finish_time_ratio(problem, progress, shares) == pytest.approx([2, 2])
