"""The readers, the recipe and the generator against real traces; skipped where these are absent."""

import csv
from collections import Counter

import numpy as np
import pandas as pd
import pytest

from simsched.applications.measurements import read_folder
from simsched.applications.tuned_requests import initial_batch_sizes, tuned_configurations
from simsched.workload.readers import read_trace
from simsched.workload.recipes.pollux import PolluxRecipe, draw_workload, eligible
from simsched.workload.recipes.recipe import size_class_of
from simsched.workload.source import WorkloadOptions, make_workload
from simsched.workload.summary import trace_statistics

#: The configurations of a tuned job that the published workloads draw from.
TUNED = {
    "bert": ((6, 384), (8, 384), (12, 384), (16, 384)),
    "cifar10": ((6, 2048), (8, 2048), (12, 4096), (16, 4096)),
    "deepspeech2": ((6, 320), (8, 320), (12, 640)),
    "imagenet": ((24, 3200), (32, 6400), (48, 6400)),
    "ncf": ((1, 32768),),
    "yolov3": ((4, 64),),
}
INITIAL = {"bert": 12, "cifar10": 128, "deepspeech2": 20, "imagenet": 200, "ncf": 256, "yolov3": 8}


@pytest.fixture(scope="module")
def philly(shared):
    return read_trace(shared / "philly" / "philly.csv")


def test_philly_csv_holds_all_jobs_that_passed(philly):
    figures = trace_statistics(philly)
    assert figures["format"] == "philly-csv"
    assert figures["jobs"] == 82_247
    assert figures["gpu_hours"] == pytest.approx(978_078, abs=1)
    assert figures["mean_gpus"] == pytest.approx(1.304, abs=0.001)
    assert {entry["num_gpus"]: entry["jobs"] for entry in figures["gpu_mix"]}[8] == 1643
    assert figures["tenants"]["6214e9"] == 41_226
    assert len(figures["tenants"]) == 15


def test_the_eligible_jobs_are_those_of_the_published_recipe(philly):
    found = pd.DataFrame(dict(eligible(philly, PolluxRecipe())))
    assert len(found) == 31_293
    shares = Counter(size_class_of(found["gpu_time_s"]).tolist())
    expected = {"S": 78.29, "M": 15.25, "L": 4.60, "XL": 1.87}
    assert {name: round(100 * count / len(found), 2) for name, count in shares.items()} == expected


def test_measured_applications_give_the_published_configurations(shared):
    applications = read_folder(shared / "pollux-osdi21" / "traces", bounds="pollux-osdi21")
    assert dict(tuned_configurations(applications)) == TUNED
    assert dict(initial_batch_sizes(applications)) == INITIAL


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_the_recipe_regenerates_the_published_workloads_row_for_row(shared, philly, number):
    with (shared / "pollux-osdi21" / "workloads" / f"workload-{number}.csv").open(newline="") as stream:
        published = [tuple(row.values()) for row in csv.DictReader(stream)]
    drawn = draw_workload(philly, PolluxRecipe(), number, TUNED, INITIAL)
    rows = [(job.id, job.submit_time_s, job.application, job.num_gpus, job.batch_size) for job in drawn]
    assert [tuple(map(str, row)) for row in rows] == published


def test_the_realistic_workload_six_asks_for_the_gpus_known_of_it(philly):
    drawn = draw_workload(philly, PolluxRecipe(configs="realistic"), 6, TUNED, INITIAL)
    assert Counter(job.num_gpus for job in drawn) == {1: 147, 4: 7, 8: 6}
    # Workload 6 submits so many jobs in each of its eight hours.
    hours = np.bincount([job.submit_time_s // 3600 for job in drawn])
    assert hours.tolist() == [19, 17, 13, 15, 17, 42, 24, 13]


def test_published_workloads_are_read_as_they_stand(shared):
    path = shared / "pollux-osdi21" / "workloads" / "workload-1.csv"
    jobs = make_workload(WorkloadOptions(source=str(path)), 1)
    assert len(jobs) == 160
    assert (jobs[0].id, jobs[0].submit_time_s, jobs[0].num_gpus) == ("cifar10-0", 107, 6)


def test_the_official_layout_is_read_with_all_its_oddities(shared):
    trace = read_trace(shared / "philly" / "cluster_job_log.sample.json")
    assert trace.source == "philly-json"
    assert len(trace) == 1999
    assert dict(trace.dropped) == {"never started": 1}
    jobs = trace.table.set_index("job_id")
    assert jobs.loc["application_1506638472019_14199", "duration_s"] == 193_256
    assert jobs.loc["application_1506638472019_14199", "num_gpus"] == 8
    assert jobs.loc["application_1506638472019_16565", "duration_s"] == 43
    assert jobs.loc["application_1506638472019_16565", "attempts"] == 4


def test_the_ten_itp_clusters_are_one_trace(shared):
    figures = trace_statistics(read_trace(shared / "itp2021"))
    assert figures["jobs"] == 69_351
    assert figures["gpu_hours"] == pytest.approx(1_632_719.7, abs=0.1)
    assert figures["tenants"]["cluster04"] == 15_802
    assert figures["duration_s"]["min"] == 600


def test_a_whole_trace_becomes_jobs(shared):
    options = WorkloadOptions(source=str(shared / "philly" / "philly.csv"), recipe="replay")
    jobs = make_workload(options, 1)
    assert len(jobs) == 82_247
    assert sum(job.duration_s * job.num_gpus for job in jobs) / 3600 == pytest.approx(978_078, abs=1)
