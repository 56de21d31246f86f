"""Linear programs through scipy, and through highspy where it is installed: the same answers."""

import numpy as np
import pytest
from scipy import sparse

from simsched.programs import solver
from simsched.programs.max_min import max_min
from simsched.programs.problem import ShareProblem
from simsched.programs.water_filling import water_filling


@pytest.fixture(params=["scipy", "highspy"])
def through(request, monkeypatch):
    if request.param == "highspy":
        pytest.importorskip("highspy")
    else:
        monkeypatch.setattr(solver, "highspy", None)


@pytest.mark.usefixtures("through")
@pytest.mark.parametrize("rows_of", [np.array, sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("method", ["auto", "highs-ipm"])
def test_the_optimum_and_its_prices(rows_of, method):
    rows = rows_of(np.array([[1.0, 1.0], [1.0, 0.0]]))
    best = solver.maximise(np.array([3.0, 2.0]), rows, np.array([4.0, 1.0]), method)
    assert best.value == pytest.approx(9)
    assert best.x.tolist() == pytest.approx([1, 3])
    assert best.prices.tolist() == pytest.approx([2, 1])


@pytest.mark.usefixtures("through")
def test_rows_that_nothing_satisfies_have_no_optimum():
    assert solver.maximise(np.array([1.0]), np.array([[1.0]]), np.array([-1.0])) is None


@pytest.mark.usefixtures("through")
def test_an_objective_without_bound_is_an_error():
    with pytest.raises(solver.SolverError):
        solver.maximise(np.array([1.0]), np.array([[-1.0]]), np.array([1.0]))


@pytest.mark.parametrize("seed", range(3))
def test_shares_are_the_same_to_the_last_digit(seed, monkeypatch):
    pytest.importorskip("highspy")
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 6, 30)
    speed = rng.uniform(0.2, 3.0, (6, 3))
    problem = ShareProblem(speed[kinds], rng.choice([1, 2], 30), np.array([5, 6, 7]))
    direct = [max_min(problem), water_filling(problem)]
    monkeypatch.setattr(solver, "highspy", None)
    for shares, scipys in zip(direct, [max_min(problem), water_filling(problem)], strict=True):
        assert (shares == scipys).all()
