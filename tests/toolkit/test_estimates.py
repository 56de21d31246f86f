"""Durations learned from finished jobs, and speeds learned from steps."""

from itertools import product
from types import SimpleNamespace

import pytest

from simsched.errors import InputError
from simsched.model import JobSpec, Site
from simsched.policy.signals import Speed
from simsched.toolkit.estimates import DurationHistory, LearnedDurations, stem
from simsched.toolkit.speed_model import (
    SpeedModel,
    SpeedModels,
    SpeedSample,
    allocate_by_time,
    samples_of,
)


def test_the_most_specific_group_speaks():
    history = DurationHistory(prior_s=50)
    assert history.expected_s("ann", "train_01", 4) == 50
    history.finished("bob", "eval", 4, 10)
    assert history.expected_s("ann", "train_01", 4) == 10, "somebody else's job of the same size"
    history.finished("ann", "other", 8, 30)
    assert history.expected_s("ann", "train_01", 4) == 30, "ann's jobs come before others of the same size"
    history.finished("ann", "train_07", 8, 100)
    history.finished("ann", "train_08", 8, 200)
    assert history.expected_s("ann", "train_01", 4) == 150, "the same name with another number"
    history.finished("ann", "train_09", 4, 400)
    assert history.expected_s("ann", "train_01", 4) == 400
    assert history.gpu_time_gpu_s("ann", "train_01", 4) == 1600
    assert history.expected_s("eve", "", 2) == pytest.approx((10 + 30 + 100 + 200 + 400) / 5)


def test_only_the_latest_count():
    history = DurationHistory(window=2)
    for duration_s in (1, 5, 9):
        history.finished("ann", "a", 1, duration_s)
    assert history.expected_s("ann", "a", 1) == 7
    history.finished("ann", "b", 1, 100)
    assert history.expected_s("ann", "b", 1) == 100
    assert history.expected_s("ann", "c", 1) == (9 + 100) / 2, "the last two of ann's"
    last = DurationHistory(window=1)
    for duration_s in (1, 5):
        last.finished("ann", "", 2, duration_s)
    assert (last.expected_s("ann", "x", 2), last.gpu_time_gpu_s("bob", "", 2)) == (5, 10)
    assert (DurationHistory().expected_s("ann", "", 1), DurationHistory().window) == (3600, 100)


def test_names_are_told_apart_without_their_numbers_and_a_window_of_none_is_refused():
    assert stem(" Train-12_v3 ") == "train-#_v#"
    with pytest.raises(InputError, match="window: is 0"):
        DurationHistory(window=0)


def test_a_run_teaches_for_how_long_jobs_held_gpus():
    def job(name, held_s=0, gpus=2):
        request = JobSpec(name, 0, gpus, "bert", user="ann").request
        return SimpleNamespace(id=name, request=request, held_s=held_s)

    learned = LearnedDurations(DurationHistory(prior_s=50))
    assert learned.gpu_time_gpu_s(job("a", gpus=3)) == 150, "nothing has finished"
    learned.started(job("a"), 100)
    learned.started(job("b"), 100)
    # b pauses at 130, with 30 s done, and goes on at 200.
    learned.started(job("b", held_s=30), 200)
    learned.learn(SimpleNamespace(finished=("a", "never started"), now_s=140))
    assert learned.gpu_time_gpu_s(job("c")) == 2 * 40
    learned.learn(SimpleNamespace(finished=("b",), now_s=250))
    assert learned.gpu_time_gpu_s(job("c")) == 2 * (40 + 80) / 2
    learned.learn(SimpleNamespace(finished=("b",), now_s=1000))
    assert learned.gpu_time_gpu_s(job("c")) == 120, "a job finishes once"


def test_samples_are_steps_per_second_by_gpus_of_sites_with_a_time():
    speeds = {
        Site((4,), "t4"): Speed(80.0, 0.25),
        Site((2,), "t4"): Speed(40.0, 0.5),
        Site((1,), "t4"): Speed(0.0, 0.0),
    }
    assert samples_of(speeds) == (SpeedSample(2, 2.0), SpeedSample(4, 4.0))


def test_a_model_is_fitted_again_where_samples_change_and_forgotten_with_its_job():
    models, first = SpeedModels(), (SpeedSample(1, 1.0),)
    model = models.of("a", first, 8)
    assert models.of("a", first, 8) is model
    assert models.of("a", (SpeedSample(1, 4.0),), 8).steps_per_s(1) == pytest.approx(4.0)
    models.forget(["a", "unknown"])
    assert models.of("a", first, 8) is not model


def test_workers_go_where_they_save_most_time():
    models = [SpeedModel(64, (0.01, 0.1, 0.01)), SpeedModel(64, (0.02, 0.05, 0.002)), SpeedModel(64, (0.001, 0.1, 0.1))]
    remaining = [100.0, 300.0, 50.0]
    counts = allocate_by_time(remaining, [model.step_s for model in models], 9)

    def total(counts) -> float:
        return sum(steps * model.step_s(n) for steps, model, n in zip(remaining, models, counts, strict=True))

    assert total(counts) == pytest.approx(min(map(total, (c for c in product(range(1, 10), repeat=3) if sum(c) <= 9))))
    assert counts[2] == 1, "the third only gets slower"
    assert allocate_by_time(remaining, [model.step_s for model in models], 2) == (1, 1, 0)
