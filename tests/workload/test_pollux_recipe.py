"""Pollux's recipe: jobs sampled from a trace, also stratified over seeds."""

import random
from collections import Counter
from dataclasses import dataclass
from math import comb

import numpy as np
import pandas as pd
import pytest

from simsched.applications.tuned_requests import configurations, initial_batch_sizes, tuned_configurations
from simsched.errors import InputError
from simsched.model.application import BatchLimits, GradientStats, Running, StepTime
from simsched.workload.recipes.pollux import PolluxRecipe, draw_workload, eligible
from simsched.workload.recipes.recipe import size_class_of
from simsched.workload.source import SHIPPED, WorkloadOptions, load_trace
from simsched.workload.stratify import class_counts, stratified_sample
from simsched.workload.trace import make_trace

HOUR = 3600
TUNED = {
    "bert": [(6, 384), (8, 384)],
    "cifar10": [(6, 2048), (12, 4096)],
    "deepspeech2": [(6, 320), (12, 640)],
    "imagenet": [(24, 3200)],
    "ncf": [(1, 32768)],
    "yolov3": [(4, 64)],
}
INITIAL = {"bert": 12, "cifar10": 128, "deepspeech2": 20, "imagenet": 200, "ncf": 256, "yolov3": 8}


LIMITS = BatchLimits(8, 64, 1, 64)


@dataclass(frozen=True)
class Toy:
    """An application of 100 iterations at batch 8, whose step takes `serial_s` plus `shared_s` for 8 examples a GPU."""

    serial_s: float = 0.0
    shared_s: float = 8.0
    batch_sizes: tuple[int, ...] = (8,)
    tuned: tuple[tuple[int, int], ...] = ()
    limits: BatchLimits | None = LIMITS
    max_gpus: int | None = None
    name: str = "toy"
    fixed_batch_size: int | None = None
    restart_delay_s: int | None = None
    epochs: int = 2

    def step_time(self, site, local_bsz):
        assert site.gpu_type == "t4"
        return StepTime(self.serial_s + self.shared_s * local_bsz / 8, self.serial_s)

    def iterations(self, batch_size, epoch):
        assert epoch == self.epochs - 1
        return 100.0 * 8 / batch_size

    def epoch_end(self, epoch):
        return 100.0 * (epoch + 1) / self.epochs

    def run(self, site, batch, epoch):
        return Running(1.0, 1.0, 1.0, None, GradientStats(1.0, 1.0))


def trace_of(*jobs, origin="2017-10-09 00:00:00"):
    """Make a trace of (second, GPUs, duration) in the order given."""
    submit, gpus, duration = zip(*jobs, strict=True)
    columns = {"submit_time_s": submit, "num_gpus": gpus, "duration_s": duration}
    return make_trace("toy", "test", columns, origin=None if origin is None else pd.Timestamp(origin))


def test_only_jobs_of_the_window_of_a_minute_and_below_a_thousand_gpu_hours_are_eligible():
    trace = trace_of(
        (9 * HOUR + 3599, 1, 60),  # the last second of the window
        (2 * HOUR, 1, 60),  # the first
        (2 * HOUR - 1, 1, 60),  # too early
        (10 * HOUR, 1, 60),  # too late
        (3 * HOUR, 1, 59),  # too short
        (3 * HOUR, 1000, 3600),  # 1000 GPU-hours: too large
        (3 * HOUR, 1000, 3599),
        (24 * HOUR + 5 * HOUR, 1, 60),  # the next day
    )
    found = eligible(trace, PolluxRecipe())
    assert found["row"].tolist() == [0, 1, 6, 7], "in the order of the source, not of submission"
    assert found["time_s"].tolist() == [8 * HOUR - 1, 0, HOUR, 3 * HOUR]


def test_a_window_may_reach_over_midnight_and_a_trace_without_a_day_begins_at_midnight():
    jobs = ((0, 1, 60), (1 * HOUR, 1, 60), (22 * HOUR, 1, 60), (12 * HOUR, 1, 60))
    found = eligible(trace_of(*jobs, origin=None), PolluxRecipe(start_hour=22, window_h=4))
    assert found["time_s"].tolist() == [2 * HOUR, 3 * HOUR, 0]


def test_size_classes_include_their_lower_ends():
    bounds_h = np.array([0, 0.99, 1, 10, 99.9, 100, 999.9, 1000])
    assert size_class_of(bounds_h * HOUR).tolist() == ["S", "S", "M", "L", "L", "XL", "XL", "XXL"]


def test_each_class_becomes_its_applications_with_their_configurations():
    jobs = [(3 * HOUR + i, 1, duration) for i, duration in enumerate([600, 2 * HOUR, 20 * HOUR, 200 * HOUR] * 40)]
    drawn = draw_workload(trace_of(*jobs), PolluxRecipe(jobs=160), 5, TUNED, INITIAL)
    count = Counter(job.application for job in drawn)
    assert count["cifar10"] + count["ncf"] == 40
    assert count["deepspeech2"] + count["bert"] == 40
    assert (count["yolov3"], count["imagenet"]) == (40, 40)
    assert min(count.values()) >= 10
    assert all((job.num_gpus, job.batch_size) in TUNED[job.application] for job in drawn)
    assert [job.id for job in drawn] == [f"{job.application}-{i}" for i, job in enumerate(drawn)]
    assert [job.submit_time_s for job in drawn] == [HOUR + i for i in range(160)]
    assert {job.duration_s for job in drawn if job.application == "yolov3"} == {20 * HOUR}


def test_the_draws_come_from_the_generators_in_the_published_order():
    # Two small jobs: the main generator draws the seed of the sample, then an application and a configuration for each.
    trace = trace_of((3 * HOUR, 1, 100), (4 * HOUR, 1, 200))
    drawn = draw_workload(trace, PolluxRecipe(jobs=2), 11, TUNED, INITIAL)
    main = random.Random(11)
    order = np.random.RandomState(main.randint(0, 2**32)).choice(2, size=2, replace=False)
    expected = {}
    for row in order.tolist():
        application = main.choice(["cifar10", "ncf"])
        expected[row] = (application, *main.choice(TUNED[application]))
    assert [(job.application, job.num_gpus, job.batch_size) for job in drawn] == [expected[0], expected[1]]


def test_realistic_jobs_ask_for_the_gpus_of_the_trace_and_the_initial_batch_on_each():
    small = [(3 * HOUR + i, 2, 600) for i in range(20)]
    # Of the large jobs only those of at most a day lend their GPUs to the large ones drawn.
    large = [(5 * HOUR + i, 16, 5 * HOUR) for i in range(5)] + [(6 * HOUR + i, 1, 60 * HOUR) for i in range(5)]
    drawn = draw_workload(trace_of(*small, *large), PolluxRecipe(jobs=30, configs="realistic"), 3, TUNED, INITIAL)
    assert {job.num_gpus for job in drawn if job.application in ("cifar10", "ncf")} == {2}
    assert {job.num_gpus for job in drawn if job.application == "yolov3"} == {16}
    assert all(job.batch_size == job.num_gpus * INITIAL[job.application] for job in drawn)


def test_load_draws_more_jobs_of_the_same_hours():
    assert [PolluxRecipe(load=load).count for load in (0.5, 1.0, 1.5, 2.0)] == [80, 160, 240, 320]


def test_too_few_jobs_and_missing_applications_are_refused():
    trace = trace_of((3 * HOUR, 1, 100))
    with pytest.raises(InputError, match="160 jobs were requested, but only 1 came between 2:00 and 9:59"):
        draw_workload(trace, PolluxRecipe(), 1, TUNED, INITIAL)
    without = {name: entry for name, entry in TUNED.items() if name != "bert"}
    with pytest.raises(InputError, match="needs the application 'bert'"):
        draw_workload(trace, PolluxRecipe(jobs=1), 1, without, INITIAL)


def test_the_shipped_weeks_have_the_mix_of_the_published_workloads():
    trace = load_trace(WorkloadOptions(source=SHIPPED), 1)
    found = eligible(trace, PolluxRecipe())
    classes = size_class_of(found["gpu_time_s"])
    shares = {name: float((classes == name).mean()) for name in ("S", "M", "L", "XL")}
    # Philly's own jobs of these hours: 78.29, 15.25, 4.60, 1.87 %.
    # These weeks were not chosen: single stretches of ten weeks differ by some 3 points in S and M.
    assert shares["S"] == pytest.approx(0.7829, abs=0.08)
    assert shares["M"] == pytest.approx(0.1525, abs=0.08)
    assert shares["L"] == pytest.approx(0.0460, abs=0.02)
    assert shares["XL"] == pytest.approx(0.0187, abs=0.008)
    assert len(found["row"]) > 10 * 320
    for seed in range(3):
        assert len(draw_workload(trace, PolluxRecipe(load=2.0), seed, TUNED, INITIAL)) == 320


def test_perfect_scaling_is_no_tuned_configuration_and_leaves_one_gpu():
    # All GPU counts divide 480: utilisation is 1 at each, above the 80 % that a tuned job stays below.
    toy = Toy(batch_sizes=(480,), limits=BatchLimits(480, 480, 1, 480))
    assert configurations(toy) == [(1, 480)]


def test_configurations_lie_strictly_between_half_and_four_fifths_of_perfect_scaling():
    # Batch 8 takes 2 + 8/n seconds on n GPUs: t(1) = 10, so n t(n) = 2n + 8 and utilisation is 10 / (2n + 8).
    # n = 2: 0.833, 4: 0.625, 6: 4 GPUs of ceil(8/6) = 2 examples each take 4 s, utilisation 10 / 24; 8: 10 / 24.
    assert configurations(Toy(serial_s=2.0)) == [(4, 8)]


def test_configurations_choose_the_batch_that_trains_fastest_with_accumulation_where_it_must():
    # On one GPU batch 32 needs four micro-batches of 8: (3 + 8) + 3 x 8 = 35 s for a quarter of the iterations, 875 s,
    # against 1100 s at batch 8. On four: 3 + 8 = 11 s, 275 s, against 3 + 2 = 5 s and 500 s: utilisation 0.795.
    toy = Toy(serial_s=3.0, batch_sizes=(8, 32), limits=BatchLimits(8, 32, 1, 8))
    assert (4, 32) in configurations(toy)


def test_configurations_leave_out_jobs_of_half_a_day_and_gpus_without_their_least_batch():
    assert configurations(Toy(serial_s=2.0 * 120, shared_s=8.0 * 120)) == [(1, 8)], "4 GPUs take 48,000 s"
    assert configurations(Toy(serial_s=2.0, limits=BatchLimits(8, 8, 4, 64))) == [(1, 8)]
    assert configurations(Toy(serial_s=2.0, max_gpus=2)) == [(1, 8)]


def test_maps_of_configurations_pass_over_applications_without_batches():
    known = {"b": Toy(serial_s=2.0), "a": Toy(batch_sizes=(), limits=None)}
    assert dict(tuned_configurations(known)) == {"b": ((4, 8),)}
    assert dict(initial_batch_sizes(known)) == {"b": 8}
    with pytest.raises(ValueError, match="no batch sizes"):
        configurations(Toy(batch_sizes=(), limits=None))


def test_an_application_that_names_its_tuned_configurations_is_taken_at_its_word() -> None:
    assert configurations(Toy(tuned=((6, 32), (8, 16)))) == [(6, 32), (8, 16)]


#: About Philly's jobs of class L, M, S and XL in the hours of the recipe.
SIZES = [1439, 4773, 24_500, 584]


@pytest.fixture(scope="module")
def counts():
    """Draw for 128 seeds; the sequence hits each of 128 equal parts of the unit interval once."""
    return np.array([class_counts(SIZES, 160, seed) for seed in range(1, 129)])


def test_counts_add_up_and_never_exceed_what_there_is():
    for seed in range(20):
        counts = class_counts([3, 200, 5], 100, seed)
        assert sum(counts) == 100
        assert all(0 <= count <= size for count, size in zip(counts, (3, 200, 5), strict=True))
    assert class_counts([7], 5, 3) == [5]
    assert class_counts([4, 6], 10, 3) == [4, 6]


def hypergeometric(size):
    """Return how likely 160 jobs, drawn without replacement, hold 0, 1, ... 160 of a class."""
    others = sum(SIZES) - size
    ways = [comb(size, held) * comb(others, 160 - held) for held in range(161)]
    return np.array([one / comb(sum(SIZES), 160) for one in ways])


def test_the_counts_of_each_class_follow_the_distribution_of_a_plain_draw(counts):
    for index, size in enumerate(SIZES):
        law = hypergeometric(size)
        mean = law @ np.arange(161)
        assert counts[:, index].mean() == pytest.approx(mean, abs=0.3)
        assert counts[:, index].std() == pytest.approx((law @ (np.arange(161) - mean) ** 2) ** 0.5, rel=0.1)
    xl = np.bincount(counts[:, 3], minlength=9)[:9] / len(counts)
    np.testing.assert_allclose(xl, hypergeometric(SIZES[3])[:9], atol=2 / 128)


def test_every_job_is_drawn_with_the_same_chance():
    classes = np.array(["S"] * 8 + ["M"] * 3 + ["L"])
    drawn = [stratified_sample(classes, 4, seed, seed).tolist() for seed in range(1, 257)]
    assert all(len(set(rows)) == 4 for rows in drawn)
    chance = np.bincount(np.concatenate(drawn), minlength=12) / len(drawn)
    # The standard error of a plain draw would be sqrt(1/3 x 2/3 / 256) = 0.03.
    np.testing.assert_allclose(chance, 4 / 12, atol=0.09)


def test_the_mean_of_eight_seeds_is_closer_to_the_expectation_than_chance_would_have_it(counts):
    xl = counts[:, 3]
    by_eight = xl.reshape(-1, 8).mean(axis=1)
    assert by_eight.std() < 0.35 * xl.std() / np.sqrt(8)


def test_a_mean_over_jobs_is_unbiased_whatever_scramble_is_used():
    # One class in ten is worth 100, the others 1 and 10: a seed's mean, averaged over scrambles, is the table's.
    sizes, worth = [10, 30, 60], np.array([100.0, 10.0, 1.0])
    means = [np.dot(class_counts(sizes, 20, 3, scramble), worth) / 20 for scramble in range(100)]
    truth = float(np.dot(sizes, worth) / 100)
    assert np.mean(means) == pytest.approx(truth, abs=3 * np.std(means) / np.sqrt(len(means)))


def test_the_same_seed_draws_the_same_rows():
    classes = np.arange(50) % 3
    first = stratified_sample(classes, 10, 4, 9).tolist()
    assert first == stratified_sample(classes, 10, 4, 9).tolist()
    assert first != stratified_sample(classes, 10, 4, 8).tolist()
