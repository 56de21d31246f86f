"""Muri's traces, and the workloads made of them, against its books."""

import sys
from pathlib import Path

import numpy as np
import pytest

from simsched.applications.catalogue import ApplicationsOptions, catalogue
from simsched.engine.options import EngineOptions
from simsched.errors import InputError
from simsched.model.cluster import Cluster
from simsched.model.job import JobRequest, StageProfile
from simsched.model.tabulated import StagedJob
from simsched.policy import registry
from simsched.testing.builders import run
from simsched.toolkit.grouping.matching import exact_matching
from simsched.workload.readers.artifact_lists import MURI
from simsched.workload.source import WorkloadOptions, make_workload

SMALL = Path(__file__).parents[1] / "data" / "muri-small.csv"


def test_times_are_milliseconds_and_priority_0_is_guaranteed() -> None:
    jobs = make_workload(WorkloadOptions(source=str(SMALL)), seed=1)
    second = jobs[1]
    assert (second.id, second.submit_time_s, second.num_gpus, second.application) == ("1", 10.0, 8, "resnet18")
    assert (second.duration_s, second.total_steps, second.guaranteed) == (1350.0, 1500, False)
    assert second.profile == StageProfile(0.9, (0.72, 0.11, 0.07))
    assert jobs[0].guaranteed
    assert [job.submit_time_s for job in jobs] == sorted(job.submit_time_s for job in jobs)


def test_wrong_cells_are_named(tmp_path: Path) -> None:
    text = SMALL.read_text().replace("1,8,10000,1500,", "1,0,10000,x,").replace(",200,80,70,60,0", ",0,80,70,60,0")
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(InputError) as caught:
        make_workload(WorkloadOptions(source=str(tmp_path / "bad.csv")), seed=1)
    said = str(caught.value)
    assert "'0' is below 1" in said
    assert "'x' is not a number" in said
    assert "is not above 0" in said


def test_a_job_without_iterations_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 iteration"):
        StagedJob("vgg16", StageProfile(0.2, (0.1, 0.1, 0.1)), 0)


def test_rounding_decides_among_matchings_that_weigh_the_same() -> None:
    weights = np.array([[0, 0.5, 0.5, 0.3], [0.5, 0, 0.3, 0.5], [0.5, 0.3, 0, 0.5], [0.3, 0.5, 0.5, 0]])
    weights[0, 2] = weights[2, 0] = np.nextafter(0.5, 1)
    assert exact_matching(weights) == ((0, 2), (1, 3))
    assert exact_matching(np.zeros((3, 3))) == ()


VALIDATION = Path(__file__).resolve().parents[2] / "tests" / "validation" / "replays"
HEADER = (
    "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,iteration_time,"
    "resource_time_0,resource_time_1,resource_time_2,priority"
)
Muri, AntMan, Shortest, Queues = (
    registry.load(f"muri/__init__.py:{name}", folder=VALIDATION) for name in ("Muri", "AntMan", "Shortest", "Queues")
)
books = sys.modules[Shortest.__mro__[1].__module__]


def ends(tmp_path, policy, *rows, nodes=1, gpus=8):
    """Run jobs of (submission in ms, iterations, ms of an iteration) on one GPU each; a restart of bert takes 10 s."""
    lines = [f"{i},1,{at},{count},bert,1,1000,{ms},100,100,0,0" for i, (at, count, ms) in enumerate(rows)]
    (tmp_path / "trace.csv").write_text("\n".join([HEADER, *lines]) + "\n")
    jobs = MURI.read(tmp_path / "trace.csv")
    options = EngineOptions(restart_delay_s=0, tick_s=0, max_jobs_per_gpu=4)
    records = run(
        policy,
        jobs,
        cluster=Cluster.uniform(nodes, gpus),
        applications=catalogue(ApplicationsOptions()),
        options=options,
    ).jobs
    return [record.end_time_s for record in sorted(records, key=lambda record: record.job_id)]


def test_jobs_of_a_group_that_end_together_end_at_one_time(tmp_path):
    """Loading 0.1 s and computing 0.1 s alternate in 0.2 s, which two jobs stretch by 1.33 / 1.015."""
    both_s = 1000 * 0.2 * 1.33 / 1.015
    found = ends(tmp_path, Muri(order="attained", matching=False), (0, 1000, 200), (0, 1000, 200), gpus=1)
    assert found == pytest.approx([both_s, both_s], rel=1e-12)


#: With 1000 iterations of so many ms, 1.015 times as long under the scheduler, a job ends 0.05 ms before second 100.
ALMOST_100_S = 98.52211823


def test_muri_takes_an_end_shortly_before_an_arrival_for_one_event_with_it(tmp_path):
    rows = (0, 1000, ALMOST_100_S), (100_000, 10, 100)
    assert ends(tmp_path, Muri(), *rows)[0] == 100
    assert ends(tmp_path, Shortest(), *rows)[0] == pytest.approx(99.99995, abs=1e-7)


@pytest.mark.parametrize(
    ("first_ms", "second_ms"),
    [(98.522117, 98.522166), (2_955_665.024, 2_955_665.026)],
    ids=["within a tenth of a millisecond", "within a part in 10^9"],
)
def test_antman_takes_ends_near_each_other_for_one(tmp_path, first_ms, second_ms):
    found = ends(tmp_path, AntMan(), (0, 1000, first_ms), (0, 1000, second_ms))
    assert found[0] == found[1] == pytest.approx(1000 * first_ms * 1.015 / 1000, rel=1e-12)


def test_srtf_and_tiresias_take_other_ends_for_one(tmp_path):
    """SRTF knows no tolerance in seconds, Tiresias none at all: the later job pays 10 s at the end of the other."""
    near = (0, 1000, 98.522117), (0, 1000, 98.522166)
    assert ends(tmp_path, Shortest(), *near)[1] == pytest.approx(1000 * 98.522166 * 1.015 / 1000 + 10, abs=1e-6)
    late = (0, 1000, 2_955_665.024), (0, 1000, 2_955_665.026)
    first, second = ends(tmp_path, Shortest(), *late)
    assert first == second
    first, second = ends(tmp_path, Queues(), *late)
    assert second > first + 9


def test_what_a_job_has_executed_is_summed_before_the_last_look_is_taken_off():
    """(0.1 + 0.3) - 0.2 is 0.2 in doubles, and 0.1 + (0.3 - 0.2) is a bit less."""
    account = books.Account(0, JobRequest("0", 0, 1, "bert"), 1.0, (0.1, 0.1, 0.0), 0, remaining=10.0)
    account.run(0.2, 1.0, 0)
    account.executed_s = 0.1
    account.advance(0.3)
    assert account.executed_s == 0.2
    assert 0.1 + (0.3 - 0.2) != 0.2


@pytest.mark.parametrize("ms", [886, 0.1, 98.522117, 886.123456789, 2_955_665.026])
def test_milliseconds_are_found_again(ms):
    assert books._milliseconds(ms / 1000) == ms


def test_submissions_that_the_artifact_cannot_tell_apart_are_refused(tmp_path):
    with pytest.raises(InputError, match="within 1e-09 of its time after another job; give whole seconds"):
        ends(tmp_path, Shortest(), (3_000_000_000, 10, 100), (3_000_000_001, 10, 100))
