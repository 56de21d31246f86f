"""Optimus: habits of the published simulator's estimates, kept by default and mended on request."""

from types import SimpleNamespace

import pytest
from simsched_policies.adaptive.optimus import Optimus

from simsched.engine.options import EngineOptions
from simsched.engine.records import MemoryRecorder
from simsched.engine.simulation import simulate
from simsched.model.cluster import Cluster
from simsched.model.job import JobSpec
from simsched.model.measured import MeasuredApplication, ScalabilityRow, StepTable, TrainingCurve
from simsched.policy.signals import REMAINING_WORK


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
