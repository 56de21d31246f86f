"""How far an application is from measurements, on measurements made from a model that is known."""

import pytest

from simsched.applications.calibration.fit_accuracy import KINDS, compare, compare_folder
from simsched.errors import InputError
from simsched.model.application import BatchLimits
from simsched.model.fitted import FittedApplication, NoiseCurve, Training
from simsched.model.measured import MeasuredApplication, ScalabilityRow, StepTable, TrainingCurve
from simsched.model.step_model import SevenParameters
from simsched.model.throughput import ThroughputParams

PARAMS = ThroughputParams(0.1, 0.01, 0.2, 0.02, 0.05, 0.01, 1.5)
NOISE = 30.0
SIZES = (8, 16, 32)
SHAPES = ((1,), (2,), (4,), (1, 1), (2, 2), (1, 1, 1), (2, 2, 2), (1, 1, 1, 1))


def seconds(nodes, gpus, size):
    step = float(PARAMS.step_time_s(nodes, gpus, size))
    return step, step - float(PARAMS.grad_time_s(size))


def measured(slow_shape=None):
    """Measurements that the model fits exactly; on `slow_shape` steps took twice as long."""
    tables = {}
    for shape in SHAPES:
        factor = 2 if shape == slow_shape else 1
        steps, syncs = zip(*(seconds(len(shape), sum(shape), size) for size in (4, 8)), strict=True)
        tables[shape] = StepTable((4, 8), tuple(factor * s for s in steps), tuple(factor * s for s in syncs))
    rows = [ScalabilityRow(6, 6, size, *seconds(6, 6, size)) for size in (4, 8)]
    ends = (100.0, 200.0)
    curves = [TrainingCurve(size, ends, ends, (1.0, 1.0), (NOISE / 8, NOISE / 8)) for size in SIZES]
    return MeasuredApplication("toy", tables, rows, curves)


def fitted(noise=NOISE):
    curve = NoiseCurve((0, 1), (8, 32), ((noise, noise),) * 2)
    training = Training(2, 100.0, curve, SIZES, (1.0,) * 3)
    return FittedApplication("toy", BatchLimits(8, 32, 4, 8), training, {"t4": SevenParameters(PARAMS)})


def test_a_model_that_made_the_measurements_has_no_error():
    found = compare(measured(), fitted())
    assert found.points == 2 * len(SHAPES) + 2
    assert (found.shipped.mean, found.shipped.worst) == pytest.approx((0, 0), abs=1e-9)
    assert (found.efficiency_mean, found.efficiency_worst, found.training_worst) == pytest.approx((0, 0, 0), abs=1e-9)
    assert list(found.shipped.kinds) == list(KINDS)
    assert found.seven.mean < 0.1  # fitted anew


def test_an_error_is_told_where_it_is():
    found = compare(measured(slow_shape=(2, 2)), fitted()).shipped
    assert found.worst == pytest.approx(0.5)  # half of what was measured
    assert found.kinds["2 nodes"] == pytest.approx(0.25)  # on one of two placements
    assert found.mean == pytest.approx(0.5 * 2 / 18)
    assert {kind: round(error, 9) for kind, error in found.kinds.items() if kind != "2 nodes"} == {
        "1 GPU": 0, "1 node": 0, "3-4 nodes": 0, "more nodes": 0,
    }  # fmt: skip


def test_efficiency_is_compared_in_points_and_by_time():
    # Noise as large as the initial batch instead of 30: efficiency 16 / (8 + M) instead of 38 / (30 + M).
    found = compare(measured(), fitted(noise=8.0))
    off = [abs(16 / (8 + size) - 38 / (30 + size)) for size in SIZES]
    assert found.efficiency_mean == pytest.approx(sum(off) / 3, rel=1e-6)
    assert found.efficiency_worst == pytest.approx(max(off), rel=1e-6)
    assert found.training_worst == pytest.approx((38 / 62) / (16 / 40) - 1, rel=1e-6)


def test_measurements_of_an_application_that_does_not_ship_are_refused(tmp_path):
    with pytest.raises(InputError, match="is not a folder"):
        compare_folder(tmp_path / "nowhere")
