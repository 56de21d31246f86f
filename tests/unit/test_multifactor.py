"""Slurm's priority against a line of a real controller's log and its documentation's formulas."""

from __future__ import annotations

import math
import random

import pytest
from simsched_policies.production.slurm.multifactor import (
    HALF_LIFE_S,
    Account,
    AccountTree,
    Factors,
    Weights,
    age_factor,
    classic_fair_share,
    decayed,
    priority,
    relative_factor,
    size_factor,
)

from simsched.errors import InputError

#: What a controller printed of a job (gollum, University of Michigan, 2018-03-29): factors times weights.
PRINTED = {
    "age": ("0.251721", 16800, "4228.92"),
    "fair_share": ("0.042337", 25000, "1058.42"),
    "size": ("0.996510", 10000, "9965.10"),
    "partition": ("0.666667", 30000, "20000.00"),
}
USED, SHARES, DAMPENING, NICE = "0.111913", "0.002453", 10, 2500
#: Shares that are printed as 0.002453; the factor needs digits of them that are not (0.00245317 to 0.00245320).
HIDDEN_SHARES = 0.0024531867


def test_lines_of_a_real_log_to_every_printed_digit() -> None:
    assert f"{HIDDEN_SHARES:.6f}" == SHARES
    factors = Factors(
        age=age_factor(152_241),  # the only whole second of seven days that is printed so
        fair_share=classic_fair_share(float(USED), HIDDEN_SHARES, DAMPENING),
        size=size_factor(2, 573, favour_small=True),
        partition=relative_factor(2, {"this": 2, "highest": 3}),
    )
    weights = Weights(**{name: weight for name, (_, weight, _) in PRINTED.items()})
    for name, (factor, weight, product) in PRINTED.items():
        value = getattr(factors, name)
        assert (f"{value:.6f}", f"{value * weight:.2f}") == (factor, product), name
    whole = priority(factors, weights, nice=NICE)
    assert f"{whole:.2f}" == "32752.43"
    # Printed are 32752.49 and, without decimals, "+  0" for the other resources: less than a half, about 0.06.
    assert 0.04 < 32752.49 - whole < 0.07


def test_the_printed_digits_of_shares_do_not_suffice_for_the_printed_factor() -> None:
    used, shares, half = float(USED), float(SHARES), 5e-7  # printed figures are rounded to six digits
    assert f"{classic_fair_share(used, shares, DAMPENING):.6f}" == "0.042327"
    assert classic_fair_share(used - half, shares, DAMPENING) < 0.0423365
    assert classic_fair_share(used, shares - half, DAMPENING) < 0.042337 - half
    assert classic_fair_share(used, shares + half, DAMPENING) > 0.042337 + half


def test_factors_stay_between_nothing_and_one() -> None:
    assert age_factor(3.5 * 86400) == 0.5
    assert age_factor(1e9) == 1
    assert size_factor(8, 64) == 0.125
    assert size_factor(8, 64, favour_small=True) == 0.875
    assert relative_factor(20, {"low": 10, "normal": 20, "high": 30}) == pytest.approx(2 / 3, abs=1e-12)
    assert relative_factor(0, {"low": 0}) == 0
    assert classic_fair_share(0.1, 0) == 0


def test_half_life() -> None:
    for weeks in range(5):
        assert decayed(1000, weeks * HALF_LIFE_S) == pytest.approx(1000 / 2**weeks, abs=1e-9)
    tree = AccountTree((Account("a", user=True),), half_life_s=100)
    charges = [(0, 50.0), (30, 10.0), (250, 7.0), (300, 4.0)]
    for at, amount in charges:
        tree.advance(at)
        tree.charge("a", amount)
    tree.advance(500)
    assert tree.usage("a") == pytest.approx(sum(amount * 2 ** (-(500 - at) / 100) for at, amount in charges), abs=1e-9)


def example() -> AccountTree:
    tree = AccountTree(
        (
            Account("physics", shares=3),
            Account("biology", shares=1),
            Account("ann", "physics", 2, user=True),
            Account("bob", "physics", 1, user=True),
            Account("eve", "biology", 1, user=True),
            Account("dan", "biology", 1, user=True),
        )
    )
    for user, gpu_s in (("ann", 300.0), ("bob", 100.0), ("eve", 100.0)):
        tree.charge(user, gpu_s)
    return tree


def test_classic_fair_share_by_hand() -> None:
    tree = example()
    assert tree.normal_shares("ann") == pytest.approx(0.5, abs=1e-9)
    # physics: 400 of 500; ann: 0.6 + (0.8 - 0.6) * 2 / 3.
    assert tree.effective_usage("ann") == pytest.approx(0.6 + 0.2 * 2 / 3, abs=1e-9)
    assert tree.effective_usage("dan") == pytest.approx(0.1, abs=1e-9)
    assert tree.classic("ann") == pytest.approx(2 ** (-(0.6 + 0.2 * 2 / 3) / 0.5), abs=1e-9)


def test_fair_tree_by_hand() -> None:
    tree = example()
    # Level fair share: biology 0.25 / 0.2, physics 0.75 / 0.8; dan has no usage; bob (1/3) / (1/4), ann (2/3) / (3/4).
    assert tree.level_fair_share("biology") == pytest.approx(1.25, abs=1e-9)
    assert tree.level_fair_share("physics") == pytest.approx(0.9375, abs=1e-9)
    assert tree.level_fair_share("dan") == math.inf
    assert tree.fair_tree() == pytest.approx({"dan": 1.0, "eve": 0.75, "bob": 0.5, "ann": 0.25}, abs=1e-9)


def test_ties_share_a_rank_and_tied_accounts_are_merged() -> None:
    tree = AccountTree(
        (
            Account("x"),
            Account("y"),
            *(Account(name, parent, user=True) for name, parent in (("a", "x"), ("b", "x"), ("c", "y"))),
            Account("lone", user=True),
        )
    )
    assert tree.fair_tree() == {"lone": 1.0, "a": 0.75, "b": 0.75, "c": 0.75}
    tree.charge("a", 10)
    tree.charge("c", 10)
    # x and y still tie; b has used nothing, a all of x, c all of y.
    assert tree.fair_tree() == {"lone": 1.0, "b": 0.75, "c": 0.5, "a": 0.25}


@pytest.mark.parametrize("seed", range(5))
def test_nobody_of_a_better_account_stands_behind(seed: int) -> None:
    dice = random.Random(seed)
    groups = [Account(f"g{i}", shares=dice.randint(1, 9)) for i in range(4)]
    users = [Account(f"u{i}", f"g{i % 4}", dice.randint(1, 9), user=True) for i in range(16)]
    tree = AccountTree((*groups, *users))
    for user in users:
        tree.charge(user.name, dice.uniform(1, 100))
    got = tree.fair_tree()
    order = sorted(users, key=lambda user: (-tree.level_fair_share(user.parent), -tree.level_fair_share(user.name)))
    assert got == pytest.approx({user.name: (16 - place) / 16 for place, user in enumerate(order)}, abs=1e-9)


def test_mistakes_in_accounts_are_named() -> None:
    with pytest.raises(InputError, match="twice"):
        AccountTree((Account("a"), Account("a")))
    with pytest.raises(InputError, match="unknown"):
        AccountTree((Account("a", "b"),))
    with pytest.raises(InputError, match="ancestors"):
        AccountTree((Account("a", "b"), Account("b", "a")))
    tree = AccountTree((Account("a", user=True),))
    tree.advance(5)
    with pytest.raises(ValueError, match="asked after"):
        tree.advance(4)
