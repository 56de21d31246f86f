"""Samples of several days in a row."""

import pytest

from simsched.errors import InputError
from simsched.workload.source import WorkloadOptions, make_workload

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
