"""The setup of Sia's evaluation: applications on three GPU types, clusters, and mixes of jobs (SOSP'23)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simsched.paths import data_folder

HOUR_S = 3600


@dataclass(frozen=True)
class SiaApplication:
    """An application on other GPU types.

    By GPU type, `speed` is the throughput of one GPU relative to a T4, and `largest` the largest measured batch of one
    GPU, in examples; `restart_delay_s` is the time of a checkpoint and restore.
    """

    speed: Mapping[str, float]
    largest: Mapping[str, int]
    restart_delay_s: float


@dataclass(frozen=True)
class Mix:
    """A mix of applications: `jobs` in `hours`, each application in proportion to its count.

    Jobs come uniformly, or in proportion to the `hourly` counts if given.
    """

    jobs: int
    hours: float
    counts: Mapping[str, int]
    hourly: tuple[int, ...] = ()


class Arrival(NamedTuple):
    """An application submitted at a given time."""

    submit_time_s: float
    application: str


@dataclass(frozen=True)
class SiaFacts:
    """Applications, clusters (nodes and GPUs per node by GPU type) and mixes of the evaluation, by name."""

    applications: Mapping[str, SiaApplication]
    clusters: Mapping[str, Mapping[str, tuple[int, int]]]
    mixes: Mapping[str, Mix]


def sia_facts() -> SiaFacts:
    """Return the shipped facts from `workloads/sia.json`, which names their sources."""
    figures: Mapping[str, Any] = json.loads((data_folder("workloads") / "sia.json").read_text(encoding="utf-8"))
    applications = {
        name: SiaApplication(MappingProxyType(a["speed"]), MappingProxyType(a["largest"]), float(a["restart_delay_s"]))
        for name, a in sorted(figures["applications"].items())
    }
    clusters = {
        name: MappingProxyType({gpu_type: (nodes, gpus) for gpu_type, (nodes, gpus) in sorted(cluster.items())})
        for name, cluster in sorted(figures["clusters"].items())
    }
    mixes = {
        name: Mix(mix["jobs"], mix["hours"], MappingProxyType(mix["counts"]), tuple(mix.get("hourly", ())))
        for name, mix in sorted(figures["mixes"].items())
    }
    return SiaFacts(MappingProxyType(applications), MappingProxyType(clusters), MappingProxyType(mixes))


def draw(mix: Mix, rng: np.random.Generator, load: float = 1.0) -> tuple[Arrival, ...]:
    """Draw jobs of a mix, submitted at random within its hours, in the order of submission.

    `load` multiplies the number of jobs. Submissions are whole seconds.
    """
    names = sorted(mix.counts)
    counts = np.array([mix.counts[name] for name in names], dtype=np.float64)
    jobs = round(mix.jobs * load)
    times = np.sort(_times(mix, rng, jobs))
    picks = rng.choice(len(names), size=jobs, p=counts / counts.sum())
    return tuple(Arrival(float(time), names[pick]) for time, pick in zip(times, picks, strict=True))


def _times(mix: Mix, rng: np.random.Generator, jobs: int) -> NDArray[np.int64]:
    if not mix.hourly:
        return rng.integers(0, round(mix.hours * HOUR_S), size=jobs)
    weights = np.array(mix.hourly, dtype=np.float64)
    hours = rng.choice(len(weights), size=jobs, p=weights / weights.sum())
    return np.asarray(hours * HOUR_S + rng.integers(0, HOUR_S, size=jobs))
