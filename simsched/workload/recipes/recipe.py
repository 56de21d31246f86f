"""The interface and input of recipes, keys that several share, and the size classes of the Pollux evaluation."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np

from simsched.keys import key
from simsched.model import JobSpec
from simsched.model.tabulated import TabulatedModel
from simsched.workload.trace import Trace

Configurations = Mapping[str, Sequence[tuple[int, int]]]


@dataclass(frozen=True)
class Ingredients:
    """The input of a recipe.

    `trace` is None for a recipe without a trace. `configurations` (GPUs and batch sizes of tuned jobs),
    `initial_batch_sizes` and `tabulated` (applications with a table of rates) are by application.
    """

    seed: int
    trace: Trace | None
    configurations: Configurations
    initial_batch_sizes: Mapping[str, int]
    tabulated: Mapping[str, TabulatedModel] = field(default_factory=dict)

    def rng(self, purpose: str) -> np.random.Generator:
        """Return a separate random generator for each purpose, so that none disturbs another."""
        return np.random.default_rng(np.random.SeedSequence([self.seed, *purpose.encode()]))


class Recipe(Protocol):
    """A way to generate jobs: a dataclass whose fields are its keys in an experiment's section `workload`."""

    needs_trace: ClassVar[bool]

    @property
    def unread(self) -> Collection[str]:
        """Optional columns of a trace that the recipe does not read."""

    def make(self, ingredients: Ingredients) -> list[JobSpec]:
        """Return the jobs in order of submission; the same recipe and ingredients give the same list."""

    def extremes(self, ingredients: Ingredients, most_gpus: int) -> list[JobSpec]:
        """Return jobs such that a cluster that can run them can run every job of the recipe for any seed.

        `most_gpus` is the largest request in the trace over all seeds; the ingredients have a trace if it is the same
        for all seeds.
        """


def jobs_key() -> Any:
    """Declare the key `jobs`."""
    return key(None, "jobs at load 1; by default 160 if sampled, or all if replayed", ge=1)


def load_key() -> Any:
    """Declare the key `load`."""
    return key(1.0, "factor on the number of jobs in the same hours", gt=0, le=1000)


def trace_of(ingredients: Ingredients) -> Trace:
    """Return the trace; raises if the recipe needs one and has none."""
    if ingredients.trace is None:
        raise ValueError("this recipe needs a trace")
    return ingredients.trace


HOUR_S = 3600
#: Jobs of this GPU-time or more belong to no class.
MAX_GPU_TIME_S = 1000 * HOUR_S

#: Classes by GPU-time: name, upper bound in GPU-seconds, and their applications.
SIZE_CLASSES: tuple[tuple[str, int, tuple[str, ...]], ...] = (
    ("S", 1 * HOUR_S, ("cifar10", "ncf")),
    ("M", 10 * HOUR_S, ("deepspeech2", "bert")),
    ("L", 100 * HOUR_S, ("yolov3",)),
    ("XL", MAX_GPU_TIME_S, ("imagenet",)),
)


def size_class_of(gpu_time_s: Any) -> Any:
    """Return the name of the size class (S, M, L, XL or XXL) of each GPU-time in seconds."""
    bounds = [bound for _, bound, _ in SIZE_CLASSES]
    names = np.array([*(name for name, _, _ in SIZE_CLASSES), "XXL"])
    return names[np.searchsorted(bounds, gpu_time_s, side="right")]
