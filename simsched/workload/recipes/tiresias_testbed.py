"""The jobs of Tiresias's testbed and worked example, which need no trace (Gu et al., NSDI'19)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from simsched.arithmetic import exp, log
from simsched.keys import key
from simsched.model import JobSpec
from simsched.workload.recipes.recipe import Ingredients, jobs_key, load_key

#: The models of Table 6, by the names of `workloads/models/tiresias-models.yaml`.
MODELS = (
    "vgg19", "vgg16", "vgg11", "alexnet", "resnet152", "resnet101", "resnet50", "inception4", "inception3", "googlenet",
)  # fmt: skip

#: Jobs of the testbed by requested GPUs (section 5.1).
JOBS_BY_GPUS = ((1, 240), (2, 40), (4, 80), (8, 90), (16, 25), (32, 5))
MEAN_GAP_S = 30
#: From 2 minutes to 2 hours; jobs of less than 800 s are short, those of more than 4 GPUs large.
SHORTEST_S, SHORT_S, LONGEST_S = 120, 800, 7200
LARGE_GPUS = 4
#: Share of short jobs among small and large ones, from bins of 63.5, 12.5, 16.5 and 7.5 % (Table 3).
SHORT_SHARE = {False: 63.5 / 76, True: 16.5 / 24}
BINS = {(False, False): "1-small-short", (False, True): "2-small-long",
        (True, False): "3-large-short", (True, True): "4-large-long"}  # fmt: skip

#: The exponents of `TiresiasTestbedRecipe` in order, with their defaults.
Powers = tuple[float, float, float]
POWERS: Powers = (1.0, 2.5, 2.5)

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class TiresiasTestbedRecipe:
    """Draw the 480 jobs of Tiresias's testbed, or the first `jobs` of them; `load` divides the gaps between them.

    The distribution of durations within a bin is not published, so it is a parameter: the density falls with a power of
    the duration, with separate exponents for short jobs, long jobs on few GPUs, and long jobs on many GPUs. With the
    defaults, durations of short jobs are log-uniform and the mean duration is 618 s; the published ratio of mean JCTs
    (5.5) and mean queueing delays (8146 and 963 s) imply 633 s.
    """

    needs_trace: ClassVar[bool] = False
    unread: ClassVar[Collection[str]] = ()

    jobs: int | None = jobs_key()
    load: float = load_key()
    short_power: float = key(POWERS[0], "power with which the density of short durations falls", ge=-5, le=5)
    small_long_power: float = key(POWERS[1], "the same for long jobs on at most 4 GPUs", ge=-5, le=5)
    large_long_power: float = key(POWERS[2], "the same for long jobs on more than 4 GPUs", ge=-5, le=5)

    def make(self, ingredients: Ingredients) -> list[JobSpec]:
        """Return the jobs in order of submission."""
        powers = self.short_power, self.small_long_power, self.large_long_power
        return testbed_jobs(self.load, ingredients.rng("testbed"), powers)[: self.jobs]

    def extremes(self, ingredients: Ingredients, most_gpus: int) -> list[JobSpec]:
        """Return each model on the most GPUs."""
        most = max(gpus for gpus, _ in JOBS_BY_GPUS)
        return [JobSpec(f"{model}-of-{most}-gpus", 0, most, model, duration_s=LONGEST_S) for model in MODELS]


def testbed_jobs(load: float, rng: np.random.Generator, powers: Powers = POWERS) -> list[JobSpec]:  # noqa: PT028
    """Draw the 480 jobs of the testbed; `load` divides the gaps between them (30 s on average).

    GPUs and models come in the published numbers, in random order. `powers` are those of `TiresiasTestbedRecipe`, in
    its order. A job's `tenant` names its bin.
    """
    gpus = rng.permutation(np.repeat(*np.array(JOBS_BY_GPUS).T))
    models = rng.permutation(np.repeat(np.array(MODELS, dtype=object), len(gpus) // len(MODELS)))
    submit = np.cumsum(rng.exponential(MEAN_GAP_S / load, len(gpus)))
    large = gpus > LARGE_GPUS
    long = np.zeros(len(gpus), dtype=bool)
    for size, short_share in SHORT_SHARE.items():
        places = np.flatnonzero(large == size)
        long[rng.permutation(places)[round(short_share * len(places)) :]] = True
    duration = _durations(long, large, powers, rng)
    submit -= submit[0]
    return [
        JobSpec(f"job-{i}", int(at), int(count), model, duration_s=round(seconds), tenant=BINS[bool(big), bool(lasts)])
        for i, (at, count, model, seconds, big, lasts) in enumerate(
            zip(submit, gpus, models, duration, large, long, strict=True)
        )
    ]


def with_models(count: int, rng: np.random.Generator) -> Sequence[str]:
    """Draw a model of Table 6 for each job, all equally likely."""
    drawn: list[str] = rng.choice(np.array(MODELS, dtype=object), size=count).tolist()
    return drawn


def _durations(
    long: npt.NDArray[np.bool_],
    large: npt.NDArray[np.bool_],
    powers: tuple[float, float, float],
    rng: np.random.Generator,
) -> _Floats:
    """Draw the durations of jobs of known bins."""
    among_long, among_short = rng.random(len(long)), rng.random(len(long))
    short = np.minimum(_between(SHORTEST_S, SHORT_S, powers[0], among_short), SHORT_S - 1)
    small = _between(SHORT_S, LONGEST_S, powers[1], among_long)
    found: _Floats = np.where(long, np.where(large, _between(SHORT_S, LONGEST_S, powers[2], among_long), small), short)
    return found


def _between(low: float, high: float, power: float, share: _Floats) -> _Floats:
    """Map shares in [0, 1) to values from `low` to `high` whose density falls with a power."""
    tail = power - 1
    first, last = low**-tail, high**-tail
    found: _Floats = (
        low * exp(share * log(high / low)) if not tail else exp(-log(first - share * (first - last)) / tail)
    )
    return found


@dataclass(frozen=True)
class TiresiasExampleRecipe:
    """Submit the three jobs of the worked example: 2, 1 and 2 GPUs for 2, 8 and 6 seconds, all at once."""

    needs_trace: ClassVar[bool] = False
    unread: ClassVar[Collection[str]] = ()

    def make(self, ingredients: Ingredients) -> list[JobSpec]:
        """Return the three jobs."""
        asked = [(2, 2), (1, 8), (2, 6)]
        return [JobSpec(f"J{i}", 0, gpus, duration_s=seconds) for i, (gpus, seconds) in enumerate(asked, 1)]

    def extremes(self, ingredients: Ingredients, most_gpus: int) -> list[JobSpec]:
        """Return the three jobs, which are the same for all seeds."""
        return self.make(ingredients)
