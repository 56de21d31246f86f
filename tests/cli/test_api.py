"""The way in from Python."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

import simsched as sim
from simsched.api import jobs as jobs_module, running, simulation
from simsched.errors import InputError
from simsched.policy import Decision, Policy
from simsched.toolkit.gang import run_in_order

pytestmark = pytest.mark.usefixtures("in_this_process")


class LastFirst(Policy):
    """Runs the latest arrival first."""

    name: ClassVar[str] = "last-first"

    def decide(self, view, rng):
        return Decision(run_in_order(list(view.jobs.values())[::-1], view))


@pytest.fixture
def results(folder):
    return sim.run("tiny.yaml", {"workload.sample": 6})


def test_a_simulation_takes_failures_sharing_and_speeds_of_types_as_a_run_does():
    """Two jobs of a GPU share it at 0.6 of their speed; the second of two types runs three times as fast."""
    pair = [{"num_gpus": 1, "duration_s": 60}] * 2
    both = sim.simulate(
        jobs=pair, policy="horus", cluster=(1, 1), sharing={"max_jobs": 2, "factor": 0.6}, restart_delay_s=0
    )
    assert both.jobs["jct_s"].tolist() == [100, 100]
    types = {"groups": [{"nodes": 1, "gpus_per_node": 1, "gpu_type": kind} for kind in ("t4", "v100")]}
    fast = sim.simulate(jobs=pair, policy="fifo", cluster=types, gpu_speed={"t4": 1, "v100": 3}, restart_delay_s=0)
    assert sorted(fast.jobs["jct_s"]) == [20, 60]
    failing = {"node_mtbf_h": 0.01, "repair_median_h": 0.001, "checkpoint_interval_s": 5}
    broken = sim.simulate(jobs=pair, policy="fifo", cluster=(1, 2), failures=failing, restart_delay_s=0)
    assert len(broken.outages) > 0
    assert broken.jobs["failures"].sum() > 0
    for wrong, said in (
        ({"failures": {"node_mtbf": 3}}, "failures: node_mtbf: there is no such key"),
        ({"sharing": {"max_jobs": 99}}, "sharing: max_jobs: must be at most 16"),
        ({"sharing": {"max_jobs": 2, "model": "stages"}}, "stages, but those of"),
        ({"gpu_speed": {"v100": 3}}, "no speed for the GPU type 't4'"),
    ):
        with pytest.raises(InputError, match=said):
            sim.simulate(jobs=pair, policy="fifo", **wrong)


def test_a_simulation_has_a_table_and_figures_as_a_run_has():
    found = sim.simulate(jobs=[JOB], policy="fifo", cluster=(1, 4), restart_delay_s=0)
    assert found.table(["jct_mean_s"]).loc["fifo", "jct_mean_s"] == found.metrics["jct_mean_s"]
    assert {"bars", "jct-cdf", "occupancy"} <= set(found.figures())
    assert found.plot("jct-cdf").axes


def test_the_import_is_light_and_says_what_there_is():
    script = "import sys, simsched; print([n for n in ('numpy', 'pandas', 'yaml') if n in sys.modules], dir(simsched))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("[] ")
    assert "'simulate'" in done.stdout
    with pytest.raises(AttributeError, match="no attribute 'runn'"):
        _ = sim.runn  # type: ignore[attr-defined]


@pytest.mark.parametrize("module", [running, simulation, jobs_module])
def test_the_examples_of_the_docstrings_run(module):
    assert doctest.testmod(module).failed == 0


def test_tables_share_one_index(results):
    assert results.policies == ("fifo", "tiresias")
    table = results.table()
    assert table.index.tolist() == ["fifo", "tiresias"]
    fifo = results.cells().loc["fifo"]["jct_mean_s"]
    assert table.loc["fifo", "jct_mean_s"] == pytest.approx(fifo.mean())
    assert table.loc["fifo", "jct_mean_s_low"] < fifo.mean() < table.loc["fifo", "jct_mean_s_high"]
    jobs = results.jobs()
    assert jobs.index.names == ["policy", "seed", "job_id"]
    assert len(jobs) == 2 * 2 * 6
    assert results.allocations().index.names == ["policy", "seed", "job_id"]
    assert results.decisions().index.names == ["policy", "seed", "time_s"]
    assert results.table(["makespan_h"])["makespan_h"].iloc[0] == pytest.approx(table["makespan_s"].iloc[0] / 3600)


JOB = {"num_gpus": 1, "duration_s": 60}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"cluster": "x"}, r"cluster: 'x' is not a cluster; give \(nodes, GPUs on each\)"),
        ({"cluster": (0, 4)}, r"cluster: \(0, 4\) has no GPU"),
        ({"policy": 3}, "policy: 3 is not a policy: it lacks 'decide'; give a name of"),
        ({"jobs": "philly.csv"}, "jobs: 'philly.csv' is not a list of jobs; read a file with simsched.read_trace"),
        ({"jobs": [3]}, "jobs, row 0: 3 is not a job"),
        ({"jobs": [JOB, {**JOB, "duration_s": "ten"}]}, "jobs, row 1: 'duration_s' is 'ten', which is not a number"),
        (
            {"jobs": [{**JOB, "speedup": "fast"}]},
            "jobs, row 0: its speed-up 'fast' is invalid; give 'linear', an exponent",
        ),
        ({"restart_delay_s": -1}, "simulate: a setting of the engine is wrong: engine.restart_delay_s"),
        ({"restart_delay_s": None}, "engine.restart_delay_s: None is no value"),
    ],
)
def test_what_cannot_be_simulated_is_refused_in_words(arguments, said):
    with pytest.raises(InputError, match=said):
        sim.simulate(**{"jobs": [JOB], "policy": "fifo", "cluster": (1, 4), **arguments})


def test_a_simulation_shows_itself_in_a_line():
    found = sim.simulate(jobs=[JOB, {**JOB, "speedup": 0.5}], policy="fifo", cluster=(1, 4), restart_delay_s=0)
    assert repr(found).startswith("<simulation: 2 finished jobs, 1 decision, makespan 0.0167 h;")


def test_tables_mark_what_a_policy_knows(folder):
    chosen = {"policies": [{"name": "fifo"}, {"name": "srtf", "label": "best"}], "seeds": 2, "workload.sample": 4}
    run = sim.run("tiny.yaml", chosen)
    assert run.table()["mark"].to_dict() == {"fifo": "", "best": "†"}
    assert run.cells()["mark"].tolist() == ["", "", "†", "†"]
    assert run.marks == ("† oracle: reads what no real scheduler knows (best: remaining_work).",)
    told = sim.simulate(jobs=[JOB], policy="srtf", cluster=(1, 4))
    assert repr(told).startswith("<simulation †: 1 finished job,")
    assert told.marks == ("† oracle: reads what no real scheduler knows (srtf: remaining_work).",)
    assert sim.simulate(jobs=[JOB], policy="fifo", cluster=(1, 4)).marks == ()


def test_comparisons_are_seed_by_seed_and_figures_are_shown_by_notebooks(results):
    cells = results.cells()["makespan_s"].unstack("seed")
    expected = (cells.loc["tiresias"] / cells.loc["fifo"] - 1).mean()
    assert results.compare("tiresias", "fifo").loc["makespan_s", "relative"] == pytest.approx(expected)
    with pytest.raises(InputError, match="did you mean 'fifo'"):
        results.compare("fifi", "tiresias")
    assert {"bars", "occupancy"} <= set(results.figures())
    assert results.plot("bars", metrics=["makespan_h"])._repr_png_().startswith(b"\x89PNG")
    with pytest.raises(InputError, match="no figure 'bar' fits this run; did you mean 'bars'"):
        results.plot("bar")


def test_a_run_says_what_was_run_and_has_a_folder_of_its_own(results):
    ran, physics, left_out, changed = results.what_was_run.split("; ")
    assert re.fullmatch(r"6 jobs, 2 seeds, 2 policies on 8 GPUs, offered load \d\.\d+ to \d\.\d+", ran)
    assert physics.endswith("restart delay 30 s, no failures, no sharing, no contention, no interference")
    assert (left_out, changed) == ("left out: 6 jobs not in the sample of 6", "changed: workload.sample=6")
    assert results.folder.name == "tiny--sample=6"
    assert sim.read_run(results.folder).what_was_run == results.what_was_run


def test_a_dict_with_a_policy_class_is_an_experiment(folder):
    found = sim.run(
        {
            "name": "mine",
            "workload": {"path": "jobs.csv", "recipe": "replay"},
            "policies": [LastFirst, {"name": "fifo"}],
        }
    )
    assert found.failed == {}
    assert found.policies == ("last-first", "fifo")


def test_simulating_needs_no_files():
    frame = pd.DataFrame({"submit_time": [5, 0], "num_gpus": np.array([4, 2]), "duration": [60, 30.0]})
    found = sim.simulate(jobs=frame, policy=LastFirst, cluster=(1, 4), restart_delay_s=0)
    assert found.jobs.set_index("job_id")["jct_s"].to_dict() == {"job-0": 60.0, "job-1": 90.0}
    with pytest.raises(InputError, match="row 0: a job has no field 'durations'; did you mean 'duration_s'"):
        sim.simulate(jobs=[{"num_gpus": 1, "durations": 3}], policy="fifo")
    with pytest.raises(InputError, match="the engine has no setting 'restart'"):
        sim.simulate(jobs=[], policy="fifo", restart=3)


def test_simulating_gives_at_least_the_columns_and_metrics_of_a_run(folder):
    run = sim.run("tiny.yaml", {"workload.sample": 12, "seeds": 1, "engine.fragmentation": True})
    found = sim.simulate(jobs=pd.read_csv("jobs.csv"), policy="fifo", cluster=(2, 4), fragmentation=True)
    for told, here in [
        (run.jobs(), found.jobs),
        (run.allocations(), found.allocations),
        (run.decisions(), found.decisions),
    ]:
        one = told.loc["fifo"].reset_index()
        assert set(one.columns) - {"seed"} <= set(here.columns)
        numbers = [name for name in one.columns if one[name].dtype.kind in "if" and name != "seed"]
        assert (one[numbers].to_numpy() == here[numbers].to_numpy()).all()
    summary = next(cell.summary for cell in run.run.cells if cell.policy == "fifo")
    assert {name: found.metrics.get(name) for name in summary} == summary
    assert "stranded_gpus" not in sim.simulate(jobs=[JOB], policy="fifo").decisions


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"tenant": 1j}, "row 0: 'tenant' is 1j, which is not text"),
        ({"application": ["cifar10"]}, "row 0: 'application' is"),
        ({"user": "\ud800"}, "row 0: 'user' is"),
        ({"id": "\ud800"}, "row 0: its id"),
    ],
)
def test_texts_of_a_job_that_are_none_are_refused(changed, said):
    with pytest.raises(InputError, match=said):
        sim.simulate(jobs=[{"num_gpus": 1, "duration_s": 60, **changed}], policy="fifo")


@pytest.mark.parametrize("applications", [1j, True, (2, 2.0)])
def test_what_holds_no_applications_is_refused(applications):
    with pytest.raises(InputError, match="holds no applications"):
        sim.simulate(jobs=[{"num_gpus": 1, "duration_s": 60}], policy="fifo", applications=applications)


@pytest.mark.parametrize(("seconds", "tick_s", "said"), [
    (0.5, 1e-6, ""), (2e-6, 1e-6, ""), (0.5, 0, ""), (0.5, 1, "ticks of 1 s"), (5e-7, 1e-6, "ticks of 1e-06 s"),
    (float("nan"), 1, "it has no duration"), (-1.0, 1, "its duration is -1.0 s"),
])  # fmt: skip
def test_a_job_is_as_short_as_the_ticks_allow(seconds, tick_s, said):
    jobs = [{"num_gpus": 1, "duration_s": seconds}]
    how = {"policy": "fifo", "cluster": (1, 4), "restart_delay_s": 0, "tick_s": tick_s}
    if said:
        with pytest.raises(InputError, match=said):
            sim.simulate(jobs=jobs, **how)
    else:
        assert sim.simulate(jobs=jobs, **how).jobs["jct_s"].tolist() == pytest.approx([seconds], rel=1e-9)
