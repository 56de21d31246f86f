"""Gavel's generator and trace files."""

import math
from itertools import islice
from random import Random

import numpy as np
import pytest

from simsched.errors import InputError
from simsched.model.job import JobSpec
from simsched.workload.gavel import DISTRIBUTED, TEMPLATES, GavelMix, generate_jobs, read_gavel_jobs

ONES = {(name, gpus): 1.0 for name in TEMPLATES for gpus in (1, 2, 4, 8)}


def first(count, seed=0, **mix):
    return list(islice(generate_jobs(GavelMix(**mix), ONES, seed), count))


def test_there_are_26_job_types_of_which_19_are_distributed():
    assert (len(TEMPLATES), len(set(TEMPLATES)), len(DISTRIBUTED)) == (26, 26, 19)
    assert set(TEMPLATES) >= DISTRIBUTED


def test_the_first_job_follows_the_streams_draw_by_draw():
    rng = Random(7 + 2)
    size, kind = rng.random(), rng.random()
    duration_s = 60 * 10 ** (rng.uniform(3, 4) if kind >= 0.8 else rng.uniform(1.5, 3))
    template = rng.choice(TEMPLATES)
    job, second = first(2, seed=7, multi_gpu=False, jobs_per_hour=2)
    assert (job.template, job.num_gpus, job.arrival_s) == (template, 1, 0)
    assert job.duration_s == duration_s == job.total_steps
    assert 0 <= size < 1
    assert second.arrival_s == -math.log(1 - Random(7 + 3).random()) * 1800


def test_sizes_durations_and_gaps_have_their_distributions():
    jobs = first(4000, jobs_per_hour=4)
    sizes = np.bincount([job.num_gpus for job in jobs], minlength=9)[[1, 2, 4, 8]] / len(jobs)
    assert sizes == pytest.approx([0.7, 0.1, 0.15, 0.05], abs=0.02)
    assert np.mean([job.duration_s >= 60_000 for job in jobs]) == pytest.approx(0.2, abs=0.02)
    assert jobs[-1].arrival_s / (len(jobs) - 1) == pytest.approx(900, rel=0.05)
    assert all(job.template in DISTRIBUTED for job in jobs if job.num_gpus > 1)


def test_options_leave_other_streams_alone():
    plain, rich = first(20, jobs_per_hour=1), first(20, jobs_per_hour=1, slos=True)
    assert [job.total_steps for job in plain] == [job.total_steps for job in rich]
    assert {job.slo for job in rich} == {1.2, 2.0, 10.0}
    assert {job.slo for job in plain} == {None}
    assert {job.weight for job in first(30, priorities=True)} == {1.0, 5.0}
    assert {job.duration_s for job in first(5, fixed_s=600.0)} == {600.0}
    assert [job.arrival_s for job in first(9)] == [0.0] * 9
    assert [job.arrival_s > 0 for job in first(5, jobs_per_hour=1, at_once=2)] == [False] * 3 + [True] * 2


def test_a_mix_that_makes_no_sense():
    with pytest.raises(InputError, match="jobs_per_hour"):
        GavelMix(jobs_per_hour=-1)
    with pytest.raises(InputError, match="no rate"):
        next(generate_jobs(GavelMix(), {}, 0))


def test_a_line_of_a_trace_becomes_a_job(tmp_path):
    path = tmp_path / "t.trace"
    path.write_text("LM (batch size 5)\tc\td\tf\t1\t10\t4\t1\t1.2\t0.5\n\nA3C\tc\td\tf\t0\t1234.5\t1\t5\t-1\t0\n")
    first, second = read_gavel_jobs(path)
    assert first == JobSpec("1", 0.0, 1, "A3C", 0, weight=5.0, total_steps=1234.5)
    assert second == JobSpec("0", 0.5, 4, "LM", 5, weight=1.0, total_steps=10)


def test_every_wrong_line_of_a_trace_is_named(tmp_path):
    path = tmp_path / "t.trace"
    line = "A3C\tc\td\tf\t0\t{}\t{}\t1\t-1\t{}\n"
    path.write_text(line.format("x", 1, 0) + "A3C\n\n" + line.format(5, 1.5, 0) + line.format(5, 1, "inf"))
    with pytest.raises(InputError) as caught:
        read_gavel_jobs(path)
    assert [(problem.line, problem.message.split()[0]) for problem in caught.value.problems] == [
        (1, "total"),
        (2, "the"),
        (4, "GPUs"),
        (5, "arrival"),
    ]
