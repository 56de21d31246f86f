"""Jobs of clusters for language models, drawn from published statistics."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from simsched.arithmetic import exp, log
from simsched.keys import key
from simsched.model import FIXED_DURATION, JobSpec, NodeShape
from simsched.model.placement import Amount
from simsched.workload.recipes.recipe import HOUR_S, Ingredients, jobs_key


class _Statistics(NamedTuple):
    """Distributions of sizes and durations with the published moments of a cluster's GPU jobs.

    Half of the jobs request one GPU; each further power of two up to `most_gpus` is `ratio` times as frequent as the
    one before. Durations in seconds are log-normal around exp(`mu`) x GPUs^`growth` with `sigma`, cut at `most_s`.
    `ended` are the shares of jobs that completed, were cancelled, or failed.
    """

    ratio: float
    mu: float
    growth: float
    sigma: float
    most_gpus: int
    most_s: float
    ended: tuple[float, float, float]

    def shares(self) -> tuple[list[int], list[float]]:
        """Return the sizes and the share of jobs that request each."""
        gpus = [2**k for k in range(self.most_gpus.bit_length())]
        tail = [self.ratio**k for k in range(len(gpus) - 1)]
        return gpus, [0.5, *(0.5 * part / sum(tail) for part in tail)]


#: Fitted to the mean and the median run time, the mean number of GPUs and the GPU time per job in AcmeTrace's summary
#: of clusters (github.com/InternLM/AcmeTrace, data/cluster_summary.csv, CC BY 4.0). The forms of the distributions are
#: assumed.
STATISTICS: Mapping[str, _Statistics] = MappingProxyType(
    {
        "kalos": _Statistics(0.729381, 4.237170, 0.558990, 1.838343, 1024, 625740, (0.541, 0.062, 0.397)),
        "seren": _Statistics(0.504880, 4.518270, 0.416769, 2.167573, 1024, 1209604, (0.497, 0.075, 0.429)),
        "helios": _Statistics(0.426163, 5.155370, 0.286750, 2.658793, 2048, 4320009, (0.624, 0.221, 0.155)),
    }
)
#: The models that jobs train, by least number of GPUs. This mapping is an assumption; smaller jobs have only a
#: duration.
_MODELS = ((1024, "llama3-405b"), (512, "gpt3-175b"), (128, "llama2-70b"), (64, "llama2-13b"), (8, "llama2-7b"))
_STATES = ("Pass", "Killed", "Failed")


@dataclass(frozen=True)
class LlmRecipe:
    """Draw jobs from a cluster's published statistics, at random times within `hours`.

    Jobs of 8 GPUs and more train one of the shipped models, for as many steps as the best plan on the requested GPUs
    completes within the drawn duration.
    """

    needs_trace: ClassVar[bool] = False
    unread: ClassVar[Collection[str]] = ()

    statistics: Literal["kalos", "seren", "helios"] = key("kalos", "recipe 'llm': cluster whose statistics apply")
    jobs: int | None = jobs_key()
    hours: float = key(24.0, "recipe 'llm': hours within which the jobs come", gt=0, le=100_000)
    min_gpus: int = key(1, "recipe 'llm': least GPUs of a job", ge=1, le=4096)
    max_gpus: int | None = key(None, "leave out jobs of a replay, or tuned requests, that ask for more GPUs", ge=1)
    trains_on: str = key("h100", "recipe 'llm': GPU type of the jobs", min_length=1)

    def make(self, ingredients: Ingredients) -> list[JobSpec]:
        """Return the jobs in order of submission."""
        law, count = STATISTICS[self.statistics], 1000 if self.jobs is None else self.jobs
        sizes, shares = zip(*self._sizes(), strict=True)
        rng = ingredients.rng("llm")
        gpus = rng.choice(sizes, count, p=np.array(shares) / sum(shares))
        spread = exp(law.mu + law.sigma * rng.standard_normal(count))
        seconds = np.clip(spread * exp(law.growth * log(gpus.astype(np.float64))), 1.0, law.most_s)
        arrivals = np.sort(rng.uniform(0, self.hours * HOUR_S, count))
        states = rng.choice(len(_STATES), count, p=np.array(law.ended) / sum(law.ended))
        rows = zip(gpus.tolist(), seconds.tolist(), arrivals.tolist(), states.tolist(), strict=True)
        return [self._job(number, *row) for number, row in enumerate(rows)]

    def extremes(self, ingredients: Ingredients, most_gpus: int) -> list[JobSpec]:
        """Return one job of each size."""
        return [self._job(gpus, gpus, 1.0, 0.0, 0) for gpus, _ in self._sizes()]

    def _sizes(self) -> list[tuple[int, float]]:
        most = self.max_gpus or STATISTICS[self.statistics].most_gpus
        found = [
            pair for pair in zip(*STATISTICS[self.statistics].shares(), strict=True) if self.min_gpus <= pair[0] <= most
        ]
        return found or [(self.min_gpus, 1.0)]

    def _job(self, number: int, gpus: int, seconds: float, arrival_s: float, state: int) -> JobSpec:
        model = next((name for least, name in _MODELS if gpus >= least), FIXED_DURATION)
        shape = NodeShape(0, Amount(gpus), gpu_types=(self.trains_on,))
        duration_s, status = float(round(seconds)), _STATES[state]
        return JobSpec(f"job-{number}", int(arrival_s), gpus, model, 0, duration_s, status=status, shape=shape)
