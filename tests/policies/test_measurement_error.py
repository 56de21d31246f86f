"""Errors of measurements: their size, their streams, and that none change nothing."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from simsched_policies.adaptive.pollux import Pollux

from simsched.agent.agent import Measurement
from simsched.agent.goodput_agent import MeasurementError
from simsched.model.application import GradientStats, StepTime
from simsched.model.job import JobSpec
from simsched.model.placement import Site
from simsched.testing.builders import run


def request(job_id: str = "a"):
    return JobSpec(job_id, 0, 1, application="toy", batch_size=16).request


def measured(local_bsz: int = 8, sqr: float = 1.0) -> Measurement:
    return Measurement(Site((2,), "t4"), local_bsz, StepTime(0.5, 0.1), GradientStats(sqr, 2.0))


def test_errors_have_mean_1_and_the_standard_deviation_asked_for() -> None:
    error = MeasurementError(0.1, request())
    seen = [error.distort(measured(b, 1.0 + b)) for b in range(4000)]
    compute = np.array([(one.step.step_s - one.step.sync_s) / 0.4 for one in seen])
    sync = np.array([one.step.sync_s / 0.1 for one in seen])
    norm = np.array([one.gradient.sqr / (1.0 + b) for b, one in enumerate(seen)])
    for factors in (compute, sync, norm):
        assert factors.mean() == pytest.approx(1, abs=4 * 0.1 / np.sqrt(4000))
        assert factors.std() == pytest.approx(0.1, rel=0.08)
    assert abs(np.corrcoef(compute, sync)[0, 1]) < 0.07


def test_the_error_of_a_median_draw_and_of_one_a_standard_deviation_above() -> None:
    """The logarithm has the variance ln(1 + noise^2) = ln 1.5625, and half of it below 0 its mean: a median of 0.8."""
    for drawn, above in ((0.0, 1.0), (1.0, np.exp(np.sqrt(np.log(1.5625))))):
        error = MeasurementError(0.75, request())
        error._rng = SimpleNamespace(standard_normal=lambda count, drawn=drawn: np.full(count, drawn))
        seen = error.distort(measured())
        assert seen.step == pytest.approx((0.5 * 0.8 * above, 0.1 * 0.8 * above))
        assert seen.gradient == pytest.approx((0.8 * above, 2.0 * 0.8 * above))


def test_the_same_configuration_is_measured_alike_and_jobs_have_streams_of_their_own() -> None:
    error = MeasurementError(0.1, request())
    assert error.distort(measured()) == error.distort(measured())
    assert error.distort(measured()) == MeasurementError(0.1, request()).distort(measured())
    assert error.distort(measured()).step != MeasurementError(0.1, request("b")).distort(measured()).step


@pytest.mark.parametrize("prior", ["none", "offline", "pool"])
def test_noise_changes_a_run_and_a_run_without_is_what_it_was(prior: str) -> None:
    jobs = [JobSpec(f"j{i}", 40 * i, 1, application="toy", batch_size=16) for i in range(4)]
    exact, again, noisy = (run(Pollux(prior=prior, **noise), jobs) for noise in ({}, {"noise": 0.0}, {"noise": 0.3}))
    assert exact.jobs == again.jobs
    assert exact.allocations == again.allocations
    assert exact.allocations != noisy.allocations
    assert {job.job_id for job in noisy.jobs} == {job.id for job in jobs}


@pytest.mark.parametrize("noise", [-0.1, 1.0])
def test_a_noise_that_is_none_is_refused(noise: float) -> None:
    with pytest.raises(ValueError, match="noise must be from 0 to below 1"):
        Pollux(noise=noise)
