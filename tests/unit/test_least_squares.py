"""Least squares without negative multiples, against scipy's."""

import numpy as np
import pytest
from scipy.optimize import nnls

from simsched.toolkit.least_squares import nonnegative


@pytest.mark.parametrize("seed", range(20))
def test_it_is_as_close_as_the_solver_of_scipy(seed):
    rng = np.random.default_rng(seed)
    columns = rng.normal(size=(rng.integers(1, 12), rng.integers(1, 5)))
    target = rng.normal(size=len(columns))
    found, (_, error) = nonnegative(columns, target), nnls(columns, target)
    assert (found >= 0).all()
    assert np.linalg.norm(columns @ found - target) == pytest.approx(error, rel=1e-9, abs=1e-12)


def test_by_hand():
    # 2 x (1, 0) and 3 x (0, 1); against the second column only the first helps; equal columns share as one.
    assert nonnegative(np.eye(2), np.array([2.0, 3.0])).tolist() == [2.0, 3.0]
    assert nonnegative(np.eye(2), np.array([2.0, -3.0])).tolist() == [2.0, 0.0]
    tiny = 2.0**-30  # columns of any length count
    assert nonnegative(tiny * np.eye(2), tiny * np.array([2.0, 3.0])).tolist() == [2.0, 3.0]
    assert nonnegative(np.ones((2, 2)), np.array([4.0, 4.0])).sum() == pytest.approx(4.0)
