"""The statistics of Philly that the generator draws from, read from `traces/philly-statistics.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import erfc, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from simsched.arithmetic import exp, log
from simsched.paths import data_folder

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

#: GPU buckets: name and largest GPU count.
BUCKETS: tuple[tuple[str, float], ...] = (
    ("1", 1), ("2", 2), ("3-4", 4), ("5-8", 8), ("9-16", 16), (">16", np.inf),
)  # fmt: skip
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
#: The shares at which quantiles are listed. The ends are left out because they would be single jobs.
LEVELS = (0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5,
          0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.975, 0.99)  # fmt: skip
#: Classes of jobs: name and bounds of GPU-seconds. Class XS holds the jobs of less than a minute.
CLASSES: tuple[tuple[str, float, float], ...] = (
    ("XS", 1.0, np.inf), ("S", 60.0, 3.6e3), ("M", 3.6e3, 3.6e4), ("L", 3.6e4, 3.6e5), ("XL", 3.6e5, 3.6e6),
    ("XXL", 3.6e6, np.inf),
)  # fmt: skip
MINUTE_S = 60


def normal_share(values: Floats) -> Floats:
    """Return the share of the standard normal distribution below each value.

    `scipy.special.ndtr` agrees to within a few units in the last place, but takes longer to load than this takes to
    run.
    """
    return 0.5 * np.fromiter(map(erfc, (values * -sqrt(0.5)).tolist()), np.float64, len(values))


@dataclass(frozen=True)
class Mixture:
    """A mixture of log-normal distributions of seconds."""

    weight: tuple[float, ...]
    mu: tuple[float, ...]
    sigma: tuple[float, ...]

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Mixture:
        """Read a mixture from its JSON form."""
        return cls(tuple(entry["weight"]), tuple(entry["mu"]), tuple(entry["sigma"]))

    def draw(self, count: int, most: float, rng: np.random.Generator) -> Floats:
        """Draw `count` durations in seconds, none longer than `most`."""
        from scipy.special import ndtri  # slow to load, and jobs that passed do not need it

        weight = np.array(self.weight)
        part = rng.choice(len(weight), size=count, p=weight / weight.sum())
        mu, sigma = np.array(self.mu)[part], np.array(self.sigma)[part]
        # Inverting the distribution on the part of [0, 1] below `most` truncates exactly, with one draw per value.
        below = normal_share((log(most) - mu) / sigma)
        drawn: Floats = exp(mu + sigma * ndtri(rng.random(count) * below))
        return drawn


@dataclass(frozen=True)
class Quantiles:
    """A distribution of positive values given by its quantiles at `LEVELS`, with logarithms interpolated linearly."""

    values: tuple[float, ...]

    def at(self, share: Floats) -> Floats:
        """Return the quantiles at these shares.

        Beyond the first and the last level, the logarithm continues with the slope between the two nearest levels.
        """
        logs = log(self.values)
        low = logs[0] - (logs[1] - logs[0]) / (LEVELS[1] - LEVELS[0]) * LEVELS[0]
        high = logs[-1] + (logs[-1] - logs[-2]) / (LEVELS[-1] - LEVELS[-2]) * (1 - LEVELS[-1])
        found: Floats = exp(np.interp(share, [0.0, *LEVELS, 1.0], [low, *logs, high]))
        return found


@dataclass(frozen=True)
class BatchSizes:
    """The number of jobs of a batch: the share of batches with at least `size` jobs, up to one above the largest."""

    size: tuple[int, ...]
    at_least: tuple[float, ...]

    def at(self, share: Floats) -> Integers:
        """Return the quantiles at these shares; between listed sizes the logarithm is uniform."""
        sizes = np.asarray(exp(np.interp(share, 1 - np.array(self.at_least), log(self.size))))
        return np.clip(np.floor(sizes + 1e-9), self.size[0], self.size[-1] - 1).astype(np.int64)

    def draw(self, count: int, rng: np.random.Generator) -> Integers:
        """Draw `count` sizes."""
        return self.at(rng.random(count))

    def mean(self) -> float:
        """Return the expected size."""
        return float(self.at((np.arange(100_000) + 0.5) / 100_000).mean())


@dataclass(frozen=True)
class Cell:
    """Batches of one class of jobs and one range of sizes.

    `follows` lists the indices of the processes that drive its rate; `hourly` is the expected number of batches in each
    hour of the week, Monday 0:00 first, of shape (168,); `tenant` (by index), `gpus` and `share` list the kinds.
    """

    job_class: int
    large: bool
    follows: tuple[int, ...]
    hourly: Floats
    sizes: BatchSizes
    tenant: Integers
    gpus: Integers
    share: Floats


@dataclass(frozen=True)
class Wandering:
    """A Gaussian process in the logarithm of rates: its variance, and the hours until its correlation is 1/e."""

    variance: float
    hours: float


class PhillyStatistics:
    """Statistics of Philly's jobs; traces/README.md explains the meaning and origin of each figure."""

    def __init__(self, figures: Mapping[str, Any]) -> None:
        self.figures = figures

    @classmethod
    def load(cls) -> PhillyStatistics:
        """Read the statistics that ship with simsched."""
        return cls(json.loads((data_folder("traces") / "philly-statistics.json").read_text(encoding="utf-8")))

    @property
    def most_gpus(self) -> int:
        """The largest number of GPUs that a job requests."""
        return max(int(gpus) for cell in self.figures["cells"] for _, gpus, _ in cell["kinds"])

    @cached_property
    def tenants(self) -> tuple[str, ...]:
        """List the tenants that submit batches, sorted."""
        return tuple(sorted({owner for cell in self.figures["cells"] for owner, _, _ in cell["kinds"]}))

    @cached_property
    def wandering(self) -> tuple[Wandering, ...]:
        """List the processes that drive rates, sorted by name."""
        entries = self.figures["wandering"]
        return tuple(Wandering(entries[name]["variance"], entries[name]["hours"]) for name in sorted(entries))

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """List the kinds of batches."""
        return tuple(self._cell(entry) for entry in self.figures["cells"])

    def _cell(self, entry: Mapping[str, Any]) -> Cell:
        names = [name for name, _, _ in CLASSES]
        week = self.figures["week"]
        factor = np.array(week["large"])[:, None] if entry["large"] else np.array(week["small"])
        # The factors of the days have mean 1 in each hour, which preserves the share of each hour of the day.
        hourly = (factor / factor.mean(axis=0) * np.array(entry["hour_share"])).ravel()
        share = np.array([share for _, _, share in entry["kinds"]], dtype=np.float64)
        return Cell(
            job_class=names.index(entry["class"]),
            large=entry["large"],
            follows=self._follows(entry),
            hourly=entry["per_week"] * hourly / hourly.sum(),
            sizes=BatchSizes(tuple(entry["size"]["size"]), tuple(entry["size"]["at_least"])),
            tenant=np.array([self.tenants.index(owner) for owner, _, _ in entry["kinds"]]),
            gpus=np.array([gpus for _, gpus, _ in entry["kinds"]]),
            share=share / share.sum(),
        )

    def _follows(self, entry: Mapping[str, Any]) -> tuple[int, ...]:
        names = sorted(self.figures["wandering"])
        if not entry["large"]:
            return names.index("small hours"), names.index("small days")
        own = f"large {entry['class']} hours"
        return names.index("large days"), names.index(own if own in names else "large other hours")

    def duration(self, job_class: int, large: bool, bucket: int) -> Quantiles:
        """Return the GPU-seconds (seconds in class XS) of passed jobs, by GPU bucket if there are enough data."""
        table, name = self.figures["duration"], CLASSES[job_class][0]
        own = table.get(f"{name} {'large' if large else 'small'}", {})
        everyone = table[f"{name} any"]
        key = BUCKETS[bucket][0]
        return Quantiles(tuple(own.get(key) or everyone.get(key) or own.get("any") or everyone["any"]))

    def alike(self, job_class: int, large: bool) -> float:
        """Return the share of the variance of durations that lies between batches."""
        table, name = self.figures["alike"], CLASSES[job_class][0]
        found = table.get(f"{name} {'large' if large else 'small'}", table.get(f"{name} small", 0.0))
        return float(found)

    def other_duration(self, bucket: int) -> Mixture:
        """Return the service times of jobs that were killed or failed."""
        return Mixture.of(self.figures["other_status"]["duration_s"][BUCKETS[bucket][0]])


def bucket_of(values: npt.ArrayLike, buckets: tuple[tuple[str, float], ...] = BUCKETS) -> Integers:
    """Return the index of the bucket of each value."""
    return np.searchsorted([most for _, most in buckets], np.asarray(values), side="left").astype(np.int64)


def bucket_name(gpus: npt.ArrayLike) -> npt.NDArray[np.str_]:
    """Return the name of the GPU bucket of each count."""
    return np.array([name for name, _ in BUCKETS])[bucket_of(gpus)]
