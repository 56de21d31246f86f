"""The generator of Philly-like traces, against the statistics that it is made from."""

import numpy as np
import pandas as pd
import pytest

from simsched.errors import InputError
from simsched.paths import data_folder
from simsched.workload.generator import (
    MEMORY_WEEKS,
    MONDAY,
    NOISE,
    STRETCH_DAYS,
    WEEK_H,
    GeneratorOptions,
    generate_from_seed,
    stream,
    stretch_of,
    wander,
)
from simsched.workload.philly_statistics import (
    BUCKETS,
    LEVELS,
    BatchSizes,
    Mixture,
    PhillyStatistics,
    Quantiles,
    Wandering,
    bucket_of,
)  # fmt: skip
from simsched.workload.readers import read_trace
from simsched.workload.summary import batch_numbers, trace_statistics


@pytest.fixture(scope="module")
def quarter():
    """Generate 80 days without the cron job, as Philly's statistics describe them."""
    return generate_from_seed(GeneratorOptions(days=80, weekday="Sun", cron=False), 3)


@pytest.fixture(scope="module")
def year():
    return generate_from_seed(GeneratorOptions(days=210, cron=False), 3)


@pytest.fixture(scope="module")
def quarter_of_all_statuses():
    return generate_from_seed(GeneratorOptions(days=80, statuses="all"), 1)


def test_the_same_seed_gives_the_same_trace_and_another_seed_another():
    options = GeneratorOptions(days=3)
    first = generate_from_seed(options, 5)
    assert first.table.equals(generate_from_seed(options, 5).table)
    assert not first.table.equals(generate_from_seed(options, 6).table)


def seconds(trace):
    """Return the submissions in seconds from the Monday from which generated traces count."""
    return (trace.table["submit_time_s"] + (trace.origin - MONDAY).total_seconds()).to_numpy()


def test_a_week_holds_the_same_jobs_however_long_the_trace_and_wherever_it_begins():
    whole = generate_from_seed(GeneratorOptions(days=28), 5)
    part = generate_from_seed(GeneratorOptions(days=10, first_week=1, weekday="Wed"), 5)
    # The part lasts ten days from Wednesday of the second week on, and is dated a week earlier.
    inside = (seconds(whole) >= 9 * 86400) & (seconds(whole) < 19 * 86400)
    assert (seconds(whole)[inside] - 7 * 86400).tolist() == seconds(part).tolist()
    for column in ("num_gpus", "duration_s", "tenant"):
        assert whole.table[column][inside].tolist() == part.table[column].tolist()


def test_stretches_of_seeds_are_pieces_of_one_trace_that_do_not_overlap():
    options = GeneratorOptions(days=14)
    together = generate_from_seed(GeneratorOptions(days=42), 0).table
    pieces = [stretch_of(options, seed).table for seed in range(3)]
    assert together["duration_s"].tolist() == [d for piece in pieces for d in piece["duration_s"]]
    assert STRETCH_DAYS >= 70


def test_arrivals_are_as_bursty_as_phillys(quarter):
    # Philly's passed jobs without cron: mean 98 s, cv 4.18, 62 % within 10 s, 85 % within 60 s.
    arrivals = trace_statistics(quarter)["interarrival_s"]
    assert arrivals["mean"] == pytest.approx(98, rel=0.3)
    assert arrivals["cv"] == pytest.approx(4.18, rel=0.25)
    assert arrivals["share_within_10_s"] == pytest.approx(0.621, abs=0.06)
    assert arrivals["share_within_60_s"] == pytest.approx(0.849, abs=0.05)
    assert arrivals["hourly_idc"] > 80


def test_sizes_are_those_of_philly(year):
    statistics = trace_statistics(year)
    assert statistics["mean_gpus"] == pytest.approx(1.336, rel=0.06)
    shares = {name: entry["share"] for name, entry in statistics["size_classes"].items()}
    assert shares["S"] == pytest.approx(0.735, abs=0.05)
    assert shares["M"] == pytest.approx(0.193, abs=0.05)
    assert shares["L"] == pytest.approx(0.049, abs=0.01)
    assert shares["XL"] == pytest.approx(0.021, abs=0.004)


def test_jobs_of_a_batch_share_their_duration(quarter):
    table = quarter.table.assign(batch=batch_numbers(quarter.table), log=np.log(quarter.table["duration_s"]))
    groups = table.groupby("batch")["log"]
    within = groups.var()[groups.size() >= 10].median()
    assert within < 0.25 * table["log"].var()


def test_expected_rates_keep_the_hours_of_every_class_and_add_up_to_the_week():
    for cell, entry in zip((found := PhillyStatistics.load()).cells, found.figures["cells"], strict=True):
        assert cell.hourly.sum() == pytest.approx(entry["per_week"])
        by_hour = cell.hourly.reshape(7, 24).sum(axis=0)
        np.testing.assert_allclose(by_hour / by_hour.sum(), np.array(entry["hour_share"]) / sum(entry["hour_share"]))


def test_the_memory_of_rates_is_a_filter_of_scipys():
    from scipy.signal import lfilter  # slow to load

    noise = np.hstack([stream(7, week, NOISE).normal(size=(1, WEEK_H)) for week in range(-MEMORY_WEEKS, 2)])
    keep = float(np.exp(-1 / 10))
    filtered = lfilter([np.sqrt(0.4 * (1 - keep**2))], [1, -keep], noise[0])[MEMORY_WEEKS * WEEK_H :]
    assert wander([Wandering(0.4, 10.0)], 7, 0, 2)[0].tolist() == (filtered - 0.2).tolist()


def test_rates_wander_with_mean_one_and_the_given_memory():
    log = wander([Wandering(0.4, 10.0)], 7, 0, 600)[0]
    assert np.exp(log).mean() == pytest.approx(1, abs=0.03)
    assert log.var() == pytest.approx(0.4, rel=0.1)
    assert np.corrcoef(log[:-10], log[10:])[0, 1] == pytest.approx(np.exp(-1), abs=0.06)


def test_durations_keep_a_job_in_its_class(quarter):
    # A job of class S or above takes a minute or longer, so every shorter job comes from class XS: a share of it all.
    short = (quarter.table["duration_s"] < 60).mean()
    assert short == pytest.approx(0.089, abs=0.04)


def test_no_job_lasts_longer_than_philly_recorded_or_less_than_a_second(quarter, quarter_of_all_statuses):
    for trace in (quarter, quarter_of_all_statuses):
        assert trace.table["duration_s"].between(1, 4.63e6).all()
        assert (trace.table["submit_time_s"] < 80 * 86400).all()


def test_the_week_has_quiet_and_busy_days(year):
    when = year.origin + pd.to_timedelta(year.table["submit_time_s"], unit="s")
    small = batch_numbers(year.table)
    starts = when.groupby(small).min()
    by_day = starts.dt.day_of_week.value_counts().sort_index()
    rates = sum(cell.hourly for cell in PhillyStatistics.load().cells).reshape(7, 24).sum(axis=1)
    np.testing.assert_allclose(by_day / by_day.sum(), rates / rates.sum(), rtol=0.15)


def test_a_trace_may_begin_on_any_day_of_the_week():
    trace = generate_from_seed(GeneratorOptions(days=1, weekday="Sat"), 1)
    assert trace.origin.strftime("%A") == "Saturday"


def test_scale_multiplies_the_batches():
    one = generate_from_seed(GeneratorOptions(days=60, cron=False), 9)
    four = generate_from_seed(GeneratorOptions(days=60, cron=False, scale=4), 9)
    assert batch_numbers(four.table, 0).max() > 2.5 * batch_numbers(one.table, 0).max()


def test_jobs_ends_the_trace_after_exactly_that_many():
    trace = generate_from_seed(GeneratorOptions(jobs=12_345), 4)
    assert len(trace) == 12_345
    assert trace.table["submit_time_s"].is_monotonic_increasing


def test_the_cron_job_comes_every_ten_minutes_unless_it_did_not_pass():
    trace = generate_from_seed(GeneratorOptions(days=28, scale=1e-9), 4)
    assert len(trace) == pytest.approx(28 * 144 * 0.884, rel=0.05)
    assert set(np.diff(trace.table["submit_time_s"]) % 600) == {0}
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


def test_passed_jobs_are_the_same_with_and_without_the_others(quarter_of_all_statuses):
    alone = generate_from_seed(GeneratorOptions(days=80), 1)
    passed = quarter_of_all_statuses.table.query("status == 'Pass'")
    columns = ["submit_time_s", "num_gpus", "duration_s", "tenant"]
    assert passed[columns].to_numpy().tolist() == alone.table[columns].to_numpy().tolist()


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


def test_quantiles_are_met_at_their_levels_and_go_on_beyond():
    values = tuple(10.0 * (i + 1) for i in range(len(LEVELS)))
    found = Quantiles(values)
    np.testing.assert_allclose(found.at(np.array(LEVELS)), values)
    assert 0 < found.at(np.array([0.0]))[0] < 10
    assert found.at(np.array([1.0]))[0] > values[-1]


def test_buckets_include_their_upper_ends():
    named = [BUCKETS[i][0] for i in bucket_of([1, 2, 3, 4, 8, 12, 16, 24, 128])]
    assert named == ["1", "2", "3-4", "3-4", "5-8", "9-16", "9-16", ">16", ">16"]


def test_the_shipped_weeks_are_what_their_command_makes():
    shipped = read_trace(data_folder("traces") / "philly-synthetic.csv.gz")
    made = generate_from_seed(GeneratorOptions(days=70), 0)
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
        (GeneratorOptions(first_week=-1), "first_week: -1 is out of range"),
        (GeneratorOptions(jobs=10, scale=1e-9, cron=False), "10 jobs would take more than 36525 days"),
        (GeneratorOptions(weekday="Mo"), "did you mean 'Mon'"),
        (GeneratorOptions(statuses="passed"), "did you mean 'pass'"),
        (GeneratorOptions(scale=1e-9, cron=False), "holds no job that ran"),
    ],
)
def test_wrong_options_are_refused(options, said):
    with pytest.raises(InputError, match=said):
        generate_from_seed(options, 1)
