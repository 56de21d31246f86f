"""The partial allocation auction: three applications by enumeration, payments, and bids that lie."""

import math
from itertools import product
from math import inf, prod

import numpy as np
import pytest

from simsched.errors import InputError
from simsched.toolkit.auction import (
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
        outcome = partial_allocation(bids, gpus)
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
    assert least_fair(ratios, 0.0) == ["b", "d", "c", "a", "e"], "everybody is offered them"
    for wrong in (1.2, -0.1):
        with pytest.raises(InputError, match=f"is {wrong}"):
            least_fair(ratios, wrong)


def worth(bids, counts):
    """Return what an allocation is worth: how many applications have any value, and the log of its product."""
    values = [bid[count] for bid, count in zip(bids, counts, strict=True)]
    return sum(value > 0 for value in values), sum(math.log(value) for value in values if value > 0)


def greatest(bids, gpus):
    """Return the largest worth by trying every allocation."""
    every = product(*(range(len(bid)) for bid in bids))
    return max(worth(bids, counts) for counts in every if sum(counts) <= gpus)


def bids_of(seed: int):
    """Return random bids and a number of GPUs; every other seed has jobs of several GPUs."""
    rng = np.random.default_rng(seed)
    gpus = int(rng.integers(0, 10))
    bids = []
    for _ in range(int(rng.integers(1, 6))):
        if seed % 2:  # a job of several GPUs, which is worth nothing on fewer
            bids.append([0.0] * int(rng.choice([1, 2, 4, 8])) + [float(10 ** rng.uniform(-6, 6))])
        else:  # values that rise, or do not, with some of the GPUs
            bids.append(np.sort(rng.integers(0, 4, int(rng.integers(1, 7))) * 10 ** rng.uniform(-3, 3)).tolist())
    return bids, gpus


def test_the_allocation_is_the_best_of_all():
    for seed in range(400):
        bids, gpus = bids_of(seed)
        found, best = best_by_gain(bids, gpus), greatest(bids, gpus)
        assert sum(found) <= gpus, seed
        assert worth(bids, found)[0] == best[0], seed
        assert worth(bids, found)[1] == pytest.approx(best[1], abs=1e-9), seed


def test_of_equal_products_the_one_of_fewer_gpus_and_then_of_the_first_applications_wins():
    assert best_by_gain([[0, 0, 1], [0, 1]], 2) == (0, 1), "one GPU does as well as two"
    assert best_by_gain([[0, 1], [0, 1]], 1) == (1, 0)
    assert best_by_gain([[1, 2, 4], [1, 2, 4]], 3) == (2, 1)
    assert best_by_gain([[0, 1, 1, 1]], 3) == (1,), "more are of no use"
    # The order in which logs are added up does not decide: 2 x 3 x 5 either way.
    assert best_by_gain([[1, 2], [1, 3], [1, 5], [1, 5], [1, 3], [1, 2]], 3) == (0, 1, 1, 1, 0, 0)
    assert best_by_gain([[1, 30], [1, 2], [1, 3], [1, 5], [1, 30]], 1) == (1, 0, 0, 0, 0)
    assert best_by_gain([[1, 6, 6], [1, 2, 6], [1, 3, 6]], 2) == (1, 0, 1)


def test_what_an_application_costs_the_others_counts_only_what_they_could_have():
    # The first takes the GPU that either of the others would have: it keeps nothing.
    assert partial_allocation([[0, 3], [0, 2], [0, 1]], 1).payments == (0.0, 1.0, 1.0)
    # Beside the first the second runs, without it the third would. One of the two waits either way: 2 in place of 3.
    outcome = partial_allocation([[0, 9], [0, 2], [0, 0, 3]], 2)
    assert outcome.won == (1, 1, 0)
    assert outcome.payments == (pytest.approx(2 / 3), 1.0, 1.0)


@pytest.mark.parametrize("wrong", [[1, 0.5], [], [-1, 1]])
def test_a_bid_that_falls_is_empty_or_negative_is_refused(wrong):
    with pytest.raises(InputError, match="bid 1"):
        partial_allocation([[0, 1], wrong], 1)


def test_values_are_compared_to_twelve_digits():
    # A millionth of a millionth more is more; a hundredth of that is a tie, which the first wins.
    assert best_by_gain([[1, 2], [1, 2 * (1 + 4e-12)]], 1) == (0, 1)
    assert best_by_gain([[1, 2], [1, 2 * (1 + 1e-14)]], 1) == (1, 0)
