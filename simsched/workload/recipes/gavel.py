"""Gavel's generated workloads, from a table of rates instead of a trace (Narayanan et al., OSDI'20, section 7.1)."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import count, islice
from random import Random
from typing import ClassVar

from simsched.errors import input_error
from simsched.keys import key
from simsched.model import JobSpec
from simsched.model.tabulated import Setting, TabulatedModel
from simsched.workload.gavel import DISTRIBUTED, TEMPLATES, Kind, split_template
from simsched.workload.recipes.recipe import Ingredients, jobs_key

#: The default number of jobs of a static workload.
_STATIC_JOBS = 100
_SIZES = (1, 2, 4, 8)
#: Offsets added to the seed, for the streams of jobs, arrivals and deadlines, which are multiples of durations.
_STREAMS = (2, 3, 6)
_SLO_FACTORS = (1.2, 2.0, 10.0)
#: Durations in days of the cost workload of section 7.3 (from memory of the paper).
_COST_DAYS = (0.5, 1.0, 2.0, 4.0, 8.0)


@dataclass(frozen=True)
class GavelRecipe:
    """Draw jobs as Gavel's generator does, draw for draw; the run's seed is the generator's."""

    needs_trace: ClassVar[bool] = False
    unread: ClassVar[Collection[str]] = ()

    jobs: int | None = jobs_key()
    jobs_per_hour: float = key(0.0, "recipe 'gavel': mean rate of arrivals; 0 submits all jobs at once", ge=0, le=1e6)
    multi_gpu: bool = key(True, "recipe 'gavel': 30 % of the jobs ask for 2, 4 or 8 GPUs; otherwise all ask for one")
    priorities: bool = key(False, "recipe 'gavel': a fifth of the jobs has weight 5")
    slos: bool = key(False, "recipe 'gavel': deadlines of 1.2, 2 or 10 times the duration")
    at_once: int = key(0, "recipe 'gavel': jobs submitted at the start, before the others", ge=0)
    tenants: int = key(0, "recipe 'gavel': assign the jobs in turn to this many tenants, named from 0", ge=0, le=10_000)
    cost_jobs: bool = key(False, "recipe 'gavel': only ResNet-50 and A3C on one GPU each, for half a day to eight")
    reference_type: str = key("v100", "recipe 'gavel': GPU type to which the drawn durations refer", min_length=1)

    def make(self, ingredients: Ingredients) -> list[JobSpec]:
        """Return the jobs in order of submission; raises `InputError` without a table of rates."""
        rates = self._rates(ingredients.tabulated)
        return list(islice(self.drawn(rates, ingredients.seed), self.jobs or _STATIC_JOBS))

    def drawn(self, rates: Mapping[Kind, float], seed: int) -> Iterator[JobSpec]:
        """Yield an endless stream of jobs in order of arrival (Gavel, OSDI'20, section 7.1 and its simulator).

        `rates` holds steps per second on the reference GPU by job type and number of GPUs; it turns durations into
        steps. The draws are from Python's Mersenne streams, one for jobs, arrivals and deadlines each. The same recipe,
        rates and seed give the same jobs. Raises `InputError` if a drawn kind has no rate.
        """
        jobs, arrivals, slos = (Random(seed + offset) for offset in _STREAMS)
        arrival_s = 0.0
        for number in count():
            if number > self.at_once and self.jobs_per_hour > 0:
                arrival_s += -math.log(1.0 - arrivals.random()) * (3600.0 / self.jobs_per_hour)
            template, gpus, duration_s = self._cost_job(jobs) if self.cost_jobs else self._usual_job(jobs)
            rate, (model, batch) = rates.get((template, gpus), 0.0), split_template(template)
            if rate <= 0:
                message = f"there is no rate for {template} on {gpus} GPUs"
                raise input_error("applications.path", message, "give Gavel's table, which has all 83 kinds")
            yield JobSpec(
                str(number),
                arrival_s,
                gpus,
                model,
                batch,
                duration_s,
                tenant=str(number % self.tenants) if self.tenants else "",
                weight=5.0 if self.priorities and not self.cost_jobs and jobs.random() <= 0.2 else 1.0,
                deadline_s=_SLO_FACTORS[min(int(slos.random() * 3), 2)] * duration_s if self.slos else None,
                total_steps=duration_s * rate,
            )

    def _usual_job(self, rng: Random) -> tuple[str, int, float]:
        """Draw type, GPUs and nominal running time of a job."""
        draw = rng.random()
        gpus = 1 if draw < 0.7 or not self.multi_gpu else 2 if draw <= 0.8 else 4 if draw <= 0.95 else 8
        low, high = (3, 4) if rng.random() >= 0.8 else (1.5, 3)
        duration_s = float(60 * (10 ** rng.uniform(low, high)))
        template = rng.choice(TEMPLATES)
        while gpus > 1 and template not in DISTRIBUTED:
            template = rng.choice(TEMPLATES)
        return template, gpus, duration_s

    def _cost_job(self, rng: Random) -> tuple[str, int, float]:
        """Draw a job of the workload that compares cost policies; the order of the draws is ours."""
        duration_s = rng.choice(_COST_DAYS) * 86400.0
        resnet = [template for template in TEMPLATES if template.startswith("ResNet-50")]
        return rng.choice(resnet) if rng.random() < 0.5 else "A3C", 1, duration_s

    def extremes(self, ingredients: Ingredients, most_gpus: int) -> list[JobSpec]:
        """Return one job of each kind that has a rate."""
        found = []
        for (template, gpus), rate in self._rates(ingredients.tabulated).items():
            model, batch = split_template(template)
            if rate and (gpus == 1 or (self.multi_gpu and not self.cost_jobs)):
                job_id = f"{model}-of-{gpus}-gpus-{batch}"
                found.append(JobSpec(job_id, 0, gpus, model, batch, 1, total_steps=rate))
        return found

    def _rates(self, tabulated: Mapping[str, TabulatedModel]) -> dict[Kind, float]:
        """Return the rates on the reference type by kind of job."""
        rates: dict[Kind, float] = {}
        for template in TEMPLATES:
            model, batch = split_template(template)
            known = tabulated.get(model)
            for gpus in _SIZES if known is not None and template in DISTRIBUTED else _SIZES[: known is not None]:
                rates[template, gpus] = known.rate(self.reference_type, Setting(batch, gpus)) if known else 0.0
        if not any(rates.values()):
            message = f"the recipe 'gavel' needs rates on {self.reference_type}, but the applications have none"
            raise input_error("workload", message, "name a table of rates with 'applications.path'")
        return rates
