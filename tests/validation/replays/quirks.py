"""Pollux with quirks of the published simulator that simsched has corrected, for `quirks.yaml`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
from simsched_policies.adaptive.pollux.policy import Pollux
from simsched_policies.adaptive.pollux.search import (
    AllocationProblem,
    SearchOptions,
    SearchResult,
    match_population,
    search,
)
from simsched_policies.adaptive.pollux.tables import most_gpus_for_batch

from simsched.policy import JobView
from simsched.policy.signals import GOODPUT
from simsched.toolkit import TypePool


@dataclass
class QuirkyPollux(Pollux):
    """Pollux with selected quirks of the published simulator.

    `fill_idle` gives idle GPUs to jobs for which they are worth nothing in the round in which they arrive (the
    published simulator leaves them idle). `match_rows` selects how allocations of the last round are assigned to the
    jobs of this one: to the same job, or, as published, to the job with the same rank among those still present.
    `fair_share` selects on how many nodes a fair share larger than a node is assumed to be: `one`, as published, or
    `several`.
    """

    name: ClassVar[str] = "quirky-pollux"

    fill_idle: bool = True
    match_rows: Literal["identity", "position"] = "identity"
    fair_share: Literal["one", "several"] = "one"

    def _search(
        self, problem: AllocationProblem, gpu_type: str, order: list[str], rng: np.random.Generator
    ) -> SearchResult:
        starts = None
        if gpu_type in self._last:
            population, last_order = self._last[gpu_type]
            old = last_order if self.match_rows == "identity" else _renamed(last_order, order)
            starts = match_population(population, old, order)
        options = SearchOptions(effort=self.effort, fill_idle=self.fill_idle)
        found = search(problem, method=self.method, population=starts, seed_or_rng=rng, options=options)
        self._last[gpu_type] = found.population, order
        return found

    def _problem(self, jobs: Sequence[JobView], pool: TypePool) -> AllocationProblem:
        problem = super()._problem(jobs, pool)
        fair_gpus = -(-int(problem.node_gpus.sum()) // len(jobs))
        if self.fair_share == "one" or fair_gpus <= problem.node_gpus.max():
            return problem
        factors = np.array([_one_node_over_several(job, pool.gpu_type, fair_gpus) for job in jobs])
        return replace(problem, speedup=problem.speedup * factors[:, None, None])


def _renamed(old: Sequence[str], new: Sequence[str]) -> list[str]:
    """Give the i-th old job that is still present the name of the i-th new job that was present."""
    staying, known = set(old) & set(new), set(old)
    names = dict(zip((job for job in old if job in staying), (job for job in new if job in known), strict=True))
    return [names.get(job, job) for job in old]


def _one_node_over_several(job: JobView, gpu_type: str, fair_gpus: int) -> float:
    """Divide the goodput of a fair share on one node by that on several."""
    model, limits = job[GOODPUT].on(gpu_type).model, job.limits
    if model is None or limits is None:
        return 1.0
    gpus = min(fair_gpus, most_gpus_for_batch(limits))
    if gpus == 1:
        return 1.0
    one, several = model.optimise([1, 2], [gpus, gpus]).goodput
    return float(one / several) if several > 0 else 1.0
