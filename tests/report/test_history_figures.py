"""What priors change, picked from result tables."""

import pytest

from docs.filled_page import filled
from simsched.engine.records import JobRecord
from simsched.errors import InputError
from simsched.paths import data_folder
from simsched.report.figures.draw import run_figures
from simsched.report.figures.history import fill_data, gain_data, gain_figure, history_figures, paired_jobs
from simsched.report.figures.style import looks
from simsched.results.reader import read_run
from simsched.results.sheets import read_curves
from simsched.results.summary import summarise_folder
from simsched.results.writer import TableWriter, write_json

DAY_S = 86_400


def job(name, application, submit, jct):
    return JobRecord(name, application, "", "", "", 1, 64, submit, submit, submit + jct, jct, jct, 0, 0, jct, 0)


def make_run(folder, jobs_of, *, point=None):
    """`jobs_of` maps (prior, seed) to jobs as (name, application, submission, JCT)."""
    cells = []
    for index, ((prior, seed), jobs) in enumerate(jobs_of.items()):
        cell = folder / "cells" / str(index)
        with TableWriter(cell) as writer:
            for one in jobs:
                writer.job(job(*one))
        params = {"params": {"prior": prior}} if prior != "fifo" else {"params": {}}
        write_json(cell / "manifest.json", {"policy": {"name": "pollux", **params}})
        write_json(cell / "summary.json", summarise_folder(cell, 4))
        entry = {"cell": str(index), "policy": prior, "seed": seed, "point": point or {}, "folder": f"cells/{index}"}
        cells.append(entry)
    write_json(folder / "run.json", {"name": "tiny", "cells": cells})
    return read_run(folder)


def two_seeds(stretch, count=40):
    """Jobs one after the other, every 100 s; with a prior those that know of an earlier one take `stretch` as long."""
    jobs = {}
    for seed in (1, 2):
        for prior in ("none", "pool"):
            factor = stretch if prior == "pool" else 1
            rows = [("a-0", "cifar10", 0, 90)]
            rows += [(f"a-{i}", "cifar10", 100 * i, round(90 * factor)) for i in range(1, count)]
            jobs[prior, seed] = [*rows, ("n", "ncf", 0, 50), ("late", "ncf", DAY_S, 50)]
    return jobs


def test_every_job_is_set_beside_itself_with_what_the_pool_knew(tmp_path):
    jobs = paired_jobs(make_run(tmp_path, two_seeds(0.5, count=4)), "none")
    one = jobs[jobs["seed"] == "1"].set_index("job_id")
    assert one["known"].to_dict() == {"a-0": 0, "a-1": 1, "a-2": 2, "a-3": 3, "n": 0, "late": 1}
    assert one.loc["a-1", ["jct_s", "reference_s"]].tolist() == [45, 90]
    assert one["day"].to_dict()["late"] == 1


def test_the_gain_is_the_change_of_mean_jct_by_application(tmp_path):
    data = gain_data(paired_jobs(make_run(tmp_path, two_seeds(0.5, count=3)), "none")).set_index("group")
    assert list(data.index) == ["ncf", "cifar10", "all jobs"]
    assert data.loc["cifar10", "mean"] == pytest.approx((90 + 45 + 45) / 270 - 1)
    assert data.loc["all jobs", "mean"] == pytest.approx((180 + 100) / 370 - 1)
    assert data.loc["ncf", ["mean", "low", "high"]].tolist() == [0, 0, 0]
    assert data.loc["cifar10", "jobs"] == 6


def test_the_interval_is_over_seeds(tmp_path):
    jobs = {
        (prior, seed): [("a", "x", 0, 100 if prior == "none" else 100 - 10 * seed)]
        for seed in (1, 2)
        for prior in ("none", "offline")
    }
    row = gain_data(paired_jobs(make_run(tmp_path, jobs), "none")).iloc[0]
    half = 12.706 * 0.0707107 / 2**0.5  # t(1) times the standard deviation of 0.1 and 0.2 over sqrt(2)
    assert (row["mean"], row["low"], row["high"]) == pytest.approx((-0.15, -0.15 - half, -0.15 + half), rel=1e-3)


def test_filling_is_told_by_classes_of_known_jobs(tmp_path):
    data = fill_data(paired_jobs(make_run(tmp_path, two_seeds(0.5)), "none"))
    assert list(data["known"]) == ["0", "1", "2-3", "4-7", "8-15", "16-31", "32+"]
    assert data["mean"].tolist() == pytest.approx([0] + [-0.5] * 6)
    assert data["jobs"].tolist() == [2, 2, 4, 8, 16, 32, 16]
    assert set(data["group"]) == {"cifar10"}  # ncf has few jobs, and none of them changes


def test_a_run_that_compares_priors_gets_its_figures(tmp_path):
    run = make_run(tmp_path, two_seeds(0.5))
    figures = {name: plan() for name, plan in history_figures(run)}
    assert list(figures) == ["history-gain", "history-fill", "history-days"]
    for figure, data in figures.values():
        assert len(data)
        assert "nothing" in figure.texts[1].get_text()
        ours = [line.get_color() for axes in figure.axes for line in axes.lines if line.get_marker() != "None"]
        assert set(ours) == {looks(run.shown_policies)["pool"].colour}, "a policy has one colour in all figures"
    days = figures["history-days"][1]
    assert days[(days["group"] == "all jobs")]["day"].tolist() == ["1", "2"]


def test_a_page_shows_the_change_of_each_day(tmp_path):
    make_run(tmp_path / "tiny", two_seeds(0.5, count=3))
    page = tmp_path / "page.md"
    page.write_text("<!-- simsched: days tiny over none -->\n<!-- simsched: end -->\n")
    text = filled(page, tmp_path).text
    # Day 1: 90, 45 and 45 s for 3 times 90, and 50 s as before; day 2: one job of 50 s as before.
    assert "| all jobs | pool | 2 | -28 [-28, -28] | +0 [+0, +0] |" in text
    page.write_text("<!-- simsched: days tiny over nobody -->\n<!-- simsched: end -->\n")
    with pytest.raises(InputError, match="nothing to compare with 'nobody'"):
        filled(page, tmp_path)


def test_other_runs_get_none(tmp_path):
    jobs = {("fifo", 1): [("a", "x", 0, 5)], ("none", 1): [("a", "x", 0, 5)]}
    assert list(history_figures(make_run(tmp_path, jobs))) == []


def test_drawing_a_run_includes_them(tmp_path):
    run = make_run(tmp_path, two_seeds(0.5))
    for cell in run.cells:
        for table in ("allocations", "rounds"):
            (cell.folder / f"{table}.parquet").unlink()
    assert {"history-gain", "history-fill"} <= {name for name, _ in run_figures(run)}


def test_the_published_band_stands_at_load_1_only_and_only_where_data_give_one(tmp_path):
    run = make_run(tmp_path / "without", two_seeds(0.5, count=3), point={"workload.load": 1.0})
    figure, _ = gain_figure(gain_data(paired_jobs(run, "none")), looks(["pool"]), title="x")
    assert "published" not in figure.texts[1].get_text()
    curves = read_curves(data_folder("experiments") / "pollux" / "published" / "history.csv")
    assert {(point.panel, point.y) for point in curves} == {("cifar10", -0.05), ("cifar10", -0.02)}
    for load, bands in ((0.5, 0), (1.0, 1)):
        run = make_run(tmp_path / str(load), two_seeds(0.5, count=3), point={"workload.load": load})
        figure, _ = gain_figure(gain_data(paired_jobs(run, "none")), looks(["pool"]), title="x", curves=curves)
        drawn = [one for one in figure.axes[0].collections if one.get_label().startswith("_child")]
        shaded = [one for one in drawn if type(one).__name__ in ("PolyCollection", "FillBetweenPolyCollection")]
        assert len(shaded) == bands
        assert ("published" in figure.texts[1].get_text()) == bool(bands)
