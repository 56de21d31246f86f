"""What the engine refuses: decisions, jobs and options."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from simsched_policies.queues.by_key import Fifo

from simsched.engine.admission import check_jobs
from simsched.engine.errors import InfeasibleDecisionError, StuckError
from simsched.engine.options import EngineOptions
from simsched.errors import InputError
from simsched.model import NodeShape
from simsched.model.cluster import Cluster, NodeGroup
from simsched.model.job import JobSpec
from simsched.model.placement import Amount
from simsched.policy import CANCEL, Decision, Decline, Policy, Stop, View
from simsched.testing.builders import Applications, run, toy_application, two_type_application
from tests.scripted import ONE_GPU, Script, fixed, toy


def test_an_infeasible_decision_names_policy_time_node_and_jobs() -> None:
    said = r"policy 'script' at t=10 s: node 1 .4 GPUs. is 2 GPUs short for jobs a, b"
    with pytest.raises(InfeasibleDecisionError, match=said):
        run(Script({10: {"a": ((1, 3),), "b": ((1, 3),)}}), [fixed("a"), fixed("b")])


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


def test_jobs_that_could_never_run_are_refused_before_anything_runs() -> None:
    with pytest.raises(InputError, match="it asks for 9 GPUs and can never fit a cluster of 8"):
        run(Fifo(), [fixed("a", gpus=9)])


@pytest.mark.parametrize(("wrong", "named"), [(19, 19), (20, 20), (25, 20)])
def test_of_many_jobs_that_could_never_run_twenty_are_named(wrong: int, named: int) -> None:
    with pytest.raises(InputError) as caught:
        run(Fifo(), [fixed(f"j{number}", duration_s=0) for number in range(wrong)])
    assert len(caught.value.problems) == named


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


#: Eight t4 on two nodes, and six v100 on one.
MIXED = Cluster.of(NodeGroup(2, 4, "t4", cpu_milli=8000), NodeGroup(1, 6, "v100", cpu_milli=8000))
T4, V100 = Cluster.uniform(2, 4, "t4"), Cluster.uniform(1, 6, "v100")
#: Step times of "toy" are known on t4 alone, those of "both" on either type.
KNOWN = Applications(
    toy_application(), toy_application("steady", fixed_batch_size=16), two_type_application("both")
)  # fmt: skip
LARGER_BATCH = "ask for a larger batch or fewer GPUs"
WITHIN = "ask for one within it"


def enlarge(most):
    return f"enlarge the cluster, or leave out jobs of more than {most} GPUs"


def faults(*jobs, cluster=T4, rigid=True, **more):
    """Return place, message and remedy of all that is wrong with some jobs."""
    try:
        check_jobs(jobs, cluster, KNOWN, rigid=rigid, **more)
    except InputError as error:
        return [(one.where, one.message, one.remedy) for one in error.problems]
    return []


def of_a(job, **more):
    """Return message and remedy of all that is wrong with job a."""
    found = faults(job, **more)
    assert {where for where, _, _ in found} <= {"workload, job 'a'"}
    return [fault for _, *fault in found]


@pytest.mark.parametrize(
    ("cluster", "application", "most", "room"),
    [
        (T4, "fixed-duration", 8, "a cluster of 8"),
        (MIXED, "fixed-duration", 8, "GPUs of one type (8 t4, 6 v100)"),
        (MIXED, "both", 8, "GPUs of one type (8 t4, 6 v100)"),
        (MIXED, "toy", 8, "GPUs of one type (8 t4)"),
        (V100, "both", 6, "a cluster of 6"),
        (V100, "toy", 6, "a cluster of 6"),  # known on no GPU there is: that is said elsewhere
    ],
)
def test_a_job_is_as_large_as_the_most_gpus_of_a_type_that_it_can_use(cluster, application, most, room):
    at_most, above = (JobSpec("a", 0, gpus, application, 256, 60) for gpus in (most, most + 1))
    assert of_a(at_most, cluster=cluster) == []
    message = f"it asks for {most + 1} GPUs and can never fit {room}"
    assert of_a(above, cluster=cluster) == [[message, enlarge(most)]]
    assert of_a(above, cluster=cluster, leave_out="take {most}")[0][1] == f"enlarge the cluster, or take {most}"
    assert of_a(above, cluster=cluster, rigid=False) == []


@pytest.mark.parametrize(
    ("changed", "message", "remedy"),
    [
        ({"submit_time_s": -0.5}, "it is submitted at -0.5 s, before the workload starts",
         "count seconds from the first submission"),
        ({"num_gpus": 0}, "it asks for 0 GPUs", "ask for one at least"),
        ({"num_gpus": 0, "shape": NodeShape(0, Amount(0))}, "it asks for 0 GPUs", "ask for one at least"),
        ({"num_gpus": -1, "shape": NodeShape(1, Amount(0))}, "it asks for -1 GPUs", "ask for one at least"),
        ({"gpu_share": 0}, "it asks for 0 of each GPU", "ask for more than 0 and at most 1"),
        ({"gpu_share": 1.25}, "it asks for 1.25 of each GPU", "ask for more than 0 and at most 1"),
        ({"duration_s": 0}, "it has no duration", "give one above 0 seconds"),
        ({"duration_s": -1}, "its duration is -1 s", "give one above 0 seconds"),
    ],
)  # fmt: skip
def test_numbers_that_no_job_can_have(changed, message, remedy):
    for rigid in (True, False):
        assert of_a(JobSpec(**{"id": "a", "submit_time_s": 0, "num_gpus": 1, "duration_s": 60} | changed),
                    rigid=rigid) == [[message, remedy]]  # fmt: skip


@pytest.mark.parametrize(
    "changed",
    [
        {"gpu_share": 0.01},
        {"duration_s": 0.5},
        {"num_gpus": 0, "shape": NodeShape(1, Amount(0))},
        {"application": "toy", "duration_s": 0},
    ],
)
def test_numbers_that_a_job_may_just_have(changed):
    assert of_a(JobSpec(**{"id": "a", "submit_time_s": 0, "num_gpus": 1, "duration_s": 60} | changed)) == []


def test_all_that_is_wrong_with_a_job_is_said():
    assert [message for message, _ in of_a(JobSpec("a", -1, 9, gpu_share=2))] == [
        "it is submitted at -1 s, before the workload starts",
        "it asks for 9 GPUs and can never fit a cluster of 8",
        "it asks for 2 of each GPU",
        "it has no duration",
    ]


@pytest.mark.parametrize(
    ("job", "rigid", "said"),
    [
        (toy("a", batch=0), True, []),
        (toy("a", batch=16), True, []),
        (toy("a", batch=256), True, []),
        (toy("a", batch=15), True, [["its batch size 15 is out of range for toy (16 to 256)", WITHIN]]),
        (toy("a", batch=257), False, [["its batch size 257 is out of range for toy (16 to 256)", WITHIN]]),
        (toy("a", gpus=4, batch=32), True, []),
        (toy("a", gpus=4, batch=31), True,
         [["its batch size 31 on 4 GPUs is below toy's least of 8 per GPU", LARGER_BATCH]]),
        (toy("a", gpus=4, batch=31), False, []),
        (JobSpec("a", 0, 4, "steady", 16), True, []),  # its batch stays what it is, whatever is granted
    ],
)  # fmt: skip
def test_batches_that_an_application_does_not_take(job, rigid, said):
    """Toy takes 16 to 256 examples, of which a GPU takes at least 8."""
    assert of_a(job, rigid=rigid) == said


@pytest.mark.parametrize(
    ("shape", "rigid", "said"),
    [
        (NodeShape(3, Amount(4)), True,
         "it asks for 4 GPUs on each of 3 nodes, for which the empty cluster has no room"),
        (NodeShape(3, Amount(4)), False, ""),
        (NodeShape(2, Amount(4, cpu_milli=8000)), True, ""),
        (NodeShape(2, Amount(4, cpu_milli=8001)), True,
         "it asks for 4 GPUs, 8.001 cores on each of 2 nodes, for which the empty cluster has no room"),
        (NodeShape(1, Amount(6), ("v100",)), True, ""),
        (NodeShape(1, Amount(6), ("a100", "v100")), True, ""),
        (NodeShape(1, Amount(6), ("a100", "h100")), False,
         "it asks for GPUs of type a100 or h100, of which the cluster has none"),
    ],
)  # fmt: skip
def test_shapes_for_which_an_empty_cluster_has_no_room(shape, rigid, said):
    jobs = [JobSpec(name, 0, 6, duration_s=60, shape=shape) for name in "ab"]
    remedy = "enlarge the cluster, or leave the job out"
    expected = [(f"workload, job '{name}'", said, remedy) for name in "ab"] if said else []
    assert faults(*jobs, cluster=MIXED, rigid=rigid) == expected


def test_the_shape_of_a_job_that_is_wrong_otherwise_is_not_looked_at():
    assert of_a(JobSpec("a", 0, 9, duration_s=60, shape=NodeShape(3, Amount(3)))) == [
        ["it asks for 9 GPUs and can never fit a cluster of 8", enlarge(8)]
    ]


def test_jobs_come_in_the_order_of_their_submission_each_with_an_id_of_its_own():
    assert faults(fixed("a", 5), fixed("b", 5), fixed("c", 6)) == []
    said = "the jobs are not sorted by submit time", "sort them"
    late = [fixed("a", 5), fixed("b", 4), fixed("c", 4.5), fixed("d", 5)]
    assert faults(*late) == [("workload, job 'b'", *said), ("workload, job 'c'", *said)]
    twice = "workload, job 'a'", "its id is used twice", "give each job an id of its own"
    assert faults(fixed("a"), fixed("b"), fixed("a"), fixed("c"), fixed("a")) == [twice, twice]
    assert faults() == [("workload", "there are no jobs", "use a longer trace or a wider window")]
