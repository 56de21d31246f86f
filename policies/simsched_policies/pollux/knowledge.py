"""What agents know when their jobs are submitted: nothing, an offline profile, or what earlier jobs have taught."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

from simsched.agent.agent import Agent, Measurement
from simsched.agent.goodput_agent import GoodputAgent, Prior, Shared, goodput_agent
from simsched.agent.offline import offline_prior
from simsched.agent.pool import HistoryPool, lesson
from simsched.agent.pool_file import pool_text, read_pool
from simsched.model.application import Application, BatchLimits
from simsched.model.job import JobSpec
from simsched.policy import JobView

Source = Literal["none", "offline", "pool"]

#: The file in which a run leaves its pool.
POOL_FILE = "pool.json"


class Knowledge:
    """Makes the agents of a run and, with a pool, learns from those whose jobs have finished."""

    def __init__(self, source: Source, pool_path: str | None, *, skip_doubling: bool) -> None:
        """Begin with an empty pool, or with that of a file; raises `InputError` where it cannot be read."""
        self._source = source
        self._skip_doubling = skip_doubling
        self._shared = Shared()
        self._offline: dict[str, Prior | None] = {}
        self._pool = read_pool(Path(pool_path)) if pool_path is not None else HistoryPool()
        #: Applications and agents of the jobs that the pool is still to learn from.
        self._pupils: dict[str, tuple[str, GoodputAgent]] = {}

    @property
    def jobs_learnt_from(self) -> int | None:
        """Count the jobs in the pool, None where there is no pool."""
        return self._pool.jobs if self._source == "pool" else None

    def agent(self, job: JobSpec, application: Application) -> Agent:
        """Make the agent of a job; with a pool, `inform` will tell it what there is to know."""
        prior = self._profiled(job, application) if self._source == "offline" else None
        limits = application.limits
        seek = partial(self._borrow, limits) if self._source == "pool" and limits is not None else None
        agent = goodput_agent(job, application, shared=self._shared, prior=prior, seek=seek)
        if self._source == "pool":
            self._pupils[job.id] = job.application, agent
        return agent

    def _profiled(self, job: JobSpec, application: Application) -> Prior | None:
        if job.application not in self._offline:
            self._offline[job.application] = self._adjusted(offline_prior(application))
        return self._offline[job.application]

    def inform(self, arrived: Sequence[JobView]) -> None:
        """Let jobs that no decision has been made about yet start from what the pool knows of their applications."""
        for job in arrived if self._source == "pool" else ():
            application, agent = self._pupils[job.id]
            known = self._adjusted(self._pool.lookup(application, agent.limits))
            if known is not None:
                agent.start_from(known)

    def _borrow(self, limits: BatchLimits, seen: Measurement) -> Prior | None:
        return self._adjusted(self._pool.similar(limits, seen))

    def _adjusted(self, prior: Prior | None) -> Prior | None:
        if prior is None or self._skip_doubling:
            return prior
        return replace(prior, max_profiled_gpus=0)

    def learn(self, finished: Sequence[str]) -> None:
        """Take in what these jobs have measured."""
        for job_id in finished:
            application, agent = self._pupils.pop(job_id, ("", None))
            taught = lesson(agent.limits, agent.profile, agent.noise) if agent else None
            if taught is not None:
                self._pool.add(application, taught)

    def artifacts(self) -> Mapping[str, str]:
        """Give the pool as a file, with the jobs that finished after the last decision."""
        if self._source != "pool":
            return {}
        self.learn(list(self._pupils))
        return {POOL_FILE: pool_text(self._pool)}
