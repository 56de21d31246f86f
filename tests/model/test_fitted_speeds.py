"""A bound on the speed of fitted applications: against every batch and placement of a small cluster."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from simsched.model import BatchChoice, Cluster, NodeGroup, Site
from simsched.model.fitted import FittedApplication
from simsched.model.measured import MeasuredApplication, ScalabilityRow, StepTable, TrainingCurve
from simsched.operators.fitted_speeds import fitted_speeds
from simsched.testing.builders import two_type_application

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
