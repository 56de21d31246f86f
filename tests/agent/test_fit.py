"""The fit of the throughput model."""

from dataclasses import astuple, replace

import numpy as np
import pytest
from scipy.optimize import minimize

from simsched.agent.fit import Fits, fit
from simsched.agent.fit_loss import (
    _add_priors,
    _fill,
    _find_step,
    _mean_sync_s,
    _solved,
    loss_at,
    loss_of,
    minimise,
    points_of,
)
from simsched.applications.calibration.application_fit import KINDS, compare, compare_folder
from simsched.errors import InputError
from simsched.model.application import BatchLimits, StepTime
from simsched.model.fitted import FittedApplication, NoiseCurve, Training
from simsched.model.measured import MeasuredApplication, ScalabilityRow, StepTable, TrainingCurve
from simsched.model.step_model import SevenParameters
from simsched.model.throughput import ThroughputParams

TRUE = ThroughputParams(0.05, 0.002, 0.2, 0.01, 0.04, 0.004, 1.6)
ALL_KINDS = [(1, 1, 32), (1, 1, 64), (1, 2, 32), (1, 4, 64), (2, 4, 32), (2, 8, 64), (4, 16, 128)]


def measured(keys, params=TRUE):
    """Make a profile of what the model itself predicts."""
    profile = {}
    for nodes, gpus, size in keys:
        step = float(params.step_time_s(nodes, gpus, size))
        profile[nodes, gpus, size] = StepTime(step, step - float(params.grad_time_s(size)))
    return profile


def arrays(profile):
    """The rows that the compiled kernels take."""
    return np.array([(*place, *times) for place, times in profile.items()], dtype=np.float64)


def derivatives(at, measured, width=0.0):
    """Loss, gradient and the lower half of the Hessian."""
    slope, bend = np.zeros(7), np.zeros((7, 7))
    loss = loss_at(at, points_of(measured), width, slope, bend, np.zeros(2))
    return loss, slope, bend


MANY = [(k, n, b) for k, n in [(1, 1), (1, 2), (1, 4), (2, 4), (2, 8), (4, 16)] for b in (32, 64, 128)]


def noisy(profile, seed, spread):
    """Scatter the times of a profile; a fit to exact data may stop at the kink where the error of one part is 0."""
    rng = np.random.default_rng(seed)
    return {key: StepTime(*(np.array(times) * rng.lognormal(0, spread))) for key, times in profile.items()}


@pytest.mark.parametrize("seed", range(3))
def test_fit_recovers_the_times_behind_noisy_measurements(seed):
    found = fit(noisy(measured(MANY), seed, 0.03)).params
    unseen = [(1, 3, 48), (2, 6, 96), (3, 12, 64), (8, 32, 128)]
    for nodes, gpus, size in MANY + unseen:
        assert found.grad_time_s(size) == pytest.approx(TRUE.grad_time_s(size), rel=0.06)
        assert found.step_time_s(nodes, gpus, size) == pytest.approx(TRUE.step_time_s(nodes, gpus, size), rel=0.12)


@pytest.mark.parametrize("width", [0.0, 0.1])
@pytest.mark.parametrize("seed", range(5))
def test_slope_and_bend_agree_with_finite_differences(seed, width):
    rng = np.random.default_rng(seed)
    measured_ = arrays(measured(ALL_KINDS))
    at = np.array(astuple(TRUE)) * rng.uniform(0.5, 2.0, 7)
    at[-1] = rng.uniform(1.1, 4.0)
    _, slope, bend = derivatives(at, measured_, width)
    for index in range(7):
        step = np.zeros(7)
        step[index] = 1e-6 * at[index]
        more, less = derivatives(at + step, measured_, width), derivatives(at - step, measured_, width)
        assert slope[index] == pytest.approx((more[0] - less[0]) / (2 * step[index]), rel=1e-4, abs=1e-6)
        row = np.concatenate([bend[index, : index + 1], bend[index + 1 :, index]])
        assert row == pytest.approx((more[1] - less[1]) / (2 * step[index]), rel=1e-4, abs=1e-3)


def test_a_single_gpu_makes_all_synchronisation_look_free():
    found = fit(measured([(1, 1, 32)])).params
    assert (found.alpha_r, found.beta_r) == (1e-8, 1e-8)
    assert (found.alpha_n, found.beta_n) == pytest.approx((1.1e-8, 1.1e-8))


def test_two_gpus_on_a_node_make_crossing_nodes_look_a_tenth_dearer():
    found = fit(measured([(1, 1, 32), (1, 2, 64)])).params
    assert found.alpha_r > 1e-4
    assert found.alpha_n == pytest.approx(1.1 * found.alpha_r)
    assert found.beta_r == 1e-8


def test_two_gpus_on_two_nodes_leave_the_single_node_unknown():
    found = fit(measured([(1, 1, 32), (2, 2, 64)])).params
    assert found.alpha_n > 1e-3
    assert (found.beta_n, found.alpha_r, found.beta_r) == (1e-8, 1e-8, 1e-8)


def test_fit_stays_within_bounds():
    found = fit(measured(ALL_KINDS, ThroughputParams(1e-8, 1e-4, 5.0, 1e-8, 3.0, 1e-8, 10.0))).params
    values = astuple(found)
    assert all(value >= 1e-8 for value in values)
    assert 1.0 <= found.gamma <= 10.0


def test_an_empty_profile_is_refused():
    with pytest.raises(ValueError, match="no measurements"):
        fit({})


def random_profile(rng):
    """Measurements of a random model at random places, in the number that jobs make of them."""
    times = rng.lognormal(np.log([0.1, 0.004, 0.3, 0.02, 0.1, 0.01]), 0.7)
    model = ThroughputParams(*times, rng.uniform(1, 4))
    places = rng.permutation(len(MANY))[: rng.integers(1, len(MANY) + 1)]
    spread = rng.choice([0.0, 0.02, 0.1])
    return noisy(measured([MANY[place] for place in places], model), int(rng.integers(1000)), spread)


def test_no_fit_is_worse_than_that_of_a_general_optimiser():
    # scipy's L-BFGS-B on the same loss, bounds and published starting point, which the parameters it may move keep to.
    rng, ratios = np.random.default_rng(5), []
    for _ in range(60):
        profile = random_profile(rng)
        found = fit(profile)
        values = arrays(profile)
        free = dict.fromkeys(range(7))
        for place, value in enumerate(astuple(found.params)):
            if held_at(profile, place):
                free[place] = value
        start = [0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 1.001]
        lowest = [1e-8] * 6 + [1.0]
        highest = [np.inf] * 6 + [10.0]
        for place, value in free.items():
            if value is not None:
                start[place] = lowest[place] = highest[place] = value
        told = minimize(
            lambda at, values=values: derivatives(at, values)[:2],
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=list(zip(lowest, highest, strict=True)),
        )
        ratios.append(found.loss / told.fun)
    assert max(ratios) <= 1 + 1e-6


def held_at(profile, place):
    """Whether the measurements cannot tell a parameter (only then is it not the optimiser's)."""
    nodes, gpus, sizes = zip(*profile, strict=True)
    across = max(nodes) > 1
    within = any(n == 1 and g > 1 for n, g in zip(nodes, gpus, strict=True))
    more = max(gpus) > 2
    told = [len(set(sizes)) > 1, True, across, across and more, within, within and more, True]
    return not told[place]


def test_measurements_that_can_be_met_exactly_are():
    # One GPU, two batch sizes: 0.1 + 0.01 b for the computation, nothing to synchronise, and only priors are left.
    found = fit({(1, 1, size): StepTime(0.1 + 0.01 * size, 0.0) for size in (16, 64)})
    assert (found.params.alpha_c, found.params.beta_c) == pytest.approx((0.1, 0.01), rel=1e-6)
    assert found.params.gamma == pytest.approx(1.0, abs=1e-3)
    assert found.loss == pytest.approx(0.02, rel=1e-5)  # both slopes are held at their intercepts: 1e-2 each


#: Nodes, GPUs, per-GPU batch, seconds of a step and of its synchronisation.
TIMED = np.array(
    [[1, 1, 32, 1.0, 0.0], [1, 2, 16, 2.0, 0.5], [1, 4, 8, 3.0, 2.0], [2, 2, 4, 4.0, 1.0], [3, 9, 2, 8.0, 4.0]]
)
TINY = 1e-8


def test_points_hold_the_terms_of_synchronisation_and_the_logarithms_of_times():
    assert points_of(TIMED).tolist() == pytest.approx(np.array([
        [32, 0, 0, 0, 0, TINY + TINY * TINY, np.log(1.0), np.log(1.0)],
        [16, 0, 0, 1, TINY, 0, np.log(1.5), np.log(2.0)],
        [8, 0, 0, 1, 2, 0, np.log(1.0), np.log(3.0)],
        [4, 1, TINY, 0, 0, 0, np.log(3.0), np.log(4.0)],
        [2, 1, 7, 0, 0, 0, np.log(4.0), np.log(8.0)],
    ]), rel=1e-12, abs=0)  # fmt: skip


def test_starts_take_the_mean_of_what_is_beside_a_share_of_the_computation():
    points = points_of(TIMED)
    # Within a node: steps of 2 and 3 s that compute for 1.5 and 1 s; across nodes 4 and 8 s, 3 and 4 s.
    assert _mean_sync_s(points, TIMED, 3, 0.0) == 2.5
    assert _mean_sync_s(points, TIMED, 3, 1.0) == 1.25
    assert _mean_sync_s(points, TIMED, 1, 0.5) == 6.0 - 1.75
    assert _mean_sync_s(points[:1], TIMED[:1], 1, 0.0) == 0.1


@pytest.mark.parametrize("seed", range(4))
def test_the_loss_is_the_sum_of_both_errors_and_the_priors(seed):
    # Pollux, section 4.1, of logarithms; the priors weigh (gamma - 1)^2 by 1e-3 and (beta / alpha)^2 by 1e-2.
    rng = np.random.default_rng(seed)
    model = ThroughputParams(*rng.uniform(0.05, 0.5, 6), rng.uniform(1.0, 5.0))
    nodes, gpus, size, step_s, sync_s = TIMED[1:].T
    grad = np.log(model.grad_time_s(size) / (step_s - sync_s))
    step = np.log(model.step_time_s(nodes, gpus, size) / step_s)
    errors = np.sqrt((grad @ grad) / 4), np.sqrt((step @ step) / 4)
    priors = 1e-3 * (model.gamma - 1) ** 2 + 1e-2 * (
        (model.beta_n / model.alpha_n) ** 2 + (model.beta_r / model.alpha_r) ** 2
    )
    for width in (0.0, 0.3):
        rms, slope, bend = np.zeros(2), np.zeros(7), np.zeros((7, 7))
        loss = loss_at(np.array(astuple(model)), points_of(TIMED[1:]), width, slope, bend, rms)
        assert rms.tolist() == pytest.approx(errors, rel=1e-6)
        assert loss == pytest.approx(np.hypot(errors, width).sum() + priors, rel=1e-6)


def test_priors_by_hand():
    slope, bend = np.zeros(7), np.zeros((7, 7))
    at = np.array([9.0, 9.0, 2.0, 1.0, 4.0, 8.0, 3.0])  # beta / alpha: 1/2 and 2
    assert _add_priors(at, slope, bend) == pytest.approx(1e-3 * 4 + 1e-2 * (0.25 + 4), rel=1e-12)
    # d/dalpha = -2 beta^2 / alpha^3, d/dbeta = 2 beta / alpha^2, each of weight 1e-2; d/dgamma = 2e-3 (gamma - 1).
    assert slope == pytest.approx([0, 0, -0.0025, 0.005, -0.02, 0.01, 0.004], rel=1e-12)
    # d2/dbeta2 = 2 / alpha^2, d2/dalpha dbeta = -4 beta / alpha^3, d2/dalpha2 = 6 beta^2 / alpha^4.
    expected = {(6, 6): 2e-3, (3, 3): 0.005, (3, 2): -0.005, (2, 2): 0.00375,
                (5, 5): 0.00125, (5, 4): -0.005, (4, 4): 0.015}  # fmt: skip
    assert {place: bend[place] for place in expected} == pytest.approx(expected, rel=1e-12)
    assert np.count_nonzero(bend) == 7


def test_an_error_of_nothing_has_no_slope():
    # Of sqrt(s / n): the gradient is s' / (2 n r), and sums of half-slopes are given; with r = 0 it is left out.
    slope, bend = np.zeros(7), np.zeros((7, 7))
    half, curve = np.arange(7.0), np.tril(np.ones((7, 7)))
    _fill(slope, bend, half, curve, 0.0, half, curve, 0.5, 4)
    assert slope.tolist() == (half / 2).tolist()
    assert bend.tolist() == np.tril((curve - np.outer(half, half) / 2 / 0.5) / 2).tolist()
    _fill(slope, bend, half, curve, 0.5, half, curve, 0.0, 4)
    assert slope.tolist() == (half / 2).tolist()
    assert bend.tolist() == np.tril((curve - np.outer(half, half) / 2 / 0.5) / 2).tolist()


def hessian(rng):
    """A symmetric matrix with eigenvalues above 0, as what kernels read: its lower half."""
    root = rng.standard_normal((7, 7))
    return root @ root.T + np.eye(7)


@pytest.mark.parametrize("seed", range(6))
def test_the_free_part_of_a_damped_system_is_solved(seed):
    rng = np.random.default_rng(seed)
    bend, right, damping = hessian(rng), rng.standard_normal(7), rng.choice([0.0, 0.5, 10.0])
    free = np.ones(7) if seed == 0 else rng.integers(0, 2, 7).astype(float)
    step = np.full(7, 3.0)
    assert _solved(np.tril(bend), damping, free, right, np.zeros((7, 7)), step)
    chosen = np.flatnonzero(free)
    damped = bend + damping * np.diag(np.diag(bend))
    assert step[chosen] == pytest.approx(np.linalg.solve(damped[np.ix_(chosen, chosen)], right[chosen]), rel=1e-9)
    assert np.delete(step, chosen).tolist() == [3.0] * (7 - len(chosen))


@pytest.mark.parametrize(("corner", "solved"), [(1.0, False), (1.0 + 1e-9, True), (0.5, False)])
def test_a_system_that_is_not_positive_definite_is_refused(corner, solved):
    bend = np.eye(7)
    bend[4, 1], bend[4, 4] = 1.0, corner  # singular where the corner is 1
    assert _solved(bend, 0.0, np.ones(7), np.ones(7), np.zeros((7, 7)), np.zeros(7)) is solved
    assert _solved(bend, 1.0, np.ones(7), np.ones(7), np.zeros((7, 7)), np.zeros(7))


def newton_step(at, lowest, highest, slope, bend, damping):
    """The same with numpy: solve for what is free; what would leave the bounds is held there, and solve again."""
    held = {j: 0.0 for j in range(7)
            if (at[j] == lowest[j] and slope[j] >= 0) or (at[j] == highest[j] and slope[j] <= 0)}  # fmt: skip
    while True:
        free, still = [j for j in range(7) if j not in held], sorted(held)
        step = np.zeros(7)
        step[still] = [held[j] for j in still]
        part = bend[np.ix_(free, free)]
        right = -slope[free] - bend[np.ix_(free, still)] @ step[still]
        step[free] = np.linalg.solve(part + damping * np.diag(np.diag(part)), right)
        aim = np.clip(at + step, lowest, highest)
        beyond = [j for j in free if aim[j] != at[j] + step[j]]
        if not beyond:
            return step, -(slope @ step + step @ bend @ step / 2)
        held |= {j: aim[j] - at[j] for j in beyond}


def test_a_step_is_that_of_newton_within_the_bounds():
    rng, held = np.random.default_rng(3), set()
    for _ in range(60):
        bend, slope, at = hessian(rng), rng.standard_normal(7), rng.uniform(1, 2, 7)
        lowest, highest = at - rng.exponential(0.3, 7), at + rng.exponential(0.3, 7)
        edge = rng.integers(0, 8, 7)
        lowest[(edge == 0) | (edge == 2)] = at[(edge == 0) | (edge == 2)]
        highest[(edge == 1) | (edge == 2)] = at[(edge == 1) | (edge == 2)]
        slope[rng.integers(0, 5, 7) == 0] = 0.0
        damping, step = rng.choice([0.0, 0.1]), np.full(7, 9.0)
        promise = _find_step(at, lowest, highest, slope, np.tril(bend), damping, step)
        expected, promised = newton_step(at, lowest, highest, slope, bend, damping)
        assert step == pytest.approx(expected, rel=1e-8, abs=1e-12)
        assert promise == pytest.approx(promised, rel=1e-8, abs=1e-12)
        held.add(sum(np.isin(at + step, (lowest, highest))))
    assert len(held) > 3


def test_no_step_is_found_where_the_loss_bends_down():
    bend, wide = np.diag([1.0, 1.0, 1.0, -1.0, 1.0, 1.0, 1.0]), np.full(7, 9.0)
    assert _find_step(np.zeros(7), -wide, wide, np.ones(7), bend, 0.0, np.zeros(7)) == -1.0


def test_a_descent_ends_where_the_slope_is_nothing_or_a_bound_holds():
    rng = np.random.default_rng(1)
    measured = TIMED.copy()
    measured[:, 3:] *= rng.lognormal(0, 0.1, (5, 1))
    points = points_of(measured)
    lowest, highest = np.array([TINY] * 6 + [1.0]), np.array([np.inf] * 6 + [10.0])
    at = np.array([0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 1.001])
    loss = minimise(at, lowest, highest, points)
    slope, bend = np.zeros(7), np.zeros((7, 7))
    assert loss == loss_at(at, points, 0.0, slope, bend, np.zeros(2))
    assert (at >= lowest).all()
    assert (at <= highest).all()
    inside = (at > lowest) & (at < highest)
    assert (abs(slope * at)[inside] < 1e-3 * loss).all()
    assert (slope[at == lowest] >= 0).all()
    assert (slope[at == highest] <= 0).all()


def test_a_fit_of_one_batch_halves_the_mean_computation():
    found = fit({(1, 1, 32): StepTime(0.1, 0.0), (1, 2, 32): StepTime(0.4, 0.1)}).params
    assert found.alpha_c == pytest.approx(0.1)


def test_crossing_nodes_is_held_a_tenth_dearer_and_the_loss_is_that_of_what_is_returned():
    profile = {(1, gpus, size): StepTime(0.1 + 0.002 * size + sync, sync) for size in (16, 64)
               for gpus, sync in ((1, 0.0), (2, 0.05), (4, 0.07))}  # fmt: skip
    found = fit(profile)
    params = found.params
    assert (params.alpha_n, params.beta_n) == pytest.approx((1.1 * params.alpha_r, 1.1 * params.beta_r))
    assert params.beta_r > 1e-4
    assert found.loss == loss_of(np.array(astuple(params)), arrays(profile))


def test_what_crosses_further_levels_moves_only_the_pair_across_nodes():
    farther = replace(TRUE, alpha_n=0.5, beta_n=0.05)
    profile = {(nodes, gpus, 32): StepTime(step := float(farther.step_time_s(nodes, gpus, 32)),
                                           step - float(farther.grad_time_s(32)))
               for nodes, gpus in ((2, 4), (2, 8), (4, 16))}  # fmt: skip
    fits = Fits()
    found = fits.fit_across(profile, TRUE)
    assert (found.alpha_n, found.beta_n) == pytest.approx((0.5, 0.05), rel=0.02)
    assert replace(found, alpha_n=0.2, beta_n=0.01) == TRUE
    assert fits.fit_across(profile, TRUE) is found
    assert fits.fit(profile) is fits.fit(profile)
    assert fits.fit(profile, start=TRUE) is not fits.fit(profile)


PARAMS = ThroughputParams(0.1, 0.01, 0.2, 0.02, 0.05, 0.01, 1.5)
NOISE = 30.0
SIZES = (8, 16, 32)
SHAPES = ((1,), (2,), (4,), (1, 1), (2, 2), (1, 1, 1), (2, 2, 2), (1, 1, 1, 1))


def seconds(nodes, gpus, size):
    step = float(PARAMS.step_time_s(nodes, gpus, size))
    return step, step - float(PARAMS.grad_time_s(size))


def fit_accuracy_measured(slow_shape=None):
    """Measurements that the model fits exactly; on `slow_shape` steps took twice as long."""
    tables = {}
    for shape in SHAPES:
        factor = 2 if shape == slow_shape else 1
        steps, syncs = zip(*(seconds(len(shape), sum(shape), size) for size in (4, 8)), strict=True)
        tables[shape] = StepTable((4, 8), tuple(factor * s for s in steps), tuple(factor * s for s in syncs))
    rows = [ScalabilityRow(6, 6, size, *seconds(6, 6, size)) for size in (4, 8)]
    ends = (100.0, 200.0)
    curves = [TrainingCurve(size, ends, ends, (1.0, 1.0), (NOISE / 8, NOISE / 8)) for size in SIZES]
    return MeasuredApplication("toy", tables, rows, curves)


def fitted(noise=NOISE):
    curve = NoiseCurve((0, 1), (8, 32), ((noise, noise),) * 2)
    training = Training(2, 100.0, curve, SIZES, (1.0,) * 3)
    return FittedApplication("toy", BatchLimits(8, 32, 4, 8), training, {"t4": SevenParameters(PARAMS)})


def test_a_model_that_made_the_measurements_has_no_error():
    found = compare(fit_accuracy_measured(), fitted())
    assert found.points == 2 * len(SHAPES) + 2
    assert (found.shipped.mean, found.shipped.worst) == pytest.approx((0, 0), abs=1e-9)
    assert (found.efficiency_mean, found.efficiency_worst, found.training_worst) == pytest.approx((0, 0, 0), abs=1e-9)
    assert list(found.shipped.kinds) == list(KINDS)
    assert found.seven.mean < 0.1  # fitted anew


def test_an_error_is_told_where_it_is():
    found = compare(fit_accuracy_measured(slow_shape=(2, 2)), fitted()).shipped
    assert found.worst == pytest.approx(0.5)  # half of what was fit_accuracy_measured
    assert found.kinds["2 nodes"] == pytest.approx(0.25)  # on one of two placements
    assert found.mean == pytest.approx(0.5 * 2 / 18)
    assert {kind: round(error, 9) for kind, error in found.kinds.items() if kind != "2 nodes"} == {
        "1 GPU": 0, "1 node": 0, "3-4 nodes": 0, "more nodes": 0,
    }  # fmt: skip


def test_efficiency_is_compared_in_points_and_by_time():
    # Noise as large as the initial batch instead of 30: efficiency 16 / (8 + M) instead of 38 / (30 + M).
    found = compare(fit_accuracy_measured(), fitted(noise=8.0))
    off = [abs(16 / (8 + size) - 38 / (30 + size)) for size in SIZES]
    assert found.efficiency_mean == pytest.approx(sum(off) / 3, rel=1e-6)
    assert found.efficiency_worst == pytest.approx(max(off), rel=1e-6)
    assert found.training_worst == pytest.approx((38 / 62) / (16 / 40) - 1, rel=1e-6)


def test_measurements_of_an_application_that_does_not_ship_are_refused(tmp_path):
    with pytest.raises(InputError, match="is not a folder"):
        compare_folder(tmp_path / "nowhere")
