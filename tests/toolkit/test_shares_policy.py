"""A policy of shares by hand: when rounds begin and end, what shares are computed from, and what it says of itself."""

from types import SimpleNamespace

import numpy as np
import pytest

from simsched.errors import InputError
from simsched.model import Cluster, NodeGroup
from simsched.policy import REMAINING_WORK, Reasons, Why
from simsched.policy.physics import GPU_TYPES
from simsched.policy.signals import TRUE_RATES
from simsched.testing.builders import FakeView
from simsched.toolkit.programs.problem import Pairs, ShareProblem
from simsched.toolkit.rounds.policy import SharesPolicy, Snapshot

CLUSTER = Cluster.of(NodeGroup(2, 2, "v100"), NodeGroup(1, 4, "t4"))


class Job:
    """A job that is twice as fast on a V100; one of four GPUs cannot run there."""

    neighbours = ()

    def __init__(self, name, gpus=1, weight=1.0, age_s=0.0, left=100.0):
        self.id, self.num_gpus, self.age_s, self.allocation, self.left = name, gpus, age_s, (), left
        self.request = SimpleNamespace(weight=weight, application="m", batch_size=8)
        self.rates = {"v100": 2.0 if gpus < 4 else 0.0, "t4": 1.0}

    def __getitem__(self, signal):
        return {TRUE_RATES: self.rates, REMAINING_WORK: SimpleNamespace(progress=self.left)}[signal]


class Given(SharesPolicy):
    """Gives the shares that a test says, and keeps what it was asked."""

    name = "given"

    def shares(self, snapshot):
        self.asked = [*getattr(self, "asked", []), snapshot]
        return {unit: row for unit, row in self.given.items() if unit[0] in snapshot.ids}


class Run:
    def __init__(self, shares, *jobs, **params):
        self.policy = Given(**{"round_s": 100, "min_reset_s": 0, **params})
        self.policy.given = {(name,): row for name, row in shares.items()}
        self.policy.begin(CLUSTER)
        self.jobs, self.reasons = {}, Reasons()
        self.come = list(jobs)

    def at(self, now_s, *come, done=(), up=(), most=1):
        """Decide at a second, at which jobs come and others are done; returns who holds what, and the next decision."""
        for name in done:
            del self.jobs[name]
        arrived = [*self.come, *come]
        self.come = []
        self.jobs |= {job.id: job for job in arrived}
        self.reasons.clear()
        view = FakeView(
            CLUSTER, self.jobs, now_s, up, arrived=arrived, finished=done, reasons=self.reasons, max_jobs_per_gpu=most
        )
        decision = self.policy.decide(view, np.random.default_rng(1))
        for name, at in decision.allocations.items():
            self.jobs[name].allocation = at
        for name in decision.jobs.keys() - decision.allocations.keys():
            self.jobs[name].allocation = ()
        return {name: job.allocation for name, job in self.jobs.items() if job.allocation}, decision.wake_at_s


def test_a_round_lasts_until_its_time_is_up_though_jobs_come_and_go():
    run = Run({"a": [1, 0], "b": [0.5, 0], "c": [0, 1], "d": [0.9, 0]}, Job("a", 2), Job("b", 2), Job("c", 4))
    everybody = {"a": ((0, 2),), "b": ((1, 2),), "c": ((2, 4),)}
    assert run.at(0) == (everybody, 100)
    assert run.at(60, Job("d", 2)) == (everybody, 100)
    assert run.reasons.waits == {"d": (Why.ANOTHER_FIRST, "the round until 100 s is given to others")}
    assert len(run.policy.asked) == 1
    assert run.at(70, done=["a"]) == ({name: everybody[name] for name in "bc"}, 100), "the GPUs of a stay idle"
    # d has received nothing, b one round: both have GPUs, since a is done.
    assert run.at(100) == ({"b": ((1, 2),), "c": ((2, 4),), "d": ((0, 2),)}, 200)
    assert run.reasons.waits == {}
    assert [snapshot.ids for snapshot in run.policy.asked] == [["a", "b", "c"], ["b", "c", "d"]]


def test_a_round_ends_early_where_all_of_it_is_done_and_where_nodes_change():
    run = Run({"a": [1, 0], "b": [0, 1]}, Job("a", 2))
    assert run.at(0) == ({"a": ((0, 2),)}, 100)
    assert run.at(30, Job("b", 4), done=["a"]) == ({"b": ((2, 4),)}, 130)
    run.jobs["b"].allocation = ()
    assert run.at(50, up=[True, True, False]) == ({}, 150), "there is no other node for b"
    assert run.at(60) == ({"b": ((2, 4),)}, 160)
    run.jobs["b"].allocation = ()
    assert run.at(70, up=[False] * 3) == ({}, None)
    assert run.at(80, done=["b"]) == ({}, None)


def test_shares_are_computed_again_after_the_least_time():
    run = Run({"a": [1, 0], "b": [1, 0]}, Job("a", 2), min_reset_s=250)
    runs = [run.at(now_s, *come)[0].keys() for now_s, come in ((10, ()), (110, [Job("b", 1)]), (210, ()), (310, ()))]
    assert runs == [{"a"}, {"a"}, {"a"}, {"a", "b"}]
    assert [snapshot.now_s for snapshot in run.policy.asked] == [10, 310]
    assert run.policy.longest_pause_s == 250


def test_shares_come_from_rates_sizes_weights_and_gpus_that_are_up():
    run = Run({}, Job("a", 2, weight=3.0, age_s=9.0, left=40.0), Job("b", 4))
    run.at(0, up=[True, False, True])
    (asked,) = run.policy.asked
    assert asked.problem.throughput.tolist() == [[2, 1], [0, 1]]
    assert asked.problem.scale_factor.tolist() == [2, 4]
    assert asked.problem.num_gpus.tolist() == [2, 4]
    assert asked.problem.weights.tolist() == [3, 1]
    assert (asked.age_s.tolist(), asked.remaining.tolist(), asked.ids) == ([9, 0], [40, 100], ["a", "b"])


def test_shares_are_told_by_job_and_by_pair_where_a_pair_has_any():
    jobs = [SimpleNamespace(id=name) for name in "abc"]
    pairs = Pairs(np.array([[0, 1], [0, 2], [1, 2]]), np.ones((3, 2, 2)))
    problem = ShareProblem(np.ones((3, 2)), np.ones(3, int), np.array([1, 1]), np.ones(3), pairs)
    shares = np.arange(12.0).reshape(6, 2)
    shares[4] = 0.0
    snapshot = Snapshot(jobs, problem, 0.0, np.random.default_rng())
    alone = {("a",): [0, 1], ("b",): [2, 3], ("c",): [4, 5]}
    assert snapshot.by_job(shares) == {**alone, ("a", "b"): [6, 7], ("b", "c"): [10, 11]}
    assert snapshot.by_job(shares[:3]) == alone


def test_the_ideal_grants_shares_at_once_and_deals_out_what_they_leave():
    run = Run({"a": [0.5, 0.25]}, Job("a", 1), Job("b", 4), ideal=True)
    for job in run.come:
        run.policy._fluid.agent(job.id, None)
    agents = run.policy._fluid._agents
    held, _ = run.at(0, most=2)
    assert held == {"a": ((0, 1),), "b": ((2, 4),)}
    # a has the quarter of its time that is left on V100, where it is faster; b, left out, all other T4.
    assert agents["a"].rate == pytest.approx(0.75 * 2 + 0.25)
    assert agents["b"].rate == pytest.approx(15 / 16)
    too_much = Run({"a": [1, 1]}, Job("a"), ideal=True)
    with pytest.raises(InputError, match="ideal"):
        too_much.at(0, most=2)


def test_what_a_policy_of_shares_says_of_itself():
    rounds, ideal = Given(), Given(ideal=True)
    assert (rounds.needs_sharing, rounds.own_agents) == (False, False)
    assert (ideal.needs_sharing, ideal.own_agents) == (True, True)
    assert REMAINING_WORK in ideal.signals
    assert REMAINING_WORK not in rounds.signals
    assert TRUE_RATES in rounds.signals
    assert GPU_TYPES in rounds.counts_on
    assert GPU_TYPES not in Given(speeds="none").counts_on
    assert rounds.longest_pause_s == 1920


@pytest.mark.parametrize(("speeds", "orders"), [("true", 1), ("none", 2), ("reference", 2)])
def test_types_are_filled_at_random_where_rates_are_not_known(speeds, orders):
    policy = Given(speeds=speeds)
    policy.begin(CLUSTER)
    rng = np.random.default_rng(0)
    found = {tuple(policy._order(rng)) for _ in range(20)}
    assert len(found) == orders
    assert ("v100", "t4") in found
