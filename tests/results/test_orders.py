"""Whether policies rank as published: pairs, intervals and the page."""

import json

import pytest

from docs.verdicts import DIFFERS, MATCHES, UNDECIDED, ranks
from simsched.results.reader import read_run
from tests.pages import verdicts


def write_run(folder, values, published, rate=1.0):
    cells = []
    for policy, means in values.items():
        for seed, mean in enumerate(means):
            cell = folder / "cells" / f"{policy}-{seed}"
            cell.mkdir(parents=True)
            (cell / "manifest.json").write_text("{}")
            (cell / "summary.json").write_text(json.dumps({"jct_mean_s": mean}))
            entry = {"cell": cell.name, "folder": f"cells/{cell.name}", "policy": policy, "policy_name": policy}
            cells.append(entry | {"seed": seed, "point": {"workload.jobs_per_hour": rate}})
    content = {
        "name": folder.name,
        "cells": cells,
        "published": {f"{policy} [jobs_per_hour={rate}]": {"jct_mean_s": value} for policy, value in published.items()},
        "experiment": {},
    }
    (folder / "run.json").write_text(json.dumps(content))
    return read_run(folder)


@pytest.mark.parametrize(
    ("b", "c", "verdict", "in_order", "wrong", "undecided"),
    [
        ([20, 22], [30, 33], MATCHES, 3, (), ()),
        ([20, 22], [19, 20.9], DIFFERS, 2, ("b > c",), ()),
        ([20, 30], [31, 18], UNDECIDED, 0, (), ("a < b", "a < c", "b < c")),  # means in order, and nothing known
        ([20, 22], [22, 21], UNDECIDED, 1, (), ("a < c", "b < c")),  # one of three pairs is too few
        ([20, 22], [40, 22.5], UNDECIDED, 1, (), ("a < c", "b < c")),
    ],
)
def test_an_order_can_match_differ_or_stay_open(tmp_path, b, c, verdict, in_order, wrong, undecided):
    run = write_run(tmp_path / "one", {"a": [10, 11], "b": b, "c": c}, {"a": 1, "b": 2, "c": 3})
    (found,) = ranks(run, "jct_mean_s")
    assert (found.verdict, found.pairs, found.in_order, found.reversed_pairs) == (verdict, 3, in_order, wrong)
    assert found.undecided_pairs == undecided
    assert (found.point, found.seeds) == ("jobs_per_hour=1.0", 2)


def test_published_values_that_are_close_rank_nothing(tmp_path):
    run = write_run(tmp_path / "one", {"a": [10, 11], "b": [9, 8], "c": [20, 22]}, {"a": 100, "b": 104, "c": 110})
    (found,) = ranks(run, "jct_mean_s")
    # a and b, b and c are 4 and 6 % apart; a, c and b, c are compared. c over a is 2 and 2, c over b 2.2 and 2.75,
    # an interval of 0.60 to 10.2 with t(1) = 12.7.
    assert (found.pairs, found.separated, found.in_order, found.verdict) == (2, 1, 1, MATCHES)
    assert found.undecided_pairs == ("b < c",)
    close = write_run(tmp_path / "two", {"a": [10, 11], "b": [9, 8]}, {"a": 100, "b": 104})
    assert ranks(close, "jct_mean_s") == []


def test_what_is_just_so_far_apart_or_alike_is_not_separated(tmp_path):
    assert ranks(write_run(tmp_path / "near", {"a": [1, 1], "b": [2, 2]}, {"a": 20, "b": 21}), "jct_mean_s") == []
    (found,) = ranks(write_run(tmp_path / "alike", {"a": [10, 11], "b": [10, 11]}, {"a": 1, "b": 2}), "jct_mean_s")
    assert found.undecided_pairs == ("a < b",)
    (found,) = ranks(write_run(tmp_path / "none", {"a": [0, 0], "b": [2, 2]}, {"a": 1, "b": 2}), "jct_mean_s")
    assert found.undecided_pairs == ("a < b",)  # over a mean of 0 there is no ratio


def test_one_seed_separates_nothing(tmp_path):
    (found,) = ranks(write_run(tmp_path / "one", {"a": [1], "b": [2]}, {"a": 1, "b": 2}), "jct_mean_s")
    assert (found.pairs, found.separated, found.verdict) == (1, 0, UNDECIDED)


def test_a_page_has_the_order_at_each_point(tmp_path):
    write_run(tmp_path / "one", {"a": [10, 11], "b": [20, 22], "c": [8, 30]}, {"a": 1, "b": 2, "c": 2.01}, rate=4.0)
    page = tmp_path / "page.md"
    page.write_text("<!-- simsched: order one jct_mean_s -->\n<!-- simsched: end -->\n")
    assert verdicts(str(tmp_path), "--page", str(page)).exit_code == 0
    said = "| jobs_per_hour=4.0 | matches (1 of 2 pairs separated) | none | 1: a &lt; c | 2 | 2 | 1 | 1 |"
    assert said in page.read_text()
