"""The statistics of Philly that the generator draws from, read from `traces/philly-statistics.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from simsched.paths import data_folder

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

#: GPU buckets: name and largest GPU count.
BUCKETS: tuple[tuple[str, float], ...] = (
    ("1", 1), ("2", 2), ("3-4", 4), ("5-8", 8), ("9-16", 16), (">16", np.inf),
)  # fmt: skip
#: Classes of batches by their number of jobs: name and largest number.
BATCH_CLASSES: tuple[tuple[str, float], ...] = (("1", 1), ("2-9", 9), (">=10", np.inf))
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@dataclass(frozen=True)
class Mixture:
    """A mixture of log-normal distributions of seconds."""

    weight: tuple[float, ...]
    mu: tuple[float, ...]
    sigma: tuple[float, ...]

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Mixture:
        """Read a mixture as the JSON has it."""
        return cls(tuple(entry["weight"]), tuple(entry["mu"]), tuple(entry["sigma"]))

    def draw(self, count: int, most: float, rng: np.random.Generator) -> Floats:
        """Draw `count` durations in seconds, none longer than `most`."""
        weight = np.array(self.weight)
        part = rng.choice(len(weight), size=count, p=weight / weight.sum())
        mu, sigma = np.array(self.mu)[part], np.array(self.sigma)[part]
        # The inverse of the distribution on the part of [0, 1] below `most`: exact truncation, one draw a value.
        below = ndtr((np.log(most) - mu) / sigma)
        drawn: Floats = np.exp(mu + sigma * ndtri(rng.random(count) * below))
        return drawn


@dataclass(frozen=True)
class BatchSizes:
    """How many jobs a batch has: the share of batches of at least `size` jobs, from size 1 to one above the largest."""

    size: tuple[int, ...]
    at_least: tuple[float, ...]

    def draw(self, count: int, rng: np.random.Generator) -> Integers:
        """Draw `count` sizes; between two listed sizes the logarithm of the size is spread evenly."""
        share = 1 - np.array(self.at_least)
        sizes = np.exp(np.interp(rng.random(count), share, np.log(self.size)))
        return np.clip(np.floor(sizes + 1e-9), 1, self.size[-1] - 1).astype(np.int64)


class PhillyStatistics:
    """What is known about Philly's jobs; see traces/README.md for the meaning and origin of each figure."""

    def __init__(self, figures: Mapping[str, Any]) -> None:
        self.figures = figures

    @classmethod
    def load(cls) -> PhillyStatistics:
        """Read the statistics that ship with simsched."""
        return cls(json.loads((data_folder("traces") / "philly-statistics.json").read_text(encoding="utf-8")))

    @cached_property
    def batch_starts_per_hour(self) -> Floats:
        """The expected batch starts in each hour of the week, Monday 0:00 first; shape (168,)."""
        table = self.figures["batch_starts_per_hour"]
        return np.array([table[day] for day in WEEKDAYS], dtype=np.float64).ravel()

    @cached_property
    def tenants(self) -> tuple[str, ...]:
        """List the tenants that submit batches, sorted."""
        return tuple(sorted(self.figures["tenants"]))

    @cached_property
    def kinds(self) -> tuple[tuple[int, int], ...]:
        """List the kinds of batches as (index of the tenant, GPUs of a job)."""
        shares = [self.figures["tenants"][name]["gpu_share"] for name in self.tenants]
        return tuple((i, int(gpus)) for i, share in enumerate(shares) for gpus in share)

    @cached_property
    def kind_shares(self) -> Floats:
        """The share of each of `kinds` among all batches; sums to 1."""
        tenants = [self.figures["tenants"][name] for name in self.tenants]
        shares = np.array([t["batch_share"] * share for t in tenants for share in t["gpu_share"].values()])
        total: Floats = shares / shares.sum()
        return total

    def batch_sizes(self, tenant: str, gpus: int) -> BatchSizes:
        """Return the sizes of a tenant's batches of jobs that ask for `gpus` GPUs."""
        sizes = self.figures["tenants"][tenant]["batch_size"]
        entry = sizes["one_gpu" if gpus == 1 else "multi_gpu"]
        return BatchSizes(tuple(entry["size"]), tuple(entry["at_least"]))

    def pass_duration(self, tenant: str, bucket: str, batch_class: str) -> Mixture:
        """Return the service of passed jobs: the tenant's own where enough is known, else that of all tenants."""
        table = self.figures["pass_duration_s"]
        key = f"{bucket} gpus, batch {batch_class}"
        own, everyone = table.get(tenant, {}), table["any"]
        return Mixture.of(own.get(key) or everyone.get(key) or everyone[f"{bucket} gpus, batch any"])

    def other_duration(self, bucket: str) -> Mixture:
        """Return the service of jobs that were killed or failed."""
        return Mixture.of(self.figures["other_status"]["duration_s"][bucket])


def bucket_of(values: npt.ArrayLike, buckets: tuple[tuple[str, float], ...] = BUCKETS) -> Integers:
    """Return the index of the bucket of each value."""
    return np.searchsorted([most for _, most in buckets], np.asarray(values), side="left").astype(np.int64)
