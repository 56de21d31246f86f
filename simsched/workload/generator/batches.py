"""The batches of one week, and their jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simsched.arithmetic import exp
from simsched.workload.philly_statistics import (
    CLASSES,
    MINUTE_S,
    Cell,
    Floats,
    Integers,
    PhillyStatistics,
    bucket_of,
    normal_share,
)  # fmt: skip


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
        np.array([gap["small"][key], gap["large"][key]])[large] for key in ("mu", "between", "within")
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
    key = (batches.cell * 100 + bucket)[batch]
    gpus = batches.gpus[batch]
    duration = np.empty(len(batch))
    for value in _present(key):
        places = key == value
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
