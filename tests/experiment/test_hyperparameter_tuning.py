"""Hyper-parameter tuning: its surface, its trials in a closed loop, its experiment file."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from simsched_policies.queues.static import Static

from simsched.engine.options import EngineOptions
from simsched.engine.records import MemoryRecorder
from simsched.engine.simulation import simulate
from simsched.errors import InputError
from simsched.experiment import tuning as hpo
from simsched.experiment.grid import make_grid
from simsched.experiment.results_name import find_experiment
from simsched.experiment.running.runner import run_grid
from simsched.experiment.tuning import (
    WIDTHS,
    Hyperparameters,
    TrialApplications,
    Tuner,
    TuningOptions,
    accuracy,
    expected_accuracy,
    step_factor,
)
from simsched.experiment.validation import read_experiment
from simsched.model.application import BatchChoice, ScaledApplication, StepTime
from simsched.model.cluster import Cluster, NodeGroup
from simsched.model.job import JobSpec
from simsched.model.placement import Site
from simsched.results.sheets import read_trials, write_trials
from simsched.testing.builders import Applications, application_of, run, toy_application

pytestmark = pytest.mark.usefixtures("in_this_process")
needs_optuna = pytest.mark.skipif(importlib.util.find_spec("optuna") is None, reason="optuna is not installed")
BEST = Hyperparameters(learning_rate=0.1, annealing=0.01, momentum=0.9, weight_decay=5e-4, width=1.0)
EXPERIMENT = """\
name: tiny
cluster: {nodes: 2, gpus_per_node: 4}
tuning: {trials: 6, at_once: 2}
policies: [{name: static}, {name: static, label: half, params: {gpus: 2}}]
"""


@pytest.fixture
def read(tmp_path):
    (tmp_path / "e.yaml").write_text(EXPERIMENT)
    return lambda *overrides: read_experiment(tmp_path / "e.yaml", overrides)


@pytest.mark.parametrize(
    ("change", "loss"),
    [
        ({}, 0.0),
        ({"learning_rate": 1.0}, 1.6),
        ({"learning_rate": 0.02, "momentum": 0.98}, 10 * 0.08**2),
        ({"weight_decay": 5e-5}, 0.6),
        ({"annealing": 1.0}, 4 * 0.4),
        ({"width": 2.0}, -0.45),
        ({"width": 0.5}, 0.75),
    ],
)
def test_losses_of_the_surface_worked_by_hand(change, loss):
    assert expected_accuracy(BEST) - expected_accuracy(replace(BEST, **change)) == pytest.approx(loss)


def test_accuracy_stays_between_chance_and_all():
    hopeless = replace(BEST, learning_rate=1e9)
    assert expected_accuracy(hopeless) == 10
    assert all(10 <= accuracy(hopeless, np.random.default_rng(seed)) <= 100 for seed in range(20))


def test_a_wider_network_takes_longer_by_its_square_and_is_otherwise_the_same():
    toy = toy_application()
    wide = ScaledApplication(toy, "toy@1.5", step_factor(1.5))
    batch = BatchChoice(32, 0)
    slow, fast = wide.run(Site((2,), "t4"), batch, 0), toy.run(Site((2,), "t4"), batch, 0)
    assert slow.step == pytest.approx(StepTime(fast.step.step_s * 2.25, fast.step.sync_s * 2.25))
    assert (slow.rate, slow.throughput) == pytest.approx((fast.rate / 2.25, fast.throughput / 2.25))
    assert (slow.efficiency, slow.gradient) == (fast.efficiency, fast.gradient)
    assert wide.step_time(Site((2,), "t4"), 32) == slow.step
    assert wide.epoch_end(3) == toy.epoch_end(3)
    with pytest.raises(ValueError, match="above 0"):
        ScaledApplication(toy, "toy", 0)


def test_applications_of_trials_are_found_by_name_and_width():
    found = TrialApplications(Applications(toy_application()))
    assert application_of(found, "toy@1.25") is application_of(found, "toy@1.25")
    assert application_of(found, "toy@0.75").step_time(Site((1,), "t4"), 32).step_s == pytest.approx(0.42 * 0.75**2)
    assert application_of(found, "toy").name == "toy"


def tuned(seed: int = 1, trials: int = 30, batch_per_gpu: int = 16) -> tuple[MemoryRecorder, pd.DataFrame]:
    spec = TuningOptions(application="toy", trials=trials, at_once=3, gpus=4, batch_size=64, startup_trials=5)
    tuner, records = Tuner(spec, seed), MemoryRecorder()
    applications = TrialApplications(Applications(toy_application()))
    cluster, policy = Cluster.uniform(2, 4), Static(4, batch_per_gpu)
    options = EngineOptions(restart_delay_s=30)
    first = tuner.first()
    simulate(cluster, first, applications, policy, options, seed, records, processes=tuner.processes(first))
    return records, tuner.trials()


@needs_optuna
def test_there_are_always_as_many_trials_in_flight_until_the_last_have_begun():
    records, trials = tuned()
    assert len(records.jobs) == len(trials) == 30
    begins, ends = sorted(trials["submit_time_s"]), sorted(trials["end_time_s"])
    assert begins[:3] == [0, 0, 0]
    assert begins[3:] == ends[: 30 - 3]  # each finished trial is followed at the same second
    assert set(trials["width"]) <= set(WIDTHS)


@needs_optuna
def test_the_same_seed_gives_the_same_tuning_and_another_does_not():
    pd.testing.assert_frame_equal(tuned()[1], tuned()[1])
    assert not tuned()[1].equals(tuned(seed=2)[1])


@needs_optuna
def test_accuracy_depends_on_the_trial_and_not_on_its_speed():
    slow, fast = tuned(trials=5)[1], tuned(trials=5, batch_per_gpu=64)[1]  # five are drawn before any is known
    same = slow.merge(fast, on="job_id")
    assert (same["accuracy_x"] == same["accuracy_y"]).all()
    assert (same["end_time_s_x"] != same["end_time_s_y"]).any()


@needs_optuna
def test_the_estimator_finds_better_trials_than_chance():
    trials = tuned(trials=100)[1].sort_values("job_id")["accuracy"]
    assert trials.iloc[50:].median() > trials.iloc[:5].median()
    assert trials.iloc[50:].median() > 93


@needs_optuna
def test_an_experiment_with_a_tuning_runs_its_trials_and_sums_them_up(read, tmp_path):
    result = run_grid(make_grid(read()), tmp_path / "out")
    assert (result.ran, result.failures) == (2, ())
    for cell in sorted((tmp_path / "out" / "tiny" / "cells").iterdir()):
        trials = read_trials(cell)
        assert trials is not None
        assert len(trials) == 6
        summary = pd.read_json(cell / "summary.json", typ="series")
        assert summary["top5_accuracy"] == pytest.approx(trials["accuracy"].nlargest(5).mean())
        assert summary["finished_jobs"] == 6


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("workload={jobs: 3}", "give either 'workload' or 'tuning', not both"),
        ("policies.half.workload={jobs: 3}", "a policy cannot have its own 'workload' together with 'tuning'"),
        ("tuning.trials=0", "tuning.trials: must be at least 1, not 0"),
        ("tuning.trails=5", "did you mean 'trials'"),
    ],
)
def test_a_wrong_tuning_is_refused(read, override, message):
    with pytest.raises(InputError, match=message):
        read(override)


@needs_optuna
def test_trials_of_an_unknown_application_are_refused_before_anything_runs(read):
    with pytest.raises(InputError, match="did you mean 'cifar10'"):
        make_grid(read("tuning.application=cifar100"))


def test_without_optuna_the_message_says_how_to_install_it(read, monkeypatch):
    monkeypatch.setattr(hpo, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install -e '\.\[hpo\]'"):
        make_grid(read())


def test_trials_are_read_as_they_were_written_and_damage_is_told(tmp_path: Path):
    assert read_trials(tmp_path) is None
    trials = pd.DataFrame({"job_id": ["a"], "submit_time_s": [0], "end_time_s": [9], "accuracy": [93.25]})
    write_trials(tmp_path, trials)
    pd.testing.assert_frame_equal(read_trials(tmp_path), trials)
    write_trials(tmp_path, trials.drop(columns="accuracy"))
    with pytest.raises(InputError, match="lacks the column 'accuracy'"):
        read_trials(tmp_path)


def toy(name: str, batch: int = 64) -> JobSpec:
    return JobSpec(name, 0, 1, application="toy", batch_size=batch)


def test_static_shares_are_on_one_node_and_never_move():
    records = run(Static(2), [toy(f"job-{i}") for i in range(4)], cluster=Cluster.uniform(2, 3))
    assert {(row.gpus, row.nodes) for row in records.allocations} == {(2, 1)}
    assert all(job.restarts == 0 for job in records.jobs)
    starts = [job.start_time_s for job in sorted(records.jobs, key=lambda job: job.job_id)]
    assert starts[:2] == [0, 0]
    assert min(starts[2:]) == min(job.end_time_s for job in records.jobs)


@pytest.mark.parametrize(
    ("per_gpu", "submitted", "gpus", "batch"),
    [(None, 64, 4, 64), (8, 64, 4, 32), (32, 64, 4, 128), (2, 64, 4, 16), (200, 64, 4, 256), (None, 16, 2, 16)],
)
def test_a_static_batch_is_fixed_per_gpu_within_the_limits_and_feeds_each(per_gpu, submitted, gpus, batch):
    rows = run(Static(4, per_gpu), [toy("a", submitted)], cluster=Cluster.uniform(1, 4)).allocations
    assert {row.batch_size for row in rows if not row.restarting} == {batch}
    if per_gpu is None:
        assert {row.gpus for row in rows} == {gpus}  # 8 examples a GPU at the least


def test_a_static_share_larger_than_any_node_is_all_of_the_largest():
    cluster = Cluster.of(NodeGroup(1, 1), NodeGroup(1, 3))
    assert {row.placement for row in run(Static(4), [toy("a")], cluster=cluster).allocations} == {"1:3"}


@pytest.mark.parametrize("params", [{"gpus": 0}, {"batch_per_gpu": 0}])
def test_static_shares_of_nothing_are_refused(params):
    with pytest.raises(ValueError, match="at least 1"):
        Static(**params)


def test_no_published_accuracy_stands_beside_the_surface_that_was_calibrated_to_it():
    published = read_experiment(find_experiment("pollux/table3-hpo")).spec.published
    assert {metric for values in published.values() for metric in values} == {"jct_mean_min", "makespan_h"}
