import math

import numpy as np
import pytest

from simsched.results.statistics import Estimate, estimate, paired_difference


def test_interval_of_student_t_by_hand():
    # mean 4, s = 2, n = 3; t(2) at 97.5 % is 4.30265 in any table
    found = estimate([2, 4, 6])
    assert found.mean == 4
    assert found.half_width == pytest.approx(4.30265 * 2 / math.sqrt(3), rel=1e-5)
    assert (found.low, found.high) == pytest.approx((4 - 4.96828, 4 + 4.96828), abs=1e-5)


def test_one_value_has_no_interval():
    assert estimate([5.0]) == Estimate(5.0, 1, None, None)
    assert estimate([5.0]).half_width is None


def test_nothing_cannot_be_averaged():
    with pytest.raises(ValueError, match="nothing to average"):
        estimate([])


def test_the_interval_covers_the_true_mean_as_often_as_it_says():
    rng = np.random.default_rng(11)
    found = [estimate(rng.normal(10, 3, size=5)) for _ in range(4000)]
    covered = sum(one.low <= 10 <= one.high for one in found) / len(found)
    assert covered == pytest.approx(0.95, abs=0.011)  # three standard errors


def test_differences_are_taken_seed_by_seed():
    # seeds differ by hundreds, the policies by 10 and 30: differences -10, -30 and relative -0.1, -0.1
    difference = paired_difference({1: 90.0, 2: 270.0, 4: 1.0}, {1: 100.0, 2: 300.0, 3: 5.0})
    assert difference.absolute.mean == -20
    assert difference.absolute.n == 2
    assert difference.absolute.half_width == pytest.approx(12.7062 * math.sqrt(200) / math.sqrt(2), rel=1e-5)
    assert difference.relative.mean == pytest.approx(-0.1)
    assert difference.relative.half_width == pytest.approx(0, abs=1e-12)


def test_without_a_common_seed_there_is_no_difference():
    assert paired_difference({1: 1.0}, {2: 1.0}) is None


def test_a_reference_of_zero_has_no_relative_difference():
    difference = paired_difference({1: 3.0, 2: 5.0}, {1: 0.0, 2: 1.0})
    assert difference.absolute.mean == 3.5
    assert difference.relative is None


def test_an_interval_is_cut_off_where_no_value_can_be():
    found = estimate([0.9, 1.0, 0.98], within=(0, 1))
    whole = estimate([0.9, 1.0, 0.98])
    assert whole.high > 1
    assert (found.low, found.high, found.half_width) == (whole.low, 1, pytest.approx(whole.half_width))
    assert estimate([0.0, 0.0, 0.1], within=(0, 1)).low == 0
    assert estimate([2.0, 2.1], within=(0, 1)).high == 2.05  # values that are out of range are not hidden
