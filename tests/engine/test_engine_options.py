"""Options of a run at their bounds: the last value that is taken, and the first that is not."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

from simsched.applications.catalogue import ApplicationCatalogue
from simsched.engine.clock import Clock, Phase
from simsched.engine.options import EngineOptions, FailureOptions
from simsched.engine.records import MemoryRecorder
from simsched.engine.simulation import simulate
from simsched.experiment.validation import read_experiment
from simsched.model.cluster import Cluster
from simsched.model.job import JobSpec
from simsched.paths import data_folder
from simsched.policy import registry


@pytest.mark.parametrize(
    ("name", "taken", "refused"),
    [
        ("restart_delay_s", [0, 0.5], [-0.1]),
        ("node_start_s", [0, 90], [-1]),
        ("initial_nodes", [None, 0, 3], [-1]),
        ("tick_s", [0, 1e-6, 0.5, 1], [-1, 9e-7, 1.01, 2]),
        ("max_jobs_per_gpu", [1, 2], [0, -1]),
        ("interference", [0, 0.99], [-0.01, 1, 2]),
    ],
)
def test_options_of_the_engine(name, taken, refused):
    assert [getattr(EngineOptions(**{name: value}), name) for value in taken] == taken
    for value in refused:
        with pytest.raises(ValueError, match=name):
            EngineOptions(**{name: value})


@pytest.mark.parametrize(
    ("name", "taken", "refused"),
    [
        ("node_mtbf_s", [None, 0.1], [0, -1, math.inf, math.nan]),
        ("gpu_mtbf_s", [None, 0.1], [0, -1, math.inf]),
        ("rack_mtbf_s", [None, 0.1], [0, -1, math.inf]),
        ("checkpoint_interval_s", [None, 0.1], [0, -1, math.inf]),
        ("weibull_shape", [0.1, 1, 3], [0, -1]),
        ("repair_median_s", [0, 5], [-1]),
        ("repair_sigma", [0, 5], [-1]),
        ("hot_spares", [0, 1], [-1]),
        ("slow_nodes", [0, 0.5, 1], [-0.1, 1.1]),
        ("slow_speed", [0.1, 1], [0, -0.1, 1.1]),
        ("checkpoint_cost_s", [0, 1e9, "by-size"], [-1]),
    ],
)
def test_options_of_failures(name, taken, refused):
    assert [getattr(FailureOptions(**{name: value}), name) for value in taken] == taken
    for value in refused:
        with pytest.raises(ValueError, match=rf"{name}|a checkpoint must cost"):
            FailureOptions(**{name: value})


@pytest.mark.parametrize(
    ("options", "taken"),
    [
        ({"checkpoint_interval_s": 60, "checkpoint_cost_s": 59}, True),
        ({"checkpoint_interval_s": 60, "checkpoint_cost_s": 60}, False),
        ({"checkpoint_interval_s": 60, "checkpoint_cost_s": "by-size"}, True),
        ({"node_mtbf_s": 1, "gpu_mtbf_s": 1}, False),
        ({"checkpoint_interval_s": "optimal", "node_mtbf_s": 9, "checkpoint_cost_s": 1}, True),
        ({"checkpoint_interval_s": "optimal", "gpu_mtbf_s": 9, "checkpoint_cost_s": "by-size"}, True),
        ({"checkpoint_interval_s": "optimal", "node_mtbf_s": 9}, False),
        ({"checkpoint_interval_s": "optimal", "checkpoint_cost_s": 1}, False),
    ],
)
def test_options_of_failures_that_belong_together(options, taken):
    if taken:
        assert FailureOptions(**options).checkpoint_interval_s == options["checkpoint_interval_s"]
        return
    with pytest.raises(ValueError, match=r"give node_mtbf_s or gpu_mtbf_s|must cost less than its interval"):
        FailureOptions(**options)


def test_nodes_fail_by_themselves_where_a_mean_time_is_given():
    given = {"": False, "node_mtbf_s": True, "gpu_mtbf_s": True, "rack_mtbf_s": False}
    assert {name: FailureOptions(**({name: 1} if name else {})).fails for name in given} == given


def test_what_is_due_at_one_instant_comes_in_the_order_of_its_phases():
    found = []
    clock = Clock(decide=lambda due: found.append("decision"))
    for phase in reversed(Phase):
        clock.at(5, phase, lambda due, phase=phase: found.append(phase.name))
    clock.at(4, Phase.RESUME, lambda due: found.append("before"))
    assert clock.advance() is False
    names = ["PROGRESS", "FAILURE", "RECOVERY", "ARRIVAL", "PROCESS", "THRESHOLD", "DECISION", "RESUME"]
    assert [one for one in found if one != "decision"] == ["before", *names]


FOLDER = data_folder("experiments") / "validation"
REPLAYS = Path(__file__).resolve().parents[2] / "tests" / "validation" / "replays"


def quirky(**params):
    return registry.load("quirks.py:QuirkyPollux", folder=REPLAYS)(**params)


@pytest.mark.parametrize("name", ["quirks", "fitted", "pollux-osdi21"])
def test_the_experiments_are_valid(name):
    assert read_experiment(FOLDER / f"{name}.yaml").spec.policies


def test_rows_go_to_the_job_of_the_same_rank():
    renamed = sys.modules[type(quirky()).__module__]._renamed
    # b has left; c and a have changed places, so c's row is handed to a, and a's to c.
    assert renamed(["a", "b", "c"], ["c", "a", "d"]) == ["c", "b", "a"]
    assert renamed(["a", "b"], ["a", "b", "new"]) == ["a", "b"]


@pytest.mark.parametrize(
    "params", [{"match_rows": "position"}, {"fill_idle": False}, {"fair_share": "several"}, {"method": "genetic"}]
)
def test_with_any_habit_all_jobs_finish(params):
    jobs = [JobSpec(f"j{i}", 40 * i, 1, "ncf" if i % 2 else "cifar10", 32768 if i % 2 else 128) for i in range(4)]
    recorder = MemoryRecorder()
    simulate(Cluster.uniform(2, 4), jobs, ApplicationCatalogue.load(), quirky(**params), EngineOptions(), 1, recorder)
    assert sorted(job.job_id for job in recorder.jobs) == ["j0", "j1", "j2", "j3"]
