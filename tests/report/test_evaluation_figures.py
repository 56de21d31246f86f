import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from simsched.errors import InputError
from simsched.report.figures.distribution import rho_cdf, rho_data
from simsched.report.figures.job_lives import adaptation_data, chosen_jobs, co_adaptation
from simsched.report.figures.over_time import over_time
from simsched.report.figures.sweep import jct_parts, parts_data
from simsched.results.compare import comparison
from simsched.results.fairness import describe
from simsched.results.reader import Cell, Run
from simsched.results.sheets import CurvePoint, read_curves

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
    with pytest.raises(InputError, match="figure,panel,series,x,y"):
        read_curves(bad)
    with pytest.raises(InputError, match="cannot be read"):
        read_curves(tmp_path / "none.csv")
