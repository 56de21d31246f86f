"""The ideal of a policy of shares: fractions of time granted exactly and at once, as if GPUs were divisible.

The term is from Gavel's simulator; compared with rounds of the same policy, it shows the cost of the mechanism. Each
job progresses at its true rate on each GPU type times its share of it. Jobs are placed on arrival and stay, several on
a GPU: GPUs, nodes and utilisation in the tables of an ideal run mean nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial

import numpy as np

from simsched.agent import Agent, Lease, LeasingAgent, UnlearningAgent
from simsched.arithmetic import ordered_sum, times
from simsched.errors import input_error
from simsched.model import Allocation, BatchChoice, Site
from simsched.policy import REMAINING_WORK, Decision, JobView, Place, View
from simsched.policy.signals import TRUE_RATES
from simsched.toolkit.programs.problem import Floats, ShareProblem
from simsched.toolkit.rounds.allocate import emptiest

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
