"""Ranks by paired logarithms: worked by hand, from Holm (1979) and tables of Student's t."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from simsched.errors import InputError
from simsched.results.league import (
    ContestPlace,
    Entry,
    LeagueTable,
    Standing,
    Standings,
    beside_the_bound,
    holm,
    joined,
    league_text,
    p_value,
    read_league_table,
    separated,
    standings,
    who_beats_whom,
)
from simsched.results.statistics import Estimate


def entry(contest, policy, values, **more):
    """Return an entry whose mean JCT by seed, from 1, is `values`."""
    by_seed = {str(seed): float(value) for seed, value in enumerate(values, start=1)}
    return Entry(contest, policy, values={"jct_mean_s": by_seed, "rho_jain": by_seed}, **more)


def league(*entries, seeds=3, bounds=None):
    names = dict.fromkeys(one.contest for one in entries)
    places = tuple(ContestPlace(*name.split("."), bounds=(bounds or {}).get(name, {})) for name in names)
    return LeagueTable("test", "", "", tuple(range(1, seeds + 1)), places, tuple(entries))


def test_holm_steps_down():
    # at 0.05: .01 <= .05/4, .012 <= .05/3, .03 > .05/2 and so .04 is not asked any more
    assert holm([0.03, 0.01, 0.04, 0.012]) == [False, True, False, True]
    assert holm([0.012, 0.0126, 0.05, 0.02]) == [True, True, True, True]
    assert holm([0.02, 0.02]) == [True, True]
    assert holm([]) == []
    assert holm([0.0125, 0.9, 0.9, 0.05]) == [True, False, False, False]  # at .05/4 itself


def test_p_values_are_those_of_the_paired_t_test():
    # mean 2, sd 1, n 4: t = 2 / (1 / 2) = 4 with 3 degrees of freedom; tables: t(.99, 3) = 4.541, t(.975, 3) = 3.182
    differences = np.array([2 - math.sqrt(1.5), 2.0, 2.0, 2 + math.sqrt(1.5)])
    assert 0.02 < p_value(differences) < 0.05
    # t(3) has the distribution function 1/2 + (x / sqrt(3) / (1 + x^2 / 3) + atan(x / sqrt(3))) / pi
    tail = 0.5 - (4 / math.sqrt(3) / (1 + 16 / 3) + math.atan(4 / math.sqrt(3))) / math.pi
    assert p_value(differences) == pytest.approx(2 * tail)
    assert p_value(np.zeros(4)) == 1
    assert p_value(np.full(4, 0.3)) == 0
    assert p_value(np.array([0.3])) == 1


def test_the_first_is_the_one_with_the_least_geometric_mean():
    # log2 means over both contests: a (0 + 3) / 2 = 1.5, b (1 + 1) / 2 = 1
    table = league(
        entry("w.low", "a", [1, 1, 1]), entry("w.high", "a", [8, 8, 8]),
        entry("w.low", "b", [2, 2, 2]), entry("w.high", "b", [2, 2, 2]),
        entry("w.low", "c", [9, 9, 9]),
    )  # fmt: skip
    found = standings(table, "non-clairvoyant, rigid", ("w.low", "w.high"))
    assert [row.policy for row in found.rows] == ["b", "a"]
    assert found.rows[1].mean == pytest.approx(2**1.5)
    assert found.rows[1].ratio.mean == pytest.approx(2**0.5)
    assert found.elsewhere == {"c": 1}
    assert found.apart == {("b", "a")}
    assert (found.rows[0].best, found.rows[0].worst, found.rows[1].best, found.rows[1].worst) == (1, 1, 2, 2)
    higher = standings(table, "non-clairvoyant, rigid", ("w.low", "w.high"), "rho_jain")
    assert [row.policy for row in higher.rows] == ["a", "b"]


def test_intervals_hold_for_all_pairs_at_once():
    # three policies make three pairs; logs of b / a are 1, 2, 3: mean 2, standard error 1 / sqrt(3); the quantile of
    # t with 2 degrees of freedom is (2p - 1) / sqrt(2 p (1 - p)), at p = 1 - .05 / 6
    table = league(*(entry("w.x", name, values) for name, values in
                     {"a": [1, 1, 1], "b": np.exp([1, 2, 3]), "c": np.exp([9, 9, 9])}.items()))  # fmt: skip
    found = standings(table, "non-clairvoyant, rigid", ("w.x",))
    p = 1 - 0.05 / 6
    half = (2 * p - 1) / math.sqrt(2 * p * (1 - p)) / math.sqrt(3)
    ratio = found.rows[1].ratio
    assert (ratio.mean, ratio.low, ratio.high) == pytest.approx((math.e**2, math.exp(2 - half), math.exp(2 + half)))


def test_what_is_not_separated_forms_a_clique():
    noise = np.array([0.0, 1.0, -1.0, 0.5, -0.5])
    logs = {"a": noise, "b": -noise, "c": noise + 30, "d": -noise + 30}
    assert separated(logs) == {("a", "c"), ("a", "d"), ("b", "c"), ("b", "d")}
    table = league(*(entry("w.x", name, np.exp(values)) for name, values in logs.items()), seeds=5)
    found = standings(table, "non-clairvoyant, rigid", ("w.x",))
    assert found.cliques == (("a", "b"), ("c", "d"))
    assert [(row.best, row.worst) for row in found.rows] == [(1, 2), (1, 2), (3, 4), (3, 4)]


def in_order(names, *apart):
    rows = tuple(Standing(name, 1.0, Estimate(1.0, 3), 1, 1, ()) for name in names)
    return Standings("class", "jct_mean_s", ("w.x",), rows, frozenset(apart), {})


@pytest.mark.parametrize(
    ("apart", "cliques"),
    [
        ((), ("abcd",)),
        (("ac", "ad", "bd"), ("ab", "bc", "cd")),
        (("ad", "bd", "cd"), ("abc",)),  # d stands alone, and ab and bc lie within abc
        (("ab", "ac", "ad"), ("bcd",)),
        (("ab", "ac", "ad", "bc", "bd", "cd"), ()),
        (("ac", "ad", "bc", "bd"), ("ab", "cd")),
    ],
)
def test_bars_are_the_longest_runs_without_two_that_are_apart(apart, cliques):
    found = in_order("abcd", *(tuple(pair) for pair in apart)).cliques
    assert found == tuple(tuple(names) for names in cliques)


def test_a_single_seed_ranks_without_intervals_and_a_wide_one_tells_nothing():
    table = league(entry("w.x", "a", [2]), entry("w.x", "b", [3]), seeds=1)
    found = standings(table, "non-clairvoyant, rigid", ("w.x",))
    assert [(row.policy, row.mean, row.ratio.mean) for row in found.rows] == [
        ("a", pytest.approx(2), 1.0), ("b", pytest.approx(3), pytest.approx(1.5)),
    ]  # fmt: skip
    assert {row.ratio.low for row in found.rows} == {None}
    assert found.apart == frozenset()
    # Two seeds: t(1) at 0.975 is tan(0.475 pi), and the standard error of logs m +- d is d.
    quantile = math.tan(0.475 * math.pi)
    for factor, told in ((999.9, True), (1000.5, False)):
        d = math.log(factor) / quantile
        pair = league(entry("w.x", "a", [1, 1]), entry("w.x", "b", [9 * math.exp(-d), 9 * math.exp(d)]), seeds=2)
        ratio = standings(pair, "non-clairvoyant, rigid", ("w.x",)).rows[1].ratio
        assert (ratio.mean, ratio.n) == (pytest.approx(9), 2)
        assert (ratio.low, ratio.high) == (pytest.approx((9 / factor, 9 * factor)) if told else (None, None))


def test_a_policy_alone_and_one_without_a_measure_have_their_places():
    table = league(entry("w.x", "a", [1, 2, 3]), entry("w.x", "nothing", [0, 1, 1]), entry("w.x", "less", [1, 1]))
    found = standings(table, "non-clairvoyant, rigid", ("w.x",))
    assert [(row.policy, row.best, row.worst, row.beaten) for row in found.rows] == [("a", 1, 1, ())]
    assert (found.rows[0].ratio.low, found.rows[0].ratio.high) == (1.0, 1.0)
    assert found.elsewhere == {"nothing": 1, "less": 1}


def test_the_cpu_time_of_policies_is_better_where_it_is_lower():
    costs = {"a": 9.0, "b": 2.0}
    table = league(*(replace(entry("w.x", name, []), values={"cpu_s": dict.fromkeys("123", cost)})
                     for name, cost in costs.items()))  # fmt: skip
    found = standings(table, "non-clairvoyant, rigid", ("w.x",), "cpu_s")
    assert [(row.policy, row.mean) for row in found.rows] == [("b", pytest.approx(2.0)), ("a", pytest.approx(9.0))]


def test_classes_do_not_meet():
    oracle = {"remaining_work": "oracle"}
    table = league(entry("w.x", "fifo", [3, 3, 3]), entry("w.x", "srtf", [1, 1, 1], knows=oracle),
                   entry("w.x", "pollux", [2, 2, 2], knows={"goodput": "learnt"}, rigid=False))  # fmt: skip
    assert [row.policy for row in standings(table, "non-clairvoyant, rigid", ("w.x",)).rows] == ["fifo"]
    assert [row.policy for row in standings(table, "oracle, rigid", ("w.x",)).rows] == ["srtf †"]
    assert [row.policy for row in standings(table, "learned or profiled, elastic", ("w.x",)).rows] == ["pollux"]


def test_wins_are_counted_where_both_ran():
    table = league(
        entry("w.x", "a", [1, 1, 1]), entry("w.x", "b", [2, 2, 2]), entry("w.x", "c", [3, 3, 3]),
        entry("w.y", "a", [1, 1, 1]), entry("w.y", "b", [1, 1, 1]),
        entry("w.z", "b", [1, 1, 1], reason="it cannot"),
    )  # fmt: skip
    found = who_beats_whom(table, "non-clairvoyant, rigid")
    assert found["a", "b"] == (1, 2)
    assert found["b", "a"] == (0, 2)
    assert found["a", "c"] == (1, 1)
    assert set(found) == {(one, other) for one in "abc" for other in "abc" if one != other}


def test_the_way_to_the_bound_is_measured_from_fifo():
    # FIFO 30 in all, the bound 10, srtf 15: half above the bound, and 15 of 20 on the way
    table = league(entry("w.x", "fifo", [10, 20]), entry("w.x", "srtf", [5, 10], knows={"w": "oracle"}), seeds=2,
                   bounds={"w.x": {"1": 4.0, "2": 6.0}})  # fmt: skip
    first, second = beside_the_bound(table)
    assert (first.policy, first.above, first.way) == ("fifo", pytest.approx(2.0), pytest.approx(0.0))
    assert (second.policy, second.above, second.way) == ("srtf †", pytest.approx(0.5), pytest.approx(0.75))


def test_without_fifo_or_with_fifo_at_the_bound_there_is_no_way_to_it():
    bounds = {"w.x": {"1": 10.0}, "w.y": {"1": 4.0}}
    table = league(
        entry("w.x", "fifo", [10]), entry("w.x", "a", [12]), entry("w.x", "none", []), entry("w.y", "a", [5, 9]),
        entry("w.z", "fifo", [3]), entry("w.z", "a", [2]), seeds=1, bounds=bounds,
    )  # fmt: skip
    assert [(one.contest, one.policy, one.above, one.way) for one in beside_the_bound(table)] == [
        ("w.x", "fifo", 0.0, None), ("w.x", "a", pytest.approx(0.2), None), ("w.y", "a", 0.25, None),
    ]  # fmt: skip


def test_error_rates_hold_for_all_pairs_at_once():
    """Of 400 tables of six equal policies at most 5 % (and chance) have any pair told apart."""
    rng = np.random.default_rng(29)
    wrong = sum(bool(separated({str(i): rng.standard_normal(8) for i in range(6)})) for _ in range(400))
    assert wrong <= 400 * 0.05 + 3 * math.sqrt(400 * 0.05 * 0.95)


def test_results_of_two_calls_are_joined_where_they_had_the_same_jobs():
    old = league(entry("w.x", "fifo", [3, 3, 3], jobs={"1": "a", "2": "b"}), bounds={"w.x": {"1": 1.0}})
    new = league(entry("w.x", "mine", [1, 1, 1], jobs={"1": "a", "2": "b"}))
    both = joined(new, old)
    assert both.policies == ("fifo", "mine")
    assert both.contests[0].bounds == {"1": 1.0}
    with pytest.raises(InputError, match=r"had other jobs at w\.x, seed 2"):
        joined(league(entry("w.x", "mine", [1, 1, 1], jobs={"2": "c"})), old)
    with pytest.raises(InputError, match=r"has another jct_mean_s of .fifo. at w\.x, seed 1"):
        joined(league(entry("w.x", "fifo", [1, 1, 1])), old)
    with pytest.raises(InputError, match="a policy called 'fifo' too"):
        joined(league(replace(entry("w.x", "fifo", [1, 1, 1]), policy_name="own.py:Fifo")), old)
    fewer = replace(league(entry("w.x", "mine", [1, 1], jobs={"1": "a"})), seeds=(1, 2))
    assert [set(one.values["jct_mean_s"]) for one in joined(fewer, old).entries] == [{"1", "2"}] * 2
    with pytest.raises(InputError, match="have 3 seeds; give no more"):
        joined(replace(new, seeds=(1, 2, 3, 4)), old)
    with pytest.raises(InputError, match="another league"):
        joined(replace(new, digest="else"), old)


def test_results_that_stand_beside_others_may_take_another_time_and_miss_other_contests():
    place = ContestPlace("w", "x")
    missing = {name: ContestPlace("w", name, missing="no data") for name in "yz"}
    costs = [replace(entry("w.x", "fifo", [3]), values={"jct_mean_s": {"1": 3.0}, "cpu_s": {"1": cost}})
             for cost in (1.0, 2.0)]  # fmt: skip
    own = LeagueTable("test", "", "", (1,), (place, missing["y"]), (costs[0],), ("tuned",))
    old = LeagueTable("test", "", "", (1,), (ContestPlace("w", "v"), place, missing["z"]), (costs[1],), ("older",))
    both = joined(own, old)
    assert [(one.name, one.missing) for one in both.contests] == [("w.v", ""), ("w.x", ""), ("w.y", "no data")]
    assert (both.entries, both.told) == ((costs[0],), ("older", "tuned"))
    failed = entry("w.x", "b", [], reason="it cannot")
    table = league(*costs[:1], failed, entry("w.v", "a", [1]))
    assert [[one.policy for one in table.ran(name)] for name in ("", "w.x", "w.v", "w.u")] == [
        ["fifo", "a"], ["fifo"], ["a"], [],
    ]  # fmt: skip


def test_a_league_is_read_as_it_was_written(tmp_path):
    table = league(entry("w.x", "srtf", [3, 4, 5], knows={"remaining_work": "oracle"}, becomes=("it is alone",)),
                   entry("w.x", "pollux", [], reason="it cannot"), bounds={"w.x": {"1": 1.0}})  # fmt: skip
    (tmp_path / "league.json").write_text(league_text(table))
    assert read_league_table(tmp_path) == table
    text = league_text(table).replace('"w.x"', '"w.y"', 1)
    (tmp_path / "league.json").write_text(text)
    with pytest.raises(InputError, match="an entry of the contest"):
        read_league_table(tmp_path)
