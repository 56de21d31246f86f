"""What every recipe is, what it is given, and the keys that several of them have."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np

from simsched.keys import key
from simsched.model import JobSpec, TabulatedModel
from simsched.workload.trace import Trace

Configurations = Mapping[str, Sequence[tuple[int, int]]]


@dataclass(frozen=True)
class Ingredients:
    """What a recipe makes jobs of.

    `trace` is None for a recipe that needs none. `configurations` (GPUs and batch sizes of tuned jobs) and
    `initial_batch_sizes` are by application, and so is `tabulated`, of those that are known by a table of rates.
    """

    seed: int
    trace: Trace | None
    configurations: Configurations
    initial_batch_sizes: Mapping[str, int]
    tabulated: Mapping[str, TabulatedModel] = field(default_factory=dict)

    def rng(self, purpose: str) -> np.random.Generator:
        """Return a generator of its own for each purpose, so that one cannot disturb the other."""
        return np.random.default_rng(np.random.SeedSequence([self.seed, *purpose.encode()]))


class Recipe(Protocol):
    """A way to make jobs: a dataclass whose fields are its keys in an experiment's section `workload`."""

    needs_trace: ClassVar[bool]

    @property
    def unread(self) -> Collection[str]:
        """Optional columns of a trace of which the recipe makes nothing."""

    def make(self, ingredients: Ingredients) -> list[JobSpec]:
        """Return the jobs in order of submission; the same recipe and ingredients give the same list."""

    def extremes(self, ingredients: Ingredients, most_gpus: int) -> list[JobSpec]:
        """Return jobs such that, where a cluster can run these, it can run all that the recipe makes under any seed.

        `most_gpus` is the most that a job of the trace asks for, whatever the seed; the ingredients' trace is there
        where it is the same for all seeds.
        """


def jobs_key() -> Any:
    """Declare the key `jobs`."""
    return key(None, "jobs at load 1; by default 160 sampled, or all replayed", ge=1)


def load_key() -> Any:
    """Declare the key `load`."""
    return key(1.0, "factor on the number of jobs in the same hours", gt=0, le=1000)


def trace_of(ingredients: Ingredients) -> Trace:
    """Return the trace that a recipe needs."""
    if ingredients.trace is None:
        message = "this recipe needs a trace"
        raise ValueError(message)
    return ingredients.trace
