"""Regimes of batches, tabulated jobs that follow them, gains, memory and curves of losses, by hand."""

from __future__ import annotations

import pytest

from simsched.model import BatchChoice
from simsched.model.application import BatchLimits, GradientStats, LossCurve, MemoryNeed, Running, StepTime
from simsched.model.plans import Plan
from simsched.model.regimes import BatchRegimes, CriticalEpochs, Steps, epoch_of, epoch_seconds, profile, rescaled
from simsched.model.tabulated import Setting, TabulatedJob, TabulatedModel

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
    assert REGIMES.doubled(16, 2, 9) == 16


@pytest.mark.parametrize(
    ("rule", "steps", "batches"),
    [
        ("static", 3 * 63, (16,) * 3), ("static", 3 * 63 + 1, (16,) * 4), ("static", 1, (16,)),
        # Of ten epochs the first four are within the warm-up; the sixth, seventh, ninth and tenth count as critical.
        ("accordion", 630, (16, 16, 16, 16, 256, 16, 16, 256, 16, 16)),
        ("gns", 4 * 63, (16, 16, 32, 32)), ("gns", 5 * 63, (16, 16, 32, 32, 16)), ("gns", 0, ()),
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


def test_steps_at_another_batch_keep_the_epochs():
    assert [epoch_of(Steps(630, done, 16), REGIMES) for done in (0, 1, 63, 64)] == [0, 1, 1, 2]
    assert rescaled(Steps(630, 63, 16), 32, REGIMES) == Steps(315, 32, 32)
    # 34 steps of 300 would be nine passes of four: ten it is.
    assert rescaled(Steps(630, 64, 16), 300, REGIMES) == Steps(40, 8, 300)


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
