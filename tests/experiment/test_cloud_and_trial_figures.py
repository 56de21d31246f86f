"""Nodes over time and searches over time: the data by hand, the experiment keys behind them."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from simsched.errors import InputError
from simsched.experiment.grid import make_grid
from simsched.experiment.running.runner import run_grid
from simsched.experiment.validation import read_experiment
from simsched.report.figures.draw import draw_run
from simsched.report.figures.over_time import Rental, nodes_data, nodes_over_time, trials_data, trials_over_time
from simsched.results.metric import integral
from simsched.results.reader import read_run

pytestmark = pytest.mark.usefixtures("in_this_process")

EXPERIMENT = """\
name: cloud
cluster: {nodes: 3, gpus_per_node: 4, node_price_per_h: 2.5}
workload: {path: jobs.csv, recipe: as-is}
engine: {initial_nodes: 1, node_start_s: 90}
policies: [{name: or-elastic, label: grows, params: {min_batches: 1}}, {name: fifo, label: stays}]
"""
JOBS = "name,time,application,num_replicas,batch_size\na,0,cifar10,1,128\n"


@pytest.fixture
def read(tmp_path):
    (tmp_path / "jobs.csv").write_text(JOBS)
    (tmp_path / "e.yaml").write_text(EXPERIMENT)
    return lambda *overrides: read_experiment(tmp_path / "e.yaml", overrides)


def rounds(*steps: tuple[int, int]) -> pd.DataFrame:
    return pd.DataFrame(steps, columns=["time_s", "provisioned_nodes"])


def intervals(*spans: tuple[int, int, float]) -> pd.DataFrame:
    frame = pd.DataFrame(spans, columns=["start_s", "end_s", "efficiency"])
    return frame.assign(gpus=4, restarting=False)


@pytest.mark.parametrize(
    ("steps", "until_s", "expected"),
    [
        ([(60, 1), (120, 4)], 200, 120 * 1 + 80 * 4),
        ([(60, 1), (60, 3)], 100, 60 * 1 + 40 * 3),
        ([(0, 2), (500, 9)], 100, 200),
        ([], 100, 0),
    ],
)
def test_integral_of_a_column_of_rounds(steps, until_s, expected):
    assert integral(rounds(*steps), "provisioned_nodes", until_s) == expected


def test_nodes_are_averaged_over_bins_and_seeds_and_end_with_the_last_job():
    first = Rental(rounds((60, 1), (90, 3), (500, 9)), intervals((0, 180, 0.5)), 180)
    second = Rental(rounds((0, 2)), intervals((0, 60, 1.0)), 60)
    data = nodes_data({"p": [first, second]})
    assert data["time_s"].tolist() == [0, 60, 120]
    assert data["nodes_high"].tolist() == [2, 2, 3]
    assert data["nodes_low"].tolist() == [1, 0, 0]
    assert data["nodes"].tolist() == [1.5, 1, 1.5]
    assert data["efficiency"].tolist() == [0.75, 0.5, 0.5]


def test_a_search_is_followed_from_the_fifth_trial_on():
    ends, accuracies = [10, 20, 30, 40, 50, 100], [90.0, 91.0, 92.0, 93.0, 94.0, 99.0]
    data = trials_data({"p": [pd.DataFrame({"end_time_s": ends, "accuracy": accuracies})]})
    at = data.set_index("time_s")
    assert np.isnan(at["accuracy"].loc[40.0:49.0]).all()
    assert at["accuracy"].loc[50.0] == 92.0
    assert at["accuracy"].loc[100.0] == np.mean([91, 92, 93, 94, 99])
    assert at["done"].loc[[0.0, 25.0, 50.0, 100.0]].tolist() == [0, 2, 5, 6]


def test_nodes_that_fail_are_not_rented_and_jobs_of_fixed_duration_have_no_efficiency():
    data = nodes_data({"p": [Rental(rounds((0, 2), (30, 1)), intervals((0, 90, 1.0)), 90)]})
    (axes,) = nodes_over_time(data, seeds=1, rented=False)[0].axes
    assert axes.get_title(loc="left") == "Nodes up"
    assert axes.get_xlabel() == "time since the start of the workload (s)"
    assert [axes.get_title(loc="left") for axes in nodes_over_time(data, seeds=1)[0].axes] == ["Nodes rented"]


def test_figures_name_their_axes_and_lines():
    nodes, _ = nodes_over_time(nodes_data({"p": [Rental(rounds((0, 1)), intervals((0, 90, 0.5)), 90)]}), seeds=1)
    frame = pd.DataFrame({"end_time_s": range(1, 8), "accuracy": 90.0})
    trials, _ = trials_over_time(trials_data({"p": [frame, frame]}), seeds=2)
    assert [axes.get_ylabel() for axes in nodes.axes] == ["nodes", "efficiency (%)"]
    assert [axes.get_ylabel() for axes in trials.axes] == ["accuracy (%)", "trials"]
    assert [text.get_text() for text in nodes.legends[0].get_texts()] == ["p"]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("engine.initial_nodes=4", "4 nodes cannot be rented; the cluster has 3"),
        ("policies.grows.engine={initial_nodes: 9}", "policies.grows.engine.initial_nodes: 9 nodes cannot be rented"),
        ("engine.node_start_s=-1", "must be at least 0, not -1"),
        ("cluster.node_price_per_h=-1", "must be at least 0, not -1"),
    ],
)
def test_impossible_clouds_are_refused(read, override, message):
    with pytest.raises(InputError, match=message):
        read(override)


def test_an_experiment_in_a_cloud_gives_cost_and_a_figure_of_its_nodes(read, tmp_path):
    result = run_grid(make_grid(read()), tmp_path / "out")
    run = read_run(result.folder)
    grown, stayed = (dict(cell.summary) for cell in run.cells)
    assert stayed["node_hours"] == pytest.approx(stayed["makespan_s"] / 3600)
    assert grown["node_hours"] > grown["makespan_s"] / 3600
    assert grown["cost"] == pytest.approx(2.5 * grown["node_hours"])
    manifest = json.loads((run.cells[0].folder / "manifest.json").read_text())
    assert (manifest["engine"]["initial_nodes"], manifest["engine"]["node_start_s"]) == (1, 90)
    names = {path.name for path in draw_run(run, tmp_path / "figures", formats=("svg",))}
    assert "nodes-over-time.svg" in names
