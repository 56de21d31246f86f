"""The figures that a whole run gets."""

import pandas as pd

from simsched.engine.records import DecisionRecord, JobRecord
from simsched.report.figures.draw import draw_run
from simsched.results.reader import read_run
from simsched.results.summary import summarise_folder
from simsched.results.writer import TableWriter, write_json
from tests.unit.test_figures import interval


def write_cell(folder, stretch):
    """Two jobs on four GPUs; `stretch` makes everything longer."""
    with TableWriter(folder) as writer:
        for name, submit, start, end, gpus in (("a", 0, 60, 60 + 1800 * stretch, 2), ("b", 60, 120, 7200 * stretch, 1)):
            writer.allocation(interval(name, start, start + 30, gpus, restarting=True))
            writer.allocation(interval(name, start + 30, end, gpus))
            times = (submit, start, end, end - submit, end - start, start - submit, 30)
            writer.job(JobRecord(name, "ncf", "", "", "", gpus, 64, *times, (end - start) * gpus, 0))
        writer.decision(DecisionRecord(60, 1, 1, 2, 4, 1, 1, 0, 0, {}))
    write_json(folder / "manifest.json", {})
    write_json(folder / "summary.json", summarise_folder(folder, 4))


def make_run(folder, points=({},), policies=("pollux", "tiresias"), published=None):
    cells = []
    for index, (point, policy, seed) in enumerate((p, q, s) for p in points for q in policies for s in (1, 2, 3)):
        stretch = seed + (5 if policy == "tiresias" else 0)
        write_cell(folder / "cells" / str(index), stretch)
        entry = {"cell": str(index), "policy": policy, "seed": seed, "point": point, "folder": f"cells/{index}"}
        cells.append(entry)
    write_json(folder / "run.json", {"name": "tiny", "cells": cells, "published": published or {}})
    return read_run(folder)


def test_a_run_without_sweep_gets_bars_distribution_time_and_timeline(tmp_path):
    run = make_run(tmp_path / "run", published={"pollux": {"makespan_h": 2}})
    paths = draw_run(run, tmp_path / "figures")
    names = ["bars", "jct-cdf", "over-time", "occupancy", "queue-over-time", "job-timeline"]
    assert [path.name for path in paths] == [f"{name}.{kind}" for name in names for kind in ("png", "pdf", "csv")]
    assert all(path.stat().st_size > 3000 for path in paths if path.suffix != ".csv")
    bars = pd.read_csv(tmp_path / "figures" / "bars.csv")
    assert bars.loc[bars["metric"] == "makespan_s", "mean"].tolist() == [14400, 50400]
    assert pd.read_csv(tmp_path / "figures" / "job-timeline.csv")["policy"].unique().tolist() == ["pollux", "tiresias"]


def test_a_swept_run_gets_a_line_figure_for_its_key(tmp_path):
    points = [{"workload.load": load} for load in (0.5, 1.0, 1.5, 2.0, 4.0)]
    paths = draw_run(make_run(tmp_path / "run", points=points), tmp_path / "figures", formats=["svg"])
    assert [path.name for path in paths] == ["sweep-load.svg", "sweep-load.csv"]


def test_swept_keys_that_count_as_replications_are_pooled(tmp_path):
    run = make_run(tmp_path / "run", points=[{"workload": "w1"}, {"workload": "w2"}], policies=("pollux",))
    paths = draw_run(run, tmp_path / "figures", ["workload"], formats=["svg"])
    assert {path.stem for path in paths} == {
        "bars",
        "jct-cdf",
        "over-time",
        "occupancy",
        "queue-over-time",
        "job-timeline",
    }
    assert pd.read_csv(tmp_path / "figures" / "bars.csv")["seeds"].tolist() == [6, 6]


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
    paths = draw_run(run, tmp_path / "figures", formats=["svg"])
    assert {path.stem for path in paths} == {"bars", "jct-cdf"}
