"""The fit of the throughput model."""

from dataclasses import astuple

import numpy as np
import pytest

from simsched.agent.fit import Observations, fit, loss_and_slope
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
    at_truth, _ = loss_and_slope(np.array(astuple(TRUE)), Observations(profile))
    assert fit(profile).loss <= at_truth


@pytest.mark.parametrize("seed", range(5))
def test_slope_agrees_with_finite_differences(seed):
    rng = np.random.default_rng(seed)
    seen = Observations(measured(ALL_KINDS))
    at = np.array(astuple(TRUE)) * rng.uniform(0.5, 2.0, 7)
    at[-1] = rng.uniform(1.1, 4.0)
    _, slope = loss_and_slope(at, seen)
    for index in range(7):
        step = np.zeros(7)
        step[index] = 1e-6 * at[index]
        rise = loss_and_slope(at + step, seen)[0] - loss_and_slope(at - step, seen)[0]
        assert slope[index] == pytest.approx(rise / (2 * step[index]), rel=1e-4, abs=1e-6)


def test_loss_by_hand():
    # Predictions are twice the computation and e times the step; gamma and both slopes bring their priors.
    at = np.array([2.0, 1e-8, 1.0, 1.0, 1.0, 0.5, 1.0])
    step = 2.0 + 1e-8 + 1e-8 * 1e-8
    seen = Observations({(1, 1, 1): StepTime(step / np.e, step / np.e - 1.0)})
    loss, _ = loss_and_slope(at, seen)
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
