"""Whether policies rank as published: pairs, intervals and the page."""

import json

import pytest
from click.testing import CliRunner

from simsched.cli.main import cli
from simsched.results.orders import ranks
from simsched.results.reader import read_run
from simsched.results.verdicts import DIFFERS, MATCHES, NO_VERDICT


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
    ("b", "c", "verdict", "in_order", "wrong"),
    [
        ([20, 22], [30, 32], MATCHES, 3, ()),
        ([20, 22], [19, 21], DIFFERS, 2, ("b > c",)),
        ([20, 30], [31, 18], NO_VERDICT, 2, ("b > c",)),
    ],
)
def test_an_order_can_match_differ_or_stay_open(tmp_path, b, c, verdict, in_order, wrong):
    run = write_run(tmp_path / "one", {"a": [10, 11], "b": b, "c": c}, {"a": 1, "b": 2, "c": 3})
    (found,) = ranks(run, "jct_mean_s")
    assert (found.verdict, found.pairs, found.in_order, found.reversed_pairs) == (verdict, 3, in_order, wrong)
    assert (found.point, found.seeds) == ("jobs_per_hour=1.0", 2)


def test_published_values_that_are_close_rank_nothing(tmp_path):
    run = write_run(tmp_path / "one", {"a": [10, 11], "b": [9, 8], "c": [20, 22]}, {"a": 100, "b": 104, "c": 110})
    (found,) = ranks(run, "jct_mean_s")
    assert (found.pairs, found.in_order, found.sure, found.verdict) == (2, 2, 1, MATCHES)
    close = write_run(tmp_path / "two", {"a": [10, 11], "b": [9, 8]}, {"a": 100, "b": 104})
    assert ranks(close, "jct_mean_s") == []


def test_one_seed_has_no_verdict(tmp_path):
    (found,) = ranks(write_run(tmp_path / "one", {"a": [1], "b": [2]}, {"a": 1, "b": 2}), "jct_mean_s")
    assert (found.in_order, found.sure, found.verdict) == (1, 0, NO_VERDICT)


def test_a_page_has_the_order_at_each_point(tmp_path):
    write_run(tmp_path / "one", {"a": [10, 11], "b": [20, 22]}, {"a": 1, "b": 2}, rate=4.0)
    page = tmp_path / "page.md"
    page.write_text("<!-- simsched: order one jct_mean_s -->\n<!-- simsched: end -->\n")
    assert CliRunner().invoke(cli, ["verdicts", str(tmp_path), "--page", str(page)]).exit_code == 0
    assert "| jobs_per_hour=4.0 | matches | none | 2 | 1 | 1 | 1 |" in page.read_text()
