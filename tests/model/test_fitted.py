"""Fitted physics: step times by class of placement, noise over training, and both fits on made-up measurements."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from simsched.applications.calibration.noise_fit import fit_noise
from simsched.applications.calibration.step_fit import Measured, fit_placement_model, step_errors
from simsched.model import Cluster, NodeGroup
from simsched.model.application import BatchChoice, BatchLimits
from simsched.model.fitted import FittedApplication, NoiseCurve, Training
from simsched.model.measured import MeasuredApplication, ScalabilityRow, StepTable, TrainingCurve
from simsched.model.placement import Site
from simsched.model.step_model import PlacementClass, PlacementModel, Placements, SevenParameters, interpolate
from simsched.model.throughput import ThroughputParams
from simsched.operators.fitted_speeds import fitted_speeds
from simsched.testing.builders import two_type_application

# Computation 1 s at 4 examples, 3 s at 8; gamma 1 adds times up, gamma 2 makes triangles.
MODEL = PlacementModel(
    (4, 8),
    (1.0, 3.0),
    one_node=PlacementClass((0.5, 0.75, 1.0), 1.0, contention=(0.0, 0.0, 0.5)),
    two_nodes=PlacementClass((4.0, 6.0), 2.0, contention_s=(0.0, 2.0)),
    more_nodes=PlacementClass((2.0, 3.0), 1.0, fill_exponent=1.0, nodes_exponent=2.0),
)
NOISE = NoiseCurve((0, 4), (10, 1000), ((10.0, 10.0), (1000.0, 100000.0)))
LIMITS = BatchLimits(10, 1000, 4, 8)


def times(*shapes, local_bsz=8):
    compute, step = MODEL.times_s(Placements.of(*shapes), local_bsz)
    return compute.tolist(), step.tolist()


def application(**more):
    training = Training(5, 100.0, NOISE, (10, 100, 1000), (1.0, 1.0, 2.0))
    return FittedApplication("toy", LIMITS, training, {"t4": MODEL}, **more)


def test_a_single_gpu_only_computes():
    assert times((1,)) == ([3.0], [pytest.approx(3.0)])


def test_on_one_node_synchronisation_goes_by_its_gpus():
    compute, step = times((2,), (3,), (4,))
    assert compute == [3.0, 3.0, 4.5]  # the fourth GPU slows computation by half
    assert step == pytest.approx([3.5, 3.75, 5.5])


def test_on_two_nodes_the_fullest_counts():
    compute, step = times((1, 1), (2, 1), (1, 2))
    assert compute == [3.0, 5.0, 5.0]
    assert step == pytest.approx([5.0, 61**0.5, 61**0.5])  # 3-4-5, then 5 and 6


def test_on_more_nodes_synchronisation_grows_with_them_and_shrinks_with_gaps():
    _, step = times((1, 1, 1), (1,) * 6, (2, 1, 1))
    assert step == pytest.approx([3 + 2, 3 + 2 * 4, 3 + 3 * 4 / 6])


def test_between_and_beyond_knots_lines_are_straight():
    assert interpolate(np.array([2.0, 4.0, 6.0, 8.0, 10.0]), (4, 8), (1.0, 3.0)).tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert interpolate(np.array([1.0, 9.0]), (4,), (7.0,)).tolist() == [7.0, 7.0]


def test_a_fuller_node_than_measured_is_extrapolated():
    _, step = times((8,))
    assert step == pytest.approx([4.5 + 2.0])  # sync grows by a quarter of a second with each GPU


def test_seven_parameters_are_a_step_model_too():
    params = ThroughputParams(1.0, 0.5, 4.0, 2.0, 3.0, 1.0, 2.0)
    compute, step = SevenParameters(params).times_s(Placements.of((1,), (1, 1), (4,)), 4)
    assert compute.tolist() == [3.0, 3.0, 3.0]
    assert step == pytest.approx([3.0, 5.0, 34**0.5])


def test_noise_is_geometric_between_epochs_and_batches():
    assert NOISE.at(10, 0) == pytest.approx(10.0)
    assert NOISE.at(10, 2) == pytest.approx(100.0)
    assert NOISE.at(100, 4) == pytest.approx(10000.0)
    assert NOISE.at(100, 2) == pytest.approx(316.2278, rel=1e-6)
    assert NOISE.at(10, 99) == pytest.approx(1000.0)


def test_running_by_hand():
    # 2 GPUs x 8 x 2 = 32 examples, noise 10: gain 3.2 x 20 / 42; 3.5 s and one micro-batch of 3 s more.
    run = application().run(Site((2,), "t4"), BatchChoice(8, 1), 0)
    gain = 3.2 * (10 + 10) / (10 + 32)
    assert run.rate == pytest.approx(gain / 6.5)
    assert run.efficiency == pytest.approx(20 / 42)
    assert run.throughput == pytest.approx(32 / 6.5)
    assert run.step == pytest.approx((3.5, 0.5))
    assert run.gradient == pytest.approx((1.0, 1.0))


def test_epochs_are_of_equal_progress():
    app = application()
    assert [app.epoch_end(epoch) for epoch in range(app.epochs)] == [100.0, 200.0, 300.0, 400.0, 500.0]


def test_iterations_are_progress_over_gain_times_what_real_runs_took():
    app = application()
    assert app.iterations(10, 4) == pytest.approx(500.0)
    gains = [100 * (NOISE.at(1000, epoch) + 10) / (NOISE.at(1000, epoch) + 1000) for epoch in range(2)]
    assert app.iterations(1000, 1) == pytest.approx(2.0 * sum(100.0 / gain for gain in gains))


@pytest.mark.parametrize("total", [9, 1001])
def test_total_batches_outside_the_limits_are_refused(total):
    with pytest.raises(ValueError, match=r"toy: total batch .* outside 10 to 1000"):
        application().gradient(total, 0)


def test_unknown_gpu_types_and_empty_placements_are_refused():
    with pytest.raises(ValueError, match="no step times for GPUs of type v100, only for t4"):
        application().step_time(Site((1,), "v100"), 8)
    with pytest.raises(ValueError, match="cannot run on the placement"):
        application().step_time(Site((), "t4"), 8)


def shapes_up_to_two_nodes():
    return [(1,), (2,), (3,), (4,), *((i, j) for i in range(1, 5) for j in range(i, 5))]


def synthetic(seed=0, spread=0.0):
    """Measure an application that really follows a placement model and a noise curve."""
    rng = np.random.default_rng(seed)
    four = PlacementModel(
        (4, 8, 16),
        (0.2, 0.35, 0.7),
        PlacementClass((0.05, 0.07, 0.1), 2.0),
        PlacementClass((0.2, 0.3, 0.35, 0.4), 2.0),
        PlacementClass((0.15, 0.2, 0.25, 0.3), 2.0, nodes_exponent=0.3),
    )
    sizes = (4, 8, 12, 16)

    def table(placements):
        compute, step = four.times_s(placements, sizes)
        step = step * rng.lognormal(0, spread, step.shape)
        return StepTable(sizes, tuple(step.tolist()), tuple((step - np.minimum(compute, 0.99 * step)).tolist()))

    shapes = [*shapes_up_to_two_nodes(), (1, 1, 1), (2, 2, 2), (4, 4, 4), (1, 2, 4)]
    placements = {shape: table(Placements.of(*[shape] * 4)) for shape in shapes}
    rows = []
    for nodes, gpus in ((6, 6), (6, 24), (12, 12), (12, 48)):
        found = table(Placements.counted([nodes] * 4, [gpus] * 4, [gpus // nodes] * 4))
        rows += [ScalabilityRow(nodes, gpus, *row) for row in zip(*vars(found).values(), strict=True)]
    noise = NoiseCurve((0, 9, 10, 29), (20, 320), ((20.0, 20.0), (80.0, 160.0), (400.0, 2000.0), (500.0, 4000.0)))
    curves = []
    for batch in (10, 20, 40, 80, 160, 320):
        var = tuple(noise.at(batch, epoch) / 10 for epoch in range(30))
        progress = tuple(100.0 * (epoch + 1) for epoch in range(30))
        curves.append(TrainingCurve(batch, progress, progress, (1.0,) * 30, var))
    return MeasuredApplication("toy", placements, rows, curves), noise


def test_the_step_fit_recovers_a_placement_model():
    table = Measured.of(synthetic()[0])
    step, compute = step_errors(table, fit_placement_model(table))
    assert step.mean() < 0.005
    assert step.max() < 0.03
    assert compute.mean() < 0.01


def test_the_step_fit_smooths_noise_away():
    noisy, clean = Measured.of(synthetic(seed=1, spread=0.05)[0]), Measured.of(synthetic()[0])
    step, _ = step_errors(clean, fit_placement_model(noisy))
    assert step.mean() < 0.03


def test_the_noise_fit_finds_a_jump_in_training():
    measured, noise = synthetic()
    found = fit_noise(measured)
    assert {9, 10} <= set(found.epochs)
    for batch in (20, 40, 80, 160, 320):
        for epoch in range(30):
            true, fitted = noise.at(batch, epoch), found.at(batch, epoch)
            assert (fitted + 10) / (fitted + batch) == pytest.approx((true + 10) / (true + batch), abs=0.03)


SHAPES = {"t4": ((1,), (2,), (1, 1), (2, 1), (2, 2)), "v100": ((1,), (2,))}
PROGRESS = 100  # of an epoch


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return Cluster.of(NodeGroup(2, 2), NodeGroup(1, 2, "v100"))


@pytest.fixture(scope="module")
def app() -> FittedApplication:
    return two_type_application()


@pytest.fixture(scope="module")
def rates(app: FittedApplication) -> dict[tuple[str, int], list[float]]:
    """Return the largest rate of each epoch that any batch reaches, by type and number of GPUs."""
    found: dict[tuple[str, int], list[float]] = {}
    for kind, shapes in SHAPES.items():
        for shape in shapes:
            gpus, site = sum(shape), Site(shape, kind)
            choices = {BatchChoice(local, more) for local in range(8, 65) for more in range(256 // local)}
            usable = [one for one in choices if 16 <= one.total(gpus) <= 256]
            best = [max(app.run(site, one, epoch).rate for one in usable) for epoch in range(app.epochs)]
            before = found.get((kind, gpus), best)
            found[kind, gpus] = [max(pair) for pair in zip(before, best, strict=True)]
    return found


@pytest.mark.parametrize("on_one_gpu", [False, True])
def test_no_way_of_moving_between_gpus_makes_more_progress_than_the_bound(app, cluster, rates, on_one_gpu) -> None:
    bound = fitted_speeds(app, cluster, on_one_gpu=on_one_gpu)
    assert set(bound) == set(rates)
    for places in product(rates, repeat=app.epochs):
        done = sum(PROGRESS / rates[place][epoch] * bound[place] for epoch, place in enumerate(places))
        assert done >= PROGRESS * app.epochs * (1 - 1e-9), places


def test_each_way_of_counting_is_exact_where_it_is_meant_to_be(app, cluster, rates) -> None:
    on_many, on_one = (fitted_speeds(app, cluster, on_one_gpu=choice) for choice in (False, True))
    fastest = np.max(list(rates.values()), axis=0)
    assert PROGRESS * app.epochs / max(on_many.values()) == pytest.approx((PROGRESS / fastest).sum(), rel=0.01)
    alone = sum(PROGRESS / rate for rate in rates["v100", 1])
    assert PROGRESS * app.epochs / on_one["v100", 1] == pytest.approx(alone, rel=0.01)


MEASURED = {
    (1,): StepTable((4, 8, 16), (1.0, 2.0, 6.0), (0.1, 0.1, 0.1)),
    (2,): StepTable((4, 8, 16), (1.5, 2.5, 6.5), (0.5, 0.5, 0.5)),
    (1, 1): StepTable((4, 8), (1.75, 2.25), (0.75, 0.5)),
    (2, 2): StepTable((4, 8), (1.75, 3.0), (1.0, 1.5)),
}
#: Epochs of 10 and of 30; noise made a variance negative.
CURVES = [
    TrainingCurve(8, (10.0, 40.0), (10.0, 40.0), (1.0, 4.0), (8.0, 8.0)),
    TrainingCurve(32, (12.0, 41.0), (4.0, 6.0), (5.0, 4.0), (-2.0, 8.0)),
]
ROWS = [ScalabilityRow(nodes, gpus, 4, 1.0 + gpus, 0.5) for nodes, gpus in ((2, 3), (3, 3), (3, 6), (5, 5))]


@pytest.mark.parametrize("on_one_gpu", [False, True])
def test_no_way_of_moving_a_measured_job_makes_more_progress_than_the_bound(on_one_gpu) -> None:
    app = MeasuredApplication("toy", MEASURED, ROWS, CURVES)
    bound = fitted_speeds(app, Cluster.uniform(3, 2, "t4"), on_one_gpu=on_one_gpu)
    rates: dict[int, list[float]] = {}
    for shape in ((1,), (2,), (1, 1), (2, 1), (1, 1, 1), (2, 2), (2, 1, 1), (2, 2, 1), (2, 2, 2)):
        for batch in (BatchChoice(local, more) for local in range(4, 17) for more in range(8)):
            try:
                found = [app.run(Site(shape, "t4"), batch, epoch).rate for epoch in range(2)]
            except ValueError:
                continue  # outside what was measured
            if batch.total(sum(shape)) >= 8:
                rates[sum(shape)] = [max(pair) for pair in zip(rates.get(sum(shape), found), found, strict=True)]
    assert {("t4", gpus) for gpus in rates} == set(bound)
    for places in product(rates, repeat=2):
        done = [length / rates[gpus][epoch] * bound["t4", gpus] for epoch, gpus in enumerate(places)
                for length in [(10.0, 30.0)[epoch]]]  # fmt: skip
        assert sum(done) >= 40.0 * (1 - 1e-9), places
    if not on_one_gpu:  # exact for a job that has the best GPUs in each epoch
        fastest = np.max(list(rates.values()), axis=0)
        assert 40.0 / max(bound.values()) <= 10.0 / fastest[0] + 30.0 / fastest[1] + 1e-9
