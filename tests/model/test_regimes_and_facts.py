"""Regimes of batches, tabulated jobs that follow them, gains, memory and curves of losses, by hand."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest

from simsched.errors import InputError
from simsched.model import BatchChoice, Site
from simsched.model.application import (
    BatchLimits,
    GradientStats,
    LossCurve,
    MemoryNeed,
    Running,
    ScaledApplication,
    StepTime,
)
from simsched.model.cluster import Tenant, circle, excess
from simsched.model.colocation.contract import ConstantSharing, TimeSlicing
from simsched.model.colocation.pairs import COLUMNS, Kind, PairTable, pairs_from_gavel, read_pairs, write_pairs
from simsched.model.placement import Pod, models_of, usual_requests
from simsched.model.plans import Plan
from simsched.model.regimes import BatchRegimes, CriticalEpochs, epoch_seconds, profile
from simsched.model.tabulated import FixedDuration, Setting, TabulatedJob, TabulatedModel

#: A thousand examples; two critical epochs of every eight and the sixth, for a batch of 32 others.
REGIMES = BatchRegimes(
    1000, 16, 256, {(16, 1): (2, 4), (128, 1): (1, 2)},
    CriticalEpochs(((0, 2), (5, 6)), 8, {32: ((1, 3),)}, ((6, 7),)),
)  # fmt: skip


def test_steps_of_a_pass_and_critical_epochs():
    assert [REGIMES.steps_per_epoch(batch) for batch in (16, 250, 999, 1000, 2000)] == [63, 4, 2, 1, 1]
    assert [epoch for epoch in range(12) if REGIMES.is_critical(16, epoch)] == [0, 1, 5, 8, 9]
    assert [epoch for epoch in range(12) if REGIMES.is_critical(32, epoch)] == [1, 2, 9, 10]
    once = CriticalEpochs(((0, 2),))
    assert [epoch for epoch in range(12) if once.holds(16, epoch)] == [0, 1]
    assert BatchRegimes(1000, 16, 256, {}).is_critical(16, 7)


def test_a_schedule_doubles_at_its_epochs():
    assert [REGIMES.doubled(16, 1, epoch) for epoch in range(6)] == [16, 16, 32, 32, 64, 64]
    assert [REGIMES.doubled(128, 1, epoch) for epoch in range(4)] == [128, 256, 256, 256]
    assert (REGIMES.doubled(16, 2, 9), REGIMES.doubled(300, 2, 9)) == (16, 300)  # not listed, so never cut


@pytest.mark.parametrize(
    ("rule", "steps", "batches"),
    [
        ("static", 3 * 63, (16,) * 3), ("static", 3 * 63 + 1, (16,) * 4), ("static", 1, (16,)),
        # Of ten epochs the first four are within the warm-up; the sixth, seventh, ninth and tenth count as critical.
        ("accordion", 630, (16, 16, 16, 16, 256, 16, 16, 256, 16, 16)),
        ("gns", 3 * 63, (16, 16, 32)), ("gns", 4 * 63, (16, 16, 32, 32)),
        ("gns", 5 * 63, (16, 16, 32, 32, 16)), ("gns", 0, ()),
    ],
)  # fmt: skip
def test_profiles_by_hand(rule, steps, batches):
    assert profile(REGIMES, rule, 16, 1, steps) == batches


def test_a_profile_of_an_unknown_rule_is_refused():
    with pytest.raises(ValueError, match="'cabs' is not a batch rule with published regimes"):
        profile(REGIMES, "cabs", 16, 1, 630)
    all_critical = BatchRegimes(1000, 16, 256, {})
    assert profile(all_critical, "accordion", 16, 1, 630) == (16,) * 10
    assert epoch_seconds(REGIMES, (16, 32), {16: 2.0, 32: 1.0}.__getitem__) == (31.25, 31.25)


def test_a_tabulated_job_follows_its_rule_epoch_by_epoch():
    model = TabulatedModel("m", {"x": {Setting(16, 1): 2.0, Setting(32, 1): 1.0, Setting(64, 1): 0.5}}, REGIMES)
    job = TabulatedJob(model, Setting(16, 1), 300, "gns")
    assert (job.epochs, [job.epoch_end(epoch) for epoch in (0, 3, 4)]) == (5, [63, 252, 300])
    assert job.profile == (16, 16, 32, 32, 16)
    assert job.profile_s("x") == (31.25,) * 5
    assert (job.batch_sizes, job.batch_rule) == ((16, 32, 64), "gns")
    plain = TabulatedJob(model, Setting(16, 1), 300)
    assert (plain.epochs, plain.epoch_end(0), plain.batch_rule) == (1, 300, "static")


def test_gains_and_speeds_of_training_by_hand():
    gradient = GradientStats(1.0, 3.0)
    assert [gradient.gain(scale) for scale in (1, 2, 3)] == pytest.approx([1, 4 / 2.5, 2])
    batch = BatchChoice(8, 1)
    assert (batch.total(2), BatchChoice(8, 1, Plan(data=3)).total(12)) == (32, 48)
    # Two of a second and three quarters: the first is not synchronised.
    found = Running.training(StepTime(1.0, 0.25), gradient, batch, 2, 16)
    assert found[:3] == pytest.approx((1.6 / 1.75, 0.8, 32 / 1.75))
    assert BatchChoice.of_plan(Plan(data=2, micro_batch=4), 32) == BatchChoice(4, 3, Plan(data=2, micro_batch=4))
    assert BatchChoice.of_plan(Plan(), 0) == BatchChoice(0, 0, Plan())
    assert MemoryNeed(100.0, 2.0).total_mb(8) == 116
    assert BatchLimits(1, 2, 3, 4) == BatchLimits(init_batch_size=1, max_batch_size=2, min_local_bsz=3, max_local_bsz=4)


def test_a_curve_of_losses_is_straight_in_logarithms():
    curve = LossCurve((0.0, 1.0, 3.0), (1.0, 0.5, 0.25))
    assert curve.at([0, 1, 3, 9]).tolist() == pytest.approx([1, 0.5, 0.25, 0.25])
    assert curve.at(8**0.5 - 1).item() == pytest.approx((0.5 * 0.25) ** 0.5)
    assert curve.noise == 0
    assert LossCurve((0.0, 1.0, 2.0), (1.0, 1.0, 0.5)).at(1).item() == pytest.approx(1)


@pytest.mark.parametrize(
    ("epochs", "losses", "said"),
    [
        ((0.0,), (1.0,), "two of each"), ((0.0, 1.0), (2.0, 1.0, 0.5), "as many losses"),
        ((1.0, 2.0), (2.0, 1.0), "begin at 0"), ((0.0, 0.0), (2.0, 1.0), "ascend"), ((0.0, -1.0), (2.0, 1.0), "ascend"),
        ((0.0, 1.0), (1.0, 0.0), "above 0"), ((0.0, 1.0), (1.0, 2.0), "fall"), ((0.0, 1.0), (1.0, 1.0), "fall"),
    ],
)  # fmt: skip
def test_a_curve_that_does_not_fall_is_refused(epochs, losses, said):
    with pytest.raises(ValueError, match=said):
        LossCurve(epochs, losses)


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
