"""Jobs drawn from a cluster's published summary statistics have these statistics."""

from __future__ import annotations

import numpy as np
import pytest

from simsched.errors import InputError
from simsched.workload import WorkloadOptions, make_workload


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
