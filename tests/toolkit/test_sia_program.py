"""Sia's program against enumeration, the whole program and cases worked by hand."""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, milp

from simsched.toolkit.programs.sia import (
    Configuration,
    bootstrapped,
    choose,
    configurations,
    may_grow_to,
    offers_of,
    restart_factor,
    rigid,
    values,
)


def test_configurations_are_powers_of_two_in_a_node_and_then_whole_nodes():
    found = configurations({"t4": (3, 4), "a100": (1, 8)})
    assert [(c.nodes, c.gpus) for c in found if c.gpu_type == "t4"] == [(1, 1), (1, 2), (1, 4), (2, 8), (3, 12)]
    assert [(c.nodes, c.gpus) for c in found if c.gpu_type == "a100"] == [(1, 1), (1, 2), (1, 4), (1, 8)]
    assert configurations({"t4": (3, 4)}, most_gpus=8)[-1] == Configuration("t4", 2, 8)
    assert [c.gpus for c in configurations({"odd": (2, 6)})] == [1, 2, 4, 6, 12]


def test_a_rigid_job_has_one_configuration_of_each_type():
    found = rigid({"t4": (3, 4), "a100": (1, 4)}, 6)
    assert found == (Configuration("t4", 2, 6),)


def test_jobs_double_at_most():
    assert [may_grow_to(largest) for largest in (0, 1, 3, 48)] == [1, 2, 6, 64]


def test_the_restart_factor_is_the_share_of_life_left_for_training():
    assert restart_factor(20.0, 0, 30.0) == 1.0
    assert restart_factor(270.0, 2, 30.0) == pytest.approx(0.7)
    assert restart_factor(60.0, 3, 30.0) == 0.0


def test_an_unknown_type_borrows_the_scaling_of_a_known_one():
    # Four GPUs of B are three times one; one GPU of A is twice as fast.
    assert bootstrapped(30.0, 20.0, 10.0) == 60.0


def test_values_are_powers_of_normalised_goodputs():
    goodputs, gpus = np.array([5.0, 9.0, 20.0]), np.array([1, 2, 4])
    assert values(goodputs, gpus).tolist() == [1.0, 0.75, 0.5]
    # On the second one now; the others count for a quarter.
    assert values(goodputs, gpus, 1, 0.25).tolist() == [2.0, 0.75, 1.0]
    assert values(np.array([10.0, 20.0]), np.array([4, 8])).tolist() == [0.5, 0.35]
    assert values(goodputs, gpus, fairness=1.0).tolist() == [1.0, 1.8, 4.0]
    # A factor of nothing leaves the floor of 1e-4, whose power is 100.
    assert values(goodputs, gpus, 0, 0.0).tolist() == [1.0, 100.0, 100.0]


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


@pytest.mark.parametrize("seed", range(4))
def test_no_other_choice_is_better(seed):
    rng = np.random.default_rng(seed)
    offers, room, n = random_rows(rng, 5, (1, 2)), np.array([2, 3]), 5
    chosen = choose(offers, room, n)
    cost = offers.value - 1.1

    def total(picks):
        taken = [p for p in picks if p >= 0]
        used = np.bincount(offers.gpu_type[taken], offers.gpus[taken], 2)
        return cost[taken].sum() if (used <= room).all() else np.inf

    options = [[-1, *np.flatnonzero(offers.job == job)] for job in range(n)]
    assert total(chosen) == pytest.approx(min(total(picks) for picks in product(*options)), abs=1e-9)


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
