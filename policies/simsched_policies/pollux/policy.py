"""Pollux: allocates GPUs so that the power mean of the jobs' speedups in goodput is largest.

Idea: goodput is throughput times statistical efficiency. Every job's agent models its own goodput as a function of GPUs
and batch size and adapts the batch; the scheduler searches for the allocation that maximises FITNESS_p, the power mean
of the jobs' speedups over a fair share, in which a change of placement is discounted by the restarts that the job has
already suffered (Qiao et al., OSDI'21, sections 3 and 4).

Defaults of the paper: p = -1, an interval of 60 s, restart delay 30 s. As in the published simulator, the fair share of
J jobs is ceil(GPUs / J) GPUs on one node, a job may use at most twice the largest number of GPUs that it has run on
(or, with a `prior`, on which its application is known), and never more than 64.

Deviations: the search is the faster one of `search` (the genetic search of the paper can be chosen); its starts are
matched to jobs by identity, whereas the published simulator pairs rows by position and so gives some to the wrong job.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from simsched.agent.agent import Agent
from simsched.agent.goodput_agent import GoodputReport
from simsched.model.application import Application
from simsched.model.job import JobSpec
from simsched.model.placement import from_counts
from simsched.policy import INPUT_FILE, Decision, JobView, Policy, Signal, Triggers, View
from simsched_policies.pollux.knowledge import Knowledge
from simsched_policies.pollux.search import Round, SearchOptions, SearchResult, match_population, search, upper_bound
from simsched_policies.pollux.tables import GoodputTables, most_gpus_for_batch

Ints = NDArray[np.integer[Any]]


@dataclass
class Pollux(Policy):
    """Maximises the power mean of speedups in goodput, by a search over allocations.

    `fairness` is the exponent p (smaller is fairer, 1 is the plain mean). `avoid_interference` keeps two distributed
    jobs off one node. `method` is the search, `effort` how hard it tries, as a multiple of the default. `trace` lists
    diagnostics to record for every round: `gap` adds the distance of the search's fitness from an upper bound.

    `prior` is what agents start from: `none`, as published; `offline`, the true step times of their application as an
    operator would have profiled them; or `pool`, what finished jobs of the same or a similar application have taught.
    The pool is empty at first unless `pool_path` names one that an earlier run has left. With `skip_doubling` a job may
    at once use twice the GPUs on which its application is known, rather than twice those that it has run on itself.
    """

    name: ClassVar[str] = "pollux"
    needs: ClassVar[frozenset[Signal]] = frozenset({Signal.GOODPUT})
    rigid: ClassVar[bool] = False

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
    _knowledge: Knowledge = field(init=False, repr=False)
    _tables: GoodputTables = field(default_factory=GoodputTables, init=False, repr=False)
    _population: Ints | None = field(default=None, init=False, repr=False)
    _order: list[str] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse what the search could not work with."""
        if not math.isfinite(self.fairness):
            message = f"fairness must be a finite number, not {self.fairness}"
            raise ValueError(message)
        if self.max_gpus_per_job < 1 or not self.effort > 0:
            message = "max_gpus_per_job must be at least 1 and effort positive"
            raise ValueError(message)
        unknown = sorted(set(self.trace) - {"gap"})
        if unknown:
            message = f"trace knows only 'gap', not {', '.join(unknown)}"
            raise ValueError(message)
        if self.pool_path is not None and self.prior != "pool":
            message = f"pool_path is of no use with 'prior: {self.prior}', only with 'prior: pool'"
            raise ValueError(message)
        self._knowledge = Knowledge(self.prior, self.pool_path, skip_doubling=self.skip_doubling)

    @property
    def informed_by(self) -> tuple[str, ...]:
        """Tell what agents know before their jobs run."""
        known = {
            "none": (),
            "offline": ("true step times of every application, profiled offline",),
            "pool": ("measurements of finished jobs", *(["those of an earlier run"] if self.pool_path else [])),
        }
        return known[self.prior]

    def artifacts(self) -> Mapping[str, str]:
        """Leave the pool, if there is one, for later runs."""
        return self._knowledge.artifacts()

    @property
    def triggers(self) -> Triggers:
        """Decide every `interval_s`."""
        return Triggers(interval_s=self.interval_s)

    def agent(self, job: JobSpec, application: Application) -> Agent:
        """Let every job adapt its batch to its goodput."""
        return self._knowledge.agent(job, application)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Search for the best allocation of this round, starting from what is and from the last round's finds."""
        for job_id in view.finished:
            self._tables.forget(job_id)
        self._knowledge.learn(view.finished)
        self._knowledge.inform(view.arrived)
        jobs = sorted(view.jobs.values(), key=lambda job: (job.attained_gpu_s, job.spec.submit_time_s))
        if not jobs:
            return Decision({})
        problem = self._round(jobs, view)
        found = self._search(problem, [job.id for job in jobs], rng)
        rows = zip(jobs, found.allocation.tolist(), strict=True)
        allocations = {job.id: from_counts(row) for job, row in rows if any(row)}
        return Decision(allocations, diagnostics=self._diagnose(problem, found))

    def _round(self, jobs: Sequence[JobView], view: View) -> Round:
        node_gpus = [node.gpus if up else 0 for node, up in zip(view.nodes, view.up, strict=True)]
        total = max(sum(node_gpus), 1)
        fair_gpus = -(-total // len(jobs))
        caps = [min(self._cap(job), total) for job in jobs]
        current = np.zeros((len(jobs), len(node_gpus)), dtype=np.int64)
        for row, job in zip(current, jobs, strict=True):
            for node, gpus in job.allocation:
                row[node] = gpus
        width = max(caps) + 1
        tables = [self._tables.speedup(job, cap, fair_gpus, width) for job, cap in zip(jobs, caps, strict=True)]
        return Round(
            speedup=np.array(tables),
            max_gpus=np.array(caps),
            node_gpus=np.array(node_gpus),
            current=current,
            restart_factor=np.array([restart_factor(job, view.restart_delay_s) for job in jobs]),
            weight=len(node_gpus) / total,
            fairness=self.fairness,
            avoid_interference=self.avoid_interference,
        )

    def _cap(self, job: JobView) -> int:
        """Twice the GPUs on which the job is known, within what its batch, its application and the policy allow."""
        report, limits = job.goodput, job.limits
        assert isinstance(report, GoodputReport)
        assert limits is not None
        cap = min(max(2 * report.max_profiled_gpus, 1), self.max_gpus_per_job, most_gpus_for_batch(limits))
        return cap if job.max_gpus is None else min(cap, job.max_gpus)

    def _search(self, problem: Round, order: list[str], rng: np.random.Generator) -> SearchResult:
        starts = None
        if self._population is not None:
            starts = match_population(self._population, self._order, order)
        options = SearchOptions(effort=self.effort)
        found = search(problem, method=self.method, population=starts, seed_or_rng=rng, options=options)
        self._population, self._order = found.population, order
        return found

    def _diagnose(self, problem: Round, found: SearchResult) -> dict[str, float]:
        numbers = {
            "evaluations": float(found.evaluations),
            "fitness": found.fitness,
            "generations": float(found.generations),
        }
        if self._knowledge.jobs_learnt_from is not None:
            numbers["pool_jobs"] = float(self._knowledge.jobs_learnt_from)
        if "gap" in self.trace:
            bound = upper_bound(problem)
            numbers["bound"] = bound
            numbers["gap"] = max(bound - found.fitness, 0.0) / bound if bound > 0 else 0.0
        return numbers


def restart_factor(job: JobView, delay_s: int) -> float:
    """Give REALLOC_FACTOR, by which a change of placement discounts a job's speedup (Pollux, section 4.2)."""
    return max(job.age_s - delay_s * job.restarts, 0) / (job.age_s + delay_s) if job.age_s or delay_s else 1.0
