"""The fit of the throughput model."""

from dataclasses import astuple

import numpy as np
import pytest
from scipy.optimize import minimize

from simsched.agent.fit import fit
from simsched.agent.fit_loss import loss_at, loss_of, points_of
from simsched.model.application import StepTime
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


def test_fit_ends_below_the_loss_of_the_true_parameters():
    profile = noisy(measured(MANY), 0, 0.03)
    assert fit(profile).loss <= loss_of(np.array(astuple(TRUE)), arrays(profile))


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


def test_loss_by_hand():
    # Predictions are twice the computation and e times the step; gamma and both slopes bring their priors.
    at = np.array([2.0, 1e-8, 1.0, 1.0, 1.0, 0.5, 1.0])
    step = 2.0 + 1e-8 + 1e-8 * 1e-8
    loss = loss_of(at, arrays({(1, 1, 1): StepTime(step / np.e, step / np.e - 1.0)}))
    grad_miss = np.log(2.0) - np.log(1.0)
    assert loss == pytest.approx(grad_miss + 1.0 + 1e-2 * (1.0 + 0.25), rel=1e-6)


def test_one_batch_size_splits_the_computation_in_half():
    found = fit(measured([(1, 1, 32), (1, 2, 32)])).params
    assert found.alpha_c == pytest.approx(float(TRUE.grad_time_s(32)) / 2)


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
