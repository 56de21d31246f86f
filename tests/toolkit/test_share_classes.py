"""Classes of jobs: their matrices say of any shares what adding up job by job says, dense, sparse, alone and paired."""

import importlib

import numpy as np
import pytest

from simsched.toolkit.programs.classes import classify
from simsched.toolkit.programs.problem import (
    Pairs,
    ShareProblem,
    apply,
    gandiva_fair,
    isolated,
    on_top,
    pairs_of_kinds,
    proportional,
)

CLASSES = importlib.import_module("simsched.toolkit.programs.classes")


def drawn(seed, *, pairs, jobs=9):
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 3, jobs)
    scale = np.array([1, 2, 1])[kinds]
    speed = rng.uniform(0.5, 3.0, (3, 3)) * (rng.random((3, 3)) < 0.85)
    weights = rng.choice([1.0, 2.0], 3)[kinds]
    both = pairs_of_kinds(kinds, scale, rng.uniform(0.2, 1.5, (3, 3, 1)) * speed[:, None, :]) if pairs else None
    return ShareProblem(speed[kinds], scale, np.array([4, 0 if seed % 3 == 2 else 5, 2]), weights, both, kinds)


def by_job(problem, classes, x):
    """Return the shares of jobs and pairs that the variables stand for, in the order of the problem."""
    types = len(problem.num_gpus)
    table = x.reshape(-1, types)
    alone, paired = table[: classes.num_classes], table[classes.num_classes :]
    pairs = problem.pairs.jobs if problem.pairs is not None else np.zeros((0, 2), int)
    shares = np.zeros((problem.num_jobs + len(pairs), types))
    shares[: problem.num_jobs, classes.type_order] = alone[classes.member]
    of = {frozenset(both): row for row, both in enumerate(classes.pair_classes.tolist())}
    size = np.bincount(classes.member)
    for place, (i, j) in enumerate(pairs):
        low, high = sorted((classes.member[i], classes.member[j]))
        # The share of a member of the lower class goes round the members of the other.
        others = size[high] - (low == high)
        shares[problem.num_jobs + place, classes.type_order] = paired[of[frozenset((low, high))]] / others
    return shares


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize("pairs", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_rates_times_and_gpus_are_those_of_the_jobs(monkeypatch, seed, pairs, dense):
    monkeypatch.setattr(CLASSES, "_MOST_DENSE", 10**9 if dense else 0)
    problem = drawn(seed, pairs=pairs)
    classes = classify(problem)
    assert classes.num_classes <= 3
    x = np.random.default_rng(seed).random(classes.num_variables)
    shares, jobs = by_job(problem, classes, x), problem.num_jobs
    useful = np.where(problem.num_gpus > 0, shares, 0.0)
    assert apply(classes.rates, x) == pytest.approx(problem.rates(useful)[classes.first])
    time, held = shares[:jobs].sum(axis=1), problem.scale_factor @ shares[:jobs]
    if pairs:
        for side in (0, 1):
            np.add.at(time, problem.pairs.jobs[:, side], shares[jobs:].sum(axis=1))
        held = held + problem.scale_factor[problem.pairs.jobs[:, 0]] @ shares[jobs:]
    assert apply(classes.time, x) == pytest.approx(time[classes.first])
    assert apply(classes.gpus, x) == pytest.approx(held[classes.type_order])
    rows, bound = classes.capacity
    assert apply(rows, x) == pytest.approx([*time[classes.first], *held[classes.type_order]])
    assert bound.tolist() == [1.0] * classes.num_classes + problem.num_gpus[classes.type_order].tolist()
    fastest = [rates[problem.num_gpus > 0].max() for rates in problem.throughput]
    if pairs:
        for (i, j), rates in zip(problem.pairs.jobs, problem.pairs.throughput[:, :, problem.num_gpus > 0], strict=True):
            fastest[i], fastest[j] = max(fastest[i], rates[0].max()), max(fastest[j], rates[1].max())
    assert classes.best_rates == pytest.approx(np.array(fastest)[classes.first])
    assert classes.spread(np.minimum(x / 9, 1), 0.0) == pytest.approx(by_job(problem, classes, x / 9), rel=1e-9)


@pytest.mark.parametrize("pairs", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_the_rows_of_a_level_ask_for_what_is_due(seed, pairs):
    problem = drawn(seed, pairs=pairs)
    classes = classify(problem)
    asked, due = np.arange(classes.num_classes)[1:], np.linspace(0.5, 2, classes.num_classes)[1:]
    columns = np.random.default_rng(seed).uniform(0.5, 2, classes.num_variables)
    rows = classes.with_level(asked, due, columns)
    x, level = np.random.default_rng(seed + 9).random(classes.num_variables), 0.7
    capacity = apply(on_top(classes.time, classes.gpus), x * columns)
    short = level - apply(classes.rates, x * columns)[asked] / due
    assert apply(rows, np.append(x, level)) == pytest.approx([*capacity, *short])


def test_units_and_noise_of_variables_by_hand():
    # One job of rates 4 and 1 on GPUs of two types, one of rate 2 and 0; due are 2 and 3 in a unit of time.
    problem = ShareProblem(np.array([[4.0, 1.0], [2.0, 0.0]]), np.ones(2, int), np.array([1, 2]))
    classes = classify(problem)
    due = np.array([2.0, 3.0])[classes.first]
    wanted = {0: [0.5, 1.0], 1: [1.0, 1.0]}  # 2/4, at most 1; 3/2, and none
    expected = np.concatenate([np.array(wanted[job])[classes.type_order] for job in classes.first])
    assert classes.columns(due).tolist() == expected.tolist()
    assert classes.noise(due) == pytest.approx(1e-8 * expected)
    assert classes.columns(np.zeros(2)).tolist() == [1.0] * 4


def test_units_of_a_pair_are_those_of_the_one_with_more_to_do_and_noise_of_the_other():
    both = Pairs(np.array([[0, 1]]), np.array([[[1.0], [2.0]]]))
    problem = ShareProblem(np.array([[2.0], [4.0]]), np.ones(2, int), np.array([1]), pairs=both)
    classes = classify(problem)
    due = np.array([0.5, 0.2])[classes.first]
    alone = np.array([0.25, 0.05])[classes.first]
    assert classes.columns(due) == pytest.approx([*alone, 0.5])
    assert classes.noise(due) == pytest.approx(1e-8 * np.array([*alone, 0.1]))


def test_small_shares_are_nothing_and_others_have_31_bits():
    problem = ShareProblem(np.ones((1, 3)), np.ones(1, int), np.array([1, 2, 3]))
    classes = classify(problem)
    assert classes.spread(np.array([2e-8, 0.9e-8, 1.1]))[0] == pytest.approx([2e-8, 0, 1.0])
    kept = classes.spread(np.array([0.3, 0.2, 0.1]), np.array([0.29, 0.21, 0.1]))
    assert kept[0] == pytest.approx([0.3, 0, 0.1], rel=1e-9)
    third = classes.spread(np.array([1 / 3, 0, 0]))[0, 0]
    assert third * 2**32 == round(2**32 / 3)  # 1/3 = 0.0101... in twos: 31 digits from the first one on
    assert third != 1 / 3


def test_the_second_criterion_weighs_time_by_the_numbers_of_splitmix64():
    """The first outputs of SplitMix64 from the seed 0 (Steele et al., OOPSLA'14; Vigna's reference code)."""
    outputs = np.array([0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]) / 2.0**64
    problem = ShareProblem(np.ones((1, 3)), np.array([2]), np.array([1, 2, 3]))
    classes = classify(problem)
    assert classes.second_criterion(np.ones(3)) == pytest.approx(-(1 + 0.01 * outputs))
    scaled = classes.second_criterion(np.array([0.5, 1e-9, 1.0]))
    assert scaled == pytest.approx(-(1 + 0.01 * outputs) * [0.5, 1e-6, 1.0])
    # Time counts by the GPUs that a class holds, as parts of the most.
    two = classify(ShareProblem(np.array([[1.0], [2.0]]), np.array([1, 4]), np.array([8])))
    held = np.array([1, 4])[two.first]
    assert two.second_criterion(np.ones(2)) == pytest.approx(-held / 4 * (1 + 0.01 * outputs[:2]))
    paired = classify(drawn(0, pairs=True))
    found = (
        paired.second_criterion(np.ones(paired.num_variables))
        * -1
        / (np.asarray(paired.gpus).sum(axis=0) / np.asarray(paired.gpus).sum(axis=0).max())
    )
    assert ((found >= 1) & (found < 1.01)).all()


def test_jobs_are_alike_that_agree_in_everything():
    rates, scale = np.array([[2.0, 1.0], [1.0, 2.0], [2.0, 1.0], [2.0, 1.0]]), np.array([1, 1, 1, 2])
    problem = ShareProblem(rates, scale, np.array([2, 1]), np.array([1.0, 1.0, 1.0, 1.0]))
    assert sorted(classify(problem).count.tolist()) == [1, 1, 2]
    assert classify(problem, np.array([1.0, 2.0, 3.0, 4.0])).num_classes == 4
    heavy = ShareProblem(rates, scale, np.array([2, 1]), np.array([1.0, 1.0, 5.0, 1.0]))
    assert classify(heavy).num_classes == 4
    # Types stand in the order of their GPUs.
    assert classify(problem).type_order.tolist() == [1, 0]
    apart = ShareProblem(rates, scale, np.array([2, 1]), kinds=np.array([0, 1, 2, 3]))
    assert classify(apart).num_classes == 4
    twice = Pairs(np.array([[0, 1], [1, 0]]), np.ones((2, 2, 2)))
    with pytest.raises(ValueError, match="a pair of jobs is listed twice"):
        classify(ShareProblem(rates, scale, np.array([2, 1]), pairs=twice))
    # Of three alike one pair is missing: they stay apart.
    some = Pairs(np.array([[0, 1], [0, 2]]), np.ones((2, 2, 1)))
    alike = ShareProblem(np.ones((3, 1)), np.ones(3, int), np.array([2]), pairs=some, kinds=np.zeros(3, int))
    assert classify(alike).num_classes == 3
    whole = Pairs(np.array([[0, 1], [0, 2], [2, 1]]), np.ones((3, 2, 1)))
    alike = ShareProblem(np.ones((3, 1)), np.ones(3, int), np.array([2]), pairs=whole, kinds=np.zeros(3, int))
    assert (classify(alike).num_classes, classify(alike).partners.tolist()) == (1, [2.0])


def test_pairs_of_kinds_by_hand():
    # Beside a job of its own kind 0 keeps 0.6, beside kind 1 both keep 0.5 on the first type and one 0 on the second.
    beside = np.array([[[0.6, 0.6], [0.5, 0.5]], [[0.5, 0.0], [0.1, 0.1]]])
    kinds, scale = np.array([0, 1, 0, 0]), np.array([1, 1, 1, 2])
    found = pairs_of_kinds(kinds, scale, beside)
    assert found.jobs.tolist() == [[0, 1], [0, 2], [1, 2]]
    assert found.throughput.tolist() == [[[0.5, 0], [0.5, 0]], [[0.6, 0.6]] * 2, [[0.5, 0], [0.5, 0]]]
    assert pairs_of_kinds(kinds, scale, beside, slack=0.5).jobs.tolist() == [[0, 2]]
    assert pairs_of_kinds(kinds[:1], scale[:1], beside).jobs.shape == (0, 2)


@pytest.mark.parametrize(("gpus", "share"), [(2, 0.5), (4, 1.0), (6, 1.0)])
def test_shares_without_a_program_keep_to_all_the_time_there_is(gpus, share):
    problem = ShareProblem(np.ones((4, 1)), np.array([1, 1, 2, 1]), np.array([gpus]))
    assert gandiva_fair(problem)[:, 0].tolist() == [share] * 4
    assert isolated(problem)[:, 0].tolist() == [min(gpus / 4 / scale, 1) for scale in (1, 1, 2, 1)]
    assert proportional(problem)[:, 0].tolist() == [1.0] * 4
