"""Seeds are added until a comparison is decided, by intervals that hold at every look; and planned from a pilot."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special

from simsched.errors import InputError
from simsched.results.compare import (
    ALIKE,
    HIGHER,
    LOWER,
    OPEN,
    decide,
    kept,
    looks,
    plan,
    seeds_needed,
    undecided,
)
from simsched.results.reader import Cell, Run


def run_of(**values):
    """Return a run with the mean JCT of each policy by seed; the first is the reference."""
    cells = [
        Cell(None, {}, {"jct_mean_s": float(value)}, policy, policy, seed)
        for policy, by_seed in values.items()
        for seed, value in enumerate(by_seed, start=1)
    ]
    return Run(None, "x", tuple(cells), {}, {})


def test_looks_double_up_to_the_budget() -> None:
    assert looks(64) == (8, 16, 32, 64)
    assert looks(50) == (8, 16, 32, 50)
    assert looks(8) == (8,)
    assert looks(3) == (3,)


def test_a_comparison_is_decided_by_its_interval() -> None:
    ones = np.ones(8)
    noise = np.exp(np.array([-1, 1, -1, 1, -1, 1, -1, 1]) / 100)
    run = run_of(
        a=ones, b=ones * noise * 2, c=ones * noise / 2, d=ones * noise ** (1 / 10), e=np.exp(8 * np.log(noise) * 10)
    )
    assert [one.verdict for one in decide(run, "jct_mean_s", (8,), 0.02)] == [HIGHER, LOWER, ALIKE, OPEN]
    assert [one.reference for one in decide(run, "jct_mean_h", (8,), 0.02)] == ["a"] * 4


def test_intervals_share_the_error_between_comparisons_and_looks() -> None:
    # two comparisons, three looks: confidence 1 - .05 / 6; logs 1, 2, 3 have mean 2 and standard error 1 / sqrt(3)
    run = run_of(a=[1, 1, 1], b=np.exp([1, 2, 3]), c=[1, 2, 3])
    found = decide(run, "jct_mean_s", (3, 6, 12), 0.02)[0].ratio
    half = special.stdtrit(2, 1 - 0.05 / 12) / math.sqrt(3)
    assert (found.low, found.high) == pytest.approx((math.exp(2 - half), math.exp(2 + half)))


def test_what_is_decided_stays_so() -> None:
    early = decide(run_of(a=[1, 1], b=[2.0, 2.0000001]), "jct_mean_s", (2,), 0.02)
    late = decide(run_of(a=[1, 1], b=[0.2, 20]), "jct_mean_s", (2,), 0.02)
    assert [one.verdict for one in early] == [HIGHER]
    assert list(undecided(late)) == ["b"]
    assert undecided(kept(early, late)) == {}


def test_looking_again_costs_no_error() -> None:
    """Of 300 comparisons of equals, looked at up to four times, at most 5 % (and chance) are ever told apart."""
    rng = np.random.default_rng(29)
    planned, wrong = looks(64), 0
    for _ in range(300):
        logs = rng.standard_normal(64)
        told = False
        for count in planned:
            part = run_of(a=np.ones(count), b=np.exp(logs[:count]))
            told |= decide(part, "jct_mean_s", planned, 0.0)[0].verdict in (LOWER, HIGHER)
        wrong += told
    assert wrong <= 300 * 0.05 + 3 * math.sqrt(300 * 0.05 * 0.95)


def test_the_plan_finds_what_it_promises() -> None:
    """With so many seeds a difference of that size is found with the chance that was asked for."""
    spread, difference, pilot = 0.2, 0.05, 10_000  # so large a pilot knows the spread
    needed = seeds_needed(spread, pilot, difference, 0.05)
    # the power of the t-test, from the noncentral distribution (Lehmann, Testing Statistical Hypotheses)
    shift = math.sqrt(needed) * math.log(1.05) / spread
    missed = special.nctdtr(needed - 1, shift, special.stdtrit(needed - 1, 0.975))
    assert 1 - missed == pytest.approx(0.8, abs=0.015)
    assert seeds_needed(spread, 8, difference, 0.05) > needed, "a small pilot may have been lucky"


def test_the_bound_of_a_pilot_is_that_of_the_chi_square() -> None:
    # of 8 seeds the spread is at most s sqrt(7 / 3.822) in 80 % of all pilots: chi-square with 7 degrees, lower 20 %
    assert seeds_needed(0.1, 8, 0.05, 0.05) == seeds_needed(0.1 * math.sqrt(7 / 3.82232), 10**9, 0.05, 0.05)


def test_a_pilot_says_how_many_seeds_are_needed() -> None:
    run = run_of(a=[1, 1, 1, 1], b=np.exp([0.1, 0.3, 0.2, 0.2]), c=[1, 1, 1, 0])
    b, c = plan(run, "jct_mean_s", 0.05)
    assert (b.seeds, b.spread) == (4, pytest.approx(np.std([0.1, 0.3, 0.2, 0.2], ddof=1)))
    assert b.needed == seeds_needed(b.spread, 4, 0.05, 0.025)
    assert (c.spread, c.needed) == (None, None)


@pytest.mark.parametrize("spread", [1e-9, 0.03, 0.09, 0.2, 0.5, 0.8])
def test_no_fewer_seeds_are_planned_than_are_needed(spread: float) -> None:
    # sqrt(n) log(1.1) against the bound of the spread of 5 seeds times the quantiles, for every n in turn
    bound = spread * math.sqrt(4 / special.chdtri(4, 0.8))
    n = np.arange(2, 2000)
    enough = np.sqrt(n) * math.log(1.1) >= bound * (special.stdtrit(n - 1, 1 - 0.03 / 2) + special.stdtrit(n - 1, 0.8))
    assert seeds_needed(spread, 5, 0.1, 0.03) == n[enough][0]


def test_a_spread_beyond_all_plans_needs_no_number() -> None:
    assert seeds_needed(5.0, 5, 0.1, 0.05) is not None
    assert seeds_needed(100.0, 5, 0.01, 0.05) is None


def test_a_pilot_is_of_ratios_to_the_reference_above_zero() -> None:
    run = run_of(a=[4, 2, 4], b=[2, 0.5, 2], c=[0.5, 0, 2], d=[4, 2])
    b, c, d = plan(run, "jct_mean_s", 0.05)
    assert b.spread == pytest.approx(math.log(2) / math.sqrt(3))  # logs of 1/2, 1/4, 1/2
    assert (c.seeds, c.spread, c.needed) == (3, None, None)
    assert (d.seeds, d.spread, d.needed) == (2, 0.0, 2)


def test_nothing_is_decided_of_one_policy() -> None:
    with pytest.raises(InputError, match="compares nothing with 'a'"):
        decide(run_of(a=[1, 2]), "jct_mean_s", (2,), 0.02)
