"""What the engine refuses: decisions, jobs and options."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from simsched_policies.queues.by_key import Fifo

from simsched.engine.admission import check_jobs
from simsched.engine.errors import InfeasibleDecisionError, StuckError
from simsched.engine.options import LEAST_TICK_S, EngineOptions
from simsched.errors import InputError
from simsched.model.cluster import Cluster, NodeGroup
from simsched.model.job import JobSpec
from simsched.model.placement import Allocation
from simsched.policy import CANCEL, Decision, Decline, Policy, Stop, View
from simsched.testing.builders import Applications, run
from tests.scripted import ONE_GPU, Script, fixed, toy


@pytest.mark.parametrize(
    ("allocation", "reason"),
    [
        (((0, 5),), "node 0 (4 GPUs) is 1 GPUs short for jobs a"),
        (((7, 1),), "there is no node 7"),
        (((0, 0),), "0 GPUs on node 0"),
        (((0, 1), (0, 1)), "a node is named twice"),
    ],
)
def test_an_infeasible_decision_names_policy_time_node_and_jobs(allocation: Allocation, reason: str) -> None:
    with pytest.raises(InfeasibleDecisionError) as caught:
        run(Script({10: {"a": allocation}}), [fixed("a")])
    assert "policy 'script' at t=10 s" in str(caught.value)
    assert reason in str(caught.value)


def test_two_jobs_cannot_share_a_gpu() -> None:
    with pytest.raises(InfeasibleDecisionError, match=r"node 1 .4 GPUs. is 2 GPUs short for jobs a, b"):
        run(Script({10: {"a": ((1, 3),), "b": ((1, 3),)}}), [fixed("a"), fixed("b")])


def test_a_decision_about_a_job_that_is_gone_is_refused() -> None:
    with pytest.raises(InfeasibleDecisionError, match="job 'ghost' is not active"):
        run(Script({10: {"ghost": ((0, 1),)}}), [fixed("a")])


class Says(Policy):
    """Decides as it is told, at every event."""

    name = "says"

    def __init__(self, decision: Any) -> None:
        self._decision = decision

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        return self._decision


@pytest.mark.parametrize(
    ("decision", "reason"),
    [
        (Decision({"a": Stop}), "job 'a' is to get <class .*Stop'>, which is neither GPUs"),  # type: ignore[dict-item]
        (Decision({"a": 3}), "job 'a' is to get 3, which is neither GPUs"),  # type: ignore[dict-item]
        (Decision({}, rest="remains"), "'stops' or 'stays', and is to 'remains'"),  # type: ignore[arg-type]
        (Decision({}, rest=False), "'stops' or 'stays', and is to False"),  # type: ignore[arg-type]
        (Decision.change({"ghost": CANCEL}), "job 'ghost' is not active"),
        (Decision.change({"a": Decline(((7, 1),))}), "there is no node 7"),
    ],
)
def test_what_is_no_decision_on_a_job_is_refused(decision: Decision, reason: str) -> None:
    with pytest.raises(InfeasibleDecisionError, match=reason):
        run(Says(decision), [fixed("a")])


def test_mixed_gpu_types_are_refused() -> None:
    cluster = Cluster.of(NodeGroup(1, 2, "t4"), NodeGroup(1, 2, "a100"))
    with pytest.raises(InfeasibleDecisionError, match="GPU types are mixed"):
        run(Script({10: {"a": ((0, 1), (1, 1))}}), [fixed("a")], cluster=cluster)


def test_a_policy_that_never_places_a_job_is_stopped() -> None:
    with pytest.raises(StuckError, match="2 jobs wait: a, b"):
        run(Script({}), [fixed("a"), fixed("b")], options=EngineOptions(idle_rounds=20))


class Pausing(Script):
    """Leaves everything idle for up to 300 s, on purpose."""

    longest_pause_s = 300.0


def test_a_policy_may_pause_for_as_long_as_it_says() -> None:
    # Rounds of 10 s from 10 s on: the twentieth falls on 200 s, and 310 s are 300 s after the first.
    options = EngineOptions(idle_rounds=20)
    with pytest.raises(StuckError, match="at t=200 s"):
        run(Script({300: {"a": ((0, 1),)}}), [fixed("a")], options=options)
    assert run(Pausing({300: {"a": ((0, 1),)}}), [fixed("a")], options=options).jobs[0].end_time_s == 300 + 30 + 100
    with pytest.raises(StuckError, match="at t=310 s"):
        run(Pausing({310: {}}), [fixed("a")], options=options)


@pytest.mark.parametrize(
    ("jobs", "reason"),
    [
        ([], "there are no jobs"),
        ([fixed("a", gpus=9)], "it asks for 9 GPUs and can never fit a cluster of 8"),
        ([fixed("a", gpus=0)], "it asks for 0 GPUs"),
        ([fixed("a", duration_s=0)], "it has no duration"),
        ([fixed("a", -1)], "it is submitted at -1 s"),
        ([fixed("a"), fixed("a")], "its id is used twice"),
        ([fixed("a", 5), fixed("b", 4)], "not sorted by submit time"),
        ([toy("a", batch=8)], "its batch size 8 is out of range for toy (16 to 256)"),
        ([toy("a", gpus=4, batch=16)], "its batch size 16 on 4 GPUs is below toy's least of 8 per GPU"),
    ],
)
def test_jobs_that_could_never_run_are_refused_before_anything_runs(jobs: list[JobSpec], reason: str) -> None:
    with pytest.raises(InputError) as caught:
        run(Fifo(), jobs)
    assert reason in str(caught.value)


@pytest.mark.parametrize(("wrong", "named"), [(19, 19), (20, 20), (25, 20)])
def test_of_many_jobs_that_could_never_run_twenty_are_named(wrong: int, named: int) -> None:
    with pytest.raises(InputError) as caught:
        run(Fifo(), [fixed(f"j{number}", duration_s=0) for number in range(wrong)])
    assert len(caught.value.problems) == named


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"restart_delay_s": -1}, "restart_delay_s"),
        ({"node_start_s": -1}, "node_start_s and initial_nodes"),
        ({"initial_nodes": -1}, "node_start_s and initial_nodes"),
        ({"tick_s": LEAST_TICK_S / 2}, "tick_s"),
        ({"tick_s": 1.5}, "tick_s"),
        ({"max_jobs_per_gpu": 0}, "max_jobs_per_gpu"),
        ({"interference": 1.0}, "interference"),
        ({"interference": -0.1}, "interference"),
    ],
)
def test_options_that_no_cluster_can_have_are_refused(wrong: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        EngineOptions(**wrong)


class _OneHash(str):
    __slots__ = ()

    def __hash__(self) -> int:
        return 1


def test_ids_of_one_hash_are_two() -> None:
    jobs = [fixed(_OneHash(name)) for name in "aba"]
    check_jobs(jobs[:2], ONE_GPU, Applications(), rigid=True)
    with pytest.raises(InputError, match="job 'a': its id is used twice"):
        check_jobs(jobs, ONE_GPU, Applications(), rigid=True)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"duration_s": 0}, "it has no duration"),
        ({"submit_time_s": -1}, "it is submitted at -1 s"),
        ({"submit_time_s": 4}, "the jobs are not sorted"),
        ({"num_gpus": 2}, "it asks for 2 GPUs and can never fit"),
        ({"gpu_share": 0}, "it asks for 0 of each GPU"),
    ],
)
def test_a_job_is_not_taken_for_right_because_one_like_it_was(wrong: dict[str, Any], said: str) -> None:
    right = JobSpec("a", 5, 1, duration_s=1)
    with pytest.raises(InputError, match=f"job 'b': {said}"):
        check_jobs([right, replace(right, id="b", **wrong)], ONE_GPU, Applications(), rigid=True)


def test_options_at_the_edge_of_what_a_cluster_can_have() -> None:
    for tick_s in (0, LEAST_TICK_S, 1):
        assert EngineOptions(restart_delay_s=0, node_start_s=0, initial_nodes=0, tick_s=tick_s).tick_s == tick_s
