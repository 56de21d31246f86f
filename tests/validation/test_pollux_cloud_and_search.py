"""The shipped experiments of Figure 9 and Table 3 of the Pollux paper keep the directions and the shape published."""

from __future__ import annotations

import importlib.util

import pytest

from simsched.experiment.grid import make_grid
from simsched.experiment.results_name import find_experiment
from simsched.experiment.running.runner import run_grid
from simsched.experiment.validation import read_experiment
from simsched.results.reader import read_run

pytestmark = pytest.mark.usefixtures("in_this_process")


def run_shipped(name, out, *overrides):
    """Run a shipped experiment; the cells by label."""
    result = run_grid(make_grid(read_experiment(find_experiment(name), overrides)), out)
    assert not result.failures
    return {cell.policy: cell for cell in read_run(result.folder).cells}


@pytest.fixture(scope="module")
def figure9(tmp_path_factory):
    return run_shipped("pollux/figure9-autoscaling", tmp_path_factory.mktemp("figure9"))


def test_scaling_by_goodput_is_cheaper_and_slower_than_by_throughput(figure9):
    goodput, throughput = (cell.summary for cell in figure9.values())
    assert -0.26 < goodput["node_hours"] / throughput["node_hours"] - 1 < -0.15  # published -25 %, recomputed -22 %
    # Published +6 %, recomputed +18 %; the page on autoscaling says why it is +32 % here.
    assert 0.05 < goodput["makespan_s"] / throughput["makespan_s"] - 1 < 0.35
    assert goodput["statistical_efficiency"] > throughput["statistical_efficiency"]


def test_scaling_by_goodput_goes_through_few_sizes_and_by_throughput_soon_to_the_largest(figure9):
    sizes = [list(dict.fromkeys(cell.rounds["provisioned_nodes"])) for cell in figure9.values()]
    assert sizes[0][0] == 4
    assert sizes[0][-1] in (15, 16)
    assert all(8 <= size <= 10 for size in sizes[0][1:-1])  # published 10, recomputed 8
    assert sizes[1] == [4, 8, 12, 16]
    last = figure9["Or et al. (throughput)"].rounds
    assert last[last["provisioned_nodes"] == 16]["time_s"].min() < 1200  # published about 900


@pytest.mark.skipif(importlib.util.find_spec("optuna") is None, reason="optuna is not installed")
def test_a_search_under_pollux_takes_less_time_than_static_trials_at_the_initial_batch(tmp_path):
    cells = run_shipped("pollux/table3-hpo", tmp_path, "tuning.trials=12", "seeds=1")
    pollux, static = cells["Pollux"].summary, cells["Static, 32 per GPU"].summary
    assert pollux["jct_mean_s"] < 0.85 * static["jct_mean_s"]
    assert pollux["makespan_s"] < 0.85 * static["makespan_s"]
