"""Recipes of Sia, of language models and of log-normal jobs."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from scipy.special import ndtri

from simsched.applications import catalogue
from simsched.errors import InputError
from simsched.model import Site
from simsched.model.placement import consolidated_shape
from simsched.workload.recipes.llm import STATISTICS
from simsched.workload.recipes.sia import draw, sia_facts
from simsched.workload.source import WorkloadOptions, make_workload

TYPES = {"t4", "rtx", "a100"}


def test_every_application_knows_three_gpu_types():
    facts = sia_facts()
    assert sorted(facts.applications) == ["bert", "cifar10", "deepspeech2", "imagenet", "ncf", "yolov3"]
    for application in facts.applications.values():
        assert set(application.speed) == set(application.largest) == TYPES
        assert application.speed["t4"] == 1.0
        assert 15 <= application.restart_delay_s <= 250


def test_clusters_are_those_of_the_paper():
    gpus = {
        name: {gpu_type: nodes * per_node for gpu_type, (nodes, per_node) in groups.items()}
        for name, groups in sia_facts().clusters.items()
    }
    assert gpus == {"homogeneous": {"t4": 64}, "heterogeneous": {"t4": 24, "rtx": 24, "a100": 16}}


@pytest.mark.parametrize("name", ["philly", "helios", "newtrace"])
def test_a_draw_follows_its_mix(name):
    mix = sia_facts().mixes[name]
    jobs = draw(mix, np.random.default_rng(1), load=10.0)
    assert jobs == draw(mix, np.random.default_rng(1), load=10.0)
    assert len(jobs) == 10 * mix.jobs
    times = [job.submit_time_s for job in jobs]
    assert times == sorted(times)
    assert 0 <= times[0] <= times[-1] < mix.hours * 3600
    if mix.hourly:
        assert len(mix.hourly) == mix.hours
        by_hour = np.bincount([int(time // 3600) for time in times], minlength=8)
        due = len(jobs) * np.array(mix.hourly) / sum(mix.hourly)
        assert (np.abs(by_hour - due) < 5 * due**0.5).all()
    drawn, total = Counter(job.application for job in jobs), sum(mix.counts.values())
    for application, count in mix.counts.items():
        share = count / total
        # Five standard deviations of a binomial share.
        assert abs(drawn[application] / len(jobs) - share) < 5 * (share * (1 - share) / len(jobs)) ** 0.5


#: AcmeTrace, data/cluster_summary.csv: mean and median run time of GPU jobs, mean GPUs, GPU seconds, jobs.
PUBLISHED = {
    "kalos": (1259.689, 124.0, 26.77, 1667685146 + 3239202064 + 426292851, 19907),
    "seren": (1414.335, 122.0, 5.68, 4560592618 + 14274584510 + 2675447459, 663813),
    "helios": (6651.681, 206.0, 3.716, 39994296320 + 30715109125 + 7288334702, 1580464),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_sizes_and_durations_have_the_published_moments(name):
    """Integrated over the quantiles of the normal distribution, as the tails are too heavy to be sampled."""
    mean_s, median_s, mean_gpus, gpu_s, jobs = PUBLISHED[name]
    law = STATISTICS[name]
    gpus, shares = law.shares()
    z = ndtri((np.arange(100_000) + 0.5) / 100_000)
    seconds = np.array([np.minimum(np.exp(law.mu + law.sigma * z) * size**law.growth, law.most_s) for size in gpus])
    assert np.dot(gpus, shares) == pytest.approx(mean_gpus, rel=1e-4)
    assert np.dot(seconds.mean(axis=1), shares) == pytest.approx(mean_s, rel=0.002)
    assert np.dot(seconds.mean(axis=1) * gpus, shares) == pytest.approx(gpu_s / jobs, rel=0.002)
    assert np.dot((seconds <= median_s).mean(axis=1), shares) == pytest.approx(0.5, abs=0.001)


def test_what_is_drawn_follows_the_law():
    jobs = make_workload(WorkloadOptions(recipe="llm", jobs=50_000), seed=3)
    assert np.mean([job.num_gpus for job in jobs]) == pytest.approx(26.77, rel=0.05)
    assert np.median([job.duration_s for job in jobs]) == pytest.approx(124, rel=0.05)
    assert np.mean([job.status == "Failed" for job in jobs]) == pytest.approx(0.397, abs=0.01)


def test_jobs_train_what_their_size_is_for_as_long_as_their_duration_says():
    options = WorkloadOptions(recipe="llm", jobs=300, min_gpus=4, max_gpus=1024, hours=10, trains_on="a100")
    jobs = make_workload(options, seed=1)
    assert {job.num_gpus for job in jobs} <= {2**k for k in range(2, 11)}
    assert max(job.submit_time_s for job in jobs) < 36_000
    models = {job.num_gpus: job.application for job in jobs}
    known = {4: "fixed-duration", 8: "llama2-7b", 64: "llama2-13b", 256: "llama2-70b", 512: "gpt3-175b"}
    assert {gpus: models[gpus] for gpus in known} == known
    long = max((job for job in jobs if job.num_gpus == 64), key=lambda job: job.duration_s)
    app = catalogue().for_job(long.request, long.truth)
    step_s = app.plans.best(Site(consolidated_shape(64, 8), "a100")).parts.total
    assert app.total_steps == max(long.duration_s // step_s, 1)


def jobs_of(count=20_000, seed=1, **keys):
    return make_workload(WorkloadOptions(recipe="log-normal", jobs=count, **keys), seed)


def test_the_jobs_have_the_median_the_mean_and_the_widths_asked_for() -> None:
    # Helios: median 206 s, mean 6,652 s, 3.72 GPUs (traces.md); sigma = sqrt(2 ln(6652 / 206)) = 2.636
    jobs = jobs_of(median_s=206, mean_s=6652, mean_gpus=3.72, widest=32)
    found = np.quantile([job.duration_s for job in jobs], (0.5, 0.9))
    assert found == pytest.approx([206, 206 * np.exp(1.2816 * 2.636)], rel=0.1)  # 1.2816: the normal's 90th percentile
    assert np.mean([job.num_gpus for job in jobs]) == pytest.approx(3.72, rel=0.05)
    assert {job.num_gpus for job in jobs} <= {1, 2, 4, 8, 16, 32}
    gaps = np.diff([job.submit_time_s for job in jobs])
    assert gaps.mean() == pytest.approx(60, rel=0.03)
    assert gaps.std() == pytest.approx(60, rel=0.05)  # those of a Poisson process


def test_two_widths_have_the_shares_that_their_mean_leaves() -> None:
    narrow = [job.num_gpus for job in jobs_of(mean_gpus=1.25, widest=2)]
    assert np.mean([width == 2 for width in narrow]) == pytest.approx(0.25, abs=0.01)


def test_seeds_are_other_jobs_and_the_same_seed_the_same() -> None:
    assert jobs_of(5) == jobs_of(5)
    assert jobs_of(5) != jobs_of(5, seed=2)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"median_s": 600, "mean_s": 500}, "below the median"),
        ({"widest": 12}, "not a power of two.*give 8"),
        ({"mean_gpus": 40.0}, "not a possible mean of widths from 1 to 32"),
        ({"mean_gpus": 1.0}, "not a possible mean of widths"),
    ],
)
def test_statistics_that_no_jobs_have_are_refused(keys, said) -> None:
    with pytest.raises(InputError, match=said):
        jobs_of(5, **keys)


def test_jobs_of_one_gpu_are_a_mix_too() -> None:
    assert {job.num_gpus for job in jobs_of(50, mean_gpus=1.0, widest=1)} == {1}
