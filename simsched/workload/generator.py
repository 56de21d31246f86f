"""Generates traces like Microsoft's Philly, of any length, from its published statistics.

Batches of jobs start as a Poisson process whose rate follows the hour of the week, a factor of the day and a
gamma-distributed factor of the hour. A batch belongs to one tenant, its jobs ask for equal GPUs, come within seconds of
each other and run for about as long. Sizes of batches are heavy-tailed: all burstiness of the trace is in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from simsched.errors import InputError, Problem, nearest
from simsched.workload.philly_statistics import BATCH_CLASSES, BUCKETS, WEEKDAYS, PhillyStatistics, bucket_of
from simsched.workload.trace import Trace, make_trace

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

#: A Monday, from which generated traces count: their days are days of the week, not dates of Philly.
MONDAY = pd.Timestamp("2001-01-01")
DAY_S = 86400
STATUS_CHOICES = ("pass", "all")


@dataclass(frozen=True)
class GeneratorOptions:
    """What to generate: `days` from a `weekday` on, with `scale` times Philly's rate of batches.

    `statuses` is `pass` for jobs that passed, as in the Pollux artifact's Philly, or `all` to add jobs that were killed
    or failed, with attempts (estimates). `cron` adds the one-minute job that Philly's tenant 11cb48 submits every ten
    minutes, about one job in eight. `jobs` ends the trace after that many and overrides `days`.
    """

    days: int = 7
    scale: float = 1.0
    weekday: str = "Mon"
    statuses: str = "pass"
    cron: bool = True
    jobs: int | None = None


@dataclass(frozen=True)
class _Batches:
    """Batches of jobs: one entry a batch in each array, times in seconds from the start."""

    start_s: Floats
    tenant: Integers
    gpus: Integers
    passed: npt.NDArray[np.bool_]
    size: Integers
    duration_s: Floats


def generate(options: GeneratorOptions, rng: np.random.Generator) -> Trace:
    """Generate a trace; the same options and state of `rng` give the same trace.

    The trace counts from midnight of a Monday in 2001 (or of the first `weekday` after it), in Philly's own clock, most
    likely UTC. Raises `InputError` for options out of range and for a span in which no job came.
    """
    _check(options)
    statistics = PhillyStatistics.load()
    if options.jobs is None:
        table = _jobs(statistics, options, 0, options.days, rng)
    else:
        table = _at_least(options.jobs, statistics, options, rng).head(options.jobs)
    origin = MONDAY + pd.Timedelta(days=WEEKDAYS.index(options.weekday))
    # Without `row` the trace would be numbered in the order of batches; it is made in the order of submission.
    table = table.assign(row=np.arange(len(table)))
    return make_trace("philly-generated", "generated", {str(n): table[n] for n in table}, origin=origin)


def generate_from_seed(options: GeneratorOptions, seed: int) -> Trace:
    """Generate the trace of a seed: `traces/philly-synthetic.csv` is seven days of seed 95."""
    return generate(options, np.random.default_rng(seed))


def _at_least(
    jobs: int, statistics: PhillyStatistics, options: GeneratorOptions, rng: np.random.Generator
) -> pd.DataFrame:
    """Generate whole weeks until there are enough jobs."""
    parts: list[pd.DataFrame] = []
    count = week = 0
    while count < jobs:
        # Philly saw about 7,000 jobs a week; a quarter more makes a second round rare.
        weeks = max(1, round(1.25 * (jobs - count) / (7000 * options.scale)))
        parts.append(_jobs(statistics, options, 7 * week, 7 * weeks, rng))
        count += len(parts[-1])
        week += weeks
    return pd.concat(parts, ignore_index=True)


def _jobs(
    statistics: PhillyStatistics, options: GeneratorOptions, first_day: int, days: int, rng: np.random.Generator
) -> pd.DataFrame:
    """Generate the jobs of some days in order of submission; what a batch submits after the last day is left out."""
    batches = _batches(statistics, options, days, rng)
    parts = [_jobs_of_batches(statistics, batches, rng)]
    if options.cron:
        parts.append(_cron(statistics, days, rng))
    table = pd.concat(parts, ignore_index=True)
    table["attempts"] = _attempts(statistics, table, rng) if options.statuses == "all" else 1
    table["duration_s"] = table["duration_s"].clip(1, statistics.figures["max_duration_s"]).round()
    table["submit_time_s"] = table["submit_time_s"].astype("int64")
    table = table[table["submit_time_s"] < days * DAY_S].sort_values("submit_time_s", kind="stable")
    table["submit_time_s"] += first_day * DAY_S
    return table


def _batches(statistics: PhillyStatistics, options: GeneratorOptions, days: int, rng: np.random.Generator) -> _Batches:
    """Draw when batches start, whose they are, and what their jobs ask for and take.

    With all statuses, the rate of each kind grows by one over its share of passed jobs, and that share of its batches
    passes: the passed batches then are the same process as without.
    """
    shares = statistics.kind_shares
    kind_gpus = np.array([gpus for _, gpus in statistics.kinds])
    passing = np.ones(len(shares))
    if options.statuses == "all":
        table = statistics.figures["other_status"]["pass_share"]
        passing = np.array([table[BUCKETS[i][0]] for i in bucket_of(kind_gpus)])
    weights = shares / passing
    start = _starts(statistics, options, days, float(weights.sum()), rng)
    kind = rng.choice(len(weights), size=len(start), p=weights / weights.sum())
    tenant = np.array([tenant for tenant, _ in statistics.kinds])[kind]
    gpus = kind_gpus[kind]
    passed = rng.random(len(kind)) < passing[kind]
    size = _sizes(statistics, tenant, gpus, rng)
    return _Batches(start, tenant, gpus, passed, size, _durations(statistics, tenant, gpus, passed, size, rng))


def _starts(
    statistics: PhillyStatistics, options: GeneratorOptions, days: int, factor: float, rng: np.random.Generator
) -> Floats:
    """Draw the starts of batches, in seconds from the start of the first day, ascending."""
    first = WEEKDAYS.index(options.weekday) * 24
    hours = np.arange(24 * days)
    sigma = statistics.figures["daily_log_sigma"]
    shape = statistics.figures["hourly_gamma_shape"]
    by_day = np.exp(rng.normal(-(sigma**2) / 2, sigma, size=days))
    by_hour = rng.gamma(shape, 1 / shape, size=len(hours))
    rate = statistics.batch_starts_per_hour[(first + hours) % 168] * by_day[hours // 24] * by_hour
    counts = rng.poisson(rate * factor * options.scale)
    start: Floats = np.sort((np.repeat(hours, counts) + rng.random(int(counts.sum()))) * 3600)
    return start


def _groups(*keys: Integers) -> Iterator[tuple[tuple[int, ...], npt.NDArray[np.intp]]]:
    """Return each combination of keys that occurs, ascending, with the places where it does."""
    rows = np.stack(keys, axis=1)
    found, inverse = np.unique(rows, axis=0, return_inverse=True)
    order = np.argsort(inverse.ravel(), kind="stable")
    ends = np.cumsum(np.bincount(inverse.ravel(), minlength=len(found)))
    for key, places in zip(found.tolist(), np.split(order, ends[:-1]), strict=False):
        yield tuple(key), places


def _sizes(statistics: PhillyStatistics, tenant: Integers, gpus: Integers, rng: np.random.Generator) -> Integers:
    size = np.ones(len(tenant), dtype=np.int64)
    for (owner, single), places in _groups(tenant, (gpus == 1).astype(np.int64)):
        sizes = statistics.batch_sizes(statistics.tenants[owner], 1 if single else 2)
        size[places] = sizes.draw(len(places), rng)
    return size


def _durations(
    statistics: PhillyStatistics,
    tenant: Integers,
    gpus: Integers,
    passed: npt.NDArray[np.bool_],
    size: Integers,
    rng: np.random.Generator,
) -> Floats:
    """Draw one service time for each batch, from the mixture of its tenant, GPU bucket and class of size."""
    most = statistics.figures["max_duration_s"]
    duration = np.zeros(len(tenant))
    keys = (passed.astype(np.int64), tenant, bucket_of(gpus), bucket_of(size, BATCH_CLASSES))
    for (good, owner, bucket, batch_class), places in _groups(*keys):
        name = BUCKETS[bucket][0]
        if good:
            mixture = statistics.pass_duration(statistics.tenants[owner], name, BATCH_CLASSES[batch_class][0])
        else:
            mixture = statistics.other_duration(name)
        duration[places] = mixture.draw(len(places), most, rng)
    return duration


def _jobs_of_batches(statistics: PhillyStatistics, batches: _Batches, rng: np.random.Generator) -> pd.DataFrame:
    """Spread batches into jobs: seconds apart, and each near the batch's service time."""
    batch = np.repeat(np.arange(len(batches.size)), batches.size)
    first = np.cumsum(batches.size) - batches.size
    gap = statistics.figures["gap_s"]
    apart = np.exp(rng.normal(gap["mu"], gap["sigma"], size=len(batch))) - gap["shift"]
    waited = np.cumsum(np.clip(apart, 0, gap["max"]))
    spread = rng.normal(0, statistics.figures["within_batch_log_sigma"], size=len(batch))
    # The mixtures already hold the spread of jobs that come alone.
    spread[batches.size[batch] == 1] = 0
    killed = rng.random(len(batches.size)) < statistics.figures["other_status"]["killed_share_of_not_passed"]
    status = np.where(batches.passed, "Pass", np.where(killed, "Killed", "Failed"))
    names = np.array(statistics.tenants)
    return pd.DataFrame(
        {
            "submit_time_s": batches.start_s[batch] + waited - waited[first][batch],
            "num_gpus": batches.gpus[batch],
            "duration_s": batches.duration_s[batch] * np.exp(spread),
            "tenant": names[batches.tenant][batch],
            "status": status[batch],
        }
    )


def _cron(statistics: PhillyStatistics, days: int, rng: np.random.Generator) -> pd.DataFrame:
    """Generate the job that one tenant submits every ten minutes."""
    cron = statistics.figures["cron"]
    count = days * DAY_S // cron["every_s"]
    start = rng.integers(cron["every_s"]) + cron["every_s"] * np.arange(count)
    mixture = cron["duration_s"]
    part = rng.choice(len(mixture["weight"]), size=count, p=mixture["weight"])
    duration = np.exp(rng.normal(np.array(mixture["mu"])[part], np.array(mixture["sigma"])[part]))
    return pd.DataFrame(
        {
            "submit_time_s": start.astype(np.float64),
            "num_gpus": 1,
            "duration_s": np.clip(duration, cron["min_s"], cron["max_s"]),
            "tenant": cron["tenant"],
            "status": "Pass",
        }
    )


def _attempts(statistics: PhillyStatistics, table: pd.DataFrame, rng: np.random.Generator) -> Integers:
    """Draw how often each job was started: passed jobs seldom twice, long and large ones more often; others more."""
    figures = statistics.figures["other_status"]
    shares = figures["retried_share_of_passed"]
    by_bucket = np.array([shares[name] for name, _ in BUCKETS])[bucket_of(table["num_gpus"].to_numpy())]
    share = np.where(table["duration_s"].to_numpy() < 3600, shares["short"], by_bucket)
    retried = rng.random(len(table)) < share
    further = rng.geometric(1 / (1 + figures["mean_further_retries_of_passed"]), size=len(table))
    other = rng.geometric(1 / (1 + figures["mean_retries_of_not_passed"]), size=len(table))
    passed = (table["status"] == "Pass").to_numpy("bool")
    return np.where(passed, 1 + np.where(retried, further, 0), other).astype(np.int64)


def _check(options: GeneratorOptions) -> None:
    problems = []
    for key in ("days", "scale", "jobs"):
        value = getattr(options, key)
        if value is not None and not 0 < value < float("inf"):
            problems.append(Problem(key, f"{value} is out of range", "give a number above 0"))
    for key, value, known in (
        ("weekday", options.weekday, WEEKDAYS),
        ("statuses", options.statuses, STATUS_CHOICES),
    ):
        if value not in known:
            problems.append(Problem(key, f"'{value}' is unknown", nearest(value, known)))
    if problems:
        raise InputError(*problems)
