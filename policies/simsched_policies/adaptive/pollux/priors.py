"""What agents know when their jobs are submitted: nothing, an offline profile, or the measurements of earlier jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

from simsched.agent import (
    Agent,
    GoodputAgent,
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
from simsched.policy import JobView, Signal
from simsched.policy.signals import EARLIER_RUNS, FINISHED_JOBS, OFFLINE_PROFILES

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
