"""Predicted losses: curves of the families are found again, and greedy allocation equals brute force."""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import nnls

from simsched.errors import InputError
from simsched.toolkit.loss_curves import (
    Convergence,
    Fit,
    allocate_by_gain,
    fit_convergence,
    fit_slaq,
    nonnegative,
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
    small = fit_slaq(STEPS, 0.02 * 0.9**STEPS + 0.007)
    assert small.parameters == pytest.approx((-np.log(0.9), 0.02, 0.007), rel=1e-4)
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


def test_convergence_is_found_again_despite_an_outlier():
    losses = 1 / (0.05 * STEPS + 0.9) + 0.1
    losses[12] = 5.0
    model = fit_convergence(STEPS, losses)
    scale = losses[0]
    for step in (40, 80, 160):
        assert model.loss(step) * scale == pytest.approx(1 / (0.05 * step + 0.9) + 0.1, rel=0.05)
    assert without_outliers([5, 4, 9, 2, 1]).tolist() == [5, 4, 3, 2, 1]


def test_a_curve_without_slope_stays_where_it_is():
    assert Convergence(0.0, 0.0, 0.3, 0.0).loss(5) == 0.3
    assert Convergence(0.5, 0.0, 0.25, 0.0).loss(4) == 0.75


def total(gains, counts):
    return sum(gain(count) for gain, count in zip(gains, counts, strict=True))


@pytest.mark.parametrize("seed", range(20))
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


def test_the_two_families_by_hand():
    assert Fit("sublinear", (1, 2, 3, 0.5), 0.0).loss(2) == pytest.approx(1 / 11 + 0.5)
    halving = Fit("geometric", (np.log(2), 8, 1), 0.0)
    assert [halving.loss(step) for step in (0, 1, 3)] == pytest.approx([9, 5, 2])
    assert [normalised_gain(halving, 1, 3, drop) for drop in (6, 1, 0.5, 0)] == pytest.approx([0.5, 3, 6, 3])
    assert normalised_gain(halving, 3, 1, 6) == normalised_gain(halving, 3, 1, 0) == 0


#: Eight reports that follow neither family, from step 3 on and two apart; the last weighs most.
AT, NOISY = np.arange(3.0, 19.0, 2.0), {
    "sublinear": np.array([9.0, 5.5, 4.5, 3.2, 3.0, 2.5, 2.4, 2.1]),
    "geometric": np.array([8.52, 5.32, 4.2, 3.73, 3.61, 3.51, 3.53, 3.48]),
}  # fmt: skip


def inverse_of(losses, weights, floor):
    """Fit the inverse of what is above a floor with scipy; returns the coefficients and the residual of the losses."""
    above, powers = losses - floor, np.column_stack([AT**2, AT, np.ones(8)])
    found, _ = nnls(powers * (np.sqrt(weights) * above**2)[:, None], np.sqrt(weights) * above)
    return found, float(weights @ (1 / (powers @ found) - above) ** 2)


def geometric_of(losses, weights, rate):
    """Fit scale and constant of a rate by weighted least squares; returns the residual."""
    root, powers = np.sqrt(weights), np.column_stack([np.exp(-rate * AT), np.ones(8)])
    found, *_ = np.linalg.lstsq(powers * root[:, None], losses * root, rcond=None)
    return float(weights @ (powers @ found - losses) ** 2)


@pytest.mark.parametrize("family", ["sublinear", "geometric"])
@pytest.mark.parametrize("decay", [None, 1.0, 0.7])
def test_a_fit_is_as_close_as_the_closest_on_a_dense_grid(family, decay):
    losses, weights = NOISY[family], (decay or 0.9) ** np.arange(7, -1, -1.0)
    fit = fit_slaq(AT, losses) if decay is None else fit_slaq(AT, losses, decay)
    assert fit.family == family
    assert fit.residual == pytest.approx(sum(weights * (np.array([fit.loss(at) for at in AT]) - losses) ** 2))
    span = np.ptp(losses)
    floors = losses.min() - span * np.logspace(-3, 2, 200)
    inverses = [inverse_of(losses, weights, floor)[1] for floor in floors]
    best = min(*inverses, *(geometric_of(losses, weights, rate / 14) for rate in np.logspace(-2, np.log10(50), 500)))
    assert fit.residual <= best * 1.002
    if family == "sublinear":
        assert fit.parameters[:3] == pytest.approx(inverse_of(losses, weights, fit.parameters[3])[0], rel=1e-6)


def test_floors_and_rates_lie_on_the_last_of_four_grids():
    # Nine points, then nine over two steps of theirs: each grid is four times as fine; of 33 points 16 times.
    floor, rate = (fit_slaq(AT, NOISY[family]).parameters for family in ("sublinear", "geometric"))
    least, span = NOISY["sublinear"].min(), np.ptp(NOISY["sublinear"])
    steps = [
        np.log((least - floor[3]) / span / 1e-3) / (np.log(1e5) / 8 / 4**3),
        np.log(rate[0] * np.ptp(AT) / 1e-2) / (np.log(5e3) / 32 / 16**3),
    ]
    assert steps == pytest.approx(np.rint(steps), abs=1e-6)


def test_a_loss_that_stands_still_is_expected_to_go_on_so():
    assert fit_slaq([1, 2, 3, 4], [2.0] * 4).loss(50) == pytest.approx(2)
    assert fit_slaq([1, 2, 3, 4], [1.0, 2.0, 3.0, 4.0]).loss(9) < 4.1, "neither family rises"


def test_units_one_by_one():
    def gain(*row):
        return lambda count: row[min(count, len(row) - 1)]

    assert [allocate_by_gain([gain(0, 1), gain(0, 2), gain(0, 1)], units) for units in (-1, 0, 1, 2)] == [
        (0, 0, 0), (0, 0, 0), (0, 1, 0), (1, 1, 0),
    ]  # fmt: skip
    # Among equal increases the first job's; none goes where nothing is gained.
    assert allocate_by_gain([gain(0, 2, 3, 3), gain(0, 2, 3, 3)], 3) == (2, 1)
    assert allocate_by_gain([gain(0, 2, 3, 3), gain(0, 2, 3, 3)], 9) == (2, 2)
    assert allocate_by_gain([gain(0, 5, 5, 9)], 3) == (1,)
    assert allocate_by_gain([], 3) == ()


@pytest.mark.parametrize(
    ("losses", "cleaned"),
    [
        # The second before and the second after count, the third does not.
        ([4, 1, 3, 0, 2], [4, 1, 3, 2, 2]),
        ([2, 0, 3, 1, 4], [2, 2, 3, 1, 4]),
        ([9, 1, 1, 3, 1, 1], [9, 1, 1, 1, 1, 1]),
        ([1, 1, 3, 1, 1, 9], [1, 1, 1, 1, 1, 9]),
        ([3, 1, 1, 2, 2], [3, 1, 1, 2, 2]),  # as low as the lowest beside it, or as high as the highest
        ([2, 4, 1, 4, 3], [2, 4, 3.25, 4, 3]),
    ],
)
def test_outliers_are_seen_beside_two_on_either_side(losses, cleaned):
    assert without_outliers(losses).tolist() == pytest.approx(cleaned)


def test_convergence_on_the_grid_of_floors_is_exact():
    found = fit_convergence([1, 2, 3, 4], [1 / (0.1 * k + 0.4) for k in (1, 2, 3, 4)])
    assert (found.slope, found.offset, found.floor) == pytest.approx((0.2, 0.8, 0))
    # The floor is a quarter of the last loss, the tenth of 40 from 0 on.
    found = fit_convergence([1, 2, 3, 4], [1 / (32 / 33 * k + 4 / 33) + 1 / 12 for k in (1, 2, 3, 4)])
    assert (found.slope, found.offset, found.floor) == pytest.approx((32 / 33, 4 / 33, 1 / 12))
    assert found.residual == pytest.approx(0, abs=1e-20)
    off = fit_convergence([1, 2, 3, 4], [4, 3, 2, 1.5])
    shares = np.array([1, 0.75, 0.5, 0.375])
    assert off.residual == pytest.approx(sum((np.array([off.loss(k) for k in (1, 2, 3, 4)]) - shares) ** 2))


@pytest.mark.parametrize(
    ("curve", "threshold", "epoch_steps", "epochs", "last"),
    [
        # 1/(k + 1) falls by 1/(k + 1) of itself in step k: by less than 0.049 from k = 20 on.
        ((1, 1, 0), 0.049, 1, 3, 22), ((1, 1, 0), 0.049, 1, 1, 20), ((1, 1, 0), 0.2001, 1, 1, 4),
        ((0.5, 1, 0), 0.049, 2, 3, 44), ((0, 1, 0), 0.1, 7, 3, 21), ((0, 1, 0), 0.0, 7, 3, 350),
        ((1, 1, 1), 0.049, 1, 1, 4),  # 1 + 1/5 against 1 + 1/4: by 0.04; before, 1 + 1/4 against 1 + 1/3 by 0.0625
    ],
)  # fmt: skip
def test_the_last_step_by_hand(curve, threshold, epoch_steps, epochs, last):
    model = Convergence(*curve, 0.0)
    assert model.last_step(threshold, epoch_steps, epochs, most_epochs=50) == last
    if epochs == 3 and last < 350:
        assert model.last_step(threshold, epoch_steps) == last


def test_the_search_for_the_last_step_ends():
    assert Convergence(0.0, 1.0, 0.0, 0.0).last_step(0.0, 1) == 100_000


@pytest.mark.parametrize("first", [0.0, -1.0])
def test_a_first_loss_that_is_not_positive_is_refused(first):
    with pytest.raises(InputError, match=f"starts at {first:g}"):
        fit_convergence([1, 2, 3, 4], [first, 1, 1, 1])


def test_a_curve_needs_four_points_of_each():
    with pytest.raises(InputError, match="has 4 iterations and 5 losses"):
        fit_slaq([1, 2, 3, 4], [5, 4, 3, 2, 1])
    with pytest.raises(InputError, match="has 3 iterations and 3 losses"):
        fit_convergence([1, 2, 3], [3, 2, 1])


@pytest.mark.parametrize("seed", range(20))
def test_it_is_as_close_as_the_solver_of_scipy(seed):
    rng = np.random.default_rng(seed)
    columns = rng.normal(size=(rng.integers(1, 12), rng.integers(1, 5)))
    target = rng.normal(size=len(columns))
    found, (_, error) = nonnegative(columns, target), nnls(columns, target)
    assert (found >= 0).all()
    assert np.linalg.norm(columns @ found - target) == pytest.approx(error, rel=1e-9, abs=1e-12)


def test_by_hand():
    # 2 x (1, 0) and 3 x (0, 1); against the second column only the first helps; equal columns share as one.
    assert nonnegative(np.eye(2), np.array([2.0, 3.0])).tolist() == [2.0, 3.0]
    assert nonnegative(np.eye(2), np.array([2.0, -3.0])).tolist() == [2.0, 0.0]
    tiny = 2.0**-30  # columns of any length count
    assert nonnegative(tiny * np.eye(2), tiny * np.array([2.0, 3.0])).tolist() == [2.0, 3.0]
    assert nonnegative(np.ones((2, 2)), np.array([4.0, 4.0])).sum() == pytest.approx(4.0)
