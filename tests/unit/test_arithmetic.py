"""Functions whose results are the same bits on every processor."""

import math

import numpy as np
import pytest

from simsched import arithmetic
from simsched.agent import fit_loss

RNG = np.random.default_rng(3)
POSITIVE = np.concatenate([RNG.lognormal(0, 30, 3000), RNG.uniform(0.5, 2.0, 3000), [5e-324, 1e-310, 1.0, 1.7e308]])
EXPONENTS = np.concatenate([RNG.uniform(-745, 709.7, 3000), RNG.uniform(-1, 1, 3000), [0.0, -0.0, 709.78, -745.1]])


def units_apart(found, true):
    """How many units in the last place numbers are apart."""
    return np.abs(np.asarray(found) - true) / np.spacing(np.abs(true))


def test_logarithms_and_exponentials_are_those_of_the_c_library_to_a_unit_in_the_last_place():
    assert units_apart(arithmetic.log(POSITIVE), np.array([math.log(x) for x in POSITIVE])).max() <= 1
    assert units_apart(arithmetic.exp(EXPONENTS), np.array([math.exp(x) for x in EXPONENTS])).max() <= 1


def test_compiled_and_interpreted_agree_to_the_bit():
    assert [fit_loss.log(x) for x in POSITIVE] == arithmetic.log(POSITIVE).tolist()
    below = EXPONENTS[EXPONENTS <= 0]
    assert [fit_loss.exp(x) for x in below] == arithmetic.exp(below).tolist()


def test_the_ends_of_the_range():
    assert arithmetic.log([0.0, np.inf]).tolist() == [-np.inf, np.inf]
    assert np.isnan(arithmetic.log([-1.0, np.nan])).all()
    assert arithmetic.exp([-np.inf, -800.0, 0.0, 710.0, np.inf]).tolist() == [0.0, 0.0, 1.0, np.inf, np.inf]
    assert np.isnan(arithmetic.exp(np.nan))
    assert arithmetic.log(math.e) == pytest.approx(1.0)
