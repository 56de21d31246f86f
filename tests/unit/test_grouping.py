"""Matchings and groups against brute force."""

from functools import cache
from itertools import permutations
from typing import NamedTuple

import numpy as np
import pytest

from simsched.model.colocation.stages import group_s
from simsched.toolkit.grouping.groups import (
    Bucket,
    Rules,
    efficiency,
    merge_by_matching,
    merge_in_order,
    placement_order,
    split_slow,
    take,
)
from simsched.toolkit.grouping.matching import max_weight_matching


class Job(NamedTuple):
    name: str
    gpus: int = 1
    stages_s: tuple[float, float, float] = (1.0, 1.0, 1.0)


def names(groups):
    return ["".join(job.name for job in group) for group in groups]


def best_total(weights) -> float:
    everybody = (1 << len(weights)) - 1

    @cache
    def best(done: int) -> float:
        if done == everybody:
            return 0.0
        first = next(i for i in range(len(weights)) if not done >> i & 1)
        totals = [best(done | 1 << first)]
        for other in range(first + 1, len(weights)):
            if not done >> other & 1 and weights[first, other] > 0:
                totals.append(weights[first, other] + best(done | 1 << first | 1 << other))  # noqa: PERF401
        return max(totals)

    return best(0)


def random_graph(rng, size: int, *, whole: bool):
    weights = rng.integers(0, 6, (size, size)).astype(float) if whole else rng.random((size, size))
    weights *= rng.random((size, size)) < rng.random()
    upper = np.triu(weights, 1)
    return upper + upper.T


@pytest.mark.parametrize("whole", [True, False])
def test_matchings_have_the_greatest_total_weight(whole):
    rng = np.random.default_rng(7)
    for size in [*range(10), *[9, 10] * 60]:
        weights = random_graph(rng, size, whole=whole)
        pairs = max_weight_matching(weights)
        members = [index for pair in pairs for index in pair]
        assert len(members) == len(set(members))
        assert all(i < j and weights[i, j] > 0 for i, j in pairs)
        assert sum(weights[pair] for pair in pairs) == pytest.approx(best_total(weights), abs=1e-9)


def test_a_matching_of_many_is_at_least_as_heavy_as_every_swap_of_it():
    weights = random_graph(np.random.default_rng(3), 60, whole=False)
    pairs = max_weight_matching(weights)
    assert pairs == max_weight_matching(weights.copy())
    total = sum(weights[pair] for pair in pairs)
    for a, b in pairs:
        for c, d in pairs:
            if (a, b) != (c, d):
                kept = total - weights[a, b] - weights[c, d]
                assert kept + weights[a, c] + weights[b, d] <= total + 1e-9


def test_leaders_that_fit_bring_the_next_of_their_size():
    jobs = [Job("a", 2), Job("b", 4), Job("c", 2), Job("d", 2), Job("e", 2), Job("f", 2), Job("g", 4)]
    room = [6]

    def placed(gpus: int) -> bool:
        if gpus > room[0]:
            return False
        room[0] -= gpus
        return True

    taken = take(jobs, placed, most_jobs=2)
    # a takes 2 and brings c; b takes 4 and brings g; nothing is left for d, e and f.
    assert {gpus: ("".join(job.name for job in bucket.jobs), bucket.leaders) for gpus, bucket in taken.items()} == {
        2: ("ac", 1),
        4: ("bg", 1),
    }


def test_followers_are_merged_only_while_the_cluster_is_too_small():
    jobs = tuple(Job(name) for name in "abcdefg")
    buckets = {1: Bucket(jobs, 2)}
    assert names(merge_in_order(buckets, Rules(capacity=7))) == ["b", "c", "d", "a", "f", "g", "e"]
    assert names(merge_in_order(buckets, Rules(capacity=5))) == ["d", "abc", "f", "g", "e"]
    assert names(merge_in_order(buckets, Rules(capacity=1))) == ["abcd", "efg"]


def test_matched_jobs_are_merged_until_the_rest_fits():
    jobs = tuple(Job(name) for name in "abcd")
    value = {"ad": 3.0, "bc": 3.0, "adbc": 1.0, "bcad": 1.0}

    def weight(group):
        return value.get("".join(job.name for job in group), 0.5)

    buckets = {1: Bucket(jobs, 1)}
    assert names(merge_by_matching(buckets, Rules(capacity=1), weight)) == ["bcad"]
    assert names(merge_by_matching(buckets, Rules(capacity=2), weight)) == ["bc", "ad"]
    assert names(merge_by_matching(buckets, Rules(capacity=3), weight)) == ["bc", "a", "d"]
    assert names(merge_by_matching(buckets, Rules(capacity=1, most_jobs=2), weight)) == ["bc", "ad"]


def test_the_pairs_of_four_jobs_are_the_best_of_all_permutations():
    rng = np.random.default_rng(11)
    for _ in range(20):
        jobs = tuple(Job(name, 1, tuple(rng.integers(1, 20, 3).astype(float).tolist())) for name in "abcd")

        def weight(group):
            return efficiency([sum(job.stages_s) for job in group], group_s([job.stages_s for job in group]))

        groups = merge_by_matching({1: Bucket(jobs, 1)}, Rules(capacity=2, most_jobs=2), weight)
        totals = [weight((a, b)) + weight((c, d)) for a, b, c, d in permutations(jobs)]
        assert sum(map(weight, groups)) == pytest.approx(max(totals))


def test_groups_slower_than_one_after_the_other_are_undone():
    groups = [(Job("a"), Job("b")), (Job("c"), Job("d"))]
    slow = split_slow(groups, lambda group: 5.0 if group[0].name == "a" else 3.9, lambda job: 2.0)
    assert names(slow) == ["a", "b", "cd"]


def test_groups_are_kept_by_key_and_placed_by_size():
    a, b, c, d = Job("a", 1), Job("b", 4), Job("c", 1), Job("d", 2)
    keys = {"a": 3.0, "b": 2.0, "c": 1.0, "d": 9.0}
    room = [5]

    def fits(gpus: int) -> bool:
        room[0] -= gpus if gpus <= room[0] else 99
        return room[0] >= 0

    order = placement_order([a, b, c, d], [(a, c), (b,), (d,)], lambda job: keys[job.name], fits)
    assert names(order) == ["b", "ac"]
