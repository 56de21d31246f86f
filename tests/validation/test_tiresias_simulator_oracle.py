"""The oracle of Tiresias's simulator against the vectors of its description, and shipped policies against it."""

import random

import pytest

from tests.validation import tiresias_cases as cases
from tests.validation.oracles import tiresias_simulator as oracle

#: (id, GPUs, submission, duration) on four GPUs; the arrival of the last falls together with an end that never comes.
STALE = [(0, 4, 0, 2000), (1, 4, 10, 5000), (2, 1, 2000, 100)]


def rows_of(jobs):
    return [(job.id, job.start_s, job.end_s, job.pending_s, job.preemptions, job.resumes) for job in jobs]


def test_a_stale_completion_ends_a_job_before_its_work_is_done():
    found = rows_of(oracle.Queues(STALE, 4).replay())
    assert found == [(0, 0, 2000, 812, 1, 1), (2, 2000, 2100, 0, 0, 1), (1, 820, 5920, 910, 1, 2)]


def test_a_second_later_every_job_does_its_work():
    found = rows_of(oracle.Queues([*STALE[:2], (2, 1, 2001, 100)], 4).replay())
    assert found == [(2, 2001, 2101, 0, 0, 1), (0, 0, 3281, 1281, 1, 2), (1, 820, 7100, 2090, 1, 2)]


def test_a_job_of_four_gpus_is_moved_late_but_for_the_paper():
    alone = [(0, 4, 0, 9000)]
    assert oracle.Queues(alone, 4).replay()[0].demoted_s[0] == 1421
    assert oracle.Queues(alone, 4, habits=oracle.PAPER).replay()[0].demoted_s == [813, 1800]
    assert oracle.Queues(alone, 4, gpu_time=False).replay()[0].demoted_s == [3250, 7200]


def test_the_order_within_a_queue_is_by_tails_or_by_first_start():
    rows = [(0, 1, 0, 4324), (1, 3, 248, 2990), (2, 1, 459, 2667)]  # job 1 is moved down first, job 0 started first
    assert {job.id: job.end_s for job in oracle.Queues(rows, 4, habits=oracle.PAPER).replay()}[0] == 4324
    tails = oracle.Habits(late_jumps=False)
    assert {job.id: job.end_s for job in oracle.Queues(rows, 4, habits=tails).replay()}[0] == 5073


def test_a_job_that_has_waited_as_long_as_it_has_run_is_promoted():
    rows = [(0, 1, 0, 4000), (1, 1, 0, 3000), (2, 1, 0, 3000)]
    for habits, ends_s in ((oracle.PAPER, [7250, 6250, 10_000]), (oracle.PUBLISHED, [10_000, 6250, 9250])):
        found = {job.id: job for job in oracle.Queues(rows, 1, knob=1, habits=habits).replay()}
        assert found[0].promotions == 1  # at 6500, before job 2, which began at 6250, or behind it
        assert found[0].demoted_s == [3250]
        assert [found[i].end_s for i in range(3)] == ends_s


def test_fifo_blocks_and_first_fit_does_not():
    rows = [(0, 2, 0, 10), (1, 4, 1, 10), (2, 1, 2, 3)]
    assert [(job.id, job.start_s) for job in oracle.replay_started(rows, 4, "fifo")] == [(0, 0), (1, 10), (2, 20)]
    assert [(job.id, job.start_s) for job in oracle.replay_started(rows, 4, "fjf")] == [(2, 2), (0, 0), (1, 10)]


@pytest.mark.parametrize("schedule", cases.SCHEDULES)
@pytest.mark.parametrize("seed", range(4))
def test_shipped_policies_start_preempt_and_end_every_job_as_the_oracle_does(schedule, seed):
    rng = random.Random(seed)
    gpus = rng.choice([4, 8, 16])
    rows = cases.random_rows(rng, gpus, 40)
    assert cases.differs(rows, gpus, schedule, cases.PLACERS[seed % len(cases.PLACERS)]) == []


def test_a_comparison_notices_another_rule():
    rows = cases.random_rows(random.Random(0), 4, 40)
    ends = {job.id: job.end_s for job in oracle.replay_sorted(rows, 4, "shortest")}
    assert ends != {job.id: job.end_s for job in oracle.replay_sorted(rows, 4, "shortest-gpu")}
    published = {job.id: job.end_s for job in oracle.Queues(rows, 4).replay()}
    assert published != {job.id: job.end_s for job in oracle.Queues(rows, 4, habits=oracle.PAPER).replay()}
