"""Which jobs are let into a simulation: every fault by its place, what is wrong and its remedy, at its edges."""

from __future__ import annotations

import pytest

from simsched.engine.admission import check_jobs
from simsched.errors import InputError
from simsched.model import Cluster, JobSpec, Node, NodeGroup, NodeShape
from simsched.model.placement import Amount
from simsched.testing.builders import Applications, toy_application, two_type_application
from tests.scripted import fixed, toy

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


def test_a_type_on_which_an_application_is_unknown_does_not_make_room():
    few = Cluster((Node(0, 2, "t4"), Node(1, 9, "v100")))
    assert of_a(toy("a", gpus=2), cluster=few) == []
    message = "it asks for 3 GPUs and can never fit GPUs of one type (2 t4)"
    assert of_a(toy("a", gpus=3, batch=24), cluster=few) == [[message, enlarge(2)]]
    assert of_a(fixed("a", gpus=9), cluster=few) == []


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
