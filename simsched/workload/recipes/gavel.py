"""Gavel's generated workloads, from a table of rates instead of a trace (Narayanan et al., OSDI'20, section 7.1)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

from simsched.errors import input_error
from simsched.keys import key
from simsched.model import JobSpec
from simsched.model.tabulated import Setting, TabulatedModel
from simsched.workload.gavel import DISTRIBUTED, TEMPLATES, GavelJob, GavelMix, Kind, generate_jobs, split_template
from simsched.workload.recipes.recipe import Ingredients, jobs_key

#: The default number of jobs of a static workload.
_STATIC_JOBS = 100
_SIZES = (1, 2, 4, 8)


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
        mix = GavelMix(
            self.jobs_per_hour,
            self.multi_gpu,
            priorities=self.priorities,
            slos=self.slos,
            at_once=self.at_once,
            cost=self.cost_jobs,
        )
        jobs = islice(generate_jobs(mix, rates, ingredients.seed), self.jobs or _STATIC_JOBS)
        return [job_spec(job, str(job.id % self.tenants) if self.tenants else "") for job in jobs]

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


def job_spec(job: GavelJob, tenant: str = "") -> JobSpec:
    """Convert a job of Gavel's generator to a job of a workload, named by its number."""
    model, batch = split_template(job.template)
    return JobSpec(
        str(job.id),
        job.arrival_s,
        job.num_gpus,
        model,
        batch,
        job.duration_s,
        tenant=tenant,
        deadline_s=None if job.slo is None or not job.duration_s else job.slo * job.duration_s,
        weight=job.weight,
        total_steps=job.total_steps,
    )
