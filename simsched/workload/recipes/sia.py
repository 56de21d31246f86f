"""The workloads of Sia's evaluation: a mix of applications submitted at random within some hours (SOSP'23)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from simsched.errors import input_error
from simsched.keys import key
from simsched.model import JobSpec
from simsched.workload.recipes.recipe import Ingredients, jobs_key, load_key
from simsched.workload.sia_facts import draw, sia_facts


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
