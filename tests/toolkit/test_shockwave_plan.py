"""Shockwave's plan against enumeration and cases worked by hand, and the forecasts that it rests on."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from simsched.toolkit.programs.shockwave import (
    Plan,
    PlanJobs,
    PlanOptions,
    arrange,
    averaged_fair_s,
    backfilled,
    estimated_ratios,
    fairness_weights,
    fewest_rounds,
    plan,
    uniform_share,
)

FOUR = PlanOptions(rounds=4, relative_gap=0.0)


def jobs(gpus, remaining_s, *, progress=0.0, gain=0.1, age_s=0.0, fair_s=1e9):
    n = len(gpus)

    def full(value):
        return np.broadcast_to(np.asarray(value, float), n).copy()

    return PlanJobs(np.array(gpus), full(progress), full(gain), full(remaining_s), full(age_s), full(fair_s))


def log_utility(progress, options):
    bases = np.array(options.bases)
    return np.interp(progress, bases, np.log(np.maximum(bases, options.floor)))


def objective(some, weights, rounds, options):
    utility = weights @ log_utility(some.progress + some.gain * rounds, options) / (len(some) * options.rounds)
    return utility - options.makespan_weight * max(0.0, *(some.remaining_s - options.round_s * rounds))


def test_alone_a_job_runs_until_it_is_done():
    assert plan(jobs([1], [300.0]), 4, FOUR).rounds.tolist() == [3]
    assert plan(jobs([1], [3000.0]), 4, FOUR).rounds.tolist() == [4]
    assert plan(jobs([8], [300.0]), 4, FOUR).rounds.tolist() == [0]
    assert plan(jobs([], []), 4, FOUR).rounds.shape == (0,)


def test_without_a_makespan_term_equals_share_equally():
    options = replace(FOUR, makespan_weight=0.0)
    assert plan(jobs([1, 1], [960.0, 960.0]), 1, options).rounds.tolist() == [2, 2]


def test_the_makespan_term_prefers_the_longest_job():
    options = replace(FOUR, makespan_weight=1.0)
    assert plan(jobs([1, 1], [1200.0, 120.0]), 1, options).rounds.tolist() == [4, 0]


def test_of_equal_jobs_the_first_wins():
    some = jobs([1, 1, 1], [960.0, 960.0, 960.0], gain=0.01)
    assert plan(some, 1, replace(FOUR, rounds=1)).rounds.tolist() == [1, 0, 0]


@pytest.mark.parametrize("seed", range(6))
def test_no_other_plan_is_better(seed):
    rng = np.random.default_rng(seed)
    n, options = 4, replace(FOUR, makespan_weight=[0.0, 1e-3][seed % 2])
    some = PlanJobs(
        rng.choice([1, 2, 4], n), rng.random(n) * 0.9, rng.random(n) * 0.2, rng.random(n) * 900 + 10,
        rng.random(n) * 1000, rng.random(n) * 900 + 300,
    )  # fmt: skip
    found = plan(some, 4, options)
    assert found.optimal
    assert not found.fair
    weights = fairness_weights(some, found.ratios, options)
    most = np.minimum(np.ceil(some.remaining_s / options.round_s), options.rounds).astype(int)
    every = [np.array(c) for c in product(*(range(m + 1) for m in most)) if some.gpus @ c <= 16]
    best = max(objective(some, weights, c, options) for c in every)
    assert some.gpus @ found.rounds <= 16
    assert objective(some, weights, found.rounds, options) == pytest.approx(best, rel=1e-6)


def test_fairness_asks_for_rounds_and_is_dropped_for_weights_where_it_cannot_be_had():
    # Two jobs on one GPU get half of it: 600 s left take 1,200 s, from the end of the coming round on.
    some = jobs([1, 1], [600.0, 600.0], age_s=[0.0, 0.0], fair_s=[1000.0, 2000.0])
    # 880 s of half a GPU are 440 s; the other 160 s must be planned: two rounds.
    assert fewest_rounds(some, 1, FOUR).tolist() == [2, 0]
    found = plan(some, 1, FOUR)
    assert found.fair
    assert found.rounds[0] >= 2
    late = replace(some, age_s=np.array([1500.0, 0.0]))
    assert estimated_ratios(late, 1).tolist() == [2.7, 0.6]
    found = plan(late, 1, FOUR)
    assert not found.fair
    assert found.rounds.tolist() == [4, 0]


def test_jobs_share_a_cluster_that_is_too_small_and_have_a_gpu_each_elsewhere():
    assert [uniform_share(jobs, 4) for jobs in (0, 3, 4, 5)] == [1, 1, 1, 0.8]


@pytest.mark.parametrize(
    ("gpus", "remaining_s", "fair"),
    [
        # Without time to spare every second left must be planned: four rounds of 120 s, of which the window has four.
        ([1], [480.0], True),
        ([2, 2], [240.0, 240.0], True),
        ([2, 2], [360.0, 240.0], False),  # ten GPU-rounds of eight
        ([1], [600.0], False),  # five rounds of four, though there are GPUs for eight
        ([1, 1], [120.0, 600.0], False),
    ],
)
def test_fairness_is_kept_just_where_there_is_room_for_it(gpus, remaining_s, fair):
    some = jobs(gpus, remaining_s, fair_s=120.0)
    assert fewest_rounds(some, 2, FOUR).tolist() == [seconds / 120 for seconds in remaining_s]
    found = plan(some, 2, FOUR)
    assert found.fair == fair
    assert (found.rounds >= fewest_rounds(some, 2, FOUR)).all() == fair


def test_sums_that_are_a_little_more_than_a_round_ask_for_no_other():
    assert (0.1 + 0.2) / 0.1 > 3
    some = jobs([1], [0.1 + 0.2], fair_s=0.1)
    assert fewest_rounds(some, 1, PlanOptions(round_s=0.1)).tolist() == [3]


def test_weights_are_powers_of_unfairness_with_a_bound():
    some = jobs([1, 1, 1, 1], [600.0, 600.0, 60.0, 120.0])
    weights = fairness_weights(some, np.array([2.0, 0.5, 2.0, 2.0]))
    assert weights.tolist() == pytest.approx([4096.0, 1.0, 1e4, 4096.0]), "a round is no hurry yet"


def test_the_fair_completion_time_moves_slowly():
    assert averaged_fair_s(None, 1000.0, 0.5, 0.9) == 2000.0
    assert averaged_fair_s(2000.0, 1000.0, 0.25, 0.9) == pytest.approx(2200.0)


def test_rounds_are_put_in_order_and_filled():
    some = jobs([2, 1, 1, 1], [240.0, 480.0, 240.0, 900.0], age_s=[0.0, 0.0, 500.0, 0.0], fair_s=500.0)
    planned = replace(plan(some, 2, FOUR), rounds=np.array([2, 4, 1, 0]))
    # Six GPU-rounds of eight are asked for, and the pair of GPUs is never free beside the job that must always run.
    assert arrange(planned, some, 2, PlanOptions(rounds=4)).astype(int).tolist() == [
        [0, 1, 1, 0],
        [0, 1, 0, 0],
        [0, 1, 0, 0],
        [0, 1, 0, 0],
    ]
    assert backfilled(np.array([False, True, False, False]), some, 2).tolist() == [False, True, False, True]


def test_a_job_that_needs_every_round_left_comes_before_those_treated_worse():
    # One GPU: the worst treated job has the first round, the other needs all three that are left then. Of the last
    # round both have need.
    some = jobs([1, 1], [900.0, 900.0])
    planned = Plan(np.array([2, 3]), True, np.array([2.0, 1.0]), True)
    assert arrange(planned, some, 1, FOUR).astype(int).tolist() == [[1, 0], [0, 1], [0, 1], [1, 0]]


def test_no_round_is_left_with_room_for_a_job_that_has_rounds_to_come():
    rng = np.random.default_rng(4)
    for _ in range(5):
        n = 30
        some = jobs(rng.choice([1, 2, 4], n), rng.random(n) * 5000 + 10, gain=rng.random(n) / 20, fair_s=1000.0)
        planned = plan(some, 16)
        order = arrange(planned, some, 16)
        left = planned.rounds - np.cumsum(order, axis=0)
        assert (left >= 0).all()
        free = 16 - order @ some.gpus
        assert (free >= 0).all()
        idle = (left > 0) & ~order & (some.gpus[None, :] <= free[:, None])
        assert not idle.any()


def test_settings_of_the_plan_change_who_is_early_and_who_fills_up():
    two = np.ones(2)
    some = PlanJobs(np.array([1, 1]), two / 2, two / 10, np.array([300.0, 100.0]), 0 * two, 1000 * two)
    planned = Plan(np.array([1, 1]), True, np.array([1.0, 0.5]), True)
    early = [arrange(planned, some, 1, PlanOptions(rounds=3, early=early))[0].tolist() for early in ("unfair", "short")]
    assert early == [[True, False], [False, True]]
    nobody = np.array([False, False])
    spare = [backfilled(nobody, some, 1, PlanOptions(spare=who)).tolist() for who in ("long", "short", "nobody")]
    assert spare == [[True, False], [False, True], [False, False]]
