"""Generates a stretch of an endless trace: its options, the expected batches of each hour, and its weeks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from simsched.arithmetic import exp
from simsched.errors import InputError, Problem, input_error, nearest
from simsched.workload.generator.batches import Jobs, draw_batches, jobs_of
from simsched.workload.philly_statistics import (
    BUCKETS,
    WEEKDAYS,
    Cell,
    Floats,
    Integers,
    PhillyStatistics,
    Quantiles,
    Wandering,
    bucket_of,
)  # fmt: skip
from simsched.workload.trace import Trace, sorted_trace

STATUS_CHOICES = ("pass", "all")


@dataclass(frozen=True)
class GeneratorOptions:
    """What to generate: `days` from a `weekday` of the week `first_week` on, at `scale` times Philly's rate of batches.

    `statuses` is `pass` for jobs that passed, as in the Pollux artifact's Philly, or `all` to add jobs that were killed
    or failed, with (estimated) attempts. `cron` adds the one-minute job that Philly's tenant 11cb48 submits every ten
    minutes, about one job in eight. `jobs` ends the trace after that many jobs and overrides `days`.
    """

    days: int = 7
    scale: float = 1.0
    weekday: str = "Mon"
    statuses: str = "pass"
    cron: bool = True
    jobs: int | None = None
    first_week: int = 0

    def check(self) -> None:
        """Raise `InputError` that lists every unknown or out-of-range option."""
        problems = []
        for key in ("days", "scale", "jobs"):
            value = getattr(self, key)
            if value is not None and not 0 < value < float("inf"):
                problems.append(Problem(key, f"{value} is out of range", "give a number above 0"))
        if self.first_week < 0:
            problems.append(Problem("first_week", f"{self.first_week} is out of range", "give a number from 0 on"))
        for key, value, known in (("weekday", self.weekday, WEEKDAYS), ("statuses", self.statuses, STATUS_CHOICES)):
            if value not in known:
                problems.append(Problem(key, f"'{value}' is unknown", nearest(value, known)))
        if problems:
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
