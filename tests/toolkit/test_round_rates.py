"""Rates that policies of shares use, and the ideal that grants fractions at once, by hand."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from simsched.model import Site
from simsched.policy.signals import MEASURED_SPEEDS, TRUE_RATES
from simsched.toolkit.programs.problem import ShareProblem
from simsched.toolkit.rounds.rates import Fluid, FluidAgent, fill_up, rate_source

GPUS = {"v100": 4, "a100": 2, "t4": 8}


class Job:
    """A job that has true rates by type, and rates that it measured of itself on single nodes."""

    def __init__(self, name, rates, gpus=1, model="m"):
        self.id, self.num_gpus, self.true = name, gpus, {"v100": 0.0, "a100": 0.0, "t4": 0.0, **rates}
        self.request = SimpleNamespace(application=model, batch_size=8)
        self.facts = SimpleNamespace(runs_on=lambda kind: kind != "t4" or model != "no-t4")

    def __getitem__(self, signal):
        if signal is TRUE_RATES:
            return self.true
        assert signal is MEASURED_SPEEDS
        return {Site((self.num_gpus,), kind): SimpleNamespace(rate=rate) for kind, rate in self.true.items()}


@pytest.mark.parametrize(
    ("speeds", "rates", "gpus", "found"),
    [
        ("true", {"v100": 2.0, "a100": 5.0}, 2, [2, 5, 0]), ("true", {"v100": 2.0, "a100": 5.0}, 3, [2, 0, 0]),
        ("reference", {"v100": 2.0, "a100": 5.0}, 1, [2, 2, 0]), ("reference", {"a100": 3.0, "t4": 1.0}, 1, [0, 3, 3]),
        ("reference", {}, 1, [0, 0, 0]), ("none", {"v100": 2.0}, 3, [1, 0, 1]),
        ("measured", {"v100": 2.0, "t4": 5.0}, 1, [2, 3.5, 5]), ("measured", {}, 4, [1, 0, 1]),
        ("fitted", {"v100": 2.0, "t4": 8.0}, 1, [2, 4, 8]),  # the mean in logarithms where nobody knows better
    ],
)  # fmt: skip
def test_rates_of_one_job(speeds, rates, gpus, found):
    assert rate_source(speeds, GPUS).rates([Job("a", rates, gpus)])[0] == pytest.approx(found)


def test_jobs_of_a_kind_share_what_they_measure_and_types_keep_their_factor():
    source = rate_source("fitted", GPUS)
    first, second = Job("a", {"v100": 2.0, "a100": 6.0}), Job("b", {"v100": 5.0}, model="no-t4")
    # An A100 is three times a V100; no job knows a T4, which takes the mean of the kind in logarithms.
    assert source.rates([first, second])[:, :2].tolist() == [[2, 6], [5, pytest.approx(15)]]
    assert source.rates([Job("c", {}), second])[0, :2].tolist() == [2, 6]
    assert source.rates([second])[0, 2] == 0


def test_a_job_that_is_forgotten_is_looked_at_again():
    for speeds in ("true", "measured"):
        source, job = rate_source(speeds, GPUS), Job("a", {"v100": 2.0})
        assert source.rates([job])[0, 0] == 2
        job.true = {"v100": 0.0, "a100": 4.0, "t4": 0.0}
        before = source.rates([job])[0, 0]
        source.forget("a")
        source.forget("nobody")
        assert (before, source.rates([job])[0, 0]) == (2, 0 if speeds == "true" else 4)


@pytest.mark.parametrize(
    ("rates", "sizes", "gpus", "shares", "full"),
    [
        ([[2, 1], [0, 3]], [1, 2], [1, 2], [[0, 0], [0, 0]], [[1, 0], [0, 1]]),
        ([[2, 1], [0, 3]], [1, 2], [1, 1], [[0.5, 0], [0, 0]], [[1, 0], [0, 0.5]]),
        ([[2, 1], [2, 1]], [1, 1], [1, 1], [[0, 0], [0, 0]], [[1, 0], [0, 1]]),
        ([[1, 2], [1, 2]], [1, 1], [1, 1], [[0, 0.5], [0, 0]], [[0, 1], [1, 0]]),
        ([[2, 1], [2, 1]], [2, 2], [3, 3], [[0, 0], [0, 0]], [[1, 0], [0.5, 0.5]]),
        ([[0, 0]], [1], [1, 1], [[0, 0]], [[0, 0]]),
    ],
)
def test_time_left_goes_to_jobs_in_order_on_their_fastest_types(rates, sizes, gpus, shares, full):
    problem = ShareProblem(np.array(rates, float), np.array(sizes), np.array(gpus))
    assert fill_up(problem, np.array(shares, float)).tolist() == full


@pytest.mark.parametrize("shares", [[[0.8, 0.3]], [[0.0, 0.6]]])
def test_shares_of_more_than_there_is_are_refused(shares):
    problem = ShareProblem(np.ones((1, 2)), np.array([2]), np.array([4, 1]))
    with pytest.raises(ValueError, match="more than there are GPUs"):
        fill_up(problem, np.array(shares))


def test_a_fluid_job_goes_on_at_its_rate():
    fluid = Fluid()
    agent = fluid.agent("a", None)
    assert isinstance(agent, FluidAgent)
    assert (agent.total, agent.rate) == (0, 0)
    rests = agent.lease(None, 20.0, 5.0)
    assert (rests.end_s, rests.completes, rests.progress(99.0)) == (1e9 + 5, False, 20)
    agent.total, agent.rate = 100.0, 2.0
    runs = agent.lease(None, 20.0, 5.0)
    assert (runs.end_s, runs.completes, runs.progress(10.0)) == (45, True, 30)
    agent.rate = 0.5
    assert agent.lease(None, 20.0, 5.0).end_s == 165
    assert agent.lease(None, 101.0, 5.0).end_s == 5
