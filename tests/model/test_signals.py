"""What each signal of a job says when it is submitted, worked by hand from `builders.toy_application`."""

from __future__ import annotations

import numpy as np
import pytest

from simsched.engine import LossReporter, views_at_submission
from simsched.model import Cluster, JobSpec, NodeGroup, Site
from simsched.model.job import StageProfile
from simsched.model.tabulated import StagedJob
from simsched.policy import REMAINING_WORK, signals
from simsched.policy.signals import (
    GOODPUT,
    GPU_BUSY,
    LOSSES,
    MEASURED_SPEEDS,
    OFFLINE_PROFILES,
    PLANS,
    RECORDED_DURATION,
    STAGE_TIMES,
    STEP_TIMES,
    STEPS,
    TRUE_RATES,
    JobSignal,
)
from simsched.testing.builders import Applications, toy_application, two_type_application

CLUSTER = Cluster.uniform(2, 4)
#: Known once jobs run, or by their agents.
LATER = {GOODPUT, OFFLINE_PROFILES}
EACH = {one for one in vars(signals).values() if isinstance(one, JobSignal)} - LATER


def submitted(spec: JobSpec, cluster: Cluster = CLUSTER, app=None):
    (view,) = views_at_submission([spec], cluster, Applications(app or toy_application()), EACH)
    return view


def test_a_job_of_known_duration():
    job = submitted(JobSpec("a", 0, 2, duration_s=100))
    assert (job[RECORDED_DURATION], job[GPU_BUSY], job[STAGE_TIMES]) == (100, None, ())
    assert (job[PLANS], job[STEPS], job[LOSSES], dict(job[MEASURED_SPEEDS])) == (None, None, None, {})
    assert (job[REMAINING_WORK].progress, job[REMAINING_WORK].seconds, dict(job[TRUE_RATES])) == (100, 100, {"t4": 1})


def test_a_job_of_known_stages():
    profile = StageProfile(1.25, (0.25, 0.5, 0.125))
    job = submitted(JobSpec("a", 0, 2, "staged", duration_s=100, profile=profile), app=StagedJob("staged", profile, 80))
    assert (job[RECORDED_DURATION], job[GPU_BUSY], job[STAGE_TIMES]) == (100, 0.4, (0.25, 0.5, 0.125))
    assert (job[REMAINING_WORK].progress, job[REMAINING_WORK].seconds) == (80, 100)


@pytest.mark.parametrize(
    ("gpus", "step_s"),
    [(1, 0.1 + 0.16), (2, 0.1 + 0.08 + 0.05)],  # 16 examples on one GPU, or 8 on each of two and synchronised
)
def test_a_job_that_trains(gpus, step_s):
    """Four epochs of 100 iterations at the batch that it is submitted with."""
    job = submitted(JobSpec("a", 0, gpus, "toy", batch_size=16))
    left = job[REMAINING_WORK]
    assert (left.epoch, left.epochs, left.progress) == (0, 4, 400)
    assert left.seconds == pytest.approx(400 * step_s)
    assert left.seconds_on("t4", 1) == pytest.approx(400 * 0.26)
    assert left.iterations(16, 0) == 100
    # Twice the batch gains 2 / (1/2 + 1) = 4/3 as much per iteration: 150 to the end of the second epoch.
    assert left.iterations(32, 1) == pytest.approx(150)
    assert dict(job[TRUE_RATES]) == {"t4": pytest.approx(1 / step_s)}
    assert job[STEP_TIMES](Site((2,), "t4"), 8).step_s == pytest.approx(0.23)


def test_of_two_types_a_waiting_job_counts_on_the_faster():
    cluster = Cluster.of(NodeGroup(1, 2, "t4"), NodeGroup(1, 1, "v100"))
    one = submitted(JobSpec("a", 0, 1, "toy", batch_size=16), cluster, two_type_application())
    left, rates = one[REMAINING_WORK], one[TRUE_RATES]
    assert left.seconds == left.seconds_on("v100") == pytest.approx(left.seconds_on("t4") / 2)
    assert rates["v100"] == pytest.approx(2 * rates["t4"])
    two = submitted(JobSpec("a", 0, 2, "toy", batch_size=16), cluster, two_type_application())
    assert (two[TRUE_RATES]["t4"] > 0, two[TRUE_RATES]["v100"]) == (True, 0)


def test_an_application_that_runs_nowhere_has_no_time():
    cluster = Cluster.of(NodeGroup(1, 2, "a100"), NodeGroup(1, 1, "h100"))
    job = submitted(JobSpec("a", 0, 1, "toy", batch_size=16), cluster, two_type_application())
    with pytest.raises(ValueError, match="toy runs on none of the GPU types a100, h100"):
        _ = job[REMAINING_WORK].seconds


def test_losses_are_reported_at_the_start_within_epochs_and_after_each():
    """Four epochs of 25 reports each; the loss is 1 / (1 + epochs), without noise."""
    app = toy_application()
    reporter = LossReporter(app, app.loss_curve, np.random.default_rng(1))
    assert reporter.reports(0).epochs == ()
    after_one = reporter.reports(100.0)
    assert (len(after_one.epochs), after_one.epochs[:2], after_one.epochs[-1]) == (26, (0.0, 1 / 25), 1.0)
    assert after_one.losses[0] == 1
    assert after_one.losses[-1] == pytest.approx(1 / 2)
    assert (after_one.done, after_one.epoch_progress, reporter.reports(150.0).done) == (1, 100, 1.5)
    assert len(reporter.reports(99.99).epochs) == 25
    assert len(reporter.reports(400.0).epochs) == 101
