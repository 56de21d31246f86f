"""Features of jobs and scores that weigh them."""

import math

import pytest

from simsched.agent.fixed_agent import NoBatchAgent
from simsched.errors import InputError
from simsched.model import Cluster, JobSpec
from simsched.model.tabulated import FixedDuration
from simsched.policy import REMAINING_WORK, UndeclaredSignalError
from simsched.testing.builders import FakeJob, fake_job_view
from simsched.toolkit import Score
from simsched.toolkit.features import FEATURES, Features

CLUSTER = Cluster.uniform(2, 4)


def job(gpus=1, application="fixed-duration", signals=(), **state):
    spec = JobSpec("a", 0, gpus, application, duration_s=600)
    return fake_job_view(FakeJob(spec, FixedDuration(600), NoBatchAgent(), CLUSTER, **state), signals)


def test_features_are_logarithms_of_what_a_job_shows_as_shares_of_their_most():
    shown = job(3, "bert", allocation=((0, 3),), attained_gpu_s=300, held_s=100, age_s=1100, starts=2)
    month_s = 30 * 24 * 3600
    expected = {
        "gpus": math.log(4) / math.log(1025),
        "age_s": math.log(1101) / math.log(1 + month_s),
        "waited_s": math.log(1001) / math.log(1 + month_s),
        "held_s": math.log(101) / math.log(1 + month_s),
        "attained_gpu_s": math.log(301) / math.log(1 + 1024 * month_s),
        "starts": math.log(3) / math.log(256),
        "running": 1,
        "application:bert": 1,
        "application:ncf": 0,
    }
    assert Features(expected).of([shown]).tolist() == [pytest.approx(list(expected.values()))]
    assert set(FEATURES) - set(expected) == {"batch_size", "left_s"}
    assert Features(["gpus"]).of([job(4096)]).tolist() == [[1]]
    assert Features(["gpus"]).of([]).shape == (0, 1)


def test_what_only_a_simulator_knows_is_declared():
    assert Score({"gpus": 1, "left_s": -1}).needs == {REMAINING_WORK}
    assert Score({"gpus": 1, "application:bert": 1}).needs == frozenset()
    seen = job(signals=[REMAINING_WORK])
    assert Features(["left_s"]).numbers([seen]).tolist() == [[600]]
    with pytest.raises(UndeclaredSignalError):
        Features(["left_s"]).of([job()])


def test_a_score_puts_the_largest_sum_first_and_keeps_the_order_of_equals():
    small, large, other = job(1), job(8), job(1)
    assert Score({"gpus": -1}).rank([large, small, other]) == [small, other, large]
    assert Score({"gpus": 0.5}).rank([small, large, other]) == [large, small, other]
    assert Score({"gpus": 0}).rank([small, large, other]) == [small, large, other]
    assert Score({"gpus": 1}).rank([]) == []


def test_an_unknown_feature_is_refused_with_the_nearest():
    with pytest.raises(InputError, match=r"no feature 'gpu'.*gpus"):
        Score({"gpu": 1})
