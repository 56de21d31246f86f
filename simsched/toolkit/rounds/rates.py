"""The job speeds by GPU type that a policy of shares uses, and the ideal of such a policy.

Speeds are the truth, or measurements of jobs. The ideal (a term of Gavel's simulator) grants fractions of time exactly
and at once, as if GPUs were divisible: compared with rounds, it shows the cost of the mechanism. Each job progresses at
its true rate on each GPU type times its share of it. Jobs are placed on arrival and stay, several on a GPU: GPUs, nodes
and utilisation in the tables of an ideal run mean nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from simsched.agent import Agent, Lease, LeasingAgent, UnlearningAgent
from simsched.arithmetic import exp, log, ordered_sum, times
from simsched.errors import input_error
from simsched.model import Allocation, BatchChoice, Site
from simsched.policy import REMAINING_WORK, Decision, JobView, Place, Signal, View
from simsched.policy.signals import MEASURED_SPEEDS, TRUE_RATES
from simsched.toolkit.programs.problem import Floats, ShareProblem
from simsched.toolkit.rounds.places import emptiest

#: Where rates come from. `none` treats all types as equal; `reference` uses the true rate on the cluster's first type
#: for all; `true` is an oracle; `measured` is what each job has measured itself, and `fitted` what all jobs of the run
#: have, completed by a model.
Speeds = Literal["true", "measured", "fitted", "reference", "none"]

SIGNALS: Mapping[str, frozenset[Signal]] = MappingProxyType(
    {
        "true": frozenset({TRUE_RATES}),
        "reference": frozenset({TRUE_RATES}),
        "measured": frozenset({MEASURED_SPEEDS}),
        "fitted": frozenset({MEASURED_SPEEDS}),
        "none": frozenset(),
    }
)


class RateSource(Protocol):
    """Estimates rates of progress."""

    def rates(self, jobs: Sequence[JobView]) -> Floats:
        """Return the rate of each job on each GPU type, shape (n, k); 0 if it cannot run."""

    def forget(self, job_id: str) -> None:
        """Forget a job that has finished."""


def rate_source(speeds: Speeds, gpus: Mapping[str, int]) -> RateSource:
    """Return the source that `speeds` names for a cluster with these GPUs of each type."""
    if speeds in ("true", "reference"):
        return _TrueRates(gpus, reference=speeds == "reference")
    return _Measured(gpus, _COMPLETED[speeds])


def _runs_on(job: JobView, gpus: Mapping[str, int]) -> list[bool]:
    return [job.facts.runs_on(gpu_type) and job.num_gpus <= count for gpu_type, count in gpus.items()]


class _TrueRates:
    """The oracle; rates are read once for each job."""

    def __init__(self, gpus: Mapping[str, int], *, reference: bool) -> None:
        self._gpus = gpus
        self._reference = reference
        self._known: dict[str, Floats] = {}

    def rates(self, jobs: Sequence[JobView]) -> Floats:
        """Return the true rates."""
        for job in jobs:
            if job.id not in self._known:
                self._known[job.id] = self._row(job)
        return np.array([self._known[job.id] for job in jobs]).reshape(len(jobs), len(self._gpus))

    def _row(self, job: JobView) -> Floats:
        true = job[TRUE_RATES]
        row = np.array([true[gpu_type] if job.num_gpus <= count else 0.0 for gpu_type, count in self._gpus.items()])
        if self._reference and row.any():
            row = np.where(row > 0, row[np.flatnonzero(row)[0]], 0.0)
        return row

    def forget(self, job_id: str) -> None:
        """Drop the rates of a job."""
        self._known.pop(job_id, None)


#: A kind of job: its application, GPUs and batch size.
_Kind = tuple[str, int, int]
#: Fills the gaps (nan) of a table of rates, by kind and type.
_Complete = Callable[[Floats], Floats]


class _Measured:
    """The rates that jobs have measured on the types on which they ran; the mean over placements on a type."""

    def __init__(self, gpus: Mapping[str, int], complete: tuple[bool, _Complete]) -> None:
        self._gpus = gpus
        self._column = {gpu_type: number for number, gpu_type in enumerate(gpus)}
        self._shared, self._complete = complete
        self._known: dict[str | _Kind, Floats] = {}

    def rates(self, jobs: Sequence[JobView]) -> Floats:
        """Return measured rates, and estimates where there is no measurement."""
        keys = [self._key(job) for job in jobs]
        for key, job in zip(keys, jobs, strict=True):
            self._take_in(key, job)
        table = dict(zip(self._known, self._complete(self._table()), strict=True))
        able = np.array([_runs_on(job, self._gpus) for job in jobs]).reshape(len(jobs), len(self._gpus))
        return np.where(able, np.array([table[key] for key in keys]).reshape(able.shape), 0.0)

    def _key(self, job: JobView) -> str | _Kind:
        return (job.request.application, job.num_gpus, job.request.batch_size) if self._shared else job.id

    def _take_in(self, key: str | _Kind, job: JobView) -> None:
        row = self._known.setdefault(key, np.full(len(self._gpus), np.nan))
        if self._complete is _ones:
            return
        found: dict[int, list[float]] = {}
        for site, speed in job[MEASURED_SPEEDS].items():
            if speed.rate > 0:
                found.setdefault(self._column[site.gpu_type], []).append(speed.rate)
        for column, rates in found.items():
            row[column] = ordered_sum(rates) / len(rates)

    def _table(self) -> Floats:
        return np.array(list(self._known.values())).reshape(len(self._known), len(self._gpus))

    def forget(self, job_id: str) -> None:
        """Drop what a job has measured, unless others of its kind use it."""
        self._known.pop(job_id, None)


def _ones(table: Floats) -> Floats:
    return np.ones_like(table)


def _alike(table: Floats) -> Floats:
    """Fill each job's unknown rates with the mean of its known ones, 1 if it has none."""
    known = ~np.isnan(table)
    counts = known.sum(axis=1)
    mean = np.divide(np.where(known, table, 0.0).sum(axis=1), counts, out=np.ones(len(table)), where=counts > 0)
    return np.where(known, table, mean[:, None])


def _one_factor(table: Floats) -> Floats:
    """Fill gaps with the product of a factor of the kind and one of the type, fitted to known logarithms.

    Alternating least squares; a factor without data is 1.
    """
    known = ~np.isnan(table)
    logs = log(np.where(known, table, 1.0))
    kind, gpu_type = np.zeros(len(table)), np.zeros(table.shape[1])
    for _ in range(_PASSES):
        kind = _mean(np.where(known, logs - gpu_type, 0.0), known, 1)
        gpu_type = _mean(np.where(known, logs - kind[:, None], 0.0), known, 0)
    return np.where(known, table, exp(kind[:, None] + gpu_type))


def _mean(values: Floats, known: npt.NDArray[np.bool_], axis: int) -> Floats:
    counts = known.sum(axis=axis)
    return np.asarray(values.sum(axis=axis) / np.maximum(counts, 1))


#: Iterations of alternating least squares; the factors settle in a few.
_PASSES = 20

#: By name, whether jobs of a kind share measurements, and how gaps are filled.
_COMPLETED: Mapping[str, tuple[bool, _Complete]] = MappingProxyType(
    {"none": (False, _ones), "measured": (False, _alike), "fitted": (True, _one_factor)}
)


#: Seconds for which a job with no share is left alone; shares change long before.
_NEVER_S = 1e9
_SLACK = 1e-6


class FluidAgent(UnlearningAgent, LeasingAgent):
    """Makes its job progress at the rate that the policy sets."""

    def __init__(self, inner: Agent) -> None:
        """Start at rest, with the batch that `inner` chooses."""
        self._inner = inner
        self.total = 0.0
        self.rate = 0.0

    def choose(self, site: Site, epoch: int) -> BatchChoice:
        """Choose as without fractions."""
        return self._inner.choose(site, epoch)

    def lease(self, site: Site, progress: float, now_s: float) -> Lease:
        """Run until the job is done, unless shares change before."""
        rate = self.rate
        if rate <= 0:
            return Lease(now_s + _NEVER_S, partial(_progress, progress, 0.0, now_s), completes=False)
        left_s = max(self.total - progress, 0.0) / rate
        return Lease(now_s + left_s, partial(_progress, progress, rate, now_s), completes=True)


def _progress(begun: float, rate: float, since_s: float, second: float) -> float:
    return begun + rate * (second - since_s)


class Fluid:
    """The jobs of an ideal run: their agents, and their places."""

    def __init__(self) -> None:
        self._agents: dict[str, FluidAgent] = {}

    def agent(self, job_id: str, inner: Agent) -> FluidAgent:
        """Create the agent of a job."""
        self._agents[job_id] = FluidAgent(inner)
        return self._agents[job_id]

    def forget(self, job_ids: Collection[str]) -> None:
        """Drop jobs that have finished."""
        for job_id in job_ids:
            self._agents.pop(job_id, None)

    def grant(self, jobs: Sequence[JobView], shares: Floats, gpu_types: Sequence[str], view: View) -> Decision:
        """Set the rates of all jobs, place new ones, and run all of them at the new rates."""
        for job, row in zip(jobs, shares.tolist(), strict=True):
            agent, true = self._agents[job.id], job[TRUE_RATES]
            if not agent.total:
                agent.total = job[REMAINING_WORK].progress
            agent.rate = ordered_sum(true[gpu_type] * share for gpu_type, share in zip(gpu_types, row, strict=True))
        held = _somewhere(jobs, view)
        everybody = tuple(held)
        placed = {job.id: Place(held[job.id], everybody) for job in jobs if not job.allocation}
        return Decision({**held, **placed}, renew_leases=True)


def fill_up(problem: ShareProblem, shares: Floats) -> Floats:
    """Hand out the time that shares leave to jobs in order, each on its fastest types.

    Rounds do the same with GPUs that no share claims. Raises `ValueError` if the shares exceed the GPUs.
    """
    size = problem.scale_factor.astype(np.float64)
    left = problem.num_gpus - times(shares.T, size)
    if (left < -_SLACK * problem.num_gpus.max()).any() or (shares.sum(axis=1) > 1 + _SLACK).any():
        raise ValueError("the shares are more than there are GPUs")
    full = shares.copy()
    idle = np.maximum(1.0 - shares.sum(axis=1), 0.0)
    left = np.maximum(left, 0.0)
    for job in np.flatnonzero(idle > _SLACK):
        for column in np.argsort(-problem.throughput[job], kind="stable"):
            if problem.throughput[job, column] > 0:
                more = min(idle[job], left[column] / size[job])
                full[job, column] += more
                idle[job] -= more
                left[column] -= more * size[job]
    return full


def _somewhere(jobs: Sequence[JobView], view: View) -> dict[str, Allocation]:
    """Return what each job holds: its previous GPUs, or the emptiest nodes of the emptiest type on which it can run."""
    gpus = [node.gpus for node in view.nodes]
    loads: dict[str, dict[int, int]] = {}
    for node, up in zip(view.nodes, view.up, strict=True):
        if up:
            loads.setdefault(node.gpu_type, {})[node.index] = 0
    held = {job.id: job.allocation for job in jobs if job.allocation}
    for allocation in held.values():
        for place, count in allocation:
            loads[view.nodes[place].gpu_type][place] += count
    for job in jobs:
        if job.id not in held:
            able = [kind for kind in loads if job[TRUE_RATES][kind] > 0 and _count(loads[kind], gpus) >= job.num_gpus]
            kind = min(able, key=lambda kind: sum(loads[kind].values()) / _count(loads[kind], gpus))
            held[job.id] = emptiest(loads[kind], gpus, job.num_gpus)
            for place, count in held[job.id]:
                loads[kind][place] += count
    most = max(-(-load // gpus[place]) for rows in loads.values() for place, load in rows.items())
    if most > view.max_jobs_per_gpu:
        remedy = f"raise engine.sharing.max_jobs, which is {view.max_jobs_per_gpu}"
        raise input_error("ideal", f"{most} jobs would be on one GPU", remedy)
    return held


def _count(nodes: Mapping[int, int], gpus: Sequence[int]) -> int:
    return sum(gpus[node] for node in nodes)
