"""The partial allocation auction: three applications by enumeration, payments, and bids that lie."""

import math
from itertools import product
from math import inf, prod

import numpy as np
import pytest

from simsched.errors import InputError
from simsched.policy.auction import (
    best_by_enumeration,
    best_by_gain,
    bid_of,
    finish_time_ratio,
    least_fair,
    partial_allocation,
)


def linear(weight: float, gpus: int):
    return [weight * count for count in range(gpus + 1)]


def test_two_equal_bidders_share_and_pay_half():
    # Values n GPUs = n. Together 2 + 2; alone the other would have 4: each pays 2/4 and keeps one of its two.
    outcome = partial_allocation([linear(1, 4), linear(1, 4)], 4)
    assert outcome.won == (2, 2)
    assert outcome.payments == (0.5, 0.5)
    assert outcome.kept == (1, 1)
    assert outcome.left == 2


def test_who_takes_from_nobody_pays_nothing():
    # The second can use one GPU only, and there are enough for both.
    outcome = partial_allocation([[0.1, 1, 2, 3, 3], [0.1, 5, 5, 5, 5]], 4)
    assert outcome.won == (3, 1)
    assert outcome.payments == (1.0, 1.0)
    assert outcome.left == 0


def random_bids(rng, gpus):
    steps = -np.sort(-rng.random((3, gpus)), axis=1)
    return np.exp(np.cumsum(np.hstack([rng.normal(size=(3, 1)), steps]), axis=1)).tolist()


def test_three_applications_by_brute_force():
    rng = np.random.default_rng(5)
    for _ in range(30):
        gpus = int(rng.integers(1, 7))
        bids = random_bids(rng, gpus)
        counts = [c for c in product(range(gpus + 1), repeat=3) if sum(c) <= gpus]
        greatest = max(prod(bid[n] for bid, n in zip(bids, c, strict=True)) for c in counts)
        for best in (best_by_enumeration, best_by_gain):
            outcome = partial_allocation(bids, gpus, best)
            assert prod(bid[n] for bid, n in zip(bids, outcome.won, strict=True)) == pytest.approx(greatest)
            assert all(0 < share <= 1 for share in outcome.payments)
            assert sum(outcome.kept) + outcome.left == gpus


def test_no_false_bid_gains():
    # Values of the paper's form: v(n) = n, so that a share c of an allocation is worth c times its value.
    gpus, weights, factors = 6, (1.0, 2.0, 0.5), (0.25, 0.5, 2.0, 4.0)
    bids = [linear(weight, gpus) for weight in weights]
    honest = partial_allocation(bids, gpus)
    rng = np.random.default_rng(2)
    lies = [linear(factor, gpus) for factor in factors]
    lies += [np.concatenate([[0.0], np.cumsum(-np.sort(-rng.random(gpus)))]).tolist() for _ in range(20)]
    lies += [[0.0] * want + [1.0] * (gpus + 1 - want) for want in range(1, gpus + 1)]
    for i, weight in enumerate(weights):
        truth = weight * honest.payments[i] * honest.won[i]
        for lie in lies:
            outcome = partial_allocation([*bids[:i], lie, *bids[i + 1 :]], gpus)
            assert weight * outcome.payments[i] * outcome.won[i] <= truth + 1e-9


def test_bids_follow_from_finish_times():
    # 100 s old, 600 GPU-seconds left, 400 s in a cluster of its own: rho of 2 GPUs is (100 + 300) / 400.
    assert finish_time_ratio(100, 300, 400) == 1
    bid = bid_of(100, lambda gpus: 600 / gpus if gpus else inf, 400, 3)
    assert bid == (0.0, 400 / 700, 1.0, 400 / 300)


def test_gpus_are_offered_to_the_least_fair():
    ratios = {"a": 1.0, "b": 3.0, "c": 2.0, "d": 3.0, "e": 0.5}
    assert least_fair(ratios, 0.8) == ["b"]
    assert least_fair(ratios, 0.4) == ["b", "d", "c"]
    assert least_fair(ratios, 1.0) == ["b"]
    with pytest.raises(InputError, match=r"is 1.2"):
        least_fair(ratios, 1.2)


def test_a_job_that_needs_several_gpus_at_once_is_not_passed_over():
    # The first is worth nothing on one GPU, and the most of all on two; the others gain less for each.
    gang, one, flat = [0, 0, 8], [1, 2, 3], [1, 1.5, 2]
    assert best_by_gain([gang, one, flat], 3) == best_by_enumeration([gang, one, flat], 3) == (2, 1, 0)
    assert best_by_gain([[1, 1, 9], one], 2) == best_by_enumeration([[1, 1, 9], one], 2) == (2, 0)
    assert best_by_gain([[1, 1, 9], one], 1) == (0, 1), "the step of two does not fit"


@pytest.mark.parametrize("seed", range(20))
def test_steps_come_near_the_optimum_where_values_jump(seed: int):
    rng = np.random.default_rng(seed)
    bids = []
    for _ in range(3):
        least = int(rng.integers(1, 4))
        bids.append([0.0] * least + np.cumsum(rng.random(7 - least)).tolist())
    chosen, best = best_by_gain(bids, 6), best_by_enumeration(bids, 6)
    values = [[bid[count] for bid, count in zip(bids, counts, strict=True)] for counts in (chosen, best)]
    assert sum(chosen) <= 6
    positive = [sum(value > 0 for value in each) for each in values]
    assert positive[0] == positive[1]
    assert math.prod(v for v in values[0] if v) >= 0.4 * math.prod(v for v in values[1] if v)


def test_a_bid_that_falls_is_refused():
    with pytest.raises(InputError, match="bid 1"):
        partial_allocation([[0, 1], [1, 0.5]], 1)
