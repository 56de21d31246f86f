"""The load that jobs offer: GPU time asked for over that of all GPUs from the first submission to the last."""

from __future__ import annotations

import pytest

from simsched.applications import ApplicationsOptions, catalogue, with_speeds
from simsched.errors import InputError
from simsched.experiment import CellInputs, check_workload
from simsched.experiment.inputs import offered_load, with_offered_load
from simsched.model import Cluster, JobSpec, Node

APPLICATIONS = catalogue(ApplicationsOptions())


def cluster(*types: str) -> Cluster:
    return Cluster(tuple(Node(f"n{place}", 2, kind) for place, kind in enumerate(types)))


def job(name, at_s, gpus, duration_s, **more):
    return JobSpec(name, at_s, gpus, duration_s=duration_s, **more)


#: 2 x 30 + 1 x 20 = 80 GPU seconds of the 4 x 10 between second 5 and second 15.
JOBS = [job("a", 5, 2, 30), job("b", 15, 1, 20)]


def test_what_is_offered_is_gpu_time_over_that_of_all_gpus():
    assert offered_load(JOBS, APPLICATIONS, cluster("t4", "t4"), parts=False) == pytest.approx(80 / 40)


def test_parts_of_gpus_count_where_they_are_given_out():
    half = [JOBS[0], job("b", 15, 1, 20, gpu_share=0.5)]
    assert offered_load(half, APPLICATIONS, cluster("t4", "t4"), parts=True) == pytest.approx(70 / 40)
    assert offered_load(half, APPLICATIONS, cluster("t4", "t4"), parts=False) == pytest.approx(80 / 40)


def test_gpus_of_several_types_count_by_their_mean_speed():
    mixed = cluster("v100", "k80")  # mean speed (2 x 1 + 2 x 0.25) / 4 = 0.625
    slower = with_speeds(APPLICATIONS, {"v100": 1.0, "k80": 0.25}, mixed)
    assert offered_load(JOBS, slower, mixed, parts=False) == pytest.approx(80 / 0.625 / 40)


def test_the_times_between_submissions_are_scaled():
    asked = with_offered_load(JOBS, APPLICATIONS, cluster("t4", "t4"), 0.8, parts=False)
    assert [one.submit_time_s for one in asked] == [5, 30]  # 80 GPU seconds in 4 x 25 s
    assert all(isinstance(one.submit_time_s, int) for one in asked)
    assert [one.duration_s for one in asked] == [30, 20]


def test_jobs_that_come_at_once_offer_no_load():
    at_once = [job("a", 3, 1, 5), job("b", 3, 1, 5)]
    assert offered_load(at_once, APPLICATIONS, cluster("t4"), parts=False) is None
    with pytest.raises(InputError, match="the jobs come at once"):
        with_offered_load(at_once, APPLICATIONS, cluster("t4"), 0.8, parts=False)


@pytest.mark.parametrize("workload", ["recipe=replay", "recipe=pollux", "recipe=sia"])
def test_an_experiment_offers_what_its_key_says(workload):
    spec = check_workload([workload, *(["days=7", "sample=60", "max_gpus=64"] if "replay" in workload else ["jobs=30"]),
                           "offered_load=0.8"])  # fmt: skip
    jobs = CellInputs().gathered(spec.workload, "", 1, spec).jobs
    found = offered_load(jobs, APPLICATIONS, spec.cluster.build(), parts=False)
    assert found == pytest.approx(0.8, rel=2e-3)


def test_a_factor_on_the_jobs_and_an_offered_load_are_not_both_taken():
    with pytest.raises(InputError, match="give either 'load'"):
        check_workload(["load=2", "offered_load=0.8"])
