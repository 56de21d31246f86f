"""How many batches of each kind are expected in each hour: the hour of the week times a factor that wanders."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from simsched.arithmetic import exp
from simsched.workload.philly_statistics import Cell, Floats, Wandering

WEEK_H = 168
#: The factors of a week depend on noise of this many weeks before it: nine times the longest memory (72 h).
MEMORY_WEEKS = 4
#: The purposes for which a week has random streams of its own.
NOISE, BATCHES, JOBS, OTHERS, CRON, CRON_PHASE = range(6)


def stream(root: int, week: int, purpose: int) -> np.random.Generator:
    """Make the generator of one week and purpose; weeks may be negative, down to -`MEMORY_WEEKS` - 1."""
    return np.random.default_rng(np.random.SeedSequence([root, week + MEMORY_WEEKS + 1, purpose]))


def wander(processes: Sequence[Wandering], root: int, first_week: int, weeks: int) -> Floats:
    """Return what each process adds to the logarithm of a rate, of shape (processes, hours); exp of it has mean 1.

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
