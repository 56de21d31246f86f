"""Measured physics on small tables whose answers are worked out by hand."""

import numpy as np
import pytest

from simsched.model.application import BatchChoice, BatchLimits, GradientStats, StepTime
from simsched.model.measured import Bounds, MeasuredApplication, ScalabilityRow, StepTable, TrainingCurve
from simsched.model.placement import Site
from simsched.model.tabulated import FixedDuration

PLACEMENTS = {
    (1,): StepTable((4, 8, 16), (1.0, 2.0, 6.0), (0.1, 0.1, 0.1)),
    (2,): StepTable((4, 8, 16), (1.5, 2.5, 6.5), (0.5, 0.5, 0.5)),
    (1, 2): StepTable((4, 8, 16), (2.0, 3.0, 7.0), (1.0, 1.0, 1.0)),
    (1, 1, 2): StepTable((4, 8), (3.0, 4.0), (1.0, 1.0)),
    (1, 2, 3): StepTable((4, 8), (5.0, 6.0), (1.0, 1.0)),
    (1, 3, 2): StepTable((4, 8), (7.0, 8.0), (1.0, 1.0)),
    (2, 2, 2): StepTable((4, 8), (9.0, 10.0), (2.0, 2.0)),
}
CURVES = [
    TrainingCurve(8, (10.0, 20.0), (10.0, 20.0), (1.0, 4.0), (8.0, 8.0)),
    TrainingCurve(16, (11.0, 19.0), (6.0, 12.0), (3.0, -4.0), (4.0, 8.0)),
    TrainingCurve(32, (12.0, 21.0), (4.0, 6.0), (5.0, 4.0), (2.0, 8.0)),
]
ROWS = [
    ScalabilityRow(nodes, gpus, size, 10.0 * nodes + gpus + 0.5 * size, 1.0 * nodes)
    for nodes, gpus in ((5, 5), (5, 9), (8, 8), (8, 16))
    for size in (4, 8)
]


def application(**more):
    return MeasuredApplication("toy", PLACEMENTS, ROWS, CURVES, **more)


def test_limits_come_from_the_tables():
    assert application().limits == BatchLimits(8, 32, 4, 16)
    assert application(bounds=Bounds(max_local_bsz=8)).limits == BatchLimits(8, 32, 4, 8)
    assert application().batch_sizes == (8, 16, 32)
    assert application().gpu_types == ("t4",)


def test_an_epoch_ends_at_the_least_progress_of_all_runs():
    assert [application().epoch_end(epoch) for epoch in (0, 1)] == [10.0, 19.0]
    assert application().epochs == 2


@pytest.mark.parametrize(("size", "step"), [(4, 1.0), (6, 1.5), (8, 2.0), (10, 3.0), (16, 6.0)])
def test_step_time_is_linear_between_measured_batches(size, step):
    assert application().step_time(Site((1,), "t4"), size) == StepTime(step, 0.1)


@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
def test_synchronising_takes_the_factor_of_the_levels_crossed(factor):
    assert application().step_time(Site((2,), "t4", 1, factor), 4) == StepTime(1.0 + 0.5 * factor, 0.5 * factor)


@pytest.mark.parametrize("shape", [(1, 2), (2, 1)])
def test_rotations_of_a_placement_are_the_same(shape):
    assert application().step_time(Site(shape, "t4"), 4).step_s == 2.0


def test_mirror_images_of_a_placement_are_not_the_same():
    app = application()
    assert [app.step_time(Site(shape, "t4"), 4).step_s for shape in ((3, 1, 2), (2, 3, 1), (2, 1, 3), (3, 2, 1))] == [
        5.0,
        5.0,
        7.0,
        7.0,
    ]


@pytest.mark.parametrize("size", [3, 17])
def test_nothing_is_extrapolated(size):
    with pytest.raises(ValueError, match=r"toy on \(1,\) GPUs: per-GPU batch .* outside 4 to 16"):
        application().step_time(Site((1,), "t4"), size)


def test_unmeasured_shapes_are_interpolated_over_counts():
    # Along the edge between two measured points, any triangulation that has the edge agrees.
    app = application()
    assert app.step_time(Site((1, 1, 1, 1, 1), "t4"), 6).step_s == pytest.approx(50 + 5 + 3)
    assert app.step_time(Site((1,) * 8, "t4"), 6) == pytest.approx(StepTime(80 + 8 + 3, 8.0))


def test_placements_with_equal_counts_are_averaged_before_interpolation():
    # (1, 1, 4) was not measured; (1, 2, 3), (1, 3, 2) and (2, 2, 2) were, with 3 nodes and 6 GPUs.
    assert application().step_time(Site((1, 1, 4), "t4"), 4) == pytest.approx(StepTime((5 + 7 + 9) / 3, 4 / 3))


def test_more_than_16_nodes_count_as_16():
    rows = [*ROWS, *(ScalabilityRow(16, gpus, size, 99.0, 9.0) for gpus in (16, 40) for size in (4, 8))]
    app = MeasuredApplication("toy", PLACEMENTS, rows, CURVES)
    assert app.step_time(Site((1,) * 20, "t4"), 4) == app.step_time(Site((2, 2, 2, 2) + (1,) * 12, "t4"), 4)


def test_beyond_the_measured_counts_it_refuses():
    with pytest.raises(ValueError, match=r"toy: 60 GPUs on 5 nodes .* outside what was measured"):
        application().step_time(Site((12,) * 5, "t4"), 4)


@pytest.mark.parametrize(
    ("gpus", "nodes", "sizes", "compute", "step"),
    [
        # Three placements of 6 GPUs: 5, 7 and 9 s at 4 examples, of which 1, 1 and 2 s synchronise; none knows 16.
        (6, (), (4, 6, 8, 16), [4, 4.5, 5, 0], [5, 5.5, 6, np.inf]),
        (6, (3,), (4, 6), [4, 4.5], [5, 5.5]),
        # Eight GPUs on 8 nodes take 90 s, on 5 nodes, between 5 and 9 GPUs, 60 s; on 40 nobody knows.
        (8, (8,), (4, 6), [82, 83], [90, 91]),
        (8, (40, 8, 5), (4,), [55], [60]),
        (8, (), (4,), [0], [np.inf]),
        (8, (5,), (), [], []),
    ],
)
def test_the_least_times_on_so_many_gpus(gpus, nodes, sizes, compute, step):
    app, sizes = application(), np.array(sizes, dtype=np.int64)
    for _ in range(2):  # worked out, and remembered
        found = app.times_s(gpus, nodes, sizes)
        assert [one.tolist() for one in found] == [pytest.approx(compute), pytest.approx(step)]
    few = MeasuredApplication("few", {(6,): PLACEMENTS[2, 2, 2]}, [], CURVES)
    for many, seconds in ((6, 9.0), (8, np.inf)):
        assert few.times_s(many, (1, 2), np.array([4]))[1].tolist() == [seconds]


def test_gradient_statistics_are_linear_in_the_total_batch():
    app = application()
    assert app.gradient(8, 0) == GradientStats(1.0, 8.0)
    assert app.gradient(12, 0) == GradientStats(2.0, 6.0)
    assert app.gradient(20, 0) == GradientStats(3.5, 3.5)


def test_iterations_are_linear_in_the_total_batch():
    assert application().iterations(12, 0) == 8.0
    assert application().iterations(24, 1) == 9.0


@pytest.mark.parametrize("total", [7, 33])
def test_total_batches_outside_the_measured_ones_are_refused(total):
    with pytest.raises(ValueError, match=r"toy: total batch .* outside 8 to 32"):
        application().gradient(total, 0)


def test_running_by_hand():
    # 2 GPUs x 4 x 3 micro-batches = 24: sqr 4, var 3, scale 3, gain 7 / 5; step 1.5 and two micro-batches of 1.0 more.
    run = application().run(Site((2,), "t4"), BatchChoice(4, 2), 0)
    assert run.rate == (7 / 5) / 3.5
    assert run.efficiency == pytest.approx(7 / 15)
    assert run.throughput == 24 / 3.5
    assert run.step == StepTime(1.5, 0.5)
    assert run.gradient == GradientStats(4.0, 3.0)


def test_negative_statistics_are_used_as_they_are():
    # B = 12: sqr 0 (half way from 4 to -4), var 8, scale 1.5: gain 8 / (8 / 1.5) = 1.5, on a step of 4 s.
    run = application().run(Site((1,), "t4"), BatchChoice(12, 0), 1)
    assert run.rate * 4.0 == pytest.approx(1.5)
    # B = 15: sqr -3, var 8, scale 1.875: 5 / (8 / 1.875 - 3), more than the scale.
    run = application().run(Site((1,), "t4"), BatchChoice(15, 0), 1)
    assert run.efficiency == pytest.approx(5 / (8 / 1.875 - 3) / 1.875)
    assert run.efficiency > 1


def test_the_same_question_gets_the_same_object():
    app = application()
    assert app.run(Site((2,), "t4"), BatchChoice(4, 2), 0) is app.run(Site((2,), "t4"), BatchChoice(4, 2), 0)


def test_other_gpu_types_are_refused():
    with pytest.raises(ValueError, match="measured on GPUs of type t4, not on v100"):
        application().run(Site((1,), "v100"), BatchChoice(8, 0), 0)


def test_too_few_points_to_triangulate_are_an_error_in_words():
    app = MeasuredApplication("toy", {(1,): PLACEMENTS[1,]}, [], CURVES)
    with pytest.raises(ValueError, match="too few placements"):
        app.step_time(Site((1, 1), "t4"), 4)


def test_fixed_duration_runs_a_second_per_second_anywhere():
    job = FixedDuration(90)
    run = job.run(Site((4, 4), "any"), BatchChoice(0, 0), 0)
    assert (job.epochs, job.epoch_end(0), run.rate, run.efficiency) == (1, 90.0, 1.0, 1.0)
    assert run.step is None
    assert job.limits is None
    assert not hasattr(job, "__dict__")  # there may be a million of them
    with pytest.raises(ValueError, match="more than 0 seconds"):
        FixedDuration(0)


def test_interpolated_values_stay_between_their_neighbours():
    table = PLACEMENTS[1,]
    values = [table.at(size).step_s for size in range(4, 17)]
    assert np.all(np.diff(values) > 0)
