"""The figures that a whole run gets."""

from dataclasses import replace

import pandas as pd

from simsched.engine.records import DecisionRecord, JobRecord
from simsched.report.figures.draw import draw_figure, draw_run, figure_names
from simsched.report.figures.evaluation import curves_of
from simsched.results.compare import comparison
from simsched.results.reader import read_run
from simsched.results.sheets import CurvePoint
from simsched.results.summary import summarise_folder
from simsched.results.writer import TableWriter, write_json
from tests.report.test_figures import interval


def write_cell(folder, stretch, knows):
    """Two jobs on four GPUs; `stretch` makes everything longer, `knows` is what the policy is told."""
    with TableWriter(folder) as writer:
        for name, submit, start, end, gpus in (("a", 0, 60, 60 + 1800 * stretch, 2), ("b", 60, 120, 7200 * stretch, 1)):
            writer.allocation(interval(name, start, start + 30, gpus, restarting=True))
            writer.allocation(interval(name, start + 30, end, gpus))
            times = (submit, start, end, end - submit, end - start, start - submit, 30)
            writer.job(JobRecord(name, "ncf", "", "", "", gpus, 64, *times, (end - start) * gpus, 0))
        writer.decision(DecisionRecord(60, 1, 1, 2, 4, 1, 1, 0, 0, {}))
    write_json(folder / "manifest.json", {"policy_knows": knows})
    write_json(folder / "summary.json", summarise_folder(folder, 4))


def make_run(folder, points=({},), policies=("pollux", "tiresias"), published=None, knows=None):
    cells = []
    for index, (point, policy, seed) in enumerate((p, q, s) for p in points for q in policies for s in (1, 2, 3)):
        stretch = seed + (5 if policy == "tiresias" else 0)
        write_cell(folder / "cells" / str(index), stretch, (knows or {}).get(policy, {}))
        entry = {"cell": str(index), "policy": policy, "seed": seed, "point": point, "folder": f"cells/{index}"}
        cells.append(entry)
    write_json(folder / "run.json", {"name": "tiny", "cells": cells, "published": published or {}})
    return read_run(folder)


def test_a_run_without_sweep_gets_bars_distribution_time_and_timeline(tmp_path):
    run = make_run(tmp_path / "run", published={"pollux": {"makespan_h": 2}})
    paths = draw_run(run, tmp_path / "figures", formats=["svg"])
    names = ["bars", "jct-cdf", "over-time", "occupancy", "queue-over-time", "job-timeline"]
    assert [path.name for path in paths] == [f"{name}.{kind}" for name in names for kind in ("svg", "csv")]
    assert all(path.stat().st_size > 3000 for path in paths if path.suffix != ".csv")
    assert not any(mark in path.read_text() for path in paths for mark in "†‡"), (
        "none knows more than a scheduler could"
    )
    bars = pd.read_csv(tmp_path / "figures" / "bars.csv")
    assert bars.loc[bars["metric"] == "makespan_s", "mean"].tolist() == [14400, 50400]
    assert pd.read_csv(tmp_path / "figures" / "job-timeline.csv")["policy"].unique().tolist() == ["pollux", "tiresias"]


def test_figures_mark_what_policies_know_and_explain_the_marks(tmp_path):
    knows = {"tiresias": {"remaining_work": "oracle", "offline_profiles": "profiled"}, "pollux": {"goodput": "learnt"}}
    points = [{"workload.load": load} for load in (0.5, 1.0)]
    run = make_run(tmp_path / "run", points=points, policies=("pollux", "tiresias"), knows=knows)
    drawn = {name: draw_figure(run, name) for name in ("bars", "jct-cdf", "sweep-load")}
    shown = {name: [text.get_text() for legend in figure.legends for text in legend.get_texts()]
             for name, (figure, _) in drawn.items()}  # fmt: skip
    assert shown["sweep-load"] == ["pollux", "tiresias †‡"]
    assert shown["jct-cdf"][:2] == ["pollux [load=0.5]", "tiresias †‡ [load=0.5]"]
    bars, data = drawn["bars"]
    names = [label.get_text() for label in bars.axes[0].get_yticklabels()]
    assert names == list(data["policy"].unique()) == [*shown["jct-cdf"]]
    for figure, _ in drawn.values():
        lines = figure.texts[1].get_text().split("\n")
        assert "† oracle: reads what no real scheduler knows (tiresias: remaining_work)." in " ".join(lines[-4:])
        assert figure.texts[1].get_text().count("†") == 1


def test_published_curves_follow_a_label_with_its_mark(tmp_path):
    run = make_run(tmp_path / "run", knows={"pollux": {"remaining_work": "oracle"}})
    curves = tuple(CurvePoint("over-time", "gpus", name, 1.0, 2.0) for name in ("pollux", "tiresias", "other"))
    run = replace(run, published_curves=curves)
    found = curves_of(run, "over-time", comparison(run))
    assert [point.series for point in found] == ["pollux †", "tiresias", "other"]


def test_a_swept_run_gets_a_line_figure_for_its_key(tmp_path):
    points = [{"workload.load": load} for load in (0.5, 1.0, 1.5, 2.0, 4.0)]
    run = make_run(tmp_path / "run", points=points)
    assert figure_names(run) == ("jct-cdf", "occupancy", "sweep-load", "ratios-load")
    figure, data = draw_figure(run, "jct-cdf")
    assert "load=1.5" in figure.texts[0].get_text(), "too many rows are those of the middle point"
    assert set(data["policy"]) == {"pollux", "tiresias"}


def test_swept_keys_that_count_as_replications_are_pooled(tmp_path):
    run = make_run(tmp_path / "run", points=[{"workload": "w1"}, {"workload": "w2"}], policies=("pollux",))
    names = ("bars", "jct-cdf", "over-time", "occupancy", "queue-over-time", "job-timeline")
    assert figure_names(run, ["workload"]) == names
    assert draw_figure(run, "bars", ["workload"])[1]["seeds"].tolist() == [6, 6]


def test_a_run_without_a_finished_job_is_drawn_empty(tmp_path):
    folder = tmp_path / "run" / "cells" / "0"
    with TableWriter(folder):
        pass
    write_json(folder / "manifest.json", {})
    write_json(folder / "summary.json", {"finished_jobs": 0.0})
    entry = {"cell": "0", "policy": "p", "seed": 1, "point": {}, "folder": "cells/0"}
    write_json(tmp_path / "run" / "run.json", {"name": "none", "cells": [entry]})
    paths = draw_run(read_run(tmp_path / "run"), tmp_path / "figures", formats=["svg"])
    assert {path.stem for path in paths} == {"bars", "jct-cdf", "over-time", "occupancy"}


def test_a_run_that_recorded_jobs_only_still_gets_what_they_allow(tmp_path):
    run = make_run(tmp_path / "run", policies=("pollux",))
    for cell in run.cells:
        (cell.folder / "allocations.parquet").unlink()
    assert figure_names(run) == ("bars", "jct-cdf")


def test_an_occupancy_is_left_out_where_jobs_are_placed_too_often_for_a_page(tmp_path):
    """Two jobs that start once and are restarted r times are placed 2 (1 + r) times; 5,000 bars fit."""
    run = make_run(tmp_path / "run")

    def restarted(times):
        cells = [replace(cell, summary={**cell.summary, "restarts_per_job": times}) for cell in run.cells]
        return figure_names(replace(run, cells=tuple(cells)))

    assert "occupancy" in restarted(2499.0)
    assert "occupancy" not in restarted(2500.0)
    assert "queue-over-time" in restarted(2500.0)
