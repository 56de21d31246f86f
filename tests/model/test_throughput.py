"""The seven-parameter throughput model against values worked out by hand."""

import numpy as np
import pytest

from simsched.model.application import GradientStats
from simsched.model.goodput import efficiency, gain, gradient_of, noise_scale
from simsched.model.throughput import ThroughputParams

# T_grad = 1 + 0.5 b; T_sync = 4 + 2 (n - 2) across nodes, 3 + 1 (n - 2) within one; gamma 2 makes 3-4-5 triangles.
PARAMS = ThroughputParams(1.0, 0.5, 4.0, 2.0, 3.0, 1.0, 2.0)


def test_computation_grows_linearly_with_the_micro_batch():
    assert PARAMS.grad_time_s([0, 4, 10]).tolist() == [1.0, 3.0, 6.0]


def test_synchronisation_depends_on_the_class_of_placement():
    times = PARAMS.sync_time_s([1, 1, 1, 2, 3], [1, 2, 5, 2, 5])
    assert times == pytest.approx([0.0, 3.0, 6.0, 4.0, 10.0], abs=1e-7)


def test_step_is_the_gamma_norm_of_computation_and_synchronisation():
    assert PARAMS.step_time_s(2, 2, 4) == pytest.approx(5.0)
    assert PARAMS.step_time_s(1, 3, 4) == pytest.approx(5.0)


def test_gamma_of_one_means_no_overlap():
    serial = ThroughputParams(1.0, 0.5, 4.0, 2.0, 3.0, 1.0, 1.0)
    assert serial.step_time_s(2, 2, 4) == pytest.approx(7.0)


def test_accumulation_adds_computation_but_no_synchronisation():
    assert PARAMS.iteration_time_s(2, 2, 4, 3) == pytest.approx(3 * 3.0 + 5.0)
    assert PARAMS.throughput(2, 2, 4, 3) == pytest.approx(2 * 4 * 4 / 14.0)


def test_nodes_beyond_two_make_no_difference():
    assert np.ptp(PARAMS.step_time_s([2, 3, 16], 8, 4)) == 0.0


def test_gain_of_pure_noise_is_the_scale_and_of_pure_signal_is_one():
    assert gain(GradientStats(0.0, 2.0), 8) == 8.0
    assert gain(GradientStats(3.0, 0.0), 8) == 1.0


def test_gain_by_hand():
    # (6 + 1) / (6 / 3 + 1) = 7 / 3
    assert gain(GradientStats(1.0, 6.0), 3) == pytest.approx(7 / 3)
    assert efficiency(GradientStats(1.0, 6.0), 3) == pytest.approx(7 / 9)


def test_gain_is_one_where_the_denominator_is_not_positive():
    assert gain(GradientStats(-1.0, 1.0), [1, 4]).tolist() == [1.0, 1.0]


def test_efficiency_by_noise_scale_is_equation_6():
    gradient = GradientStats(2.0, 30.0)
    phi = noise_scale(gradient, 16)
    assert phi == pytest.approx(240.0)
    assert efficiency(gradient, 64 / 16) == pytest.approx((phi + 16) / (phi + 64))
    assert noise_scale(gradient_of(phi, 16), 16) == pytest.approx(phi)


def test_noise_scale_is_infinite_without_a_signal():
    assert noise_scale(GradientStats(0.0, 1.0), 16) == float("inf")
