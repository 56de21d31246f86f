"""Pollux: allocates GPUs to maximise the power mean of the jobs' speedups in goodput.

Idea: goodput is throughput times statistical efficiency. Every job's agent models its own goodput as a function of GPUs
and batch size and adapts the batch; the scheduler searches for the allocation that maximises FITNESS_p, the power mean
of the jobs' speedups over a fair share, in which past restarts of a job discount a change of its placement (Qiao et
al., OSDI'21, sections 3 and 4).

Defaults of the paper: p = -1, an interval of 60 s, restart delay 30 s. As in the published simulator, the fair share of
J jobs is ceil(GPUs / J) GPUs on one node, a job may use at most twice the largest number of GPUs that it has run on
(or, with a `prior`, on which its application is known), and never more than 64.

Deviations: the search is the faster one of `search` (the genetic search of the paper can be chosen); it matches its
starting points to jobs by id, whereas the published simulator matches rows by position and so gives some to the wrong
job. With several GPU types it allocates on each separately (`simsched.toolkit.type_pools`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from simsched.agent import Agent, TypeReport, check_noise
from simsched.model import Allocation, ApplicationFacts, JobRequest
from simsched.policy import INPUT_FILE, Decision, JobView, Policy, Signal, Traits, View
from simsched.policy.signals import GOODPUT
from simsched.toolkit import TypePool, type_pools
from simsched.toolkit.elastic import tell_allocations
from simsched_policies.adaptive.pollux.search import (
    AllocationProblem,
    SearchOptions,
    SearchResult,
    counts_up_to,
    match_population,
    search,
    upper_bound,
)
from simsched_policies.adaptive.pollux.tables import GoodputTables, PriorSource, most_gpus_for_batch

Ints = NDArray[np.integer[Any]]


@dataclass
class Pollux(Policy):
    """Maximises the power mean of speedups in goodput, by a search over allocations.

    `fairness` is the exponent p (smaller is fairer, 1 is the plain mean). `avoid_interference` forbids two distributed
    jobs on one node. `method` selects the search, `effort` scales its length relative to the default. `trace` lists
    diagnostics to record for every round: `gap` adds the distance of the search's fitness from an upper bound.

    `prior` is what agents start from: `none`, as published; `offline`, the true step times of their application, as if
    profiled; or `pool`, the measurements of finished jobs of the same or a similar application. The pool starts empty,
    or from that of an earlier run at `pool_path`. With `skip_doubling` a job may at once use twice the GPUs on which
    its application is known, rather than twice those that it has run on itself.
    """

    name: ClassVar[str] = "pollux"
    traits: ClassVar[Traits] = Traits(interval="interval_s", needs={GOODPUT}, rigid=False, diagnostics="trace")

    fairness: float = -1.0
    interval_s: int = 60
    avoid_interference: bool = True
    max_gpus_per_job: int = 64
    method: Literal["hybrid", "genetic"] = "hybrid"
    effort: float = 1.0
    trace: Sequence[str] = ()
    prior: Literal["none", "offline", "pool"] = "none"
    pool_path: Annotated[str | None, INPUT_FILE] = None
    skip_doubling: bool = True
    noise: float = 0.0
    _priors: PriorSource = field(init=False, repr=False)
    _tables: GoodputTables = field(default_factory=GoodputTables, init=False, repr=False)
    #: The population of the last search and the job of each row, by GPU type.
    _last: dict[str, tuple[Ints, list[str]]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        """Check the parameters of the search."""
        if not math.isfinite(self.fairness):
            raise ValueError(f"fairness must be a finite number, not {self.fairness}")
        if self.max_gpus_per_job < 1 or not self.effort > 0:
            raise ValueError("max_gpus_per_job must be at least 1 and effort positive")
        unknown = sorted(set(self.trace) - {"gap"})
        if unknown:
            raise ValueError(f"trace knows only 'gap', not {', '.join(unknown)}")
        if self.pool_path is not None and self.prior != "pool":
            raise ValueError(f"pool_path is of no use with 'prior: {self.prior}', only with 'prior: pool'")
        check_noise(self.noise)
        self._priors = PriorSource(self.prior, self.pool_path, skip_doubling=self.skip_doubling, noise=self.noise)

    @property
    def signals(self) -> frozenset[Signal]:
        """Return the goodput reports, and what agents know before their jobs run."""
        return super().signals | self._priors.signals

    def artifacts(self) -> Mapping[str, str]:
        """Return the pool, if any, as a file for later runs."""
        return self._priors.artifacts()

    @property
    def own_agents(self) -> bool:
        """Return whether agents start from a prior."""
        return self.prior != "none"

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Let every job adapt its batch to its goodput."""
        return self._priors.agent(request, facts)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Search for the best allocation on each GPU type, starting from the current one and the last population."""
        self._take_in(view)
        return self._allocate([pool for pool in type_pools(view) if pool.jobs], rng)

    def _take_in(self, view: View) -> None:
        """Learn from finished jobs, and pass what is known to the agents of new ones."""
        for job_id in view.finished:
            self._tables.forget(job_id)
        self._priors.learn(view.finished)
        self._priors.inform(view.arrived)

    def _allocate(self, pools: Sequence[TypePool], rng: np.random.Generator) -> Decision:
        """Search on each of these pools that has jobs."""
        allocations: dict[str, Allocation] = {}
        diagnostics: dict[str, float] = {}
        for pool in pools:
            jobs = by_service(pool.jobs.values())
            problem = self._problem(jobs, pool)
            found = self._search(problem, pool.gpu_type, [job.id for job in jobs], rng)
            rows = on_nodes(found.allocation, pool.nodes)
            allocations |= {jobs[row].id: allocation for row, allocation in rows.items()}
            kind = "" if len(pools) == 1 else f"[{pool.gpu_type}]"
            diagnostics |= {f"{name}{kind}": value for name, value in self._diagnose(problem, found).items()}
            if pool.view.reasons is not None:
                tell_allocations((job.id for job in jobs), allocations, pool.view.reasons)
        return Decision(allocations, diagnostics=diagnostics)

    def _problem(self, jobs: Sequence[JobView], pool: TypePool) -> AllocationProblem:
        """Describe the decision on one GPU type as arrays, with nodes in the order of the pool."""
        view, columns = pool.view, {node: column for column, node in enumerate(pool.nodes)}
        node_gpus = [view.nodes[node].gpus if view.up[node] else 0 for node in pool.nodes]
        total = max(sum(node_gpus), 1)
        fair_gpus = -(-total // len(jobs))
        reports = [job[GOODPUT] for job in jobs]
        caps = [min(self._cap(job, report.on(pool.gpu_type)), total) for job, report in zip(jobs, reports, strict=True)]
        current = np.zeros(
            (len(jobs), len(node_gpus)), dtype=counts_up_to(0, *(view.nodes[node].gpus for node in pool.nodes))
        )
        for row, job in zip(current, jobs, strict=True):
            for node, gpus in job.allocation:
                row[columns[node]] = gpus
        speedup = np.zeros((len(jobs), 2, max(caps) + 1))
        for table, job, report, cap in zip(speedup, jobs, reports, caps, strict=True):
            self._tables.write_speedup(table, job, report, pool.gpu_type, cap, fair_gpus)
        return AllocationProblem(
            speedup=speedup,
            max_gpus=np.array(caps),
            node_gpus=np.array(node_gpus),
            current=current,
            restart_factor=np.array([restart_factor(job, view.restart_delay_s) for job in jobs]),
            weight=len(node_gpus) / total,
            fairness=self.fairness,
            avoid_interference=self.avoid_interference,
        )

    def _cap(self, job: JobView, known: TypeReport) -> int:
        """Return twice the GPUs on which the job is known, capped by its batch, its application and the policy."""
        facts = job.facts
        limits = facts.limits
        assert limits is not None  # the agent refuses jobs without
        cap = min(max(2 * known.max_profiled_gpus, 1), self.max_gpus_per_job, most_gpus_for_batch(limits))
        return cap if facts.max_gpus is None else min(cap, facts.max_gpus)

    def _search(
        self, problem: AllocationProblem, gpu_type: str, order: list[str], rng: np.random.Generator
    ) -> SearchResult:
        starts = None
        if gpu_type in self._last:
            starts = match_population(*self._last[gpu_type], order)
        options = SearchOptions(effort=self.effort)
        found = search(problem, method=self.method, population=starts, seed_or_rng=rng, options=options)
        self._last[gpu_type] = found.population, order
        return found

    def _diagnose(self, problem: AllocationProblem, found: SearchResult) -> dict[str, float]:
        numbers = {
            "evaluations": float(found.evaluations),
            "fitness": found.fitness,
            "generations": float(found.generations),
        }
        if self._priors.jobs_learnt_from is not None:
            numbers["pool_jobs"] = float(self._priors.jobs_learnt_from)
        if "gap" in self.trace:
            bound = upper_bound(problem)
            numbers["bound"] = bound
            numbers["gap"] = max(bound - found.fitness, 0.0) / bound if bound > 0 else 0.0
        return numbers


def by_service(jobs: Iterable[JobView]) -> list[JobView]:
    """Order jobs by attained service, then by submission, as the published simulator does."""
    return sorted(jobs, key=lambda job: (job.attained_gpu_s, job.request.submit_time_s))


def on_nodes(allocation: Ints, nodes: Sequence[int]) -> dict[int, Allocation]:
    """Turn the GPUs per node of a pool [jobs, nodes] into allocations by row, without the empty rows."""
    found: dict[int, list[tuple[int, int]]] = {}
    places = np.nonzero(allocation)
    for row, column, gpus in zip(*(part.tolist() for part in (*places, allocation[places])), strict=True):
        found.setdefault(row, []).append((nodes[column], gpus))
    return {row: tuple(pairs) for row, pairs in found.items()}


def restart_factor(job: JobView, delay_s: float) -> float:
    """Return REALLOC_FACTOR, by which a change of placement discounts a job's speedup (Pollux, section 4.2)."""
    age_s = job.age_s
    return max(age_s - delay_s * job.restarts, 0) / (age_s + delay_s) if age_s or delay_s else 1.0
