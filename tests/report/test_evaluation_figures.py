import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from docs.filled_page import filled
from simsched.engine.records import JobRecord
from simsched.errors import InputError
from simsched.paths import data_folder
from simsched.report.figures.distribution import rho_cdf, rho_data
from simsched.report.figures.draw import figure_names
from simsched.report.figures.history import fill_data, gain_data, gain_figure, history_figures, paired_jobs
from simsched.report.figures.job_lives import adaptation_data, chosen_jobs, co_adaptation
from simsched.report.figures.over_time import over_time
from simsched.report.figures.style import looks
from simsched.report.figures.sweep import jct_parts, parts_data
from simsched.results.compare import comparison
from simsched.results.fairness import describe
from simsched.results.reader import Cell, Run, read_run
from simsched.results.sheets import CurvePoint, read_curves
from simsched.results.summary import summarise_folder
from simsched.results.writer import TableWriter, write_json

RULE = {"definition": "pollux", "rounding": "floor", "batch": "best"}


@pytest.fixture(autouse=True)
def without_side_effects():
    before = dict(mpl.rcParams)
    yield
    assert dict(mpl.rcParams) == before


def drawn_lines(axes):
    return {line.get_label(): line for line in axes.get_lines()}


def test_rho_is_drawn_one_panel_a_policy_with_its_own_published_curve():
    data = rho_data({"pollux": [np.array([0.5, 1.5]), np.array([2.5])], "tiresias": [np.array([9.0])]})
    at_two = data[(data["policy"] == "pollux") & np.isclose(data["rho"], 2)]
    assert at_two["share"].item() == pytest.approx(2 / 3)
    curves = [CurvePoint("rho-cdf", "rho", "pollux", 1.0, 58.0), CurvePoint("rho-cdf", "rho", "other", 1.0, 5.0)]
    figure, _ = rho_cdf(data, title="t", meaning=describe(RULE), curves=curves, source="the paper")
    first, second = figure.axes[:2]
    assert drawn_lines(first)["published"].get_ydata().tolist() == [58.0]
    assert "published" not in drawn_lines(second)
    assert [text.get_text() for text in first.texts] == ["67 % above 1\nlargest 2.5"]
    assert [text.get_text() for text in second.texts] == ["100 % above 1\nlargest 9.0"]
    caption = figure.texts[1].get_text().replace("\n", " ")
    assert "rho (pollux)" in caption
    assert "floor" in caption
    assert "best batch size" in caption
    assert "the paper" in caption


def test_completion_times_are_split_into_parts_that_add_up():
    values = {"jct_mean_s": 3600.0, "queueing_mean_s": 600.0, "held_mean_s": 3000.0, "restart_mean_s": 300.0}
    cells = [Cell(None, {}, values, "pollux", "pollux", 1, {"a.interval_s": value}) for value in (60, 120)]
    rows = comparison(Run(None, "x", tuple(cells), {"pollux [interval_s=60]": {"jct_mean_h": 0.5}}, {}))
    data = parts_data(rows, "a.interval_s")
    assert data.loc[0, ["waiting for GPUs", "restarting", "running"]].tolist() == [600, 300, 2700]
    assert data["published"].tolist()[0] == 1800
    figure, _ = jct_parts(data, "a.interval_s", title="t")
    tops = [patch.get_y() + patch.get_height() for patch in figure.axes[0].patches]
    assert max(tops) == pytest.approx(1.0)  # hours


JOBS = pd.DataFrame(
    {
        "job_id": ["y2", "i1", "y1", "i2", "y3"],
        "application": ["yolov3", "imagenet", "yolov3", "imagenet", "yolov3"],
        "submit_time_s": [200, 0, 100, 50, 300],
        "end_time_s": [1800, 1200, 1000, 900, 1700],
        "attained_gpu_s": [1, 9, 1, 5, 1],
    }
)


def test_one_job_followed_is_the_largest_and_several_are_spread_over_the_submissions():
    assert chosen_jobs(JOBS, {"imagenet": 1, "yolov3": 2}) == ["i1", "y1", "y3"]
    assert chosen_jobs(JOBS, {"yolov3": 9}) == ["y1", "y2", "y3"]
    assert chosen_jobs(JOBS, {"bert": 1}) == []


def test_lives_are_binned_over_ten_minutes():
    lives = pd.DataFrame(
        {
            "job_id": ["i1", "i1", "i1"],
            "start_s": [0, 300, 600],
            "end_s": [300, 600, 1200],
            "gpus": [2, 4, 8],
            "batch_size": [0, 64, 128],
            "efficiency": [0.0, 0.5, 0.25],
            "restarting": [True, False, False],
        }
    )
    data = adaptation_data(JOBS, lives, ["i1"])
    own = data[data["series"] == "i1"].set_index("panel")["value"]
    assert own["gpus"].tolist() == [3, 8]
    assert own["batch_size"].tolist() == [64, 128]  # not diluted by the restart
    assert own["efficiency"].tolist() == [50, 25]
    active = data[data["panel"] == "active_jobs"]
    assert active["value"].iloc[0] == pytest.approx((600 + 550 + 500 + 400 + 300) / 600)
    assert active["time_s"].tolist() == [300, 900, 1500]
    points = [CurvePoint("co-adaptation", "gpus", "ImageNet-18", 0.1, 7.0)]
    figure, _ = co_adaptation(data, title="t", curves=points)
    assert drawn_lines(figure.axes[1])["published (ImageNet-18)"].get_ydata().tolist() == [7.0]


def test_published_curves_over_time_have_the_colour_of_the_policy_of_their_name():
    data = pd.DataFrame(
        {"policy": ["a", "a", "b", "b"], "time_s": [0, 600] * 2, "gpus": [1, 2, 3, 4], "efficiency": [0.5] * 4}
    )
    figure, _ = over_time(data, seeds=1, curves=[CurvePoint("over-time", "gpus", "b", 0.1, 60.0)])
    a, b, published = figure.axes[0].lines
    assert (published.get_xdata().tolist(), published.get_ydata().tolist()) == ([6.0], [60.0])  # minutes
    assert published.get_color() == b.get_color() != a.get_color()
    assert "Thin lines with dots: published" in figure.texts[1].get_text()


def test_curves_are_read_and_bad_rows_named(tmp_path):
    good = tmp_path / "good.csv"
    good.write_text('# from somewhere\nfigure,panel,series,x,y\nover-time,gpus,"a, b",0.5,60\n')
    assert read_curves(good) == (("over-time", "gpus", "a, b", 0.5, 60.0),)
    bad = tmp_path / "bad.csv"
    bad.write_text("figure,panel,series,x,y\no,g,a,zero,1\no,g,a,1,\n")
    with pytest.raises(InputError) as error:
        read_curves(bad)
    assert len(error.value.problems) == 2
    bad.write_text("figure,x,y\n")
    with pytest.raises(InputError, match="are missing"):
        read_curves(bad)
    with pytest.raises(InputError, match="no such file"):
        read_curves(tmp_path / "none.csv")


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
    assert set(figures) <= set(figure_names(run))
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
