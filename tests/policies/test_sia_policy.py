"""Sia and what it runs on: relative speeds, the mixes of its evaluation, and single rounds worked by hand."""

from itertools import pairwise

import numpy as np
import pytest
from simsched_policies.adaptive.sia import Sia

from simsched.applications.catalogue import ApplicationsOptions, catalogue
from simsched.applications.file_sections import SpeedSection
from simsched.engine.options import EngineOptions, FailureOptions
from simsched.engine.records import MemoryRecorder
from simsched.engine.simulation import simulate
from simsched.errors import InputError
from simsched.model.cluster import Cluster, NodeGroup
from simsched.model.fitted import RelativeSteps
from simsched.model.job import JobSpec
from simsched.model.outages import Outage
from simsched.model.step_model import Placements, SevenParameters
from simsched.model.throughput import ThroughputParams
from simsched.testing.builders import Applications, run, two_type_application
from simsched.workload.source import WorkloadOptions, make_workload

BASE = SevenParameters(ThroughputParams(0.1, 0.01, 0.2, 0.01, 0.05, 0.01, 1.0))
TYPES = Cluster.of(NodeGroup(1, 4, "t4"), NodeGroup(1, 4, "v100"))


def test_a_relative_type_computes_faster_and_synchronises_as_before():
    places = Placements.of((1,), (2,))
    compute, step = BASE.times_s(places, 10)
    faster, whole = RelativeSteps(BASE, ((1, 2.0),)).times_s(places, 10)
    assert faster == pytest.approx(compute / 2)
    assert whole - faster == pytest.approx(step - compute)
    by_batch = RelativeSteps(BASE, ((10, 2.0), (20, 4.0)))
    factors = [float(BASE.times_s(places, b)[0][0] / by_batch.times_s(places, b)[0][0]) for b in (5, 10, 15, 40)]
    assert factors == pytest.approx([2, 2, 3, 4])
    for wrong in ((), ((10, 0.0),), ((10, 2.0), (20, -1.0))):
        with pytest.raises(ValueError, match="at least one factor, and all above 0"):
            RelativeSteps(BASE, wrong)


def test_a_file_may_give_a_type_relative_to_another():
    section = SpeedSection.model_validate({"gpu_type": "a100", "relative_to": "t4", "factor": {32: 2.5, 8: 3.0}})
    assert section.relative(BASE) == RelativeSteps(BASE, ((8, 3.0), (32, 2.5)))
    with pytest.raises(ValueError, match="belong together"):
        SpeedSection.model_validate({"gpu_type": "a100", "relative_to": "t4"})


def test_the_types_of_the_evaluation_can_be_added():
    known = catalogue(ApplicationsOptions(extra_types="sia")).applications
    assert known["cifar10"].gpu_types == ("a100", "rtx", "t4")
    assert known["imagenet"].restart_delay_s == 250


def test_a_mix_is_drawn_from_a_seed():
    options = WorkloadOptions(recipe="sia", mix="philly")
    names = dict.fromkeys(("bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3"), 16)
    jobs = make_workload(options, 3, {"bert": [(4, 64)]}, names)
    assert jobs == make_workload(options, 3, {"bert": [(4, 64)]}, names)
    assert len(jobs) == 160
    assert {(job.num_gpus, job.batch_size) for job in jobs if job.application == "bert"} == {(4, 64)}
    assert jobs[-1].submit_time_s < 8 * 3600
    with pytest.raises(InputError, match="needs the application 'bert'"):
        make_workload(options, 3)


def test_a_tuned_request_that_is_too_large_becomes_the_most_gpus_with_the_smallest_tuned_batch():
    options = WorkloadOptions(recipe="sia", mix="philly", max_gpus=16)
    names = dict.fromkeys(("bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3"), 16)
    jobs = make_workload(options, 3, {"bert": [(24, 96), (32, 128)], "cifar10": [(4, 64), (24, 256)]}, names)
    asked = {name: {(j.num_gpus, j.batch_size) for j in jobs if j.application == name} for name in names}
    assert (asked["bert"], asked["cifar10"], asked["yolov3"]) == ({(16, 96)}, {(4, 64)}, {(1, 16)})


def test_a_job_alone_takes_the_faster_type_and_doubles_at_most():
    jobs = [JobSpec("a", 0, 1, "toy", 64)]
    records = run(Sia(), jobs, cluster=TYPES, applications=Applications(two_type_application()))
    held = [one.gpus for one in records.allocations]
    assert held[0] == 1
    assert records.allocations[0].placement.startswith("1:")
    assert all(after <= 2 * before for before, after in pairwise(held))


def test_two_jobs_share_the_types():
    jobs = [JobSpec(name, 0, 1, "toy", 64) for name in "ab"]
    cluster = Cluster.of(NodeGroup(1, 1, "t4"), NodeGroup(1, 1, "v100"))
    records = run(Sia(), jobs, cluster=cluster, applications=Applications(two_type_application()))
    first = {one.job_id: one.placement for one in records.allocations if one.start_s == records.allocations[0].start_s}
    assert sorted(first.values()) == ["0:1", "1:1"]


def test_rigid_jobs_get_what_they_asked_for():
    jobs = [JobSpec("a", 0, 3, duration_s=100), JobSpec("b", 0, 4, duration_s=100), JobSpec("c", 0, 2, duration_s=100)]
    records = run(Sia(), jobs, cluster=TYPES)
    assert {(one.job_id, one.gpus) for one in records.allocations} == {("a", 3), ("b", 4), ("c", 2)}


def test_wrong_parameters_are_refused():
    with pytest.raises(ValueError, match="fairness"):
        Sia(fairness=0)
    assert np.isfinite(Sia().penalty)


@pytest.mark.parametrize(("up_s", "end_s"), [(80, 220), (130, 280)], ids=["within a round", "over a round"])
def test_a_job_that_lost_its_gpus_to_a_node_that_came_back_gets_them_again(up_s: int, end_s: int) -> None:
    # Once the node is back the cluster is as it was, and so is the job, but for its GPUs; rounds begin at 60, 120, 180.
    recorder = MemoryRecorder()
    failures = FailureOptions(outages=(Outage(0, 70, up_s),))
    jobs = [JobSpec("a", 0, 1, duration_s=100)]
    options = EngineOptions(restart_delay_s=0)
    simulate(Cluster.uniform(1, 4), jobs, Applications(), Sia(), options, 1, recorder, failures=failures)
    assert [one.end_time_s for one in recorder.jobs] == [end_s]
