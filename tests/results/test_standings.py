"""Shares of the way to the bound and ranks by paired logarithms: worked by hand, from Holm (1979) and Student's t."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from simsched.errors import InputError
from simsched.report.league import share_text, standings_table
from simsched.results.league import (
    ContestPlace,
    Entry,
    LeagueTable,
    cells_digest,
    holm,
    joined,
    league_text,
    p_value,
    read_league_table,
    separated,
    share_of_way,
    standings,
)
from simsched.results.statistics import Estimate

ORACLE = {"remaining_work": "oracle"}


def entry(contest, policy, values, **more):
    """Return an entry whose mean JCT by seed, from 1, is `values`."""
    by_seed = {str(seed): float(value) for seed, value in enumerate(values, start=1)}
    given = {"values": {"jct_mean_s": by_seed, "restarts": by_seed}, "timing": {"decision_p99_s": by_seed}}
    return Entry(contest, policy, **{**given, **more})


def league(*entries, seeds=3, bound=1.0):
    names = dict.fromkeys(one.contest for one in entries)
    at = {str(seed): bound for seed in range(1, seeds + 1)}
    places = tuple(ContestPlace(name, bounds=at if bound else {}) for name in names)
    return LeagueTable("test", "closed", "", "", tuple(range(1, seeds + 1)), places, tuple(entries))


@pytest.mark.parametrize(
    ("own", "first", "bound", "share"),
    [
        ([10], [30], [10], 1),
        ([30], [30], [10], 0),
        ([15], [30], [10], 0.75),
        ([50], [30], [10], -1),  # worse than FIFO by as much as FIFO is above the bound
        ([2, 8], [4, 16], [1, 1], (8 - 4) / (8 - 1)),  # geometric means 4 and 8
        ([4, 1], [4, 4], [1, 1], (4 - 2) / 3),
        ([6, 2], [6, 6], [3, 2], (6**0.5 - 2**0.5) / (6**0.5 - 1)),  # ratios 2 and 1, of 2 and 3
    ],
)
def test_the_share_of_the_way_is_that_of_geometric_means(own, first, bound, share):
    assert share_of_way(own, first, bound) == pytest.approx(share)


def test_there_is_no_way_where_fifo_is_at_the_bound():
    assert math.isnan(share_of_way([2.0], [1.0], [1.0]))


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


def test_error_rates_hold_for_all_pairs_at_once():
    """Of 400 tables of six equal policies at most 5 % (and chance) have any pair told apart."""
    rng = np.random.default_rng(29)
    wrong = sum(bool(separated({str(i): rng.standard_normal(8) for i in range(6)})) for _ in range(400))
    assert wrong <= 400 * 0.05 + 3 * math.sqrt(400 * 0.05 * 0.95)


def test_ranks_are_groups_that_are_separated():
    noise = np.array([0.0, 1.0, -1.0, 0.5, -0.5]) / 50
    logs = {"a": noise + 1, "b": 1 - noise, "fifo": noise + 2, "d": 2 - noise}
    table = league(*(entry("w", name, np.exp(values)) for name, values in logs.items()), seeds=5)
    found = standings(table)
    assert found.apart == {("a", "fifo"), ("a", "d"), ("b", "fifo"), ("b", "d")}
    ranks = {row.policy: (row.best, row.worst) for row in found.rows}
    assert ranks == {"a": (1, 2), "b": (1, 2), "fifo": (3, 4), "d": (3, 4)}
    shown = {row[0]: row[1] for row in standings_table(table).rows}
    assert shown == {"a": "1 to 2", "b": "1 to 2", "fifo": "3 to 4", "d": "3 to 4"}


def test_the_interval_is_students_over_one_share_for_each_seed():
    table = league(entry("w", "fifo", [3, 5, 9]), entry("w", "a", [2, 2, 3]))
    row = standings(table).rows[0]
    assert (row.policy, row.shares) == ("a", pytest.approx((0.5, 0.75, 0.75)))
    # t with 2 degrees of freedom at 0.975 is (2p - 1) / sqrt(2 p (1 - p)); the standard error is s / sqrt(3)
    half = 0.95 / math.sqrt(2 * 0.975 * 0.025) * np.std([0.5, 0.75, 0.75], ddof=1) / math.sqrt(3)
    assert (row.share.low, row.share.high) == pytest.approx((2 / 3 - half, 2 / 3 + half))


def test_oracles_have_a_table_of_their_own_and_who_ran_few_contests_is_ranked_there():
    table = league(
        entry("w", "fifo", [3, 3, 3]), entry("v", "fifo", [4, 4, 4]), entry("w", "srtf", [1, 1, 1], knows=ORACLE),
        entry("v", "srtf", [1, 1, 1], knows=ORACLE), entry("w", "few", [2, 2, 2]),
        entry("v", "few", [], reason="it cannot"),
    )  # fmt: skip
    assert [row.policy for row in standings(table).rows] == ["fifo"]
    assert standings(table).elsewhere == {"few": 1}
    assert [row.policy for row in standings(table, ("w",)).rows] == ["few", "fifo"]
    assert [(row.policy, row.share.mean) for row in standings(table, oracles=True).rows] == [("srtf †", 1.0)]
    assert "Ranked only in the contests that they ran: few (1)." in standings_table(table).notes


def test_nothing_is_ranked_where_nothing_is_separated_and_one_seed_never_looks_exact():
    table = league(entry("w", "fifo", [3]), entry("w", "a", [2]), seeds=1)
    shares = [(row.share.mean, row.share.low) for row in standings(table).rows]
    assert shares == [(pytest.approx(0.5), None), (0.0, None)]
    shown = standings_table(table)
    assert {row[1] for row in shown.rows} == {"-"}
    assert shown.rows[0][2] == "about 0.5 (no interval)"
    assert share_text(Estimate(0.5, 3, 0.4, 0.6)) == "0.500 [0.400 to 0.600]"
    assert standings(league(entry("w", "a", [1, 2, 3]))).rows == (), "without FIFO there is no way"
    assert standings(league(entry("w", "fifo", [1, 2, 3]), bound=None)).rows == ()


def test_results_of_two_calls_are_joined_where_they_had_the_same_jobs():
    old = league(entry("w", "fifo", [3, 3, 3], jobs={"1": "a", "2": "b"}))
    new = league(entry("w", "mine", [1, 1, 1], jobs={"1": "a", "2": "b"}), bound=None)
    both = joined(new, old)
    assert both.policies == ("fifo", "mine")
    assert both.contests[0].bounds == {"1": 1.0, "2": 1.0, "3": 1.0}
    with pytest.raises(InputError, match="had other jobs at w, seed 2"):
        joined(league(entry("w", "mine", [1, 1, 1], jobs={"2": "c"})), old)
    with pytest.raises(InputError, match=r"has another jct_mean_s of .fifo. at w, seed 1"):
        joined(league(entry("w", "fifo", [1, 1, 1])), old)
    with pytest.raises(InputError, match="a policy called 'fifo' too"):
        joined(league(replace(entry("w", "fifo", [1, 1, 1]), policy_name="own.py:Fifo")), old)
    fewer = replace(league(entry("w", "mine", [1, 1], jobs={"1": "a"})), seeds=(1, 2))
    assert [set(one.values["jct_mean_s"]) for one in joined(fewer, old).entries] == [{"1", "2"}] * 2
    with pytest.raises(InputError, match="have the seeds 1, 2, 3; give some of these"):
        joined(replace(new, seeds=(1, 2, 3, 4)), old)
    with pytest.raises(InputError, match="another league"):
        joined(replace(new, digest="else"), old)


def test_a_digest_of_cells_covers_all_but_the_machine():
    table = league(entry("w", "a", [1, 2, 3]))
    slower = league(entry("w", "a", [1, 2, 3], timing={"decision_p99_s": {"1": 9.0}}))
    assert cells_digest(table, "a") == cells_digest(slower, "a")
    assert cells_digest(table, "a") != cells_digest(league(entry("w", "a", [1, 2, 4])), "a")


def test_a_league_is_read_as_it_was_written(tmp_path):
    table = league(entry("w", "srtf", [3, 4, 5], knows=ORACLE, lost={"1": ["j"]}), entry("w", "b", [], reason="no"))
    (tmp_path / "league.json").write_text(league_text(table))
    assert league_text(read_league_table(tmp_path)) == league_text(table)
    (tmp_path / "league.json").write_text(league_text(table).replace('"w"', '"v"', 1))
    with pytest.raises(InputError, match="an entry of the contest"):
        read_league_table(tmp_path)
