"""Published batch regimes, rescaling of steps and the rules that change a batch, on cases worked by hand."""

import math

import pytest

from simsched.agent.rule_agent import (
    NOTHING_MEASURED,
    Accordion,
    AdaBatch,
    BatchMetrics,
    BatchState,
    NoiseAverage,
    NoiseSchedule,
    averaged,
    cabs,
    noise_rule,
)
from simsched.applications.rate_table import shockwave_regimes
from simsched.model.regimes import BatchRegimes, CriticalEpochs, Steps, epoch_of, epoch_seconds, profile, rescaled

TOY = BatchRegimes(100, 10, 80, {(10, 1): (2, 4, 5)}, CriticalEpochs(((0, 2),), in_profile=((6, 7),)))


def state(batch=10, epoch=0, **other):
    values = {"initial": 10, "gpus": 1, "smallest": 10, "largest": 80} | other
    return BatchState(batch=batch, epoch=epoch, **values)


def test_a_schedule_doubles_at_its_epochs_and_stops_at_the_largest():
    assert [TOY.doubled(10, 1, epoch) for epoch in range(8)] == [10, 10, 20, 20, 40, 80, 80, 80]
    assert BatchRegimes(100, 10, 30, TOY.doublings).doubled(10, 1, 7) == 30
    assert TOY.doubled(10, 2, 7) == 10  # not listed
    assert TOY.doubled(160, 2, 7) == 160  # nor is it cut to the largest


def test_a_profile_that_ends_with_the_first_doubling_has_it():
    assert profile(TOY, "gns", 10, 1, 20) == (10, 10)
    assert profile(TOY, "gns", 10, 1, 30) == (10, 10, 20)


def test_a_rescaled_job_keeps_its_epochs():
    # 10 steps an epoch become 5; 25 done steps are in the third epoch, so three epochs count as done.
    assert rescaled(Steps(100, 25, 10), 20, TOY) == Steps(50, 15, 20)
    assert epoch_of(Steps(100, 25, 10), TOY) == 3


def test_a_total_that_would_change_the_epochs_becomes_whole_epochs():
    # 7 steps of 30 in 2 epochs of 4; 7 x 30 / 20 = 10.5, 11 steps of 5 an epoch would be 3 epochs, so 2 x 5.
    assert rescaled(Steps(7, 0, 30), 20, TOY) == Steps(10, 0, 20)


def test_rounding_up_can_put_more_steps_done_than_there_are():
    assert rescaled(Steps(93, 92, 10), 20, TOY) == Steps(47, 50, 20)


def test_profiles_with_their_oddities():
    assert profile(TOY, "static", 10, 1, 31) == (10,) * 4
    # Back to the initial batch in the last epoch, since the batch has doubled more than once.
    assert profile(TOY, "gns", 10, 1, 80) == (10, 10, 20, 20, 40, 80, 80, 10)
    assert profile(TOY, "gns", 10, 1, 40) == (10, 10, 20, 20)
    # 8 epochs: epochs up to 0.3 x 8 = 2.4 stay small, and 6 is critical only in the profile.
    assert profile(TOY, "accordion", 10, 1, 80) == (10, 10, 10, 80, 80, 80, 10, 80)
    with pytest.raises(ValueError, match="not a batch rule"):
        profile(TOY, "cabs", 10, 1, 80)


def test_seconds_of_epochs_are_examples_over_batch_over_rate():
    assert epoch_seconds(TOY, (10, 80), {10: 2.0, 80: 0.5}.__getitem__) == (5.0, 2.5)


def test_accordion_goes_up_after_critical_epochs_and_back_down():
    rule = Accordion(TOY)
    assert rule(state(10, 1), NOTHING_MEASURED) == 10
    assert rule(state(10, 2), NOTHING_MEASURED) == 80
    assert rule(state(80, 1), NOTHING_MEASURED) == 10
    assert rule(state(40, 3), NOTHING_MEASURED) == 40
    assert rule(state(20, 1, initial=40, smallest=20), NOTHING_MEASURED) == 20


def test_a_noise_schedule_looks_one_epoch_ahead():
    rule = NoiseSchedule(TOY)
    assert [rule(state(10, epoch), NOTHING_MEASURED) for epoch in range(4)] == [10, 20, 20, 20]
    assert rule(state(20, 3), NOTHING_MEASURED) == 40
    assert rule(state(80, 9), NOTHING_MEASURED) == 80


def test_adabatch_doubles_every_twenty_epochs():
    rule = AdaBatch()
    assert [rule(state(10, epoch), NOTHING_MEASURED) for epoch in (0, 19, 20, 40, 60, 80)] == [10, 10, 20, 40, 80, 80]


def test_cabs_couples_the_batch_to_rate_variance_and_loss():
    assert cabs(state(), BatchMetrics(gradient_variance=400.0, loss=0.5, learning_rate=0.05)) == 40
    assert cabs(state(), BatchMetrics(gradient_variance=400.0, loss=5.0, learning_rate=0.05)) == 10
    assert cabs(state(20), BatchMetrics(gradient_variance=400.0, loss=0.5)) == 20
    assert cabs(state(20), BatchMetrics(gradient_variance=400.0, loss=0.0, learning_rate=0.05)) == 20


def test_the_batch_follows_the_averaged_noise():
    newest = NoiseAverage(60.0, 2.0)
    assert averaged(None, newest) == newest
    mean = averaged(NoiseAverage(10.0, 1.0), newest)
    assert mean == pytest.approx((40.0, 1.6))
    assert mean.noise_scale == pytest.approx(25.0)
    assert noise_rule(state(), BatchMetrics(noise_scale=mean.noise_scale)) == 25
    assert noise_rule(state(20), NOTHING_MEASURED) == 20
    assert noise_rule(state(), BatchMetrics(noise_scale=NoiseAverage(1.0, -1.0).noise_scale)) == 80


def test_the_shipped_regimes():
    regimes = shockwave_regimes()
    assert sorted(regimes) == ["LM", "Recommendation", "ResNet-18", "ResNet-50", "Transformer"]
    image = regimes["ResNet-18"]
    assert [image.doubled(16, 1, e) for e in (30, 31, 41, 51, 71)] == [16, 32, 64, 128, 256]
    assert [image.is_critical(256, e) for e in (19, 20, 155)] == [True, False, True]
    assert [image.is_critical(32, e) for e in (9, 10, 255)] == [True, False, True]
    assert [regimes["ResNet-50"].is_critical(64, e) for e in (9, 10, 30)] == [True, False, True]
    assert [regimes["Recommendation"].is_critical(2048, e) for e in (39, 40)] == [True, False]
    assert regimes["Transformer"].is_critical(16, 10**6)
    assert profile(regimes["Transformer"], "accordion", 16, 1, 6250) == (16,) * 10
    for model, entry in regimes.items():
        for batch, _gpus in entry.doublings:
            assert entry.smallest <= batch < entry.largest, model
            assert math.log2(entry.largest / entry.smallest).is_integer()
