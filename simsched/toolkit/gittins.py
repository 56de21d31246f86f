"""The Gittins index of a job whose total service is known only as a distribution.

G(a) = sup over D > 0 of P(S - a <= D | S > a) / E[min(S - a, D) | S > a] for attained service a, where S is the total
service of similar jobs (Tiresias, section 3.2.1); a given service quantum D replaces the supremum.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from simsched.errors import input_error
from simsched.reading import number, read_text

_MOST_SAMPLES = 2000


class ServiceDistribution:
    """The distribution of total service, in GPU-seconds, as a set of equally likely samples.

    More than 2,000 samples are reduced to as many quantiles.
    """

    def __init__(self, samples_gpu_s: Sequence[float] | npt.NDArray[np.float64]) -> None:
        """Take samples in any order; samples of 0 or less are ignored."""
        samples = np.sort(np.asarray(samples_gpu_s, dtype=np.float64))
        samples = samples[samples > 0]
        if len(samples) > _MOST_SAMPLES:
            middle = (np.arange(_MOST_SAMPLES) + 0.5) / _MOST_SAMPLES
            samples = np.quantile(samples, middle, method="inverted_cdf")
        self._samples = samples
        self._sums = np.concatenate([[0.0], np.cumsum(samples)])

    def index(self, attained_gpu_s: float, quantum_gpu_s: float | None = None) -> float:
        """Return the index at this attained service, 0 if no sample is larger.

        `quantum_gpu_s` fixes the service quantum; None takes the best.
        """
        first = int(np.searchsorted(self._samples, attained_gpu_s, side="right"))
        if first == len(self._samples):
            return 0.0
        if quantum_gpu_s is not None:
            return float(self._ratio(first, attained_gpu_s, np.array([attained_gpu_s + quantum_gpu_s]))[0])
        # Between two samples a longer quantum only adds service, so the best one ends at a sample.
        return float(self._ratio(first, attained_gpu_s, self._samples[first:]).max())

    def table(self, points_gpu_s: Sequence[float], quantum_gpu_s: float | None = None) -> tuple[float, ...]:
        """Return the index at each point."""
        return tuple(self.index(point, quantum_gpu_s) for point in points_gpu_s)

    def _ratio(self, first: int, attained: float, until: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Compute finished jobs over expected service for quanta that end at `until`, both times the samples left."""
        last = np.searchsorted(self._samples, until, side="right")
        finished = last - first
        served = self._sums[last] - self._sums[first] - finished * attained
        served += (len(self._samples) - last) * (until - attained)
        ratio: npt.NDArray[np.float64] = finished / served
        return ratio


class ServiceHistory:
    """The source of a policy's distribution: samples, a file of them, or jobs as they finish.

    While learning, it is rebuilt whenever the number of finished jobs has doubled.
    """

    LEAST = 10

    def __init__(self, samples_gpu_s: Sequence[int], file: str | None) -> None:
        """Take samples or a file with one number of GPU-seconds per line; with neither, learn as jobs finish.

        Raises `InputError` for an unreadable file and `ValueError` if both are given.
        """
        if samples_gpu_s and file is not None:
            raise ValueError("give either history_gpu_s or history_file, not both")
        known = list(samples_gpu_s) if file is None else _read(Path(file))
        self.learns = not known
        self.distribution = ServiceDistribution(known) if known else None
        self._next = self.LEAST

    def learn(self, finished_gpu_s: Sequence[float]) -> bool:
        """Take the service of all finished jobs, and return whether the distribution was rebuilt."""
        if not self.learns or len(finished_gpu_s) < self._next:
            return False
        self.distribution = ServiceDistribution(list(finished_gpu_s))
        self._next = 2 * len(finished_gpu_s)
        return True


class IndexTable:
    """An index as a function of steps: a job's index changes only when its service reaches one of the points."""

    def __init__(self, points_gpu_s: Sequence[int], values: Sequence[float]) -> None:
        """Take ascending points, the first at most any service looked up, and the value from each point on."""
        self._points = list(points_gpu_s)
        self._values = list(values)

    def value(self, service_gpu_s: float) -> float:
        """Look up the index."""
        return self._values[max(bisect_right(self._points, service_gpu_s) - 1, 0)]

    def next_point(self, service_gpu_s: float) -> int | None:
        """Return the service at which the index changes next, None if it never does."""
        place = bisect_right(self._points, service_gpu_s)
        return self._points[place] if place < len(self._points) else None


def _read(path: Path) -> list[float]:
    lines = read_text(path).splitlines()
    samples: list[float] = []
    for row, line in enumerate(lines, start=1):
        try:
            samples.append(number(line, "the line"))
        except ValueError:
            if row > 1 and line.strip():  # the first line may be a header
                raise input_error(path, f"'{line.strip()}' is not a number of GPU-seconds", line=row) from None
    if not any(sample > 0 for sample in samples):
        raise input_error(path, "holds no service above 0", "give one number of GPU-seconds a line")
    return samples
