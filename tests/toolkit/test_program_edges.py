"""Forecasts of regimes, worth of configurations, leases and offers, by hand and against trying everything."""

from __future__ import annotations

import importlib
from itertools import product
from random import Random

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

from simsched.toolkit.programs import sia
from simsched.toolkit.programs.baselines import RandomPacking
from simsched.toolkit.programs.leases import reserve, reserve_in_order, usable_seconds
from simsched.toolkit.programs.shockwave import epochs_within, remaining_of
from simsched.toolkit.programs.sia import Configuration, OfferProblem, solve
from tests.validation.replays.shockwave import expected_profile


def test_seconds_left_by_hand():
    assert [remaining_of([10, 20, 30], done) for done in (0, 0.5, 1, 2.25, 3, 4)] == [60, 55, 50, 22.5, 0, 0]


@pytest.mark.parametrize(
    ("done", "seconds", "epochs"),
    [(0, 5, 0.5), (0, 10, 1), (0, 20, 1.5), (0.5, 5, 0.5), (0.5, 15, 1), (0, 60, 3), (0, 99, 3), (2, 0, 0), (3, 5, 0),
     (2.5, 20, 0.5)],
)  # fmt: skip
def test_epochs_in_a_time_by_hand(done, seconds, epochs):
    assert epochs_within([10, 20, 30], done, seconds) == pytest.approx(epochs)


@pytest.mark.parametrize(
    ("real", "done", "lengths"),
    [((2, 6), 0, (4, 4)), ((2, 6), 1.5, (4, 4)), ((2, 6), 2, (2, 6)), ((2, 6), 8, (2, 6)), ((6, 2), 5, (5, 3)),
     ((1, 2, 4), 0, (2, 3, 2)), ((1, 2, 4), 1, (1, 3, 3)), ((1, 2, 4), 3, (1, 2, 4))],
)  # fmt: skip
def test_a_profile_has_the_expected_lengths_of_the_regimes_to_come(real, done, lengths):
    def seconds(counts):
        return [second for second, count in zip((10.0, 20.0, 5.0), counts, strict=False) for _ in range(count)]

    assert expected_profile(seconds(real), done) == seconds(lengths)


def test_configurations_by_hand():
    assert sia.configurations({"b": (1, 6), "a": (3, 4)}) == (
        Configuration("a", 1, 1), Configuration("a", 1, 2), Configuration("a", 1, 4), Configuration("a", 2, 8),
        Configuration("a", 3, 12), Configuration("b", 1, 1), Configuration("b", 1, 2), Configuration("b", 1, 4),
        Configuration("b", 1, 6),
    )  # fmt: skip
    for most, gpus in ((3, [1, 2]), (4, [1, 2, 4]), (8, [1, 2, 4, 8]), (11, [1, 2, 4, 8])):
        assert [one.gpus for one in sia.configurations({"a": (3, 4)}, most)] == gpus
    assert sia.configurations({"a": (40, 8)})[-1] == Configuration("a", 8, 64)
    pools = {"b": (1, 2), "a": (2, 4)}
    assert sia.rigid(pools, 5) == (Configuration("a", 2, 5),)
    assert sia.rigid(pools, 2) == (Configuration("a", 1, 2), Configuration("b", 1, 2))
    assert (sia.rigid(pools, 8), sia.rigid(pools, 9)) == ((Configuration("a", 2, 8),), ())
    assert [sia.may_grow_to(largest) for largest in (0, 1, 3, 32, 40)] == [1, 2, 6, 64, 64]
    assert sia.may_grow_to(4, 6) == 6


@pytest.mark.parametrize(
    ("age_s", "restarts", "factor"), [(10, 0, 1), (10, 9, 1), (20, 0, 2 / 3), (30, 2, 0.25), (30, 4, 0), (30, 3, 0)]
)
def test_a_restart_costs_its_share_of_a_life(age_s, restarts, factor):
    assert sia.restart_factor(age_s, restarts, 10) == pytest.approx(factor)


def test_worth_by_hand():
    goodputs, gpus = np.array([4.0, 2.0, 8.0]), np.array([2, 1, 4])
    # Relative to the least, one GPU: 2, 1 and 4; to the power of -1/2.
    assert sia.values(goodputs, gpus).tolist() == [0.71, 1.0, 0.5]
    assert sia.values(goodputs, 2 * gpus).tolist() == [0.5, 0.71, 0.35]
    assert sia.values(goodputs, gpus, 2, 0.25).tolist() == [1.41, 2.0, 0.5]
    assert sia.values(goodputs, gpus, 0, 0.25).tolist() == [0.71, 2.0, 1.0]
    assert sia.values(goodputs, gpus, 0, 0.0).tolist() == [0.71, 100.0, 100.0]
    assert sia.values(goodputs, gpus, 0, 0.0, fairness=-1.0).tolist() == [0.5, 3000.0, 3000.0]
    assert sia.values(goodputs, gpus, fairness=1.0).tolist() == [2, 1, 4]
    assert sia.values(np.array([0.0, 0.01]), np.array([1, 1])).tolist() == [1.0, 0.1]
    assert sia.bootstrapped(6.0, 4.0, 2.0) == 12.0


def tried_all(cost, job, kind, gpus, room, must):
    """Return the least cost of at most one offer for each job, None where those that must have one do not fit."""
    choices = [[*np.flatnonzero(job == one), *([] if needed else [-1])] for one, needed in enumerate(must)]
    best = None
    for chosen in product(*choices):
        taken = [offer for offer in chosen if offer >= 0]
        used = np.bincount(kind[taken], gpus[taken], len(room)) if taken else np.zeros(len(room))
        if (used <= room).all() and (best is None or cost[taken].sum() < best):
            best = float(cost[taken].sum())
    return best


@pytest.mark.parametrize(("seed", "small"), [*((seed, 200) for seed in range(6)), (1, 0), (4, 0)])
def test_offers_are_chosen_as_by_trying_all(monkeypatch, seed, small):
    monkeypatch.setattr(importlib.import_module("simsched.toolkit.programs.sia"), "SMALL", small)
    rng = np.random.default_rng(seed)
    job = np.repeat(np.arange(5), 3)
    kind, gpus, value = rng.integers(0, 2, 15), rng.integers(1, 4, 15), rng.uniform(0.3, 1.5, 15).round(2)
    room, weights, must = np.array([3, 2 + seed % 4]), rng.choice([1.0, 2.0], 5), np.arange(5) == seed % 7
    for fairness in (-0.5, 0.5):
        sign = 1.0 if fairness < 0 else -1.0
        least = tried_all(sign * weights[job] * value - 0.8, job, kind, gpus, room, must)
        offers = sia.Offers(job, kind, gpus, value)
        options = {"weights": weights, "must": must, "fairness": fairness, "penalty": 0.8}
        if least is None:
            with pytest.raises(ValueError, match="must keep their GPUs do not fit"):
                sia.choose(offers, room, 5, **options)
            continue
        chosen = sia.choose(offers, room, 5, **options)
        taken = chosen[chosen >= 0]
        assert [(offer < 0) or job[offer] == one for one, offer in enumerate(chosen)] == [True] * 5
        assert (chosen[must] >= 0).all()
        assert (np.bincount(kind[taken], gpus[taken], 2) <= room).all()
        found = float((sign * weights[job] * value - 0.8)[taken].sum())
        assert found == pytest.approx(least, abs=2e-4 * max(1.0, abs(least)))


def test_offers_that_cost_nothing_or_are_none():
    nobody = np.zeros(0, np.int64)
    assert solve(OfferProblem(nobody, nobody, nobody, np.zeros(0), np.array([1]), np.zeros(2, bool))).tolist() == [
        -1,
        -1,
    ]
    one = np.zeros(1, np.int64)
    for cost, must, chosen in ((0.0, False, -1), (0.0, True, 0), (1.0, False, -1), (1.0, True, 0), (-1.0, False, 0)):
        problem = OfferProblem(one, one, np.array([2]), np.array([cost]), np.array([2]), np.array([must]))
        assert solve(problem).tolist() == [chosen]
    rows = sia.offers_of([([0, 1], [1, 2], [0.5, 0.25]), ([], [], []), ([1], [4], [1.0])])
    assert [part.tolist() for part in rows] == [[0, 0, 2], [0, 1, 1], [1, 2, 4], [0.5, 0.25, 1.0]]


def test_a_job_in_the_middle_of_a_restart_keeps_what_it_has():
    rows = [([0], [2], [3.0]), ([0, 0], [1, 2], [1.0, 0.1])]
    assert sia.choose(sia.offers_of(rows), np.array([2]), 2).tolist() == [-1, 2]
    assert sia.choose(sia.offers_of(rows), np.array([2]), 2, must=np.array([True, False])).tolist() == [0, -1]
    with pytest.raises(ValueError, match="do not fit"):
        sia.choose(sia.offers_of(rows), np.array([1]), 2, must=np.array([True, False]))


def test_jobs_without_offers_and_no_jobs():
    assert sia.choose(sia.offers_of([([], [], []), ([0], [1], [1.0])]), np.array([1]), 2).tolist() == [-1, 0]
    assert sia.choose(sia.offers_of([]), np.array([1]), 0).tolist() == []


def random_rows(rng, jobs, sizes):
    rows = []
    for _ in range(jobs):
        row = [(t, g) for t in range(2) for g in sizes]
        rows.append(([t for t, _ in row], [g for _, g in row], np.round(rng.uniform(0.05, 1.0, len(row)), 2).tolist()))
    return sia.offers_of(rows)


def test_leaving_dear_offers_out_changes_nothing():
    rng = np.random.default_rng(7)
    offers, room, n = random_rows(rng, 80, (1, 2, 4, 8, 16)), np.array([64, 60]), 80
    each = np.arange(len(offers.job))
    one, used = np.zeros((n, len(each))), np.zeros((2, len(each)))
    one[offers.job, each], used[offers.gpu_type, each] = 1, offers.gpus
    whole = milp(
        offers.value - 1.1,
        integrality=np.ones(len(each), dtype=int),
        bounds=Bounds(0, 1),
        constraints=[LinearConstraint(one, 0, 1), LinearConstraint(used, 0, room)],
        options={"mip_rel_gap": 1e-6},
    )
    chosen = sia.choose(offers, room, n)
    taken = chosen[chosen >= 0]
    assert (np.bincount(offers.gpu_type[taken], offers.gpus[taken], 2) <= room).all()
    assert (offers.value[taken] - 1.1).sum() == pytest.approx(whole.fun, rel=1e-4)


@pytest.mark.parametrize("seed", range(6))
def test_leases_are_reserved_wherever_that_is_possible(seed):
    rng = np.random.default_rng(seed)
    for _ in range(6):
        jobs, leases = 3, 3
        gpus, room = rng.integers(1, 3, jobs), rng.integers(1, 4, leases)
        usable = rng.choice([0.0, 30.0, 60.0], (jobs, leases))
        need = rng.choice([30.0, 60.0, 90.0], jobs)
        possible, late = False, np.inf
        for bits in product([False, True], repeat=jobs * leases):
            held = np.array(bits).reshape(jobs, leases)
            if (
                ((held * usable).sum(axis=1) >= need).all()
                and (gpus @ held <= room).all()
                and not held[usable == 0].any()
            ):
                possible, late = True, min(late, (gpus[:, None] * held * np.arange(1, leases + 1)).sum())
        held = reserve(need, gpus, usable, room)
        assert (held is not None) == possible
        if held is not None:
            assert ((held * usable).sum(axis=1) >= need).all()
            assert (gpus @ held <= room).all()
            if reserve_in_order(need, gpus, usable, room) is None:
                assert (gpus @ held) @ np.arange(1, leases + 1) == late, "the fewest and earliest"


def test_no_lease_is_held_that_is_not_needed():
    # In order the first job takes half of what it needs of the first lease, and the second, which the other job needs.
    need, gpus, room = np.array([60.0, 60.0]), np.array([1, 1]), np.array([1, 1, 1])
    usable = np.array([[30.0, 60.0, 60.0], [0.0, 60.0, 0.0]])
    assert reserve_in_order(need, gpus, usable, room) is None
    assert reserve(need, gpus, usable, room).astype(int).tolist() == [[0, 0, 1], [0, 1, 0]]


@pytest.mark.parametrize(("choices", "solved"), [(400, True), (401, False)])
def test_leases_of_more_than_400_choices_are_reserved_in_order_only(choices, solved):
    # The same two jobs, and one that needs nothing and could use many leases.
    usable = np.zeros((3, choices - 4))
    usable[0, :3], usable[1, 1], usable[2] = [30.0, 60.0, 60.0], 60.0, 60.0
    held = reserve(np.array([60.0, 60.0, 0.0]), np.ones(3, int), usable, np.ones(choices - 4, int))
    assert (held is not None) == solved


def test_seconds_of_leases_by_hand():
    found = usable_seconds([0, 60, 120], [60, 120, 180], [150, 50], [10, 0])
    assert found.tolist() == [[50, 50, 20], [50, 0, 0]]


def test_random_pairs_are_dealt_the_gpus_in_equal_parts():
    def rates(unit):
        return np.full(2, 1.0) if len(unit) == 1 else np.full((2, 2), 0.9)

    sizes = {"a": 1, "b": 1, "c": 2}
    found = RandomPacking(Random(1)).shares(sizes, np.array([3, 1]), rates)
    assert {unit: row.tolist() for unit, row in found.items()} == {
        ("a",): [0.75, 0.25], ("b",): [0.75, 0.25], ("c",): [0.5, 1 / 6],
    }  # fmt: skip
    found = RandomPacking(Random(1)).shares(sizes, np.array([2, 1]), rates)
    assert sorted(map(sorted, found)) == [["a", "b"], ["c"]]
    assert found["c",].tolist() == [0.5, 0.25]
    five = RandomPacking(Random(3)).shares(dict.fromkeys("abcde", 1), np.array([2, 1]), rates)
    assert sorted(map(len, five)) in ([1, 2, 2], [1, 1, 1, 2])
    assert sorted("".join(map("".join, five))) == list("abcde")
