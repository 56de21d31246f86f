"""Every program of shares and plans against a second solver."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simsched.toolkit.programs.objectives import makespan, max_min
from simsched.toolkit.programs.problem import ShareProblem
from tests.campaigns import played
from tests.validation.oracles import programs as written_out
from tests.validation.oracles.programs import check_feasible, draw, rates_of
from tests.validation.oracles.second_solver import COMPARED, problem_of

#: Twelve are enough for each degenerate feature.
SEEDS = played(range(36), range(12))


@pytest.mark.parametrize("name", COMPARED)
def test_a_program_reaches_the_optimum_of_a_second_solver(name: str) -> None:
    assert max(COMPARED[name](seed) for seed in SEEDS) <= 1e-6


@pytest.mark.parametrize("spread", [1e3, 1e6, 1e9])
def test_makespan_where_rates_differ_by_orders_of_magnitude(spread: float) -> None:
    """Two jobs of 100 steps on one GPU, one of them so many times faster: it takes its due and no more.

    By hand: rates are equal at s = 1 / (1 / 1 + 1 / spread).
    """
    rates = np.array([[1.0], [spread]])
    one = replace(draw(0), rates=rates, sizes=np.ones(2, int), gpus=np.array([1]), steps=np.full(2, 100.0))
    shares = makespan(ShareProblem(one.rates, one.sizes, one.gpus), one.steps)
    assert (rates * shares)[:, 0] == pytest.approx(1 / (1 + 1 / spread), rel=1e-8)


def test_what_is_not_water_filled_is_seen_to_be_short() -> None:
    short = []
    for seed in SEEDS:
        one = draw(seed)
        due = written_out.normal(one)
        rates = rates_of(one, max_min(problem_of(one)))
        short.append(written_out.beyond(one, rates / np.where(due > 0, due, 1.0)))
    assert max(short) > 0.1


def test_shares_beyond_the_gpus_are_seen() -> None:
    one = replace(draw(0), rates=np.ones((1, 1)), sizes=np.array([2]), gpus=np.array([1]), pairs=())
    check_feasible(one, np.array([[0.5]]))
    for wrong in (0.5 + 1e-8, -1e-12):
        with pytest.raises(AssertionError):
            check_feasible(one, np.array([[wrong]]))
