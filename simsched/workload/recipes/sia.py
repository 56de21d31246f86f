"""The workloads of Sia (SOSP'23): its recipe, and the facts of its models and GPU types."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simsched.errors import input_error
from simsched.keys import key
from simsched.model import JobSpec
from simsched.paths import data_folder
from simsched.workload.recipes.recipe import Ingredients, jobs_key, load_key

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


@dataclass(frozen=True)
class SiaRecipe:
    """Draw the jobs of one of Sia's mixes; they request the GPUs and batch of a tuned job, or one GPU.

    A tuned request is drawn from the application's configurations of at most `max_gpus`, as in the recipe `pollux`. If
    all are larger, it is the smallest one's batch on `max_gpus` GPUs, with gradient accumulation if necessary.
    """

    needs_trace: ClassVar[bool] = False
    unread: ClassVar[Collection[str]] = ()

    mix: Literal["philly", "helios", "newtrace"] = key("philly", "recipe 'sia': mix of applications")
    jobs: int | None = jobs_key()
    load: float = load_key()
    max_gpus: int | None = key(None, "leave out jobs of a replay, or tuned requests, that ask for more GPUs", ge=1)

    def make(self, ingredients: Ingredients) -> list[JobSpec]:
        """Return the jobs in order of submission; raises `InputError` if an application of the mix is missing."""
        mix, rng = sia_facts().mixes[self.mix], ingredients.rng("sia")
        initial: Mapping[str, int] = ingredients.initial_batch_sizes
        unknown = sorted(set(mix.counts) - set(initial))
        if unknown:
            raise input_error("workload.mix", f"'{self.mix}' needs the application '{unknown[0]}'", "load it")
        arrivals = draw(mix, rng, self.load)
        jobs = []
        for number, one in enumerate(arrivals if self.jobs is None else arrivals[: self.jobs]):
            choices = self._choices(one.application, ingredients)
            gpus, batch = choices[int(rng.integers(len(choices)))]
            jobs.append(JobSpec(f"job-{number}", int(one.submit_time_s), gpus, one.application, batch))
        return jobs

    def extremes(self, ingredients: Ingredients, most_gpus: int) -> list[JobSpec]:
        """Return each application of the mix with each possible request."""
        names = sorted(set(sia_facts().mixes[self.mix].counts) & set(ingredients.initial_batch_sizes))
        return [
            JobSpec(f"{name}-of-{gpus}-gpus-{batch}", 0, gpus, name, batch)
            for name in names
            for gpus, batch in self._choices(name, ingredients)
        ]

    def _choices(self, application: str, ingredients: Ingredients) -> list[tuple[int, int]]:
        """Return the possible requests of a job: GPUs and batch sizes."""
        tuned = ingredients.configurations.get(application, ())
        fitting = [pair for pair in tuned if self.max_gpus is None or pair[0] <= self.max_gpus]
        if tuned and not fitting and self.max_gpus is not None:
            fitting = [(self.max_gpus, min(tuned)[1])]
        return fitting or [(1, ingredients.initial_batch_sizes[application])]
