"""Bounds of how fast large models train: no plan on any site is faster."""

from __future__ import annotations

import pytest

from simsched.model import Cluster, Node, Site
from simsched.model.plans import (
    EVERYTHING,
    Hardware,
    ModelShape,
    Plan,
    PlannedJob,
    PlannedModel,
    TabledModel,
    plans,
    step_times,
)
from simsched.operators.relaxed import planned_speeds

A100 = Hardware("a100", 80e9, 312e12, 312e12, 0.5, 0.0, 1e-5, 250e9, 1e-5, 4, 25e9, network_latency_s=1e-5, spread=0.05)
SMALL = PlannedModel("small", ModelShape(8, 1024, 4096, 16, 16, 51200, 1024), {"a100": A100}, 16, 1e9)
CLUSTER = Cluster.uniform(4, 4, "a100")
SHAPES = ((1,), (2,), (1, 1), (4,), (2, 2), (1, 1, 1, 1), (4, 4), (2, 2, 2, 2), (3, 3, 2), (4, 4, 4, 4))
EACH = [(count, count) for count in range(1, 17)]


def test_no_plan_is_faster_anywhere_than_the_bound_for_so_many_gpus() -> None:
    bound = planned_speeds(PlannedJob(SMALL, 100), None, EACH, CLUSTER)
    for shape in SHAPES:
        table, _ = plans(SMALL.shape, A100, sum(shape), 16, EVERYTHING, at_least=1)
        seconds = step_times(SMALL.shape, A100, table, 16, A100.tiers(shape)).total
        assert 1 / seconds.min() <= bound["a100", sum(shape)] * (1 + 1e-12), shape
    assert bound["a100", 1] == pytest.approx(
        1 / SMALL.best(Site((1,), "a100")).parts.total
    )  # on one GPU there is no network
    assert [bound["a100", count] for count, _ in EACH] == sorted(bound["a100", count] for count, _ in EACH)


def test_measured_plans_bound_by_their_fastest_row_on_at_most_so_many_gpus() -> None:
    rows = {(Plan(), (1,)): 4.0, (Plan(data=2), (2,)): 2.5, (Plan(data=2), (1, 1)): 3.0, (Plan(data=4), (2, 2)): 1.0}
    job = PlannedJob(TabledModel("net", "a100", rows), 100)
    bound = planned_speeds(job, None, [(1, 1), (2, 2), (3, 3), (4, 4)], CLUSTER)
    assert bound == {("a100", 1): 0.25, ("a100", 2): 0.4, ("a100", 3): 0.4, ("a100", 4): 1.0}


def test_a_model_measured_here_and_there_is_nowhere_faster_than_its_bound() -> None:
    rows = {(Plan(), (1,)): 2.0, (Plan(data=2), (2,)): 0.7, (Plan(data=4), (2, 2)): 0.9}
    model = TabledModel("net", "a100", rows, SMALL)
    bound = planned_speeds(PlannedJob(model, 100), None, EACH, CLUSTER)
    for shape in SHAPES:
        assert 1 / model.best(Site(shape, "a100")).parts.total <= bound["a100", sum(shape)] * (1 + 1e-12), shape


def test_a_range_has_the_speed_of_its_most_gpus_and_other_types_have_none() -> None:
    cluster = Cluster((Node(0, 4, gpu_type="a100"), Node(1, 4, gpu_type="t4")))
    job = PlannedJob(SMALL, 100)
    wide, each = planned_speeds(job, Plan(data=16), [(5, 8)], cluster), planned_speeds(job, None, EACH, CLUSTER)
    assert wide == {("a100", 5): each["a100", 8]}
