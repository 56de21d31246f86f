"""Matchings and groups against brute force."""

from functools import cache
from typing import NamedTuple

import numpy as np
import pytest

from simsched.toolkit.grouping.groups import (
    Bucket,
    Rules,
    efficiency,
    merge_by_matching,
    placement_order,
    take,
)
from simsched.toolkit.grouping.matching import exact_matching, max_weight_matching
from tests.validation.replays.muri.groups import merge_in_order, split_slow


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


#: Edges (a, b, weight) that make a search shrink cycles within cycles, relabel them, and expand them again: the cases
#: of van Rantwijk's `mwmatching`.
HARD = (
    "1-2 8, 1-3 9, 2-3 10, 3-4 7, 1-6 5, 4-5 6",
    "1-2 9, 1-3 8, 2-3 10, 1-4 5, 4-5 4, 1-6 3",
    "1-2 9, 1-3 8, 2-3 10, 1-4 5, 4-5 3, 3-6 4",
    "1-2 9, 1-3 9, 2-3 10, 2-4 8, 3-5 8, 4-5 10, 5-6 6",
    "1-2 10, 1-7 10, 2-3 12, 3-4 20, 3-5 20, 4-5 25, 5-6 10, 6-7 10, 7-8 8",
    "1-2 8, 1-3 8, 2-3 10, 2-4 12, 3-5 12, 4-5 14, 4-6 12, 5-7 12, 6-7 14, 7-8 12",
    "1-2 23, 1-5 22, 1-6 15, 2-3 25, 3-4 22, 4-5 25, 4-8 14, 5-7 13",
    "1-2 19, 1-3 20, 1-8 8, 2-3 25, 2-4 18, 3-5 18, 4-5 13, 4-7 7, 5-6 7",
    "1-2 45, 1-5 45, 2-3 50, 3-4 45, 4-5 50, 1-6 30, 3-9 35, 4-8 35, 5-7 26, 9-10 5",
    "1-2 45, 1-5 45, 2-3 50, 3-4 45, 4-5 50, 1-6 30, 3-9 35, 4-8 26, 5-7 40, 9-10 5",
    "1-2 45, 1-5 45, 2-3 50, 3-4 45, 4-5 50, 1-6 30, 3-9 35, 4-8 28, 5-7 26, 9-10 5",
    "1-2 45, 1-7 45, 2-3 50, 3-4 45, 4-5 95, 4-6 94, 5-6 94, 6-7 50, 1-8 30, 3-11 35, 5-9 36, 7-10 26, 11-12 5",
    "1-2 40, 1-3 40, 2-3 60, 2-4 55, 3-5 55, 4-5 50, 1-8 15, 5-7 30, 7-6 10, 8-10 10, 4-9 30",
    # Of thousands drawn at random, four that take ways through the search which those above do not.
    (
        "1-2 8, 1-3 5, 1-7 5, 1-9 8, 2-3 10, 2-7 8, 2-8 11, 2-9 1, 2-10 11, 3-6 3, 3-7 8, 3-8 11, 3-9 10, "
        "4-9 5, 4-10 4, 5-7 9, 5-9 3, 5-10 3, 6-10 8, 7-8 6, 7-9 5, 9-10 2"
    ),
    "1-4 7, 1-7 5, 1-9 6, 2-3 5, 2-4 5, 2-5 1, 3-7 3, 3-10 3, 4-9 1, 5-8 1, 6-7 5, 8-10 7, 9-10 4",
    (
        "1-2 6, 1-5 1, 1-7 3, 1-9 6, 1-10 9, 2-3 11, 2-4 7, 2-6 5, 2-7 3, 2-8 1, 2-9 1, 2-10 11, 2-11 1, "
        "3-4 8, 3-5 2, 3-8 6, 3-11 2, 4-5 8, 4-6 10, 4-7 7, 4-8 8, 4-9 9, 4-10 4, 4-11 11, 5-9 3, 5-11 11, "
        "6-7 9, 6-10 2, 7-8 1, 7-11 6, 8-9 6, 9-10 10, 9-11 6, 10-11 7"
    ),
    "1-2 45, 1-4 41, 1-5 51, 1-6 49, 2-5 41, 3-6 41, 5-6 53",
)


@pytest.mark.parametrize("edges", HARD)
def test_cycles_within_cycles_are_matched_whatever_the_order_of_the_vertices(edges):
    rng = np.random.default_rng(1)
    found = [(*map(int, ends.split("-")), float(weight)) for ends, weight in map(str.split, edges.split(", "))]
    size = max(max(a, b) for a, b, _ in found)
    weights = np.zeros((size, size))
    for a, b, weight in found:
        weights[a - 1, b - 1] = weights[b - 1, a - 1] = weight
    best = best_total(weights)
    for order in (np.arange(size), np.arange(size)[::-1], *(rng.permutation(size) for _ in range(4))):
        turned = weights[np.ix_(order, order)]
        for match, unit in ((max_weight_matching, 1), (exact_matching, 128)):
            pairs = match(turned / unit)
            assert sum(turned[pair] for pair in pairs) == best
            assert len({index for pair in pairs for index in pair}) == 2 * len(pairs)


def test_matchings_of_sparse_graphs_have_the_greatest_total_weight():
    rng = np.random.default_rng(5)
    for _ in range(120):
        size = int(rng.integers(10, 17))
        weights = np.triu(rng.integers(1, 5, (size, size)) * (rng.random((size, size)) < 3 / size), 1).astype(float)
        weights += weights.T
        assert sum(weights[pair] for pair in max_weight_matching(weights)) == best_total(weights)


def test_entries_that_are_no_edges():
    assert max_weight_matching(np.zeros((0, 0))) == exact_matching(np.zeros((0, 0))) == ()
    assert max_weight_matching(-np.ones((2, 2))) == exact_matching(np.zeros((2, 2))) == ()
    # What stands on the diagonal is no edge, however much it weighs.
    weights = np.array([[0.9, 0.1, 0.2], [0.1, 0.9, -1.0], [0.2, -1.0, 0.9]])
    assert max_weight_matching(weights) == exact_matching(weights) == ((0, 2),)


def test_an_exact_matching_sees_the_last_bit():
    weights = np.full((4, 4), 0.5)
    for heavier in (((0, 1), (2, 3)), ((0, 2), (1, 3)), ((0, 3), (1, 2))):
        tilted = weights.copy()
        tilted[heavier[0]] = tilted[heavier[0][::-1]] = np.nextafter(0.5, 1)
        assert exact_matching(tilted) == heavier


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


def test_as_many_as_four_share_and_a_job_may_be_left_alone():
    def always(gpus: int) -> bool:
        return True

    def once(gpus: int) -> bool:
        tried.append(gpus)
        return len(tried) == 1

    tried: list[int] = []
    jobs = [Job(name) for name in "abcdef"]
    assert take(jobs, always) == {1: Bucket(tuple(jobs), 2)}
    assert take(jobs, once) == {1: Bucket(tuple(jobs[:4]), 1)}
    assert len(tried) == 3, "the fifth and the sixth are tried as well"
    assert Rules(1) == Rules(1, most_jobs=4, passes=4, both_ways=False)
    assert efficiency([1.0, 2.0, 3.0], 2.0) == 0.75


def test_a_matching_may_be_asked_for_both_ways_and_by_kinds():
    jobs, weighed = tuple(Job(name) for name in "aabb"), []

    def weight(group):
        weighed.append("".join(job.name for job in group))
        return {"ab": 1.0, "ba": 2.0, "aa": 0.5, "bb": 0.25}[weighed[-1]]

    def matched(weights):
        seen.append(weights.tolist())
        return ((0, 2), (3, 1))

    seen: list[list[list[float]]] = []
    for both_ways in (False, True):
        rules = Rules(2, most_jobs=2, both_ways=both_ways)
        merged = merge_by_matching({1: Bucket(jobs, 1)}, rules, weight, matched, lambda group: group[0].name)
        assert names(merged) == ["ab", "ab"]
    assert sorted(weighed) == sorted(["aa", "ab", "ba", "bb"] * 2), "each pair of kinds once"
    assert seen[0] == [[0, 0.5, 1, 1], [0.5, 0, 1, 1], [1, 1, 0, 0.25], [1, 1, 0.25, 0]]
    assert seen[1] == [[0, 0.5, 1, 1], [0.5, 0, 1, 1], [2, 2, 0, 0.25], [2, 2, 0.25, 0]]


def test_followers_are_merged_only_while_the_cluster_is_too_small():
    jobs = tuple(Job(name) for name in "abcdefg")
    buckets = {1: Bucket(jobs, 2)}
    assert names(merge_in_order(buckets, Rules(capacity=7))) == ["b", "c", "d", "a", "f", "g", "e"]
    assert names(merge_in_order(buckets, Rules(capacity=5))) == ["d", "abc", "f", "g", "e"]
    assert names(merge_in_order(buckets, Rules(capacity=1))) == ["abcd", "efg"]


def test_matching_ends_once_all_fit():
    asked = []

    def match(weights):
        asked.append(len(weights))
        return max_weight_matching(weights)

    buckets = {1: Bucket(tuple(Job(name) for name in "abcd"), 1)}
    merge_by_matching(buckets, Rules(capacity=2), lambda group: 1.0, match)
    assert asked == [4]
    merge_by_matching(buckets, Rules(capacity=1), lambda group: 1.0, match)
    assert asked == [4, 4, 2]
    merge_by_matching(buckets, Rules(capacity=0), lambda group: 1.0, match)
    assert asked == [4, 4, 2, 4, 2], "one group of four has nobody to merge with"


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


def test_groups_slower_than_one_after_the_other_are_undone():
    groups = [(Job("a"), Job("b")), (Job("c"), Job("d"))]
    slow = split_slow(groups, lambda group: 5.0 if group[0].name == "a" else 4.0, lambda job: 2.0)
    assert names(slow) == ["a", "b", "cd"], "a group that takes as long as its members stays"


def test_groups_are_kept_by_key_and_placed_by_size():
    a, b, c, d = Job("a", 1), Job("b", 4), Job("c", 1), Job("d", 2)
    keys = {"a": 3.0, "b": 2.0, "c": 1.0, "d": 9.0}
    room = [5]

    def fits(gpus: int) -> bool:
        room[0] -= gpus if gpus <= room[0] else 99
        return room[0] >= 0

    order = placement_order([a, b, c, d], [(a, c), (b,), (d,)], lambda job: keys[job.name], fits)
    assert names(order) == ["b", "ac"]
