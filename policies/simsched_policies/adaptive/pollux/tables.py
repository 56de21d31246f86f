"""The speedup of each job over its fair share on every placement, and what its agent knows at submission.

An agent knows nothing, an offline profile, or the measurements of earlier jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from simsched.agent import (
    Agent,
    GoodputAgent,
    GoodputReport,
    HistoryPool,
    Measurement,
    Prior,
    Shared,
    goodput_agent,
    history_of_job,
    pool_text,
    read_pool,
)
from simsched.model import ApplicationFacts, BatchLimits, JobRequest
from simsched.model.goodput import GoodputModel
from simsched.policy import JobView, Signal
from simsched.policy.signals import EARLIER_RUNS, FINISHED_JOBS, OFFLINE_PROFILES

Floats = NDArray[np.float64]

ONE_NODE, SEVERAL_NODES = 0, 1


@dataclass
class _Known:
    """Goodputs computed from one version of a job's model."""

    gpu_type: str
    version: int
    goodput: Floats  # [2, GPUs + 1]
    fair: dict[int, float]


class GoodputTables:
    """Caches the goodput tables of jobs until their models change."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def forget(self, job_id: str) -> None:
        """Drop the table of a job that has left."""
        self._known.pop(job_id, None)

    def write_speedup(
        self, table: Floats, job: JobView, report: GoodputReport, gpu_type: str, gpus: int, fair_gpus: int
    ) -> None:
        """Write the speedup over `fair_gpus` GPUs on a node, for up to `gpus` GPUs on one and on several nodes.

        `table` has shape [2, more than `gpus`] and is zeroed; it is indexed by one or several nodes, then by GPUs.
        Without a model the speedup is the number of GPUs over the fair share (Pollux, section 4.2, and its artifact).
        """
        model = report.on(gpu_type).model
        if model is None:
            if gpus == 1:  # the case of most waiting jobs
                table[ONE_NODE, 1] = 1 / fair_gpus
                return
            table[:, 1 : gpus + 1] = np.arange(1, gpus + 1) / fair_gpus
        else:
            limits = job.limits
            assert limits is not None  # the agent refuses jobs without
            known = self._of(job.id, gpu_type, report.version, model, gpus)
            fair_gpus = min(fair_gpus, most_gpus_for_batch(limits))
            if fair_gpus not in known.fair:
                known.fair[fair_gpus] = _fair_goodput(known, model, fair_gpus)
            fair = known.fair[fair_gpus]
            if fair > 0:
                table[:, : gpus + 1] = known.goodput[:, : gpus + 1] / fair
        table[SEVERAL_NODES, 1] = 0.0  # one GPU is on one node

    def _of(self, job_id: str, gpu_type: str, version: int, model: GoodputModel, gpus: int) -> _Known:
        known = self._known.get(job_id)
        same = known is not None and (known.gpu_type, known.version) == (gpu_type, version)
        if known is None or not same or known.goodput.shape[1] <= gpus:
            known = self._known[job_id] = _Known(gpu_type, version, _goodputs(model, gpus), {})
        return known


def most_gpus_for_batch(limits: BatchLimits) -> int:
    """Count the GPUs on which even the smallest per-GPU batch stays within the largest total batch."""
    return limits.max_batch_size // limits.min_local_bsz


def _goodputs(model: GoodputModel, gpus: int) -> Floats:
    counts = np.arange(1, gpus + 1)
    nodes = np.repeat([1, 2], gpus)
    best = model.optimise(nodes, np.tile(counts, 2)).goodput
    table = np.zeros((2, gpus + 1))
    table[:, 1:] = best.reshape(2, gpus)
    return table


def _fair_goodput(known: _Known, model: GoodputModel, gpus: int) -> float:
    if gpus < known.goodput.shape[1]:
        return float(known.goodput[ONE_NODE, gpus])
    return float(model.optimise(1, gpus).goodput)


Source = Literal["none", "offline", "pool"]

#: The file in which a run leaves its pool.
POOL_FILE = "pool.json"


class PriorSource:
    """Creates the agents of a run, gives them their prior and, with a pool, learns from finished jobs."""

    def __init__(self, source: Source, pool_path: str | None, *, skip_doubling: bool, noise: float = 0) -> None:
        """Start with an empty pool, or one from a file; raises `InputError` if it cannot be read."""
        self._source = source
        self._skip_doubling = skip_doubling
        self._noise = noise
        self._shared = Shared()
        self._pool = read_pool(Path(pool_path)) if pool_path is not None else HistoryPool()
        self._reads_file = pool_path is not None
        #: Applications and agents of the jobs that have not finished yet.
        self._agents: dict[str, tuple[str, GoodputAgent]] = {}

    @property
    def signals(self) -> frozenset[Signal]:
        """Return the signals that the prior needs."""
        if self._source == "offline":
            return frozenset({OFFLINE_PROFILES})
        if self._source == "pool":
            return frozenset({FINISHED_JOBS, EARLIER_RUNS} if self._reads_file else {FINISHED_JOBS})
        return frozenset()

    @property
    def jobs_learnt_from(self) -> int | None:
        """Return the number of jobs in the pool, or None without a pool."""
        return self._pool.jobs if self._source == "pool" else None

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Create the agent of a job; `inform` gives it its prior later."""
        limits = facts.limits
        lookup = partial(self._borrow, limits) if self._source == "pool" and limits is not None else None
        agent = goodput_agent(request, facts, shared=self._shared, lookup=lookup, noise=self._noise)
        if self._source != "none":
            self._agents[request.id] = request.application, agent
        return agent

    def inform(self, arrived: Sequence[JobView]) -> None:
        """Start the jobs that have had no decision yet from what is known of their applications."""
        if self._source == "none":
            return
        for job in arrived:
            application, agent = self._agents[job.id]
            offline = self._source == "offline"
            known = job[OFFLINE_PROFILES] if offline else self._pool.lookup(application, agent.limits)
            agent.start_from({gpu_type: self._adjusted(prior) for gpu_type, prior in known.items()})

    def _borrow(self, limits: BatchLimits, seen: Measurement) -> Prior | None:
        similar = self._pool.similar(limits, seen)
        return None if similar is None else self._adjusted(similar)

    def _adjusted(self, prior: Prior) -> Prior:
        return prior if self._skip_doubling else replace(prior, max_profiled_gpus=0)

    def learn(self, finished: Sequence[str]) -> None:
        """Learn from the measurements of these jobs."""
        for job_id in finished:
            application, agent = self._agents.pop(job_id, ("", None))
            if agent is None or self._source != "pool":
                continue
            taught = history_of_job(agent.limits, agent.profiles, agent.noise)
            if taught is not None:
                self._pool.add(application, taught)

    def artifacts(self) -> Mapping[str, str]:
        """Return the pool as a file, including jobs that finished after the last decision."""
        if self._source != "pool":
            return {}
        self.learn(list(self._agents))
        return {POOL_FILE: pool_text(self._pool)}
