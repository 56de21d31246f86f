"""Shockwave's plan of a window: simsched's against the same program solved by scipy, written from the page alone."""

import random

import numpy as np
import pytest

from simsched.toolkit.programs.shockwave import PlanJobs, PlanOptions, plan as simsched_plan
from tests.validation.oracles.shockwave_plan import (
    Plan,
    Planner,
    Setting,
    Waiting,
    keeps_fair,
    plan,
    ratio,
    value,
    weights_of,
)
from tests.validation.oracles.shockwave_replay import read, replay


def drawn(rng, sizes, jobs):
    """Draw jobs that have more than a round left, and fair times near what they can reach."""
    some = []
    for _ in range(rng.randint(1, jobs)):
        progress, left_s, age_s = (
            rng.choice([0.0, rng.random()]),
            rng.uniform(121, 4000),
            rng.choice([0.0, 3000 * rng.random()]),
        )
        gain = (1 - progress) * 120 / left_s
        fair_s = (age_s + left_s) * rng.choice([0.8, 1.2, 2.0, 4.0])
        some.append(Waiting(rng.choice(sizes), progress, gain, left_s, age_s, fair_s))
    return some


def by_simsched(setting, jobs):
    columns = (
        np.array([getattr(job, name) for job in jobs])
        for name in ("gpus", "progress", "gain", "left_s", "age_s", "fair_s")
    )
    options = PlanOptions(
        rounds=setting.rounds,
        makespan_weight=setting.makespan_weight,
        fairness_power=setting.fairness_power,
        most_unfair=setting.most_unfair,
        relative_gap=0.0,
    )
    return simsched_plan(PlanJobs(*columns), setting.gpus, options)


def setting_of(rng, most_gpus):
    return Setting(
        gpus=rng.randint(1, most_gpus),
        rounds=rng.randint(1, 6),
        makespan_weight=rng.choice([0.0, 1e-3, 1e-2]),
        fairness_power=rng.choice([0.5, 2.0, 12.0]),
        most_unfair=rng.choice([1.0, 1.5]),
    )


def as_good(setting, jobs, found, expected: Plan):
    assert found.fair == expected.fair
    rounds = found.rounds.tolist()
    assert all(0 <= count <= setting.rounds for count in rounds)
    assert sum(job.gpus * count for job, count in zip(jobs, rounds, strict=True)) <= setting.gpus * setting.rounds
    assert not found.fair or keeps_fair(setting, jobs, rounds)
    weights = [1.0] * len(jobs) if found.fair else weights_of(setting, jobs)
    assert value(setting, jobs, rounds, weights) == pytest.approx(expected.value, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("seed", range(25))
def test_plans_of_jobs_with_one_gpu_are_worth_as_much_as_the_page_allows(seed):
    rng = random.Random(seed)
    setting = setting_of(rng, 3)
    jobs = drawn(rng, [1], 5)
    as_good(setting, jobs, by_simsched(setting, jobs), plan(setting, jobs))


@pytest.mark.parametrize("seed", range(25))
def test_plans_of_several_sizes_are_worth_as_much_as_counted_rounds_allow(seed):
    """Rounds are only counted in simsched's program; one that names them cannot be worth more."""
    rng = random.Random(1000 + seed)
    setting = setting_of(rng, 8)
    jobs = [job for job in drawn(rng, [1, 2, 4], 6) if job.gpus <= setting.gpus]
    if not jobs:
        setting, jobs = Setting(4, 3), [Waiting(4, 0.1, 0.1, 1000.0, 0.0, 2000.0)]
    counted = plan(setting, jobs, by_round=False)
    as_good(setting, jobs, by_simsched(setting, jobs), counted)
    named = plan(setting, jobs)
    assert named.fair <= counted.fair
    if named.fair == counted.fair:
        assert named.value <= counted.value + 1e-9


def test_the_oracle_itself_on_a_case_worked_by_hand():
    # Two jobs of 600 s share a GPU for four rounds of 120 s: half speed, so that alone 1,200 s are fair.
    tight = Waiting(1, 0.0, 0.2, 600.0, 0.0, 1000.0)
    loose = Waiting(1, 0.0, 0.2, 600.0, 0.0, 2000.0)
    setting = Setting(1, rounds=4, makespan_weight=0.0)
    assert ratio(setting, [tight, loose], tight) == 1.2
    # After the coming round 880 s of half a GPU do 440 s: 160 s must be planned.
    assert keeps_fair(setting, [tight, loose], [2, 0])
    assert not keeps_fair(setting, [tight, loose], [1, 3])
    # Each first round is worth log .2 - log 1e-6, and each second log 2.
    assert plan(setting, [tight, loose]).rounds == [2, 2]


def test_a_planned_run_ends_sooner_than_one_of_equal_shares(shared):
    """The first 16 jobs on 4 GPUs: one job is much the longest."""
    files = shared / "shockwave" / "120-jobs.trace", shared / "shockwave" / "tacc_throughputs.json"

    def equal(_now, jobs):
        return {job.id: min(1.0, 4 / len(jobs)) for job in jobs}

    jobs, regimes = read(*files)
    shared_run = replay(jobs[:16], regimes, equal, 4)
    jobs, regimes = read(*files)
    planned = replay(jobs[:16], regimes, equal, 4, Planner(regimes, Setting(4, gap=1e-3)))
    assert len(planned.jct_s) == 16
    assert planned.makespan_s < 0.9 * shared_run.makespan_s
