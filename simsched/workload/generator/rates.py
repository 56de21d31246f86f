"""How many batches of each kind are expected in each hour: the hour of the week times a factor that wanders."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.signal import lfilter

from simsched.workload.philly_statistics import Cell, Field, Floats

WEEK_H = 168
#: The factors of a week depend on noise of this many weeks before it: nine times the longest memory (72 h).
MEMORY_WEEKS = 4
#: The purposes for which a week has random streams of its own.
NOISE, BATCHES, JOBS, OTHERS, CRON, CRON_PHASE = range(6)


def stream(root: int, week: int, purpose: int) -> np.random.Generator:
    """Make the generator of one week and purpose; weeks may be negative, down to -`MEMORY_WEEKS` - 1."""
    return np.random.default_rng(np.random.SeedSequence([root, week + MEMORY_WEEKS + 1, purpose]))


def factors(fields: Sequence[Field], root: int, first_week: int, weeks: int) -> Floats:
    """Return each field's factor in each hour of `weeks` weeks, of mean 1 and shape (fields, hours).

    Its logarithm is a sum of autoregressive processes (a log-Gaussian Cox process, Moller et al. 1998).
    """
    parts = [(index, v, h) for index, field in enumerate(fields) for v, h in zip(field.variance, field.hours, strict=True)]
    span = range(first_week - MEMORY_WEEKS, first_week + weeks)
    noise = np.concatenate([stream(root, w, NOISE).normal(size=(len(parts), WEEK_H)) for w in span], axis=1)
    log = np.zeros((len(fields), weeks * WEEK_H))
    for row, (index, variance, hours) in enumerate(parts):
        keep = np.exp(-1 / hours)
        scale = np.sqrt(variance * (1 - keep**2))
        log[index] += lfilter([scale], [1, -keep], noise[row])[MEMORY_WEEKS * WEEK_H :] - variance / 2
    result: Floats = np.exp(log)
    return result


def expected_batches(
    cells: Sequence[Cell], fields: Sequence[Field], root: int, first_week: int, weeks: int
) -> Floats:
    """Return the expected batches of each cell in each hour, of shape (weeks, cells, 168)."""
    hourly = np.array([cell.hourly for cell in cells])
    wandering = factors(fields, root, first_week, weeks)[[cell.field for cell in cells]]
    return hourly * wandering.reshape(len(cells), weeks, WEEK_H).transpose(1, 0, 2)
