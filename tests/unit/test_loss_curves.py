"""Predicted losses: curves of the families are found again, and greedy allocation equals brute force."""

from itertools import product

import numpy as np
import pytest

from simsched.errors import InputError
from simsched.toolkit.loss_curves import (
    Convergence,
    allocate_by_gain,
    fit_convergence,
    fit_slaq,
    normalised_gain,
    without_outliers,
)

STEPS = np.arange(1.0, 31.0)


def test_a_sublinear_curve_is_found_again():
    fit = fit_slaq(STEPS, 1 / (0.002 * STEPS**2 + 0.05 * STEPS + 0.5) + 0.3)
    assert fit.family == "sublinear"
    assert fit.loss(60) == pytest.approx(1 / (7.2 + 3 + 0.5) + 0.3, rel=0.02)


def test_a_geometric_curve_is_found_again():
    fit = fit_slaq(STEPS, 2 * 0.9**STEPS + 0.7)
    assert fit.family == "geometric"
    # The grid of rates narrows to 6e-5 of the rate, and what is left follows by least squares.
    assert fit.parameters == pytest.approx((-np.log(0.9), 2.0, 0.7), rel=1e-4)
    assert fit.loss(45) == pytest.approx(2 * 0.9**45 + 0.7, rel=1e-5)
    assert normalised_gain(fit, 30, 40, 1.0) == pytest.approx(2 * (0.9**30 - 0.9**40), rel=0.01)


def test_recent_points_weigh_more():
    # The loss changes its course at step 15: the fit follows the new one.
    old, new = 3 * 0.8**STEPS + 1, 1.5 * 0.97**STEPS + 0.5
    losses = np.where(STEPS <= 15, old + new[14] - old[14], new)
    recent, flat = fit_slaq(STEPS, losses, 0.7), fit_slaq(STEPS, losses, 1.0)
    truth = 1.5 * 0.97**33 + 0.5
    assert abs(recent.loss(33) - truth) < abs(flat.loss(33) - truth)


@pytest.mark.parametrize(
    ("steps", "losses"), [([1, 2, 3], [3, 2, 1]), ([1, 2, 2, 3], [4, 3, 2, 1]), ([1, 2, 3, 4], [4, 3, np.nan, 1])]
)
def test_a_curve_that_cannot_be_fitted_is_refused(steps, losses):
    with pytest.raises(InputError, match="loss curve"):
        fit_slaq(steps, losses)


def test_greedy_equals_brute_force_on_four_concave_jobs():
    rng = np.random.default_rng(4)
    for _ in range(10):
        tables = np.cumsum(-np.sort(-rng.random((4, 9)), axis=1), axis=1)
        tables = np.hstack([np.zeros((4, 1)), tables])
        gains = [lambda n, row=row: float(row[min(n, 9)]) for row in tables]
        for units in (4, 6, 9):
            counts = allocate_by_gain(gains, units)
            assert sum(counts) == units
            everybody = [c for c in product(range(1, 10), repeat=4) if sum(c) == units]
            best = max(sum(gain(n) for gain, n in zip(gains, c, strict=True)) for c in everybody)
            assert sum(gain(n) for gain, n in zip(gains, counts, strict=True)) == pytest.approx(best)


def test_scarce_units_go_to_the_largest_gain_and_useless_ones_to_nobody():
    gains = [lambda n: 0.1 * min(n, 1), lambda n: 0.5 * min(n, 2), lambda n: 0.3 * min(n, 1)]
    assert allocate_by_gain(gains, 2) == (0, 1, 1)
    assert allocate_by_gain(gains, 9) == (1, 2, 1)


def test_convergence_is_found_again_despite_an_outlier():
    losses = 1 / (0.05 * STEPS + 0.9) + 0.1
    losses[12] = 5.0
    model = fit_convergence(STEPS, losses)
    scale = losses[0]
    for step in (40, 80, 160):
        assert model.loss(step) * scale == pytest.approx(1 / (0.05 * step + 0.9) + 0.1, rel=0.05)
    assert without_outliers([5, 4, 9, 2, 1]).tolist() == [5, 4, 3, 2, 1]


def test_a_job_has_converged_when_its_loss_hardly_falls():
    model = fit_convergence(STEPS, 1 / STEPS)
    # 1/k falls by 1/(k + 1) from step k to k + 1: under 5 % from k = 20 on, and three epochs make it step 22 or 23.
    assert model.last_step(0.05, 1, 3, most_epochs=1000) == pytest.approx(22, abs=1)
    assert model.last_step(0.0, 1, 3, most_epochs=50) == 50


def test_a_curve_without_slope_stays_where_it_is():
    assert Convergence(0.0, 0.0, 0.3, 0.0).loss(5) == 0.3
    assert Convergence(0.5, 0.0, 0.25, 0.0).loss(4) == 0.75


def total(gains, counts):
    return sum(gain(count) for gain, count in zip(gains, counts, strict=True))


@pytest.mark.parametrize("seed", range(50))
def test_allocation_by_gain_is_the_best_that_gives_every_job_a_unit_or_so_many_jobs_one(seed):
    rng = np.random.default_rng(seed)
    jobs, units = int(rng.integers(1, 5)), int(rng.integers(1, 8))
    tables = np.cumsum(np.hstack([np.zeros((jobs, 1)), -np.sort(-rng.random((jobs, units)), axis=1)]), axis=1)
    gains = [lambda count, row=row: float(row[min(count, units)]) for row in tables]
    counts = allocate_by_gain(gains, units)
    most = 1 if units < jobs else units
    like_it = [
        one
        for one in product(range(most + 1), repeat=jobs)
        if sum(one) <= units and (units < jobs or min(one) >= 1)
    ]  # fmt: skip
    assert total(gains, counts) == pytest.approx(max(total(gains, one) for one in like_it))


def test_allocation_by_gain_is_not_the_best_of_all_where_a_job_would_have_none():
    # Two units among three jobs: 10 + 5 with one each, 19 with both for the first; the second is served all the same.
    gains = [lambda count, row=row: row[min(count, 2)] for row in ((0, 10, 19), (0, 5, 6), (0, 1, 2))]
    assert allocate_by_gain(gains, 2) == (1, 1, 0)
    # Three for two: the second job's only unit gains 1, a third one for the first would gain 8.
    gains = [lambda count, row=row: row[min(count, 3)] for row in ((0, 10, 19, 27), (0, 1, 1, 1))]
    assert allocate_by_gain(gains, 3) == (2, 1)
