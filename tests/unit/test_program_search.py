"""Programs that are searched for, on one type of GPUs against closed forms, and in how many steps they are found."""

from __future__ import annotations

import importlib
from math import sqrt

import numpy as np
import pytest

from simsched.toolkit.programs.problem import ShareProblem
from simsched.toolkit.programs.solver import SolverError

fair = importlib.import_module("simsched.toolkit.programs.finish_time")
mean = importlib.import_module("simsched.toolkit.programs.min_jct")


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
