"""Optimus: habits of the published simulator's estimates, kept by default and mended on request."""

import csv
from io import StringIO
from types import SimpleNamespace

import numpy as np
import pytest
from simsched_policies.adaptive.optimus import Optimus
from simsched_policies.adaptive.optimus_online import OptimusOnline

from simsched.applications.catalogue import catalogue
from simsched.engine.options import EngineOptions
from simsched.engine.records import MemoryRecorder
from simsched.engine.simulation import simulate
from simsched.errors import InputError
from simsched.model.cluster import Cluster, NodeGroup
from simsched.model.job import JobSpec
from simsched.model.measured import MeasuredApplication, ScalabilityRow, StepTable, TrainingCurve
from simsched.model.placement import Site, gpus_of
from simsched.policy.signals import LOSSES, OFFLINE_PROFILES, REMAINING_WORK, STEP_TIMES, Speed
from simsched.testing.builders import Applications, fresh_view, random_jobs, run, toy_application, two_type_application
from simsched.toolkit.loss_curves import fit_convergence
from simsched.toolkit.type_pools import type_pools


def gpus_held(policy):
    """Count the GPUs of a job with a batch of 16, which fits on one GPU in one piece."""
    tables = {
        (1,): StepTable((8, 16), (0.5, 0.6), (0.0, 0.0)),
        (2,): StepTable((8, 16), (0.75, 1.0), (0.25, 0.25)),
    }
    curves = [TrainingCurve(size, (100.0, 200.0), (100.0, 200.0), (1.0, 1.0), (3.0, 3.0)) for size in (8, 16)]
    app = MeasuredApplication("toy", tables, [ScalabilityRow(5, 5, 8, 2.0, 1.0)], curves)
    recorder = MemoryRecorder()
    source = SimpleNamespace(for_job=lambda request, truth: app)
    simulate(Cluster.uniform(1, 4), [JobSpec("a", 0, 2, "toy", 16)], source, policy, EngineOptions(), 1, recorder)
    return {one.gpus for one in recorder.allocations}


def test_one_gpu_is_thought_to_need_two_micro_batches():
    # In two pieces 2 x 0.5 s on one GPU, against 0.75 s on two; in one piece 0.6 s.
    assert gpus_held(Optimus()) == {2}
    assert gpus_held(Optimus(plain_one_gpu=True)) == {1}


@pytest.mark.parametrize(("epoch", "published", "mended"), [(0, 20.0, 30.0), (1, 10.0, 20.0), (2, 1.0, 10.0)])
def test_the_epoch_in_progress_is_left_out_of_what_remains(epoch, published, mended):
    """Three epochs of 10 iterations each; in the last one a single iteration is thought to remain."""
    remaining = SimpleNamespace(epoch=epoch, epochs=3, iterations=lambda batch, last: 10.0 * (last + 1))
    job = {REMAINING_WORK: remaining}
    assert Optimus()._remaining_iterations(job, 16) == published
    assert Optimus(count_current_epoch=True)._remaining_iterations(job, 16) == mended


ORACLE = {"convergence": "oracle", "speed": "oracle"}
KINDS = (("cifar10", 1024), ("deepspeech2", 160), ("ncf", 32768), ("yolov3", 16))
MIXED = [JobSpec(f"job-{i}", 400 * i, 2, *KINDS[i % 4]) for i in range(12)]


def test_with_oracles_it_decides_as_optimus():
    for jobs, applications in (
        (random_jobs(np.random.default_rng(5), 30, most_gpus=4), None),
        (MIXED, catalogue()),
    ):
        records = [
            run(policy, jobs, applications=applications, cluster=Cluster.uniform(3, 4))
            for policy in (Optimus(interval_s=300), OptimusOnline(interval_s=300, **ORACLE))
        ]
        assert records[0].jobs == records[1].jobs
        assert records[0].allocations == records[1].allocations


def test_signals_follow_the_estimates():
    assert OptimusOnline(**ORACLE).signals >= {REMAINING_WORK, STEP_TIMES}
    online = OptimusOnline().signals
    assert not any(signal.oracle for signal in online)
    assert OFFLINE_PROFILES in online
    assert OFFLINE_PROFILES not in OptimusOnline(initial_samples=0).signals


def halfway(policy, epochs, gpus=4):
    """Decide for a job that has trained so long, measured on 1 and 2 GPUs, and another that has not begun."""
    specs = [JobSpec("a", 0, 1, "toy", 256), JobSpec("b", 0, 1, "toy", 256)]
    view, jobs = fresh_view(policy, specs, Cluster.uniform(1, gpus), Applications(toy_application()))
    jobs["a"].progress = 100 * epochs
    jobs["a"].speeds = {Site((1,), "t4"): Speed(0.0, 2.0, 0.5), Site((2,), "t4"): Speed(0.0, 1.2, 0.9)}
    return view, policy.decide(view, None)


def test_remaining_work_is_what_the_losses_foretell():
    policy = OptimusOnline(initial_samples=0)
    view, decision = halfway(policy, 2.0)
    job = view.jobs["a"]
    reports = job[LOSSES]
    end = fit_convergence(reports.epochs, reports.losses).last_step(0.01, 1, 3, most_epochs=100_000)
    # The toy's loss is 1/(1 + k), which falls by 1/(k + 1) in an epoch: under 1 % after 100, and three make it 102.
    assert end == pytest.approx(102, abs=1)
    # An iteration was worth 0.9 x 1.2 or 0.5 x 2 of progress; the larger counts.
    assert policy._remaining_iterations(job, 256) == pytest.approx((end - 2) * 100 / 1.08)
    assert policy._remaining_iterations(view.jobs["b"], 256) == 50 * 100
    assert gpus_of(decision.allocations["a"]) == 3, "of the other no speed is known"
    rows = list(csv.DictReader(StringIO(policy.artifacts()["predictions.csv"])))
    assert [(row["job_id"], float(row["progress"]), int(row["gpus"])) for row in rows] == [("a", 200, 3), ("b", 0, 1)]
    assert float(rows[0]["end"]) == 100 * end


def test_initial_samples_let_new_jobs_grow():
    _, decision = halfway(OptimusOnline(), 2.0)
    assert gpus_of(decision.allocations["b"]) > 1
    assert sum(map(gpus_of, decision.allocations.values())) == 4


def test_errors_falsify_the_estimates_either_way():
    policy = OptimusOnline(convergence_error=0.5, speed_error=0.2, **ORACLE)
    specs = [JobSpec(f"job-{i}", 0, 1, "toy", 64) for i in range(12)]
    view, _ = fresh_view(policy, specs, Cluster.uniform(1, 4), Applications(toy_application()))
    policy.decide(view, np.random.default_rng(1))
    truth = Optimus()
    factors = {
        policy._remaining_iterations(job, 64) / truth._remaining_iterations(job, 64) for job in view.jobs.values()
    }
    assert {round(factor, 9) for factor in factors} == {0.5, 1.5}
    with pytest.raises(ValueError, match="must lie in"):
        OptimusOnline(speed_error=1.0)
    with pytest.raises(ValueError, match="above 0"):
        OptimusOnline(prior_epochs=0)


def test_only_oracles_do_without_losses():
    bare = toy_application()
    bare.loss_curve, bare.reports_loss = None, False
    jobs = [JobSpec("a", 0, 1, "toy", 64)]
    assert run(OptimusOnline(**ORACLE), jobs, applications=Applications(bare)).jobs
    with pytest.raises(InputError, match="no loss curve"):
        run(OptimusOnline(), jobs, applications=Applications(bare))


def test_each_type_has_its_own_profile_and_its_own_speeds():
    # Steps on a v100 take half as long; what was measured on a t4 says nothing about it.
    policy = OptimusOnline()
    cluster = Cluster.of(NodeGroup(1, 4, "t4"), NodeGroup(1, 4, "v100"))
    specs = [JobSpec(name, 0, 1, "toy", 64) for name in "ab"]
    view, jobs = fresh_view(policy, specs, cluster, Applications(two_type_application()))
    jobs["a"].allocation, jobs["b"].allocation = ((0, 1),), ((1, 1),)
    slow, fast = type_pools(view)
    assert (list(slow.jobs), list(fast.jobs)) == (["a"], ["b"])

    def step_s(pool, name: str, gpus: int) -> float:
        return policy._step_s(pool.jobs[name], pool, 4, gpus)

    for gpus in (1, 2, 4):
        assert 1.5 < step_s(slow, "a", gpus) / step_s(fast, "b", gpus) < 2.5
    before = step_s(fast, "b", 2)
    jobs["b"].speeds[Site((2,), "t4")] = Speed(1.0, 100.0, 100.0)
    assert step_s(fast, "b", 2) == before
