"""Functions whose results are the same bits on every processor."""

import math

import numpy as np
import pytest

from simsched import arithmetic, kernels

RNG = np.random.default_rng(3)
POSITIVE = np.concatenate([RNG.lognormal(0, 30, 3000), RNG.uniform(0.5, 2.0, 3000), [5e-324, 1e-310, 1.0, 1.7e308]])
EXPONENTS = np.concatenate([RNG.uniform(-745, 709.7, 3000), RNG.uniform(-1, 1, 3000), [0.0, -0.0, 709.78, -745.1]])


def units_apart(found, true):
    """How many units in the last place numbers are apart."""
    return np.abs(np.asarray(found) - true) / np.spacing(np.abs(true))


def test_logarithms_and_exponentials_are_those_of_the_c_library_to_a_unit_in_the_last_place():
    assert units_apart(arithmetic.log(POSITIVE), np.array([math.log(x) for x in POSITIVE])).max() <= 1
    assert units_apart(arithmetic.exp(EXPONENTS), np.array([math.exp(x) for x in EXPONENTS])).max() <= 1


def test_arrays_single_numbers_and_compiled_kernels_agree_to_the_bit():
    for name, given in (("log", POSITIVE), ("exp", EXPONENTS)):
        array, compiled = getattr(arithmetic, name), getattr(kernels, name)
        assert [array(x) for x in given.tolist()] == array(given).tolist()
        assert [compiled(x) for x in given] == array(given).tolist()


def test_powers_and_products():
    assert arithmetic.power([0.0, 1.0, 4.0], 0.5) == pytest.approx([0.0, 1.0, 2.0], rel=1e-15)
    assert arithmetic.power(3.0, 1) == 3.0
    assert arithmetic.power(3.0, 0) == 1.0
    assert arithmetic.dot([1.0, 2.0], [3.0, 4.0]) == 11.0
    assert arithmetic.times([[1.0, 2.0], [0.0, 1.0]], [3.0, 4.0]).tolist() == [11.0, 4.0]


def test_the_ends_of_the_range():
    assert arithmetic.log([0.0, np.inf]).tolist() == [-np.inf, np.inf]
    assert np.isnan(arithmetic.log([-1.0, np.nan])).all()
    assert arithmetic.exp([-np.inf, -800.0, 0.0, 710.0, np.inf]).tolist() == [0.0, 0.0, 1.0, np.inf, np.inf]
    assert np.isnan(arithmetic.exp(np.nan))
    assert arithmetic.log(math.e) == pytest.approx(1.0)


def test_an_ordered_sum_rounds_each_step_under_every_python() -> None:
    assert arithmetic.ordered_sum([1e16, 1.0, -1e16]) == 0.0
    assert arithmetic.ordered_sum([]) == 0.0
