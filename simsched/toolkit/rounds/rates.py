"""The job speeds by GPU type that a policy of shares uses: the truth, or measurements of jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from simsched.arithmetic import exp, log, ordered_sum
from simsched.policy import JobView, Signal
from simsched.policy.signals import MEASURED_SPEEDS, TRUE_RATES

Floats = npt.NDArray[np.float64]

#: Where rates come from. `none` treats all types as equal; `reference` uses the true rate on the cluster's first type
#: for all; `true` is an oracle; `measured` is what each job has measured itself, and `fitted` what all jobs of the run
#: have, completed by a model.
Speeds = Literal["true", "measured", "fitted", "reference", "none"]

SIGNALS: Mapping[str, frozenset[Signal]] = MappingProxyType(
    {
        "true": frozenset({TRUE_RATES}),
        "reference": frozenset({TRUE_RATES}),
        "measured": frozenset({MEASURED_SPEEDS}),
        "fitted": frozenset({MEASURED_SPEEDS}),
        "none": frozenset(),
    }
)


class RateSource(Protocol):
    """Estimates rates of progress."""

    def rates(self, jobs: Sequence[JobView]) -> Floats:
        """Return the rate of each job on each GPU type, shape (n, k); 0 if it cannot run."""

    def forget(self, job_id: str) -> None:
        """Forget a job that has finished."""


def rate_source(speeds: Speeds, gpus: Mapping[str, int]) -> RateSource:
    """Return the source that `speeds` names for a cluster with these GPUs of each type."""
    if speeds in ("true", "reference"):
        return _TrueRates(gpus, reference=speeds == "reference")
    return _Measured(gpus, _COMPLETED[speeds])


def _runs_on(job: JobView, gpus: Mapping[str, int]) -> list[bool]:
    return [job.facts.runs_on(gpu_type) and job.num_gpus <= count for gpu_type, count in gpus.items()]


class _TrueRates:
    """The oracle; rates are read once for each job."""

    def __init__(self, gpus: Mapping[str, int], *, reference: bool) -> None:
        self._gpus = gpus
        self._reference = reference
        self._known: dict[str, Floats] = {}

    def rates(self, jobs: Sequence[JobView]) -> Floats:
        """Return the true rates."""
        for job in jobs:
            if job.id not in self._known:
                self._known[job.id] = self._row(job)
        return np.array([self._known[job.id] for job in jobs]).reshape(len(jobs), len(self._gpus))

    def _row(self, job: JobView) -> Floats:
        true = job[TRUE_RATES]
        row = np.array([true[gpu_type] if job.num_gpus <= count else 0.0 for gpu_type, count in self._gpus.items()])
        if self._reference and row.any():
            row = np.where(row > 0, row[np.flatnonzero(row)[0]], 0.0)
        return row

    def forget(self, job_id: str) -> None:
        """Drop the rates of a job."""
        self._known.pop(job_id, None)


#: A kind of job: its application, GPUs and batch size.
_Kind = tuple[str, int, int]
#: Fills the gaps (nan) of a table of rates, by kind and type.
_Complete = Callable[[Floats], Floats]


class _Measured:
    """The rates that jobs have measured on the types on which they ran; the mean over placements on a type."""

    def __init__(self, gpus: Mapping[str, int], complete: tuple[bool, _Complete]) -> None:
        self._gpus = gpus
        self._column = {gpu_type: number for number, gpu_type in enumerate(gpus)}
        self._shared, self._complete = complete
        self._known: dict[str | _Kind, Floats] = {}

    def rates(self, jobs: Sequence[JobView]) -> Floats:
        """Return measured rates, and estimates where there is no measurement."""
        keys = [self._key(job) for job in jobs]
        for key, job in zip(keys, jobs, strict=True):
            self._take_in(key, job)
        table = dict(zip(self._known, self._complete(self._table()), strict=True))
        able = np.array([_runs_on(job, self._gpus) for job in jobs]).reshape(len(jobs), len(self._gpus))
        return np.where(able, np.array([table[key] for key in keys]).reshape(able.shape), 0.0)

    def _key(self, job: JobView) -> str | _Kind:
        return (job.request.application, job.num_gpus, job.request.batch_size) if self._shared else job.id

    def _take_in(self, key: str | _Kind, job: JobView) -> None:
        row = self._known.setdefault(key, np.full(len(self._gpus), np.nan))
        if self._complete is _ones:
            return
        found: dict[int, list[float]] = {}
        for site, speed in job[MEASURED_SPEEDS].items():
            if speed.rate > 0:
                found.setdefault(self._column[site.gpu_type], []).append(speed.rate)
        for column, rates in found.items():
            row[column] = ordered_sum(rates) / len(rates)

    def _table(self) -> Floats:
        return np.array(list(self._known.values())).reshape(len(self._known), len(self._gpus))

    def forget(self, job_id: str) -> None:
        """Drop what a job has measured, unless others of its kind use it."""
        self._known.pop(job_id, None)


def _ones(table: Floats) -> Floats:
    return np.ones_like(table)


def _alike(table: Floats) -> Floats:
    """Fill each job's unknown rates with the mean of its known ones, 1 if it has none."""
    known = ~np.isnan(table)
    counts = known.sum(axis=1)
    mean = np.divide(np.where(known, table, 0.0).sum(axis=1), counts, out=np.ones(len(table)), where=counts > 0)
    return np.where(known, table, mean[:, None])


def _one_factor(table: Floats) -> Floats:
    """Fill gaps with the product of a factor of the kind and one of the type, fitted to known logarithms.

    Alternating least squares; a factor without data is 1.
    """
    known = ~np.isnan(table)
    logs = log(np.where(known, table, 1.0))
    kind, gpu_type = np.zeros(len(table)), np.zeros(table.shape[1])
    for _ in range(_PASSES):
        kind = _mean(np.where(known, logs - gpu_type, 0.0), known, 1)
        gpu_type = _mean(np.where(known, logs - kind[:, None], 0.0), known, 0)
    return np.where(known, table, exp(kind[:, None] + gpu_type))


def _mean(values: Floats, known: npt.NDArray[np.bool_], axis: int) -> Floats:
    counts = known.sum(axis=axis)
    return np.asarray(values.sum(axis=axis) / np.maximum(counts, 1))


#: Iterations of alternating least squares; the factors settle in a few.
_PASSES = 20

#: By name, whether jobs of a kind share measurements, and how gaps are filled.
_COMPLETED: Mapping[str, tuple[bool, _Complete]] = MappingProxyType(
    {"none": (False, _ones), "measured": (False, _alike), "fitted": (True, _one_factor)}
)
