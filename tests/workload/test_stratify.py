"""The even draw of classes: the same means as a plain draw, from fewer seeds."""

from math import comb

import numpy as np
import pytest

from simsched.workload.stratify import class_counts, stratified_sample

#: About Philly's jobs of class L, M, S and XL in the hours of the recipe.
SIZES = [1439, 4773, 24_500, 584]


@pytest.fixture(scope="module")
def counts():
    """Draw for 128 seeds; the sequence hits each of 128 equal parts of the unit interval once."""
    return np.array([class_counts(SIZES, 160, seed) for seed in range(1, 129)])


def test_counts_add_up_and_never_exceed_what_there_is():
    for seed in range(20):
        counts = class_counts([3, 200, 5], 100, seed)
        assert sum(counts) == 100
        assert all(0 <= count <= size for count, size in zip(counts, (3, 200, 5), strict=True))
    assert class_counts([7], 5, 3) == [5]
    assert class_counts([4, 6], 10, 3) == [4, 6]


def hypergeometric(size):
    """Return how likely 160 jobs, drawn without replacement, hold 0, 1, ... 160 of a class."""
    others = sum(SIZES) - size
    ways = [comb(size, held) * comb(others, 160 - held) for held in range(161)]
    return np.array([one / comb(sum(SIZES), 160) for one in ways])


def test_the_counts_of_each_class_follow_the_distribution_of_a_plain_draw(counts):
    for index, size in enumerate(SIZES):
        law = hypergeometric(size)
        mean = law @ np.arange(161)
        assert counts[:, index].mean() == pytest.approx(mean, abs=0.3)
        assert counts[:, index].std() == pytest.approx((law @ (np.arange(161) - mean) ** 2) ** 0.5, rel=0.1)
    xl = np.bincount(counts[:, 3], minlength=9)[:9] / len(counts)
    np.testing.assert_allclose(xl, hypergeometric(SIZES[3])[:9], atol=2 / 128)


def test_every_job_is_drawn_with_the_same_chance():
    classes = np.array(["S"] * 8 + ["M"] * 3 + ["L"])
    drawn = [stratified_sample(classes, 4, seed, seed).tolist() for seed in range(1, 257)]
    assert all(len(set(rows)) == 4 for rows in drawn)
    chance = np.bincount(np.concatenate(drawn), minlength=12) / len(drawn)
    # The standard error of a plain draw would be sqrt(1/3 x 2/3 / 256) = 0.03.
    np.testing.assert_allclose(chance, 4 / 12, atol=0.09)


def test_the_mean_of_eight_seeds_is_closer_to_the_expectation_than_chance_would_have_it(counts):
    xl = counts[:, 3]
    by_eight = xl.reshape(-1, 8).mean(axis=1)
    assert by_eight.std() < 0.35 * xl.std() / np.sqrt(8)


def test_a_mean_over_jobs_is_unbiased_whatever_scramble_is_used():
    # One class in ten is worth 100, the others 1 and 10: a seed's mean, averaged over scrambles, is the table's.
    sizes, worth = [10, 30, 60], np.array([100.0, 10.0, 1.0])
    means = [np.dot(class_counts(sizes, 20, 3, scramble), worth) / 20 for scramble in range(100)]
    truth = float(np.dot(sizes, worth) / 100)
    assert np.mean(means) == pytest.approx(truth, abs=3 * np.std(means) / np.sqrt(len(means)))


def test_the_same_seed_draws_the_same_rows():
    classes = np.arange(50) % 3
    first = stratified_sample(classes, 10, 4, 9).tolist()
    assert first == stratified_sample(classes, 10, 4, 9).tolist()
    assert first != stratified_sample(classes, 10, 4, 8).tolist()
