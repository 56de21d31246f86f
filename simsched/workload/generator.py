"""Generates traces like Microsoft's Philly, of any length, from its published statistics.

Jobs come in batches: jobs of one tenant with equal GPUs and one class of GPU-time, submitted seconds apart, with
similar run times. Each class has small and large batches, whose rate follows the hour of the week and drifts at random
over hours and days. A trace is generated week by week from one seed and never ends; the cost of a stretch depends only
on its own length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import accumulate
from math import inf
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from simsched.arithmetic import exp
from simsched.errors import InputError, input_error
from simsched.keys import key, problems_with
from simsched.workload.philly_statistics import (
    BUCKETS,
    CLASSES,
    MINUTE_S,
    WEEKDAYS,
    Cell,
    Floats,
    Integers,
    PhillyStatistics,
    Quantiles,
    Wandering,
    bucket_of,
    normal_share,
)  # fmt: skip  # fmt: skip
from simsched.workload.trace import Trace, sorted_trace


@dataclass(frozen=True)
class Batches:
    """Batches of jobs: one entry per batch in each array, times in seconds from the start of the week."""

    start_s: Floats
    cell: Integers
    tenant: Integers
    gpus: Integers
    size: Integers
    passed: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Jobs:
    """Jobs: one entry per job in each array; `killed` tells whether a job that did not pass was killed."""

    submit_s: Floats
    gpus: Integers
    duration_s: Floats
    tenant: Integers
    passed: npt.NDArray[np.bool_]
    killed: npt.NDArray[np.bool_]


def draw_batches(cells: Sequence[Cell], expected: Floats, passing: Floats | None, rng: np.random.Generator) -> Batches:
    """Draw a week's batches from the expected number in each cell and hour, of shape (cells, 168).

    `passing` is the share of passed jobs in each GPU bucket; if given, the batches that did not pass are drawn too, in
    proportion to the passed ones of their kind.
    """
    parts = []
    for index, cell in enumerate(cells):
        weight = cell.share if passing is None else cell.share * (1 / passing[bucket_of(cell.gpus)] - 1)
        total = float(weight.sum())
        count = rng.poisson(expected[index] * total)
        hours = np.repeat(np.arange(count.size), count)
        kind = rng.choice(len(weight), size=hours.size, p=weight / total)
        start = (hours + rng.random(hours.size)) * 3600
        size = cell.sizes.draw(hours.size, rng)
        parts.append((start, np.full(hours.size, index), cell.tenant[kind], cell.gpus[kind], size))
    start, cell_of, tenant, gpus, size = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Batches(start, cell_of, tenant, gpus, size, np.full(len(start), passing is None))


def jobs_of(statistics: PhillyStatistics, batches: Batches, rng: np.random.Generator) -> Jobs:
    """Expand batches into jobs that come seconds apart and run for similar times."""
    batch = np.repeat(np.arange(len(batches.size)), batches.size)
    common, own = rng.normal(size=len(batches.size)), rng.normal(size=len(batch))
    duration = _durations(statistics, batches, batch, common, own)
    if not batches.passed.all():
        duration = _other_durations(statistics, batches, batch, own, rng)
    killed = rng.random(len(batches.size)) < statistics.figures["other_status"]["killed_share_of_not_passed"]
    return Jobs(
        submit_s=batches.start_s[batch] + _waits(statistics, batches, batch, rng),
        gpus=batches.gpus[batch],
        duration_s=np.clip(duration, 1, statistics.figures["max_duration_s"]).round(),
        tenant=batches.tenant[batch],
        passed=batches.passed[batch],
        killed=killed[batch],
    )


def _waits(
    statistics: PhillyStatistics, batches: Batches, batch: npt.NDArray[np.intp], rng: np.random.Generator
) -> Floats:
    """Draw each job's delay after the first of its batch; some users submit faster than others."""
    gap = statistics.figures["gap_s"]
    large = np.array([cell.large for cell in statistics.cells])[batches.cell].astype(np.int64)
    mu, between, within = (
        np.array([gap["small"][name], gap["large"][name]])[large] for name in ("mu", "between", "within")
    )
    pace = mu + between * rng.normal(size=len(batches.size))
    apart = exp(pace[batch] + within[batch] * rng.normal(size=len(batch))) - gap["shift"]
    waited = np.cumsum(np.clip(apart, 0, gap["max"]))
    first = np.cumsum(batches.size) - batches.size
    result: Floats = waited - waited[first][batch]
    return result


def _durations(
    statistics: PhillyStatistics, batches: Batches, batch: npt.NDArray[np.intp], common: Floats, own: Floats
) -> Floats:
    """Return the service times of passed jobs: similar within a batch, distributed by class and GPUs."""
    cells = statistics.cells
    alike = np.array([statistics.alike(cell.job_class, cell.large) for cell in cells])[batches.cell[batch]]
    share = normal_share(np.sqrt(alike) * common[batch] + np.sqrt(1 - alike) * own)
    bucket = bucket_of(batches.gpus)
    kinds = (batches.cell * 100 + bucket)[batch]
    gpus = batches.gpus[batch]
    duration = np.empty(len(batch))
    for value in _present(kinds):
        places = kinds == value
        cell = cells[value // 100]
        found = statistics.duration(cell.job_class, cell.large, value % 100).at(share[places])
        duration[places] = _within_class(found, gpus[places], cell.job_class)
    return duration


def _present(numbers: Integers) -> list[int]:
    """List the small integers that occur, ascending; `numpy.unique` would load the module of masked arrays."""
    found: list[int] = np.flatnonzero(np.bincount(numbers)).tolist()
    return found


def _within_class(value: Floats, gpus: Integers, job_class: int) -> Floats:
    """Convert GPU-seconds (seconds in the first class) to whole seconds that keep a job in its class."""
    if job_class == 0:
        return np.clip(np.round(value), 1, MINUTE_S - 1)
    _, low, high = CLASSES[job_class]
    least = np.maximum(np.ceil(low / gpus), MINUTE_S)
    most = np.full(gpus.shape, np.inf) if np.isinf(high) else np.ceil(high / gpus) - 1
    return np.clip(np.round(value / gpus), least, np.maximum(most, least))


def _other_durations(
    statistics: PhillyStatistics, batches: Batches, batch: npt.NDArray[np.intp], own: Floats, rng: np.random.Generator
) -> Floats:
    """Draw the service times of jobs that did not pass: one per batch, with its jobs close to it."""
    most = statistics.figures["max_duration_s"]
    bucket = bucket_of(batches.gpus)
    typical = np.zeros(len(batches.size))
    for value in _present(bucket):
        places = bucket == value
        typical[places] = statistics.other_duration(value).draw(int(places.sum()), most, rng)
    spread = np.where(batches.size[batch] > 1, statistics.figures["other_status"]["within_batch_log_sigma"], 0.0)
    result: Floats = typical[batch] * exp(spread * own)
    return result


@dataclass(frozen=True)
class GeneratorOptions:
    """What to generate: `days` from a `weekday` of the week `first_week` on, at `scale` times Philly's rate of batches.

    `statuses` is `pass` for jobs that passed, as in the Pollux artifact's Philly, or `all` to add jobs that were killed
    or failed, with (estimated) attempts. `cron` adds the one-minute job that Philly's tenant 11cb48 submits every ten
    minutes, about one job in eight. `jobs` ends the trace after that many jobs and overrides `days`.
    """

    days: int = key(7, "days of the trace", gt=0, lt=inf)
    scale: float = key(1.0, "factor on the rate of batches", gt=0, lt=inf)
    weekday: Literal["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"] = "Mon"
    statuses: Literal["pass", "all"] = "pass"
    cron: bool = True
    jobs: int | None = key(None, "jobs of the trace", gt=0, lt=inf)
    first_week: int = key(0, "week at which the trace begins", ge=0)

    def check(self) -> None:
        """Raise `InputError` that lists every unknown or out-of-range option."""
        if problems := list(problems_with(self, "trace")):
            raise InputError(*problems)


WEEK_H = 168
#: A week's factors depend on the noise of this many weeks before it: nine times the longest memory (72 h).
MEMORY_WEEKS = 4
#: The purposes for which each week has a random stream.
NOISE, BATCHES, JOBS, OTHERS, CRON, CRON_PHASE = range(6)


def stream(root: int, week: int, purpose: int) -> np.random.Generator:
    """Create the random generator of one week and purpose; weeks may be negative, down to -`MEMORY_WEEKS` - 1."""
    return np.random.default_rng(np.random.SeedSequence([root, week + MEMORY_WEEKS + 1, purpose]))


def wander(processes: Sequence[Wandering], root: int, first_week: int, weeks: int) -> Floats:
    """Return each process's addend to the logarithm of a rate, of shape (processes, hours); its exponential has mean 1.

    The processes are autoregressive, which makes the batches a log-Gaussian Cox process (Moller et al. 1998).
    """
    span = range(first_week - MEMORY_WEEKS, first_week + weeks)
    noise = np.concatenate([stream(root, w, NOISE).normal(size=(len(processes), WEEK_H)) for w in span], axis=1)
    log = np.empty((len(processes), weeks * WEEK_H))
    for row, process in enumerate(processes):
        keep = exp(-1 / process.hours)
        scale = np.sqrt(process.variance * (1 - keep**2))
        remembered = _autoregressive(keep, scale * noise[row])
        log[row] = remembered[MEMORY_WEEKS * WEEK_H :] - process.variance / 2
    return log


def _autoregressive(keep: float, noise: Floats) -> Floats:
    """Return y with y[0] = noise[0] and y[i] = keep y[i-1] + noise[i]."""
    return np.fromiter(accumulate(noise.tolist(), lambda last, new: keep * last + new), float, len(noise))


def expected_batches(
    cells: Sequence[Cell], processes: Sequence[Wandering], root: int, first_week: int, weeks: int
) -> Floats:
    """Return the expected batches of each cell in each hour, of shape (weeks, cells, 168)."""
    log = wander(processes, root, first_week, weeks)
    factor = exp([log[list(cell.follows)].sum(axis=0) for cell in cells])
    hourly = np.array([cell.hourly for cell in cells])
    return hourly * factor.reshape(len(cells), weeks, WEEK_H).transpose(1, 0, 2)


#: The Monday from which generated traces count: they reproduce days of the week, not dates of Philly.
MONDAY = datetime(2001, 1, 1)
DAY_S = 86400
#: How a job may end.
STATUSES = ("Pass", "Killed", "Failed")
#: Approximate jobs per day, without the ten-minute job and from it.
JOBS_A_DAY, CRON_JOBS_A_DAY = 880, 127
#: A trace with a given number of jobs may span at most a century.
MOST_DAYS = 36_525
WEEK_S = 7 * DAY_S
#: The default length of a seed's stretch, and the seed of the endless trace.
STRETCH_DAYS = 364
LONG_TRACE_SEED = 0


def generate_from_seed(options: GeneratorOptions, seed: int) -> Trace:
    """Generate the trace of a seed.

    The trace counts from midnight of a Monday in 2001 (or of the first `weekday` after it), in Philly's clock, most
    likely UTC. Each week has separate random streams, so that the same week of the same seed holds the same jobs,
    wherever the trace begins and ends. Raises `InputError` if an option is out of range or no job comes in the span.
    """
    options.check()
    statistics = PhillyStatistics.load()
    offset_s = WEEKDAYS.index(options.weekday) * DAY_S
    days = options.days if options.jobs is None else _days_for(options.jobs, options)
    table = _span(statistics, options, seed, offset_s, days * DAY_S)
    while options.jobs is not None and len(table["row"]) < options.jobs:
        days *= 2
        table = _span(statistics, options, seed, offset_s, days * DAY_S)
    origin = MONDAY + timedelta(seconds=offset_s)
    columns = {name: column[: options.jobs] for name, column in table.items()}
    return sorted_trace("philly-generated", "generated", columns, origin)


def stretch_of(options: GeneratorOptions, seed: int) -> Trace:
    """Return a seed's stretch of the endless trace: `days` of it, in weeks that no other seed has.

    Stretches of the same length follow each other. Each begins on a Monday (or the given weekday) and counts from its
    first day. Seed 0 has the first.
    """
    weeks = -(-(options.days + WEEKDAYS.index(options.weekday)) // 7)
    return generate_from_seed(replace(options, first_week=options.first_week + seed * weeks), LONG_TRACE_SEED)


def _days_for(jobs: int, options: GeneratorOptions) -> int:
    """Estimate how many days it takes to submit this many jobs; a margin of a quarter makes a second try rare."""
    days = 1.25 * jobs / (JOBS_A_DAY * options.scale + (CRON_JOBS_A_DAY if options.cron else 0))
    if days > MOST_DAYS:
        raise input_error("jobs", f"{jobs} jobs would take more than {MOST_DAYS} days", "raise 'scale'")
    return max(7, round(days))


def _span(
    statistics: PhillyStatistics, options: GeneratorOptions, root: int, offset_s: int, length_s: int
) -> dict[str, npt.NDArray[Any]]:
    """Generate the jobs submitted in a span that begins with the first week, in order of submission."""
    # Generate the week before too: jobs that its batches submit after its end fall into the first week.
    first = options.first_week - 1
    weeks = -(-(offset_s + length_s) // WEEK_S) + 1
    expected = expected_batches(statistics.cells, statistics.wandering, root, first, weeks) * options.scale
    parts = []
    for week in range(weeks):
        for jobs in _week(statistics, options, root, first + week, expected[week]):
            jobs["submit_time_s"] = jobs["submit_time_s"] + (week - 1) * WEEK_S - offset_s
            parts.append(jobs)
    table = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.argsort(table["submit_time_s"], kind="stable")
    submit = table["submit_time_s"][order]
    order = order[(submit >= 0) & (submit < length_s)]
    found = {name: column[order] for name, column in table.items()}
    return {**found, "row": np.arange(len(order))}


def _week(
    statistics: PhillyStatistics, options: GeneratorOptions, root: int, week: int, expected: Floats
) -> list[dict[str, npt.NDArray[Any]]]:
    """Generate the jobs of the batches that begin in one week; times count from its start."""
    rng = stream(root, week, BATCHES)
    passed = draw_batches(statistics.cells, expected, None, rng)
    tables = [_columns(statistics, options, jobs_of(statistics, passed, stream(root, week, JOBS)), rng)]
    if options.statuses == "all":
        rng = stream(root, week, OTHERS)
        shares = statistics.figures["other_status"]["pass_share"]
        other = draw_batches(statistics.cells, expected, np.array([shares[name] for name, _ in BUCKETS]), rng)
        tables.append(_columns(statistics, options, jobs_of(statistics, other, rng), rng))
    if options.cron:
        tables.append(_cron(statistics, root, week))
    return tables


def _columns(
    statistics: PhillyStatistics, options: GeneratorOptions, jobs: Jobs, rng: np.random.Generator
) -> dict[str, npt.NDArray[Any]]:
    return {
        "submit_time_s": jobs.submit_s.astype(np.int64),
        "num_gpus": jobs.gpus,
        "duration_s": jobs.duration_s,
        "tenant": np.array(statistics.tenants, dtype=object)[jobs.tenant],
        "status": np.array(STATUSES, dtype=object)[np.where(jobs.passed, 0, np.where(jobs.killed, 1, 2))],
        "attempts": _attempts(statistics, jobs, rng) if options.statuses == "all" else np.ones_like(jobs.gpus),
    }


def _cron(statistics: PhillyStatistics, root: int, week: int) -> dict[str, npt.NDArray[Any]]:
    """Generate the job that one tenant submits every ten minutes; it fails now and then."""
    cron = statistics.figures["cron"]
    phase = int(stream(root, 0, CRON_PHASE).integers(cron["every_s"]))
    rng = stream(root, week, CRON)
    slots = np.arange(WEEK_H * 3600 // cron["every_s"])
    duration = Quantiles(tuple(cron["duration_s"])).at(rng.random(len(slots))).round()
    passed = rng.random(len(slots)) < cron["share"]
    ones = np.ones(int(passed.sum()), dtype=np.int64)
    return {
        "submit_time_s": phase + cron["every_s"] * slots[passed],
        "num_gpus": ones,
        "duration_s": duration[passed],
        "tenant": np.full(len(ones), cron["tenant"], dtype=object),
        "status": np.full(len(ones), STATUSES[0], dtype=object),
        "attempts": ones,
    }


def _attempts(statistics: PhillyStatistics, jobs: Jobs, rng: np.random.Generator) -> Integers:
    """Draw how often each job was started: passed jobs rarely twice unless large or long, others more often."""
    figures = statistics.figures["other_status"]
    shares = figures["retried_share_of_passed"]
    by_bucket = np.array([shares[name] for name, _ in BUCKETS])[bucket_of(jobs.gpus)]
    share = np.where(jobs.duration_s < 3600, shares["short"], by_bucket)
    retried = rng.random(len(share)) < share
    further = rng.geometric(1 / (1 + figures["mean_further_retries_of_passed"]), size=len(share))
    other = rng.geometric(1 / (1 + figures["mean_retries_of_not_passed"]), size=len(share))
    return np.where(jobs.passed, 1 + np.where(retried, further, 0), other).astype(np.int64)
