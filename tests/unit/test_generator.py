"""The generator of Philly-like traces, against the statistics that it is made from."""

import numpy as np
import pandas as pd
import pytest

from simsched.errors import InputError
from simsched.paths import data_folder
from simsched.workload.generator import GeneratorOptions, generate, generate_from_seed
from simsched.workload.philly_statistics import BUCKETS, BatchSizes, Mixture, PhillyStatistics, bucket_of
from simsched.workload.readers import read_trace
from simsched.workload.summary import batch_numbers, trace_statistics


@pytest.fixture(scope="module")
def quarter():
    """Generate 80 days without the cron job, as Philly's statistics describe them."""
    return generate_from_seed(GeneratorOptions(days=80, weekday="Sun", cron=False), 3)


@pytest.fixture(scope="module")
def quarter_of_all_statuses():
    return generate_from_seed(GeneratorOptions(days=80, statuses="all"), 1)


def test_the_same_seed_gives_the_same_trace_and_another_seed_another():
    options = GeneratorOptions(days=3)
    first = generate(options, np.random.default_rng(5))
    assert first.table.equals(generate(options, np.random.default_rng(5)).table)
    assert not first.table.equals(generate(options, np.random.default_rng(6)).table)


def test_arrivals_are_as_bursty_as_phillys(quarter):
    # Philly's passed jobs without cron: mean 98 s, cv 4.18, 62 % within 10 s, 85 % within 60 s.
    arrivals = trace_statistics(quarter)["interarrival_s"]
    assert arrivals["mean"] == pytest.approx(98, rel=0.3)
    assert arrivals["cv"] == pytest.approx(4.18, rel=0.1)
    assert arrivals["share_within_10_s"] == pytest.approx(0.621, abs=0.04)
    assert arrivals["share_within_60_s"] == pytest.approx(0.849, abs=0.03)
    assert arrivals["hourly_idc"] > 80


def test_sizes_are_those_of_philly(quarter):
    statistics = trace_statistics(quarter)
    assert statistics["mean_gpus"] == pytest.approx(1.336, rel=0.06)
    shares = {name: entry["share"] for name, entry in statistics["size_classes"].items()}
    assert shares["S"] == pytest.approx(0.735, abs=0.06)
    assert shares["M"] == pytest.approx(0.193, abs=0.06)
    assert shares["L"] == pytest.approx(0.049, abs=0.015)
    assert shares["XL"] == pytest.approx(0.021, abs=0.005)


def test_jobs_of_a_batch_share_their_duration(quarter):
    table = quarter.table.assign(batch=batch_numbers(quarter.table), log=np.log(quarter.table["duration_s"]))
    groups = table.groupby("batch")["log"]
    within = groups.var()[groups.size() >= 10].median()
    assert within < 0.25 * table["log"].var()


def test_no_job_lasts_longer_than_philly_recorded_or_less_than_a_second(quarter, quarter_of_all_statuses):
    for trace in (quarter, quarter_of_all_statuses):
        assert trace.table["duration_s"].between(1, 4.63e6).all()
        assert (trace.table["submit_time_s"] < 80 * 86400).all()


def test_the_week_has_quiet_and_busy_hours():
    trace = generate_from_seed(GeneratorOptions(days=350, cron=False), 2)
    when = trace.origin + pd.to_timedelta(trace.table["submit_time_s"], unit="s")
    batch = batch_numbers(trace.table)
    starts = when.groupby(batch).min()
    by_day = starts.dt.day_of_week.value_counts().sort_index()
    rates = PhillyStatistics.load().batch_starts_per_hour.reshape(7, 24).sum(axis=1)
    np.testing.assert_allclose(by_day / by_day.sum(), rates / rates.sum(), rtol=0.15)


def test_a_trace_may_begin_on_any_day_of_the_week():
    trace = generate_from_seed(GeneratorOptions(days=1, weekday="Sat"), 1)
    assert trace.origin.day_name() == "Saturday"


def test_scale_multiplies_the_batches():
    one = generate_from_seed(GeneratorOptions(days=60, cron=False), 9)
    four = generate_from_seed(GeneratorOptions(days=60, cron=False, scale=4), 9)
    assert batch_numbers(four.table, 0).max() > 2.5 * batch_numbers(one.table, 0).max()


def test_jobs_ends_the_trace_after_exactly_that_many():
    trace = generate_from_seed(GeneratorOptions(jobs=12_345), 4)
    assert len(trace) == 12_345
    assert trace.table["submit_time_s"].is_monotonic_increasing


def test_the_cron_job_comes_every_ten_minutes():
    trace = generate_from_seed(GeneratorOptions(days=7, scale=1e-9), 4)
    assert len(trace) == 7 * 144
    assert set(np.diff(trace.table["submit_time_s"])) == {600}
    assert trace.table["duration_s"].between(20, 150).all()
    assert set(trace.table["tenant"]) == {"11cb48"}


def test_all_statuses_follow_the_published_shares(quarter_of_all_statuses):
    table = quarter_of_all_statuses.table
    bucket = bucket_of(table["num_gpus"])
    passed = (table["status"] == "Pass").groupby(bucket).mean()
    # Traces of all jobs: 81, 46, 24 and 27 % passed of the jobs that ran, by GPUs asked for.
    assert passed[0] == pytest.approx(0.81, abs=0.05)
    assert passed[2] == pytest.approx(0.46, abs=0.07)
    assert passed[3] == pytest.approx(0.24, abs=0.05)
    gpu_time = pd.Series(quarter_of_all_statuses.gpu_time_s).groupby(table["status"]).sum()
    assert gpu_time["Pass"] / gpu_time.sum() == pytest.approx(0.32, abs=0.1)
    # Mean retries of jobs on one GPU and on five to eight (ATC'19, Figure 9).
    retries = (table["attempts"] - 1).groupby(bucket).mean()
    assert retries[0] == pytest.approx(0.33, abs=0.08)
    assert retries[3] == pytest.approx(1.09, abs=0.2)


def test_passed_jobs_are_the_same_process_with_and_without_the_others(quarter_of_all_statuses):
    alone = generate_from_seed(GeneratorOptions(days=80), 1)
    passed = quarter_of_all_statuses.table.query("status == 'Pass'")
    assert len(passed) == pytest.approx(len(alone), rel=0.15)
    assert passed["num_gpus"].mean() == pytest.approx(alone.table["num_gpus"].mean(), rel=0.06)


def test_batch_sizes_have_the_listed_shares():
    sizes = BatchSizes((1, 2, 5, 11), (1.0, 0.5, 0.2, 0.0)).draw(40_000, np.random.default_rng(1))
    assert sizes.min() == 1
    assert sizes.max() == 10
    assert (sizes >= 2).mean() == pytest.approx(0.5, abs=0.01)
    assert (sizes >= 5).mean() == pytest.approx(0.2, abs=0.01)


def test_a_truncated_mixture_keeps_its_shape_below_the_bound():
    drawn = Mixture((1.0,), (5.0,), (1.0,)).draw(40_000, np.exp(5.0), np.random.default_rng(1))
    assert drawn.max() <= np.exp(5.0)
    # The median of the lower half of a normal distribution is its first quartile.
    assert np.median(np.log(drawn)) == pytest.approx(5 - 0.6745, abs=0.02)


def test_buckets_include_their_upper_ends():
    named = [BUCKETS[i][0] for i in bucket_of([1, 2, 3, 4, 8, 12, 16, 24, 128])]
    assert named == ["1", "2", "3-4", "3-4", "5-8", "9-16", "9-16", ">16", ">16"]


def test_the_shipped_week_is_what_its_command_makes():
    shipped = read_trace(data_folder("traces") / "philly-synthetic.csv")
    made = generate_from_seed(GeneratorOptions(days=7), 95)
    assert len(shipped) == len(made)
    for column in ("submit_time_s", "num_gpus", "tenant"):
        assert (shipped.table[column] == made.table[column]).all()
    # Another processor may round an exponential to the next second.
    assert (shipped.table["duration_s"] - made.table["duration_s"]).abs().max() <= 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (GeneratorOptions(days=0), "days: 0 is out of range"),
        (GeneratorOptions(scale=-1), "scale: -1 is out of range"),
        (GeneratorOptions(jobs=0), "jobs: 0 is out of range"),
        (GeneratorOptions(weekday="Mo"), "did you mean 'Mon'"),
        (GeneratorOptions(statuses="passed"), "did you mean 'pass'"),
        (GeneratorOptions(scale=1e-9, cron=False), "holds no job that ran"),
    ],
)
def test_wrong_options_are_refused(options, said):
    with pytest.raises(InputError, match=said):
        generate_from_seed(options, 1)
