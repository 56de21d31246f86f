"""Goodput and its maximisation."""

import math

import numpy as np
import pytest

from simsched.model.application import BatchLimits, GradientStats
from simsched.model.batch import CANDIDATES
from simsched.model.goodput import CandidateBatches, GoodputModel, efficiency, gain, gradient_of, noise_scale
from simsched.model.throughput import ThroughputParams

LIMITS = BatchLimits(128, 4096, 32, 1024)
MODEL = GoodputModel(ThroughputParams(0.024, 0.0006, 0.022, 0.016, 0.004, 0.001, 1.2), GradientStats(1.0, 5.0), LIMITS)


def published_rule(model: GoodputModel, nodes: int, gpus: int) -> tuple[float, int, int]:
    """Optimise in the plainest way: one candidate after another, as the rule is written down."""
    limits = model.limits
    best = (-1.0, 0, 0)
    start = max(limits.init_batch_size, limits.min_local_bsz * gpus)
    for total in np.geomspace(start, limits.max_batch_size, CANDIDATES):
        local = total / gpus
        accum = math.ceil(local / limits.max_local_bsz - 1e-8) - 1
        if gpus == 1 and local > limits.init_batch_size + 1e-8:
            accum = max(accum, 1)
        size = math.ceil(local / (accum + 1) - 1e-8)
        fits = limits.min_local_bsz <= size <= limits.max_local_bsz
        goodput = float(model.evaluate(nodes, gpus, size, accum)) if fits else 0.0
        if goodput > best[0]:
            best = goodput, size, accum
    return best


def test_evaluate_by_hand():
    # T_grad 2 s, T_sync 3 s, no overlap: 5 s for 2 x 4 x 1 = 8 examples, 4 times the initial 2; gain 4.
    model = GoodputModel(ThroughputParams(1, 0.25, 3, 1, 1, 1, 1.0), GradientStats(0.0, 1.0), BatchLimits(2, 64, 1, 8))
    assert model.evaluate(2, 2, 4, 0) == pytest.approx(8 / 5)


def test_evaluate_weighs_throughput_by_efficiency():
    half = GoodputModel(ThroughputParams(1, 0.25, 3, 1, 1, 1, 1.0), GradientStats(1.0, 0.0), BatchLimits(2, 64, 1, 8))
    assert half.evaluate(2, 2, 4, 0) == pytest.approx(8 / 5 / 4)


@pytest.mark.parametrize("limits", [LIMITS, BatchLimits(8, 512, 4, 8), BatchLimits(12, 384, 4, 12)])
def test_optimise_equals_the_rule_applied_configuration_by_configuration(limits):
    model = GoodputModel(MODEL.params, GradientStats(1.0, 20.0), limits)
    nodes = [1, 1, 1, 1, 2, 2, 2, 3, 16]
    gpus = [1, 2, 3, 4, 2, 7, 12, 31, 64]
    best = model.optimise(nodes, gpus)
    for at, (k, n) in enumerate(zip(nodes, gpus, strict=True)):
        goodput, size, accum = published_rule(model, k, n)
        assert best.goodput[at] == pytest.approx(goodput, rel=1e-12)
        assert (best.local_bsz[at], best.accum_steps[at]) == (size, accum)


def test_optimise_of_a_table_is_bitwise_that_of_single_configurations():
    gpus = np.arange(1, 65)
    table = MODEL.optimise(np.where(gpus > 4, 2, 1), gpus)
    for n in gpus.tolist():
        one = MODEL.optimise(2 if n > 4 else 1, n)
        at = n - 1
        assert (one.goodput, one.local_bsz, one.accum_steps) == (
            table.goodput[at],
            table.local_bsz[at],
            table.accum_steps[at],
        )


def test_optimise_does_not_count_nodes_beyond_two():
    assert MODEL.optimise(2, 16) == MODEL.optimise(9, 16)


def test_of_equal_candidates_the_smallest_wins():
    # All signal and no time but a constant: goodput is the same at any batch.
    flat = GoodputModel(ThroughputParams(1, 1e-8, 1, 1, 1, 1, 1.0), GradientStats(1.0, 0.0), BatchLimits(4, 64, 1, 64))
    assert flat.optimise(1, 2).local_bsz == 2


def test_one_gpu_accumulates_above_the_initial_batch():
    noisy = GoodputModel(MODEL.params, GradientStats(1e-6, 1e3), LIMITS)
    best = noisy.optimise(1, 1)
    assert best.accum_steps >= 1


def test_a_placement_without_valid_candidate_scores_nothing():
    narrow = GoodputModel(MODEL.params, GradientStats(1.0, 1.0), BatchLimits(10, 10, 6, 8))
    assert narrow.optimise(1, 1).goodput == 0.0  # 10 examples make two micro-batches of 5, below the smallest


def test_shared_candidates_change_nothing():
    shared = CandidateBatches(LIMITS)
    model = GoodputModel(MODEL.params, MODEL.gradient, LIMITS, shared)
    for _ in range(2):
        assert model.optimise(1, 4) == MODEL.optimise(1, 4)


def test_bounds_leave_out_no_candidate_that_is_best():
    rng = np.random.default_rng(7)
    for gamma in (1.0, 1.3, 4.0, 10.0):
        for _ in range(8):
            params = ThroughputParams(*10 ** rng.uniform(-4, 0, 6), gamma)
            limits = BatchLimits(int(rng.integers(8, 256)), 4096, 4, 256)
            model = GoodputModel(params, GradientStats(*(10 ** rng.uniform(-3, 3, 2))), limits)
            nodes, gpus = [1, 1, 2, 2, 3], [1, 4, 2, 9, 40]
            best = model.optimise(nodes, gpus)
            expected = [published_rule(model, k, n) for k, n in zip(nodes, gpus, strict=True)]
            assert best.goodput == pytest.approx([max(goodput, 0.0) for goodput, _, _ in expected], rel=1e-12)


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
