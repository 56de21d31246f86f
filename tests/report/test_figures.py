from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from simsched.engine.records import AllocationRecord
from simsched.errors import InputError
from simsched.report.figures import draw
from simsched.report.figures.bars import bar_data, metric_bars
from simsched.report.figures.distribution import cdf_data, jct_cdf, share_within
from simsched.report.figures.job_lives import job_timeline, timeline_data
from simsched.report.figures.models import efficiency_figure, throughput_figure
from simsched.report.figures.operators import trace_picture
from simsched.report.figures.output import save
from simsched.report.figures.over_time import binned, over_time, over_time_data
from simsched.report.figures.style import FORMATS, PALETTE, caption_lines, looks, new_figure, ramp_looks, time_ticks
from simsched.report.figures.sweep import (
    axis_title,
    map_data,
    ratio_data,
    sweep_data,
    sweep_lines,
    sweep_map,
    sweep_ratios,
)
from simsched.report.tables import comparison_table
from simsched.results.compare import comparison
from simsched.results.reader import Cell, Run


def interval(job, start, end, gpus, *, restarting=False, efficiency=0.8, batch=64):
    none = 0 if restarting else 1
    return AllocationRecord(
        job, start, end, gpus, 1, f"0:{gpus}", restarting, batch // gpus * none, 0, batch * none, 0, 0.0, 1.0 * none,
        efficiency * none, 9.0,
    )  # fmt: skip


def rows_of(values, point=None, published=None):
    """Rows of policies with one mean JCT per seed."""
    cells = [
        Cell(None, {}, {"jct_mean_s": float(value)}, policy, policy, seed, point or {})
        for policy, seeds in values.items()
        for seed, value in enumerate(seeds)
    ]
    return comparison(Run(None, "x", tuple(cells), published or {}, {}))


def titles(figure):
    return [text.get_text().replace("\n", " ") for text in figure.texts]


# --- style ---------------------------------------------------------------------------------------------------------


def test_usual_policies_keep_their_colours_and_no_two_of_eight_labels_share_one():
    assert looks(["fifo", "Pollux (p=-1)"])["Pollux (p=-1)"].colour == looks(["pollux"])["pollux"].colour == PALETTE[0]
    assert looks(["tiresias", "optimus"])["tiresias"].colour == PALETTE[1]
    many = looks(["Pollux (p=-1)", "Pollux (p=1)", "fifo", "srtf", "tiresias", "x", "optimus", "y"])
    assert len({look.colour for look in many.values()}) == 8
    more = looks([f"p{i}" for i in range(12)])
    assert len({(look.colour, str(look.dash)) for look in more.values()}) == 12


def test_rows_that_differ_by_a_number_alone_have_a_ramp_of_colours():
    found = ramp_looks(["p [load=0.5]", "p [load=1]", "p [load=2]"])
    light = [sum(int(look.colour[at : at + 2], 16) for at in (1, 3, 5)) for look in found.values()]
    assert light == sorted(light, reverse=True), "from light to dark"
    assert {look.dash for look in found.values()} == {"-"}


def test_figures_leave_the_global_settings_of_matplotlib_alone():
    before = dict(mpl.rcParams)
    figure, data = jct_cdf({"x": [np.array([1, 2])]})
    assert dict(mpl.rcParams) == before
    assert figure.axes[0].spines["top"].get_visible() is False
    assert not data.empty


def test_drawing_does_not_import_pyplot():
    modules = list(Path(draw.__file__).parent.glob("*.py"))
    assert len(modules) > 10
    assert [path.name for path in modules if "pyplot" in path.read_text()] == []


def test_saving_writes_picture_pdf_and_data_and_the_same_bytes_again(tmp_path):
    names = ["cdf.png", "cdf.pdf", "cdf.svg", "cdf.csv"]
    for folder in ("one", "two"):
        figure, data = jct_cdf({"x": [np.array([5, 50])], "y": [np.array([7, 70])]})
        paths = save(figure, data, tmp_path / folder, "cdf", (*FORMATS, "svg"))
        assert [path.name for path in paths] == names
    assert sorted(path.name for path in (tmp_path / "one").iterdir()) == sorted(names)
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    assert (tmp_path / "one" / "cdf.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "one" / "cdf.pdf").read_bytes().startswith(b"%PDF")
    assert b"CreationDate" not in (tmp_path / "one" / "cdf.pdf").read_bytes()


def test_a_policy_that_failed_has_a_row_that_says_so():
    figure, _ = metric_bars(bar_data(rows_of({"p": [60]}), ["jct_mean_s"]), title="t", failed=["q"])
    assert titles(figure)[1] == "One seed, hence no interval."
    (axes,) = figure.axes
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["p", "q"]
    assert [text.get_text() for text in axes.texts if text.xy[1] == 1] == ["failed"]


def test_bars_of_many_metrics_stand_in_pairs_on_a_page():
    one = bar_data(rows_of({"p": [60], "q": [90]}), ["jct_mean_s"])
    data = pd.concat([one.assign(metric=metric) for metric in ("jct_mean_s", "jct_median_s", "jct_p99_s")])
    figure, _ = metric_bars(data, title="t")
    assert figure.get_size_inches()[0] < 8.5
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title(loc="left") for axes in shown] == [
        "mean JCT (s)", "median JCT (s)", "99th percentile JCT (s)"
    ]  # fmt: skip
    assert [tick.get_text() for tick in shown[2].get_yticklabels()] == ["p", "q"]


def test_captions_break_evenly_and_never_between_a_number_and_what_it_counts():
    caption = "Means over 10 min and over 2 seeds; bands span the lowest and the highest. A finished seed has 0 GPUs."
    lines = caption_lines(caption, 60)
    assert " ".join(lines) == caption
    assert max(map(len, lines)) - min(map(len, lines)) < 15
    assert not any(line[-1].isdigit() for line in caption_lines(caption, 17))
    assert caption_lines("", 60) == []


def test_a_long_caption_makes_the_figure_taller():
    short, long = (new_figure(6, 3, "t", "word " * count) for count in (5, 100))
    assert long.get_size_inches()[1] > short.get_size_inches()[1] + 0.5


# --- distribution --------------------------------------------------------------------------------------------------


def test_the_distribution_pools_the_seeds_between_lowest_and_highest():
    data = cdf_data({"x": [np.array([10, 100]), np.array([100, 1000])]})
    at = data.set_index("jct_s")
    last, first = at.iloc[-1], at.iloc[0]
    assert (first["share"], first["low"], first["high"]) == (0.25, 0.0, 0.5)
    assert (last["share"], last["low"], last["high"]) == (1, 1, 1)
    middle = data[data["jct_s"].between(101, 900)].iloc[0]
    assert (middle["share"], middle["low"], middle["high"]) == (0.75, 0.5, 1.0)


def test_share_within_counts_equal_times_as_within():
    assert share_within(np.array([3, 1, 2]), np.array([0.5, 1, 2, 9])).tolist() == [0, 1 / 3, 2 / 3, 1]


def test_the_distribution_has_a_line_per_policy_and_bands_only_with_several_seeds():
    one, _ = jct_cdf({"x": [np.array([60, 600])], "y": [np.array([60, 6000])]})
    assert (len(one.axes[0].lines), len(one.axes[0].collections)) == (2, 0)
    two, _ = jct_cdf({"x": [np.array([60, 600]), np.array([60, 700])]})
    assert (len(two.axes[0].lines), len(two.axes[0].collections)) == (1, 1)
    assert "2 seeds" in titles(two)[1]
    assert two.axes[0].get_ylabel() == "share of jobs (%)"
    assert "1 min" in [tick.get_text() for tick in two.axes[0].get_xticklabels()]


def test_more_than_four_policies_are_drawn_without_bands():
    figure, _ = jct_cdf({name: [np.array([60, 600]), np.array([60, 700])] for name in "abcde"})
    assert (len(figure.axes[0].lines), len(figure.axes[0].collections)) == (5, 0)
    assert "bands" not in titles(figure)[1]
    assert not figure.axes[0].texts
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list("abcde")


# --- bars ----------------------------------------------------------------------------------------------------------


def test_bars_show_mean_interval_and_published_value_in_hours():
    rows = rows_of({"p": [3600, 7200, 10800], "q": [7200, 7200, 7200]}, published={"p": {"jct_mean_h": 1.5}})
    data = bar_data(rows, ["jct_mean_s"])
    assert data["mean"].tolist() == [7200, 7200]
    assert data["published"].iloc[0] == 5400
    figure, shown = metric_bars(data, title="Compared")
    assert shown is data
    (axes,) = figure.axes
    assert [patch.get_width() for patch in axes.patches] == [2, 2]
    assert axes.get_title(loc="left") == "mean JCT (h)"
    assert axes.get_xlabel() == "lower is better"
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["p", "q"]
    assert [text.get_text() for text in axes.texts] == ["2.00", "2.00"]
    assert titles(figure)[0] == "Compared"
    assert "Mean over 1 to 3 seeds; whiskers: 95 % interval" in titles(figure)[1]
    assert "if that is wider than the mean, from the least to the most" in titles(figure)[1]
    assert "Diamonds: published" in titles(figure)[1]


# --- over time -----------------------------------------------------------------------------------------------------


def test_intervals_are_binned_exactly():
    frame = pd.DataFrame(
        [
            interval("a", 30, 90, 2, restarting=True),  # 30 s in bin 0, 30 s in bin 1
            interval("a", 90, 150, 4, efficiency=0.5),  # 30 s in bin 1, 30 s in bin 2
            interval("b", 105, 120, 1, efficiency=0.9),  # 15 s in bin 1
        ]
    )
    gpus, efficiency = binned(frame, np.array([0.0, 60, 120, 180, 240]))
    assert gpus.tolist() == pytest.approx([2 * 30 / 60, (2 * 30 + 4 * 30 + 15) / 60, 4 * 30 / 60, 0])
    assert np.isnan(efficiency[[0, 3]]).all()
    assert efficiency[1:3].tolist() == pytest.approx([(30 * 0.5 + 15 * 0.9) / 45, 0.5])


def test_binning_conserves_gpu_seconds_on_random_intervals():
    rng = np.random.default_rng(5)
    start = rng.integers(0, 5000, 300)
    end = start + rng.integers(1, 900, 300)
    gpus = rng.integers(1, 17, 300)
    frame = pd.DataFrame({"start_s": start, "end_s": end, "gpus": gpus, "restarting": False, "efficiency": 0.7})
    found, efficiency = binned(frame, np.arange(0, 6061, 60.0))
    assert found.sum() * 60 == pytest.approx(((end - start) * gpus).sum())
    assert efficiency[~np.isnan(efficiency)] == pytest.approx(0.7)


def test_over_time_averages_seeds_and_gives_their_range():
    runs = [pd.DataFrame([interval("a", 0, 120, gpus)]) for gpus in (2, 4)]
    data = over_time_data({"p": runs, "q": [pd.DataFrame([interval("a", 0, 60, 1)])]}, 120, bin_s=60)
    p = data[data["policy"] == "p"].iloc[0]
    assert (p["gpus"], p["gpus_low"], p["gpus_high"]) == (3, 2, 4)
    figure, _ = over_time(data, seeds=2, total_gpus=8)
    above, below = figure.axes
    assert [line.get_label() for line in above.lines if line.get_label()[0] != "_"] == ["p", "q", "all 8 GPUs"]
    assert [line.get_label() for line in below.lines if line.get_label()[0] != "_"] == ["p", "q"]
    assert (above.get_ylabel(), below.get_ylabel()) == ("GPUs", "efficiency (%)")
    assert below.get_xlabel() == "time since the start of the workload (s)"


def test_bins_are_chosen_so_that_there_are_at_most_sixty():
    data = over_time_data({"p": [pd.DataFrame([interval("a", 0, 24 * 3600, 1)])]}, 24 * 3600)
    assert data["time_s"].iloc[1] == 1800
    assert len(data) == 48


# --- timeline ------------------------------------------------------------------------------------------------------


def test_a_timeline_counts_from_submission_and_shades_restarts():
    jobs = pd.DataFrame({"job_id": ["a"], "submit_time_s": [100]})
    allocations = pd.DataFrame(
        [interval("a", 160, 190, 2, restarting=True), interval("a", 190, 400, 2), interval("b", 0, 10, 1)]
    )
    data = timeline_data(jobs, allocations, "a", "p")
    assert data[["start_s", "end_s"]].to_numpy().tolist() == [[60, 90], [90, 300]]
    figure, _ = job_timeline({"p": (jobs, allocations)}, "a")
    gpus, batch, efficiency = figure.axes
    x, y = gpus.lines[0].get_data()
    assert (x * 60).tolist() == pytest.approx([0, 0, 60, 60, 90, 90, 300, 300])
    assert y.tolist() == [0, 0, 0, 2, 2, 2, 2, 0]
    assert [axes.get_ylabel().split("\n")[0] for axes in (gpus, batch, efficiency)] == [
        "GPUs",
        "batch size",
        "statistical",
    ]
    assert len(gpus.patches) == 1
    assert efficiency.get_xlabel() == "time since the job's submission (min)"
    assert np.nanmax(efficiency.lines[0].get_ydata()) == 80


def test_several_policies_share_a_timeline_without_shading():
    jobs = pd.DataFrame({"job_id": ["a"], "submit_time_s": [0]})
    lives = {name: (jobs, pd.DataFrame([interval("a", 0, end, 2)])) for name, end in (("p", 900), ("q", 1800))}
    figure, data = job_timeline(lives, "a", title="Largest job")
    assert [len(axes.lines) for axes in figure.axes] == [2, 2, 2]
    assert not figure.axes[0].patches
    assert data["policy"].tolist() == ["p", "q"]


def test_the_timeline_of_an_unknown_job_is_refused():
    jobs = pd.DataFrame({"job_id": ["a"], "submit_time_s": [0]})
    with pytest.raises(InputError, match="no job 'z'"):
        timeline_data(jobs, pd.DataFrame([interval("a", 0, 1, 1)]), "z", "p")


# --- sweep ---------------------------------------------------------------------------------------------------------


def swept_rows(key, values):
    cells = [
        Cell(None, {}, {"jct_mean_s": 3600.0 * (seed + index + 1)}, policy, policy, seed, {key: value})
        for index, value in enumerate(values)
        for policy in ("p", "q")
        for seed in (1, 2)
    ]
    return comparison(Run(None, "x", tuple(cells), {}, {}))


def test_a_sweep_has_a_line_per_policy_at_the_swept_values():
    data = sweep_data(swept_rows("workload.load", [0.5, 1.0, 2.0]), "workload.load", ["jct_mean_s"])
    figure, _ = sweep_lines(data, "workload.load")
    assert axis_title("policies.tiresias.params.queue_thresholds_gpu_s") == "queue thresholds (GPU s)"
    (axes,) = figure.axes
    lines = [line for line in axes.lines if not line.get_label().startswith("_")]
    assert [line.get_label() for line in lines] == ["p", "q"]
    assert lines[0].get_xdata().tolist() == pytest.approx([0.5, 1.0, 2.0], abs=0.02)
    assert (lines[0].get_xdata() < lines[1].get_xdata()).all()  # side by side, as their whiskers
    assert lines[0].get_ydata().tolist() == [2.5, 3.5, 4.5]
    assert (axes.get_xlabel(), axes.get_title(loc="left")) == ("load", "mean JCT (h)")
    assert axes.get_xscale() == "linear"
    assert len(axes.collections) == 2
    p, q = (whiskers.get_segments()[1][0][0] for whiskers in axes.collections)
    assert p < 1.0 < q  # beside each other, and beside the value


def test_whiskers_of_few_seeds_are_those_of_the_table_and_stay_on_the_axis():
    rows = [*rows_of({"p": [3600, 10800]}, {"a.p": 1}), *rows_of({"p": [3600, 3700]}, {"a.p": -1})]
    data = sweep_data([*rows, *rows_of({"p": [3600, 3650]}, {"a.p": -10})], "a.p", ["jct_mean_s"])
    figure, _ = sweep_lines(data, "a.p")
    (axes,) = figure.axes
    table = comparison_table(rows, ["jct_mean_h"], ranges=True)
    assert [row[2] for row in table.rows] == ["2.00 [1.00 to 3.00]", "1.01 ±0.18"]
    (whiskers,) = (one.get_segments() for one in axes.collections)
    ends = {round(whisker[0][0]): (whisker[0][1], whisker[1][1]) for whisker in whiskers}
    assert ends[2] == (1, 3)
    assert ends[1] == pytest.approx((3650 / 3600 - 0.1765, 3650 / 3600 + 0.1765), abs=1e-3)  # t(1) is 12.71
    assert all(axes.get_ylim()[0] <= low <= high <= axes.get_ylim()[1] for low, high in ends.values())
    assert [label.get_text() for label in axes.get_xticklabels()] == ["-10", "-1", "1"]
    assert np.diff(axes.get_xticks()).tolist() == [1, 1]  # none crowd


@pytest.mark.parametrize(
    ("unit", "last", "ticks"),
    [("h", 7.4, [0, 1, 2, 3, 4, 5, 6, 7]), ("h", 11.4, [0, 2, 4, 6, 8, 10]), ("h", 50.0, [*range(0, 49, 6)]),
     ("min", 37, [0, 5, 10, 15, 20, 25, 30, 35]), ("days", 9.5, [0, 2, 4, 6, 8]), ("s", 300, [*range(0, 301, 60)])],
)  # fmt: skip
def test_axes_of_time_have_ticks_at_round_times(unit, last, ticks):
    assert time_ticks(unit, 0, last) == ticks


def test_whiskers_stand_as_far_apart_on_a_logarithmic_axis():
    data = sweep_data(swept_rows("p.interval_s", [30, 60, 480]), "p.interval_s", ["jct_mean_s"])
    (axes,) = sweep_lines(data, "p.interval_s")[0].axes
    p, q = (np.array([one[0][0] for one in whiskers.get_segments()]) for whiskers in axes.collections)
    assert np.allclose(q / p, q[0] / p[0])
    assert (p < [30, 60, 480]).all()
    assert (q > [30, 60, 480]).all()


def test_a_wide_sweep_is_logarithmic_and_words_stand_side_by_side():
    wide = sweep_data(swept_rows("p.interval_s", [480, 30, 60]), "p.interval_s", ["jct_mean_s"])
    figure, _ = sweep_lines(wide, "p.interval_s")
    assert figure.axes[0].get_xscale() == "log"
    assert figure.axes[0].lines[0].get_xdata().tolist() == pytest.approx([30, 60, 480], rel=0.05)
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == ["30 s", "1 min", "8 min"]
    assert figure.axes[0].get_xlabel() == "interval"
    words = sweep_data(swept_rows("workload.configs", ["tuned", "realistic"]), "workload.configs", ["jct_mean_s"])
    figure, _ = sweep_lines(words, "workload.configs")
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == ["tuned", "realistic"]
    assert figure.axes[0].lines[0].get_xdata().tolist() == pytest.approx([0, 1], abs=0.02)
    assert figure.axes[0].lines[0].get_linestyle() == "None", "nothing lies between two words"


def test_ratios_over_a_sweep_are_paired_and_logarithmic():
    # under seed s and the i-th value p has s + i + 1 hours; q has twice that
    cells = [
        Cell(
            None,
            {},
            {"jct_mean_s": 3600.0 * (seed + index + 1) * factor},
            policy,
            policy,
            seed,
            {"workload.load": value},
        )
        for index, value in enumerate([0.5, 1.0])
        for policy, factor in (("p", 1), ("q", 2))
        for seed in (1, 2)
    ]
    data = ratio_data(comparison(Run(None, "x", tuple(cells), {}, {})), "workload.load", "p", "jct_mean_s")
    assert data["policy"].tolist() == ["q", "q"]
    assert data["ratio"].tolist() == pytest.approx([2, 2])
    assert data["low"].tolist() == pytest.approx([2, 2])  # what seeds have in common cancels out
    figure, _ = sweep_ratios(data, "workload.load", "p", "jct_mean_s", title="x", styles=looks(["p", "q"]))
    assert figure.axes[0].get_yscale() == "log"
    assert figure.axes[0].get_title(loc="left") == "mean JCT / p's"


def test_two_swept_keys_are_a_map_for_each_policy():
    cells = [
        Cell(None, {}, {"jct_mean_s": 3600.0 * hours}, policy, policy, 1, {"workload.load": load, "p.wait_s": wait})
        for policy, hours in (("p", 1), ("q", 30))
        for load in (0.5, 1.0, 2.0)
        for wait in (86400, 60)
    ]
    data = map_data(comparison(Run(None, "x", tuple(cells), {}, {})), ("workload.load", "p.wait_s"), "jct_mean_s")
    assert len(data) == 12
    figure, _ = sweep_map(data, ("workload.load", "p.wait_s"), "jct_mean_s", title="x")
    first, second, scale = figure.axes
    assert [tick.get_text() for tick in first.get_yticklabels()] == ["1 min", "1 day"]
    assert [tick.get_text() for tick in first.get_xticklabels()] == ["0.5", "1.0", "2.0"]
    assert [text.get_text() for text in first.texts] == ["1.00"] * 6
    assert [text.get_text() for text in second.texts] == ["30.0"] * 6
    assert first.images[0].norm.vmax == second.images[0].norm.vmax == pytest.approx(30)
    assert (first.get_xlabel(), first.get_ylabel(), scale.get_ylabel()) == ("load", "wait", "mean JCT (h)")


# --- models and traces ---------------------------------------------------------------------------------------------


def test_throughput_has_lines_for_batches_and_for_gpus_and_points_where_measured():
    model = pd.DataFrame(
        [(g, b, 10.0 * g + b) for g in (1, 2, 4) for b in (64, 128)], columns=["gpus", "batch_size", "throughput"]
    )
    figure, data = throughput_figure(model, model.iloc[:2], title="bert")
    left, right = figure.axes
    assert (len(left.lines), len(right.lines)) == (4, 4)  # of 1 GPU alone anything was measured
    assert (left.get_xlabel(), left.get_ylabel()) == ("GPUs", "throughput (examples/s)")
    assert right.get_xlabel() == "total batch size (examples)"
    assert data["source"].value_counts().to_dict() == {"model": 6, "measured": 2}


def test_efficiency_is_in_per_cent_over_training():
    model = pd.DataFrame(
        [(p, b, 0.5) for p in (0.0, 0.5, 1.0) for b in (64, 128, 256)], columns=["progress", "batch_size", "efficiency"]
    )
    figure, data = efficiency_figure(model, title="bert")
    (axes,) = figure.axes
    assert [line.get_label() for line in axes.lines] == ["64", "128", "256"]
    assert axes.lines[0].get_xdata().tolist() == [0, 50, 100]
    assert axes.lines[0].get_ydata().tolist() == [50, 50, 50]
    assert len(data) == 9


def test_a_trace_shows_arrivals_mix_and_durations():
    jobs = pd.DataFrame(
        {"submit_time_s": [0, 10, 3600, 7300], "num_gpus": [1, 1, 2, 64], "duration_s": [100, 300, 200, 0]}
    )
    figure, data = trace_picture(jobs, title="tiny")
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["Arrivals", "Mix of GPU counts", "Durations"]
    assert data.loc[data["panel"] == "arrivals", "y"].tolist() == [2, 1, 1]
    mix = data[data["panel"] == "mix"].set_index(["series", "x"])["y"]
    assert (mix["jobs", "1"], mix["jobs", "2"], mix["jobs", ">32"]) == (50, 25, 25)
    assert (mix["GPU time", "1"], mix["GPU time", "2"]) == (50, 50)
    assert len(figure.axes[2].lines) == 2
    assert "1 jobs without a duration" in titles(figure)[1]


def test_a_trace_without_durations_says_so():
    figure, _ = trace_picture(pd.DataFrame({"submit_time_s": [0], "num_gpus": [1], "duration_s": [0]}), title="t")
    assert [text.get_text() for text in figure.axes[2].texts] == ["no durations known"]
