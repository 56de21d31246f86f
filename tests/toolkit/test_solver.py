"""Linear programs: hand-worked ones, and the same answers as through scipy."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy import optimize, sparse

from simsched.toolkit.programs import max_min, objectives, problem as solver, water_filling
from simsched.toolkit.programs.problem import ShareProblem


@pytest.mark.parametrize("rows_of", [np.array, sparse.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("method", ["auto", "highs-ipm"])
def test_the_optimum_and_its_prices(rows_of, method):
    rows = rows_of(np.array([[1.0, 1.0], [1.0, 0.0]]))
    best = solver.maximise(np.array([3.0, 2.0]), rows, np.array([4.0, 1.0]), method)
    assert best.value == pytest.approx(9)
    assert best.x.tolist() == pytest.approx([1, 3])
    assert best.prices.tolist() == pytest.approx([2, 1])


def test_rows_that_nothing_satisfies_have_no_optimum():
    assert solver.maximise(np.array([1.0]), np.array([[1.0]]), np.array([-1.0])) is None


def test_an_objective_without_bound_is_an_error():
    with pytest.raises(solver.SolverError):
        solver.maximise(np.array([1.0]), np.array([[-1.0]]), np.array([1.0]))


class ByScipy:
    """The same program through `scipy.optimize.linprog`, from the start each time."""

    def load(self, rows, bound, method="auto"):
        self.rows, self.bound = rows, np.array(bound)
        self.method = "highs-ds" if method == "auto" else method
        self.least = np.zeros(rows.shape[1])
        return self

    def keep_above(self, column, least):
        self.least[column] = least

    def maximise(self, objective):
        tight = dict.fromkeys(("primal_feasibility_tolerance", "dual_feasibility_tolerance"), 1e-10)
        least = [(low, None) for low in self.least]
        found = optimize.linprog(
            -objective, A_ub=self.rows, b_ub=self.bound, bounds=least, method=self.method, options=tight
        )
        return solver.Optimum(found.x, -found.fun, -found.ineqlin.marginals)


@pytest.mark.parametrize("method", ["auto", "highs-ipm"])
def test_a_program_is_solved_again_after_changes(method):
    rows = np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    program = solver.Program().load(rows, np.array([4.0, 1.0, 2.0]), method)
    assert program.maximise(np.array([1.0, 3.0])).x.tolist() == pytest.approx([1, 2])
    program.keep_above(0, 0.5)
    assert program.maximise(np.array([-1.0, 3.0])).x.tolist() == pytest.approx([0.5, 2])
    program.keep_above(0, 2.0)
    assert program.maximise(np.array([1.0, 1.0])) is None
    assert program.load(rows[:2], np.array([4.0, 1.0])).maximise(np.array([1.0, 3.0])).x.tolist() == [0, 4]


def test_a_small_program_is_solved_again_from_the_start_where_the_answer_is_not_exact():
    """What HiGHS finds from the previous solution may violate rows by more than its tolerance."""
    program = solver.Program().load(np.array([[1.0, 1.0]]), np.array([4.0]))
    real, called = program._solver, []

    class Watched:
        def __getattr__(self, name):
            called.append(name)
            return getattr(real, name)

        def getInfo(self):
            return SimpleNamespace(max_primal_infeasibility=violated)

    program._solver = Watched()
    violated = 1e-10
    assert program.maximise(np.array([1.0, 2.0])).value == pytest.approx(8)
    assert (called.count("run"), called.count("clearSolver")) == (1, 0)
    violated = 1.1e-10
    assert program.maximise(np.array([3.0, 2.0])).value == pytest.approx(12)
    assert (called.count("run"), called.count("clearSolver")) == (3, 1)
    assert real.getOptionValue("presolve")[1] == "choose", "with presolve"


@pytest.mark.parametrize("seed", range(3))
def test_shares_are_as_through_scipy_to_the_last_digit(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 6, 30)
    speed = rng.uniform(0.2, 3.0, (6, 3))
    problem = ShareProblem(speed[kinds], rng.choice([1, 2], 30), np.array([5, 6, 7]))
    direct = [max_min(problem), water_filling(problem)]
    for module in (objectives, solver):
        monkeypatch.setattr(module, "Program", ByScipy)
    scipys = [max_min(problem), water_filling(problem)]
    for shares, others in zip(direct, scipys, strict=True):
        assert (shares == others).all()
