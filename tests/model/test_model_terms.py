"""Terms of sharing, pods, tenants and scaled applications at their edges, by hand."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest

from simsched.errors import InputError
from simsched.model import BatchChoice, Site
from simsched.model.application import Running, ScaledApplication, StepTime
from simsched.model.cluster import Tenant, circle, excess
from simsched.model.colocation.contract import ConstantSharing, TimeSlicing
from simsched.model.colocation.pairs import COLUMNS, Kind, PairTable, pairs_from_gavel, read_pairs, write_pairs
from simsched.model.placement import Pod, models_of, usual_requests
from simsched.model.tabulated import FixedDuration


def jobs(*kinds):
    return [SimpleNamespace(application=name, batch_size=batch) for name, batch in kinds]


@pytest.mark.parametrize(("count", "speeds"), [(0, ()), (1, (1.0,)), (2, (0.5,) * 2), (4, (0.25,) * 4)])
def test_equal_parts_of_a_gpu(count, speeds):
    beside = jobs(*[("m", 1)] * count)
    assert ConstantSharing().speeds(beside, "x") == speeds
    assert ConstantSharing(0.7).speeds(beside, "x") == ((1.0,) if count == 1 else (0.7,) * count)
    sliced = TimeSlicing(10.0, 2.0).speeds(beside, "x")
    assert sliced == (speeds if count < 2 else pytest.approx([0.8 * speed for speed in speeds]))
    assert (TimeSlicing().quantum_s, TimeSlicing().switch_s) == (60, 0)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ConstantSharing(0.0), "sharing.factor"), (lambda: ConstantSharing(1.01), "sharing.factor"),
        (lambda: TimeSlicing(0.0), "sharing.quantum_s"), (lambda: TimeSlicing(5.0, 5.0), "sharing.switch_s"),
        (lambda: TimeSlicing(5.0, -0.1), "sharing.switch_s"),
        (lambda: read_pairs("", "t", 0.0), "default speed is 0.0"),
        (lambda: read_pairs("", "t", 1.6), r"default speed is 1.6, not in \(0, 1.5\]"),
    ],
)  # fmt: skip
def test_parts_that_make_no_sense_are_refused(make, said):
    with pytest.raises(InputError, match=said):
        make()
    assert (ConstantSharing(1.0).factor, TimeSlicing(5.0, 4.9).switch_s) == (1, 4.9)


def test_a_table_of_pairs_either_way_round():
    text = ",".join(COLUMNS) + "\nx,b,2,a,1,0.9,1.5\nx,a,,a,,0.5,0.25\n"
    table = read_pairs(text, "t", 1.5)
    assert table.pairs == {
        ("x", Kind("a", 1), Kind("b", 2)): (1.5, 0.9),
        ("x", Kind("a", 0), Kind("a", 0)): (0.5, 0.25),
    }
    assert table.speeds(jobs(("b", 2), ("a", 1)), "x") == (0.9, 1.5)
    assert table.speeds(jobs(("a", 1), ("b", 2)), "x") == (1.5, 0.9)
    assert table.speeds(jobs(("a", 0), ("a", 0)), "x") == (0.5, 0.25)
    assert table.speeds(jobs(("a", 1), ("c", 2)), "x") == (1.5, 1.5)
    assert (table.speeds([], "x"), table.speeds(jobs(("a", 1)), "x")) == ((), (1.0,))
    with pytest.raises(InputError, match="3 jobs share a GPU"):
        table.speeds(jobs(*[("a", 1)] * 3), "x")
    assert read_pairs(write_pairs(table), "t", 1.5) == table
    strict = PairTable(table.pairs)
    with pytest.raises(InputError, match=r"'a' at batch size 1 per GPU beside 'c' .* is not in it"):
        strict.speeds(jobs(("a", 1), ("c", 2)), "x")
    with pytest.raises(InputError, match="no pair is known on 'y'"):
        strict.speeds(jobs(("a", 1), ("b", 2)), "y")
    with pytest.raises(InputError, match=r"speed is 0, not in \(0, 1.5\]"):
        read_pairs(",".join(COLUMNS) + "\nx,b,2,a,1,0,0.5\n", "t")


def test_pairs_of_one_gpu_are_taken_from_gavels_layout():
    a, b, large = "('A (batch size 4)', 1)", "('B', 1)", "('A (batch size 4)', 2)"
    rows = {
        a: {"null": 2.0, a: [1.0, 1.5], b: [1, 3.0], large: [9.0, 9.0]}, b: {"null": 4, a: [3.0, 1.0], b: [0.0, 2.0]},
        large: {"null": 3.0, a: [9.0, 9.0]},
    }  # fmt: skip
    found = pairs_from_gavel({"x": rows, "x_unconsolidated": rows})
    kinds = Kind("A", 4), Kind("B", 0)
    assert found.pairs == {("x", kinds[0], kinds[0]): (0.5, 0.75), ("x", *kinds): (0.5, 0.75)}
    with pytest.raises(InputError, match="'quick' is not a number of steps per second"):
        pairs_from_gavel({"x": {a: {"null": "quick", a: [1.0, 1.0]}}})


def test_pods_by_hand():
    pods = [Pod("p", 1, 2, gpus, milli) for gpus, milli in ((1, 1000), (1, 999), (2, 500), (0, 0), (4, 1000))]
    assert [pod.shares for pod in pods] == [False, True, False, False, False]
    assert [pod.total_milli for pod in pods] == [1000, 999, 1000, 0, 4000]
    assert (models_of("a| b |"), models_of("")) == ({"a", "b"}, frozenset())
    counts = Counter({"x": 19, "y": 60, "z": 1, "w": 20})
    assert usual_requests(counts) == [("y", 60 / 99), ("w", 20 / 99), ("x", 19 / 99)]
    assert usual_requests(counts, 0.8) == [("y", 0.75), ("w", 0.25)]
    assert usual_requests(counts, 0.81) == [("y", 60 / 99), ("w", 20 / 99), ("x", 19 / 99)]


@pytest.mark.parametrize(
    ("tenant", "own", "most"),
    [
        (Tenant(), 0, 10), (Tenant(share=0.3), 3, 10), (Tenant(share=0.39), 3, 10), (Tenant(gpus=4), 4, 10),
        (Tenant(share=0.9, gpus=4), 4, 10), (Tenant(gpus=40), 10, 10), (Tenant(gpus=0, share=0.5), 0, 10),
        (Tenant(share=0.3, borrows=False), 3, 3), (Tenant(share=0.3, max_gpus=5), 3, 5),
        (Tenant(share=0.3, max_gpus=2, borrows=False), 3, 2), (Tenant(max_gpus=12), 0, 10),
    ],
)  # fmt: skip
def test_what_a_tenant_may_use_of_ten_gpus(tenant, own, most):
    assert (tenant.own_gpus(10), tenant.most_gpus(10)) == (own, most)


def test_tenants_taken_together():
    assert Tenant(share=0.29).own_gpus(100) == 29, "29 % of a hundred, which is 28.999... in twos"
    assert excess({"a": Tenant(share=0.5), "b": Tenant(share=0.5), "c": Tenant(gpus=4, share=0.5)}) == ""
    assert excess({"a": Tenant(share=0.5), "b": Tenant(share=0.6)}).startswith("the shares add up to 1.1")
    assert circle({"a": Tenant(parent="b"), "b": Tenant(parent="c"), "c": Tenant()}) == ""
    assert circle({"x": Tenant(parent="a"), "a": Tenant(parent="b"), "b": Tenant(parent="a")}).startswith(
        "'a' is above"
    )
    assert circle({"a": Tenant(parent="a")}).startswith("'a' is above itself")
    assert circle({"a": Tenant(parent="elsewhere")}) == ""


class Inner(FixedDuration):
    """Runs at three a second, with a step of two seconds of which half a second synchronises."""

    stages_s = (1.0, 2.0)

    def run(self, site, batch, epoch):
        return Running(3.0, 0.9, 12.0, StepTime(2.0, 0.5) if epoch == 0 else None, None)

    def step_time(self, site, local_bsz):
        return StepTime(2.0, 0.5)


def test_a_scaled_application_is_slower_by_its_factor():
    inner, site = Inner(60), Site((1,), "x")
    slow = ScaledApplication(inner, "slow", 4.0)
    assert slow.run(site, BatchChoice(0, 0), 0) == Running(0.75, 0.9, 3.0, StepTime(8.0, 2.0), None)
    assert slow.run(site, BatchChoice(0, 0), 1).step is None
    assert (slow.step_time(site, 0), slow.stages_s, slow.name) == (StepTime(8.0, 2.0), (4.0, 8.0), "slow")
    assert (slow.epoch_end(0), slow.epochs, slow.reports_loss) == (60, 1, False)
    for wrong in (0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="factor must be above 0"):
            ScaledApplication(inner, "slow", wrong)
