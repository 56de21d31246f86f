"""The recipe of clusters for language models: the published moments, and what jobs train."""

import numpy as np
import pytest
from scipy.special import ndtri

from simsched.applications import catalogue
from simsched.model import Site
from simsched.model.placement import consolidated_shape
from simsched.workload.recipes.llm import STATISTICS
from simsched.workload.source import WorkloadOptions, make_workload

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
