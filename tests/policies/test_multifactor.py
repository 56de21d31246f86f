"""Slurm's priority against a line of a real controller's log and its documentation's formulas."""

from __future__ import annotations

import math
import random

import pytest
from simsched_policies.production.slurm.options import Limits, Partition, Priority
from simsched_policies.production.slurm.usage import (
    HALF_LIFE_S,
    Account,
    AccountTree,
    Usage,
    decayed,
    relative_factor,
    size_factor,
)
from simsched_policies.production.slurm.waiting import Order, Waiting, WaitingJob

from simsched.errors import InputError
from simsched.model import JobRequest

#: What a controller printed of a job (gollum, University of Michigan, 2018-03-29): factors times weights.
PRINTED = {"age": ("0.251721", 16800, "4228.92"), "size": ("0.996510", 10000, "9965.10"),
           "partition": ("0.666667", 30000, "20000.00")}  # fmt: skip


@pytest.mark.parametrize("name", PRINTED)
def test_factors_of_a_real_log_to_every_printed_digit(name: str) -> None:
    factor, weight, product = PRINTED[name]
    partitions = {"this": Partition(priority=2), "highest": Partition(priority=3)}
    request = JobRequest("job", 0, 2, queue="this")
    waited_s = 152_241  # the only whole second of seven days that is printed so
    for counts, printed in ((1, f"{factor}"), (weight, product)):
        rules = Priority(**{name: counts}, favour_small=True)
        order = Order(rules, Limits(partitions=partitions), Usage({}, rules.half_life_s))
        waiting = Waiting()
        waiting.add(WaitingJob("job", 2, 60, 0, 0, 0.0, order.fixed(request, 573)))
        ((_, value),) = order.scores(waiting, waited_s)
        assert f"{value:.{len(printed.partition('.')[2])}f}" == printed


def test_factors_stay_between_nothing_and_one() -> None:
    assert size_factor(8, 64) == 0.125
    assert size_factor(8, 64, favour_small=True) == 0.875
    assert relative_factor(20, {"low": 10, "normal": 20, "high": 30}) == pytest.approx(2 / 3, abs=1e-12)
    assert relative_factor(0, {"low": 0}) == 0


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
