"""Replays of traces, whole and in windows."""

from dataclasses import fields, replace

import numpy as np
import pytest

from simsched.errors import InputError
from simsched.model.job import JobSpec
from simsched.workload.recipes.as_is import _FIELDS, _RARE
from simsched.workload.recipes.replay import ReplayRecipe, replay_trace
from simsched.workload.source import WorkloadOptions, make_workload
from simsched.workload.trace import make_trace

INITIAL = {"bert": 12, "cifar10": 128, "deepspeech2": 20, "imagenet": 200, "ncf": 256, "yolov3": 8}
HOUR = 3600


def rng():
    return np.random.default_rng(1)


@pytest.fixture
def trace():
    """Make ten jobs, one every 100 s: job k asks for k + 1 GPUs and runs for 10 k seconds."""
    columns = {
        "job_id": [f"j{k}" for k in range(10)],
        "submit_time_s": [100 * k for k in range(10)],
        "num_gpus": [k + 1 for k in range(10)],
        "duration_s": [10.0 * k for k in range(10)],
        "tenant": ["a", "b"] * 5,
        "user": ["u"] * 10,
        "status": ["Pass", "Killed"] * 5,
        "attempts": [1, 2] * 5,
    }
    return make_trace("toy", "test", columns)


def test_every_job_becomes_one_of_fixed_duration_with_all_that_the_trace_knows(trace):
    jobs = replay_trace(trace, ReplayRecipe(), rng())
    assert len(jobs) == 10
    assert jobs[3] == JobSpec("j3", 300, 4, "fixed-duration", 0, 30, "b", "u", "Killed", 2)


def test_every_field_of_a_job_comes_from_a_column_or_is_known_to_be_in_no_trace():
    columns = {"id", *_FIELDS, *_RARE, "shape", "terms"}
    unrecorded = {"guaranteed", "deadline_s", "batch_rule", "weight", "total_steps", "profile", "speedup", "plan"}
    assert not columns & unrecorded
    assert columns | unrecorded == {field.name for field in fields(JobSpec)}


def test_a_job_of_no_time_takes_a_second_and_fractions_round_half_to_even():
    columns = {"submit_time_s": [0, 0, 0], "num_gpus": [1, 1, 1], "duration_s": [0, 2.5, 3.5]}
    jobs = replay_trace(make_trace("t", "test", columns), ReplayRecipe(), rng())
    assert [job.duration_s for job in jobs] == [1, 2, 4]


def test_load_compresses_the_submissions(trace):
    assert [job.submit_time_s for job in replay_trace(trace, ReplayRecipe(load=2.0, jobs=4), rng())] == [
        0,
        50,
        100,
        150,
    ]
    assert [job.submit_time_s for job in replay_trace(trace, ReplayRecipe(load=0.5, jobs=3), rng())] == [0, 200, 400]


def test_a_window_counts_from_its_beginning(trace):
    jobs = replay_trace(trace, ReplayRecipe(from_s=150, until_s=500), rng())
    assert [(job.id, job.submit_time_s) for job in jobs] == [("j2", 50), ("j3", 150), ("j4", 250)]


def test_filters_apply_before_the_sample_and_the_sample_before_the_cut(trace):
    jobs = replay_trace(trace, ReplayRecipe(max_gpus=6, sample=4, jobs=3), rng())
    assert len(jobs) == 3
    assert all(job.num_gpus <= 6 for job in jobs)
    assert [job.submit_time_s for job in jobs] == sorted(job.submit_time_s for job in jobs)
    assert jobs == replay_trace(trace, ReplayRecipe(max_gpus=6, sample=4, jobs=3), rng())


def test_assign_gives_each_class_its_applications_and_leaves_giants_alone():
    hours = [0.5, 0.5, 2.0, 20.0, 200.0, 2000.0]
    columns = {"submit_time_s": range(6), "num_gpus": [2] * 6, "duration_s": [h * HOUR / 2 for h in hours]}
    jobs = replay_trace(make_trace("t", "test", columns), ReplayRecipe(assign=True), rng(), INITIAL)
    assert {jobs[0].application, jobs[1].application} <= {"cifar10", "ncf"}
    assert jobs[2].application in ("deepspeech2", "bert")
    assert [job.application for job in jobs[3:]] == ["yolov3", "imagenet", "fixed-duration"]
    assert [job.batch_size for job in jobs[3:]] == [16, 400, 0]
    assert jobs[5].duration_s == 1000 * HOUR


def test_an_empty_selection_too_large_a_sample_and_a_missing_application_are_refused(trace):
    with pytest.raises(InputError, match="no job is left after the filters"):
        replay_trace(trace, ReplayRecipe(from_s=1000), rng())
    with pytest.raises(InputError, match="a sample of 11 jobs was requested, but there are 10"):
        replay_trace(trace, ReplayRecipe(sample=11), rng())
    with pytest.raises(InputError, match="`assign` needs the application 'cifar10'"):
        replay_trace(trace, ReplayRecipe(assign=True), rng())


def test_the_table_of_the_trace_is_not_changed(trace):
    before = trace.table.copy()
    replay_trace(trace, ReplayRecipe(load=3, assign=True), rng(), INITIAL)
    assert trace.table.equals(before)


def test_a_bound_on_durations_cuts_the_tail_and_nothing_else(trace):
    jobs = replay_trace(trace, ReplayRecipe(max_duration_s=45), rng())
    assert [job.duration_s for job in jobs] == [1, 10, 20, 30, 40, 45, 45, 45, 45, 45]


@pytest.mark.parametrize(
    ("keys", "left_out"),
    [
        ({}, {}),
        ({"jobs": 4}, {"after the first 4": 6}),
        ({"from_s": 150, "until_s": 800}, {"submitted before second 150": 2, "submitted from second 800 on": 2}),
        (
            {"from_s": 100, "max_gpus": 8, "sample": 5, "jobs": 3},
            {
                "submitted before second 100": 1,
                "asking for more than 8 GPUs": 2,
                "not in the sample of 5": 2,
                "after the first 3": 2,
            },
        ),
        ({"jobs": 99}, {}),
    ],
)
def test_what_is_left_out_is_counted_by_reason(trace, keys, left_out):
    recipe = ReplayRecipe(**keys)
    assert recipe.left_out(trace) == left_out
    assert len(replay_trace(trace, recipe, rng())) == 10 - sum(left_out.values())


def test_jobs_made_of_columns_are_those_that_the_class_makes() -> None:
    names, gpus = ["a", "b"], [1, 8]
    made = JobSpec.of_columns(2, {"id": names, "submit_time_s": [0, 5], "num_gpus": gpus, "queue": ["", "short"]})
    assert made == [JobSpec("a", 0, 1), JobSpec("b", 5, 8, queue="short")]
    assert [replace(job, num_gpus=2).request for job in made] == [
        JobSpec("a", 0, 2).request,
        JobSpec("b", 5, 2, queue="short").request,
    ]


def test_the_columns_of_jobs_are_what_not_all_have_by_default_to_the_type() -> None:
    jobs = [JobSpec("a", 0, 1), JobSpec("b", 5, 8, priority=0.0)]  # equal to the default, an integer
    columns = JobSpec.columns_of(jobs)
    assert columns == {"id": ["a", "b"], "submit_time_s": [0, 5], "num_gpus": [1, 8], "priority": [0, 0]}
    assert [*map(repr, JobSpec.of_columns(2, columns))] == [*map(repr, jobs)]


DAY_S, WINDOW_S = 86_400, 8 * 3600
NAMES = ("cifar10", "ncf", "deepspeech2", "bert", "yolov3", "imagenet")
ASKED = {name: [(1, 64), (2, 128)] for name in NAMES}
FIRST = dict.fromkeys(NAMES, 64)


def jobs_of(seed=1, **options):
    return make_workload(WorkloadOptions(jobs=30, **options), seed, ASKED, FIRST)


def test_the_first_day_is_that_of_a_single_window_and_the_next_are_drawn_anew():
    one, three = jobs_of(), jobs_of(windows=3)
    assert three[:30] == one
    assert len(three) == 90
    later = [(job.application, job.submit_time_s - DAY_S, job.duration_s) for job in three[30:60]]
    assert later != [(job.application, job.submit_time_s, job.duration_s) for job in one]


def test_every_day_keeps_to_its_window_and_jobs_are_numbered_through():
    jobs = jobs_of(windows=3)
    for day in range(3):
        times = [job.submit_time_s for job in jobs[30 * day : 30 * (day + 1)]]
        assert day * DAY_S <= min(times) <= max(times) < day * DAY_S + WINDOW_S
    assert [job.id.rsplit("-", 1)[1] for job in jobs] == [str(i) for i in range(90)]
    assert [job.submit_time_s for job in jobs] == sorted(job.submit_time_s for job in jobs)


def test_the_days_depend_on_the_seed_alone():
    assert jobs_of(7, windows=2) == jobs_of(7, windows=2)
    assert jobs_of(7, windows=2)[30:] != jobs_of(8, windows=2)[30:]


def test_less_than_one_day_is_refused():
    with pytest.raises(InputError, match=r"workload\.windows"):
        jobs_of(windows=0)
