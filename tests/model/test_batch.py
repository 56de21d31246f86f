"""How batches of tuned jobs scale over GPUs: the curves of a step model, and their fit to measurements."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest

from simsched.applications.calibration.loss_fit import cheapest_bends
from simsched.applications.calibration.scaling_fit import fit_scaling, scaling_of
from simsched.engine.errors import InfeasibleDecisionError
from simsched.errors import InputError
from simsched.model.application import NO_BATCH, StepTime
from simsched.model.batch import ScalingCurve, micro_batches
from simsched.model.job import JobRequest, JobSpec, JobTruth, Speedup
from simsched.model.measured import MeasuredApplication, StepTable, TrainingCurve
from simsched.model.placement import Site, canonical_rotation, consolidated_shape
from simsched.model.step_model import PlacementClass, PlacementModel, Placements
from simsched.model.tabulated import FixedDuration
from simsched.policy import Decision, Policy, Traits
from simsched.testing.builders import run
from simsched.workload.source import WorkloadOptions, make_workload

CLASS = PlacementClass((0.0, 0.0, 0.0, 0.0), 1.0)
#: A second for each example of a micro-batch, up to 8 of them; synchronisation is free.
PLAIN = PlacementModel((1, 8), (1.0, 8.0), replace(CLASS, sync_s=(0.0, 0.0, 0.0)), CLASS, CLASS)
CURVE = ScalingCurve(32, 4, (4, 8), (2.0, 4.0))


def factor(model, *shapes, local_bsz):
    compute, step = model.times_s(Placements.of(*shapes), local_bsz)
    assert step == pytest.approx(compute)
    return (step / np.asarray(local_bsz)).tolist()


def test_a_batch_is_split_evenly_into_micro_batches_of_at_most_so_many_examples():
    local_bsz, parts = micro_batches(32, [1, 2, 3, 4, 5, 8], 8)
    assert local_bsz.tolist() == [8, 8, 6, 8, 7, 4]
    assert parts.tolist() == [4, 2, 2, 1, 1, 1]


def test_on_one_gpu_there_are_two_micro_batches_at_least():
    assert [float(value) for value in micro_batches(8, 1, 8)] == [4, 2]


def test_a_curve_holds_at_its_batch_straight_between_its_numbers_of_gpus_and_level_beyond():
    shapes, sizes = [(3,), (4,), (4, 2), (4, 4), (4, 4, 4)], [6, 8, 6, 4, 3]
    assert factor(replace(PLAIN, scaling=(CURVE,)), *shapes, local_bsz=sizes) == pytest.approx([2, 2, 3, 4, 4])


def test_a_curve_fades_until_half_and_twice_its_per_gpu_batch():
    model = replace(PLAIN, scaling=(CURVE,))
    found = factor(model, *[(4, 4)] * 5, local_bsz=[2, 4 / 2**0.5, 4, 4 * 2**0.5, 8])
    assert found == pytest.approx([1, 2.5, 4, 2.5, 1])


def test_a_curve_leaves_placements_alone_that_do_not_fill_node_after_node():
    model = replace(PLAIN, scaling=(CURVE,))
    assert factor(model, (2, 2), (3, 3), (1, 4, 3), (4, 3, 1), local_bsz=[8, 6, 4, 4]) == pytest.approx([1, 1, 1, 1])


def test_of_two_curves_the_nearest_holds_and_the_first_where_both_are_as_near():
    double = ScalingCurve(64, 4, (4, 8), (8.0, 8.0))
    model = replace(PLAIN, scaling=(CURVE, double))
    # On 8 GPUs their batches are 4 and 8; on 4 GPUs both run with 8, the larger twice as often.
    assert factor(model, (4, 4), (4, 4), (4,), local_bsz=[4, 8, 8]) == pytest.approx([4, 8, 2])


def test_bends_are_where_they_cost_least():
    free = {(0, 2), (2, 5)}
    pieces = np.full((6, 6), np.inf)
    for i in range(6):
        for j in range(i + 1, 6):
            pieces[i, j] = 0.0 if (i, j) in free else float(j - i)
    assert cheapest_bends(pieces, 6, 0.0) == [0, 2, 5]
    assert cheapest_bends(pieces, 2, 0.0) == [0, 5]
    assert cheapest_bends(pieces, 6, 5.0) == [0, 5]
    assert cheapest_bends(np.full((1, 1), np.inf), 6, 0.0) == [0]


def measured(longer):
    """Make an application measured on up to 8 GPUs: PLAIN's times, `longer` times as long on so many GPUs."""
    shapes = {canonical_rotation(consolidated_shape(gpus, 4)): gpus for gpus in range(1, 9)}
    sizes = tuple(range(1, 9))
    tables = {
        shape: StepTable(sizes, tuple(size * longer.get(gpus, 1.0) for size in sizes), (0.0,) * 8)
        for shape, gpus in shapes.items()
    }
    curves = [TrainingCurve(batch, (1.0,), (1.0,), (1.0,), (1.0,)) for batch in (8, 64)]
    return MeasuredApplication("made", tables, [], curves)


def times(application, model, batch):
    """Return seconds a step at a total batch on 1 to 8 GPUs, measured and modelled, sum of micro-batches."""
    found = scaling_of(application, model, batch)
    return found.measured_s, found.modelled_s


def test_a_fit_finds_where_gains_stall():
    # Twice as slow on 5 GPUs as on 4: 8 s on 4 GPUs, 14 s on 5 instead of 7.
    application = measured({5: 2.0, 6: 1.5})
    fitted = fit_scaling(application, PLAIN, {32})
    true_s, modelled_s = times(application, fitted, 32)
    assert true_s[3:6].tolist() == [8, 14, 9]
    assert modelled_s == pytest.approx(true_s, rel=0.02)
    assert (np.diff(modelled_s[:5]) < 0).tolist() == [True, True, True, False]


def test_a_fit_leaves_a_model_that_is_right_as_it_was():
    fitted = fit_scaling(measured({}), PLAIN, {32, 64})
    assert [curve.batch for curve in fitted.scaling] == [32, 64]
    assert np.concatenate([curve.factor for curve in fitted.scaling]) == pytest.approx(1.0)


def test_a_larger_batch_leaves_the_micro_batches_of_a_smaller_one_to_it():
    # Only on 3 GPUs (11 examples are two of 6, 22 are three of 8) and on 8 (4 and 8 examples) do they differ.
    assert scaling_of(measured({}), PLAIN, 64, smaller=[32]).gpus.tolist() == [3, 8]


def test_a_fit_goes_as_far_as_the_measurements_do():
    application = measured({})
    few = {shape: table for shape, table in application.placements.items() if sum(shape) <= 3}
    small = MeasuredApplication("made", few, [], application.curves)
    found = scaling_of(small, PLAIN, 32)
    assert found.gpus.tolist() == [1, 2, 3]
    assert small.step_time(Site((3,), "t4"), 6) == StepTime(6.0, 0.0)


class Catalogue:
    def for_job(self, request: JobRequest, truth: JobTruth) -> FixedDuration:
        return FixedDuration(truth.duration_s, request.num_gpus, truth.speedup)


@dataclass
class Halves(Policy):
    """Gives every job two GPUs."""

    name: ClassVar[str] = "halves"
    traits: ClassVar[Traits] = Traits(rigid=False)

    def decide(self, view, rng):
        return Decision({job.id: ((0, 2),) for job in view.jobs.values()})


class Promises(Halves):
    """Says that it does not."""

    traits: ClassVar[Traits] = replace(Halves.traits, rigid=True)


def rate(speedup: Speedup, asked: int, given: int) -> float:
    return FixedDuration(60, asked, speedup).run(Site((given,), "t4"), NO_BATCH, 0).rate


def test_speed_follows_what_is_declared():
    assert rate(Speedup(), 8, 2) == 0.25
    assert rate(Speedup(0.5), 4, 1) == 0.5
    table = Speedup(table=((2, 2.0), (4, 3.0)))
    assert [rate(table, 4, given) for given in (1, 2, 3, 4, 8)] == pytest.approx([1 / 3, 2 / 3, 2.5 / 3, 1, 1])


@pytest.mark.parametrize("wrong", [0.0, 1.5, ((2, 1.0), (1, 2.0)), ((1, -1.0),)])
def test_what_is_no_speedup_is_refused(wrong):
    with pytest.raises(InputError, match=r"workload\.speedup"):
        make_workload(WorkloadOptions(recipe="tiresias-example", speedup=wrong), 1)


def test_half_the_gpus_take_twice_the_time_where_that_is_declared():
    job = JobSpec("a", 0, 4, duration_s=100, speedup=Speedup())
    (found,) = run(Halves(), [job], applications=Catalogue()).jobs
    assert found.jct_s == 30 + 200


def test_otherwise_the_job_is_refused_by_name():
    with pytest.raises(InfeasibleDecisionError, match=r"job 'a' asked for 4 GPUs and is given 2.*workload\.speedup"):
        run(Halves(), [JobSpec("a", 0, 4, duration_s=100)], applications=Catalogue())


def test_a_rigid_policy_is_held_to_it_in_every_run():
    with pytest.raises(InfeasibleDecisionError, match=r"job 'a' asked for 4 .* rigid"):
        run(Promises(), [JobSpec("a", 0, 4, duration_s=100, speedup=Speedup())])
