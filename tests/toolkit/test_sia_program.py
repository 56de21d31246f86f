"""Sia's program against enumeration, the whole program and cases worked by hand."""

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

from simsched.toolkit.programs.sia import (
    choose,
    offers_of,
)


def test_everybody_is_served_before_anybody_grows():
    # Being served is worth 0.6 to each of three jobs, a second GPU at most 0.4: the fourth goes to who gains most.
    rows = [([0, 0], [1, 2], [1.0, 0.7]), ([0, 0], [1, 2], [1.0, 0.6]), ([0, 0], [1, 2], [1.0, 0.8])]
    offers = offers_of(rows)
    chosen = choose(offers, np.array([4]), 3, penalty=1.6)
    assert offers.gpus[chosen].tolist() == [1, 2, 1]


def test_the_faster_type_goes_to_the_job_that_gains_most():
    rows = [([0, 1], [1, 1], [1.0, 0.9]), ([0, 1], [1, 1], [1.0, 0.5])]
    chosen = choose(offers_of(rows), np.array([1, 1]), 2)
    assert chosen.tolist() == [0, 3]


def test_a_job_in_the_middle_of_a_restart_keeps_what_it_has():
    rows = [([0], [2], [3.0]), ([0, 0], [1, 2], [1.0, 0.1])]
    assert choose(offers_of(rows), np.array([2]), 2).tolist() == [-1, 2]
    assert choose(offers_of(rows), np.array([2]), 2, must=np.array([True, False])).tolist() == [0, -1]
    with pytest.raises(ValueError, match="do not fit"):
        choose(offers_of(rows), np.array([1]), 2, must=np.array([True, False]))


def test_weights_and_positive_exponents():
    rows = [([0], [1], [0.9]), ([0], [1], [0.8])]
    assert choose(offers_of(rows), np.array([1]), 2).tolist() == [-1, 1]
    # Heavier jobs have more to lose by being badly served, so the light one is.
    assert choose(offers_of(rows), np.array([1]), 2, weights=np.array([0.5, 1.0])).tolist() == [0, -1]
    assert choose(offers_of(rows), np.array([1]), 2, fairness=1.0).tolist() == [0, -1]


def test_jobs_without_offers_and_no_jobs():
    assert choose(offers_of([([], [], []), ([0], [1], [1.0])]), np.array([1]), 2).tolist() == [-1, 0]
    assert choose(offers_of([]), np.array([1]), 0).tolist() == []


def random_rows(rng, jobs, sizes):
    rows = []
    for _ in range(jobs):
        row = [(t, g) for t in range(2) for g in sizes]
        rows.append(([t for t, _ in row], [g for _, g in row], np.round(rng.uniform(0.05, 1.0, len(row)), 2).tolist()))
    return offers_of(rows)


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
    chosen = choose(offers, room, n)
    taken = chosen[chosen >= 0]
    assert (np.bincount(offers.gpu_type[taken], offers.gpus[taken], 2) <= room).all()
    assert (offers.value[taken] - 1.1).sum() == pytest.approx(whole.fun, rel=1e-4)
