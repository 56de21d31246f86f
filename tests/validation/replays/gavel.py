"""Gavel's simulator (OSDI'20, artifact): its own rounds in place of those of `simsched.toolkit.rounds`.

Everything peculiar to it is here: a round lasts until the last of its micro-tasks has ended, a micro-task does whole
steps, a job of several GPUs with fewer remaining steps than GPUs does nothing and is given up after five such rounds,
and so is a job on a type without a rate for it, the time of a round counts from the end of the previous one, and a job
that arrives after the last computation of shares takes GPUs but does not run. A round also starts after the last job
has left, if others will arrive. Jobs run in leases; seconds are doubles, summed in the artifact's order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from simsched_policies.rounds.gavel.baselines import AlloX, GavelFifo
from simsched_policies.rounds.gavel.programs import FinishTimeFairness, Makespan, MaxMin

from simsched.agent import Agent, Lease, LeasingAgent, UnlearningAgent
from simsched.model import ApplicationFacts, BatchChoice, Cluster, JobRequest, Site
from simsched.model.application import NO_BATCH
from simsched.policy import CANCEL, REMAINING_WORK, Decision, JobView, Signal, Triggers, View
from simsched.policy.signals import TRUE_RATES
from simsched.toolkit.rounds import Grant, SharesPolicy, Snapshot, Unit

#: GPU types in the order in which they are filled.
FAST_FIRST = ("v100", "p100", "k80")
_MOST_FAILURES = 5
_TYPE_ORDER_STREAM = 5


@dataclass
class Task:
    """What a job does in one round: `steps` from `begin_s` to `finish_s`, none if it `failed`.

    `ends` means that it completes the job.
    """

    begin_s: float
    finish_s: float
    steps: float
    failed: bool
    ends: bool

    @property
    def idle(self) -> bool:
        """Whether it fails at once, so that GPUs are held in vain."""
        return self.failed and self.finish_s == self.begin_s


@dataclass
class Books:
    """The remaining steps of a job by the artifact's count, and its consecutive failures."""

    id: str
    order: int
    num_gpus: int
    total: float
    left: float
    rates: Mapping[str, float]
    failures: int = 0
    task: Task | None = None


class TaskAgent(UnlearningAgent, LeasingAgent):
    """Grants a job its micro-task, then lets it wait for the end of the round."""

    def __init__(self, artifact: Artifact, job_id: str) -> None:
        self._artifact = artifact
        self._id = job_id

    def choose(self, site: Site, epoch: int) -> BatchChoice:
        """Keep the batch."""
        return NO_BATCH

    def lease(self, site: Site, progress: float, now_s: float) -> Lease:
        """Run the micro-task, once."""
        books = self._artifact.books[self._id]
        task, done = books.task, books.total - books.left
        assert task is not None
        if now_s > task.begin_s:
            return Lease(self._artifact.end_s, lambda _: progress, completes=False)
        length_s, steps = task.finish_s - task.begin_s, 0.0 if task.failed else task.steps

        def made(second: float) -> float:
            return done + steps * min((second - task.begin_s) / length_s, 1.0) if length_s > 0 else done + steps

        return Lease(task.finish_s, made, task.ends)


class _Ones:
    """Takes every rate for 1."""

    def __init__(self, types: int) -> None:
        self._types = types

    def rates(self, jobs: Sequence[JobView]) -> np.ndarray:
        """Return ones."""
        return np.ones((len(jobs), self._types))

    def forget(self, job_id: str) -> None:
        """Know nothing to forget."""


class Artifact(SharesPolicy if TYPE_CHECKING else object):  # type: ignore[misc]
    """Replaces the rounds of a policy of shares; put it before the policy among the bases of a class."""

    artifact: ClassVar[frozenset[Signal]] = frozenset({REMAINING_WORK, TRUE_RATES})

    @property
    def signals(self) -> frozenset[Signal]:
        """Also return the signals of remaining steps and true rates, from which micro-tasks are derived."""
        return super().signals | self.artifact

    @property
    def triggers(self) -> Triggers:
        """Decide at the end of the last micro-task, and at arrivals, which matter only in an idle cluster."""
        return Triggers(arrival=True, leases_over=True, quiet=True)

    def _more_options(self) -> Mapping[str, bool]:
        self.books: dict[str, Books] = {}
        self.end_s = 0.0
        self._queue: list[Books] = []
        self._given_up: list[str] = []
        self._at_work: list[Grant] = []
        self._previous_s = 0.0
        self._random = Random(self.seed + _TYPE_ORDER_STREAM)
        #: The type of each job under the agnostic FIFO.
        self.on: dict[str, str] = {}
        return {"unallocated_takes_room": True}

    def begin(self, cluster: Cluster) -> None:
        """Start without jobs; if rates are unknown, every job is assumed to run on every type."""
        super().begin(cluster)
        if self.speeds == "none":
            self._rates = _Ones(len(self._gpus))

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Create the agent that grants micro-tasks."""
        return TaskAgent(self, request.id)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Let a running round finish; arrivals wait for its end. Rounds without duration follow at once."""
        for job in view.arrived:
            left = job[REMAINING_WORK].progress
            self.books[job.id] = Books(job.id, len(self.books), job.num_gpus, left, left, job[TRUE_RATES])
            self._queue.append(self.books[job.id])
        if view.now_s < self.end_s:
            return Decision.change({})
        self._given_up.clear()
        self._begin_round(view, rng)
        while not self._at_work and any(grant.runs for grant in self._grants):
            self._begin_round(view, rng)
        return self._carry_out(view)

    def _begin_round(self, view: View, rng: np.random.Generator) -> None:
        """Close the previous round, and plan the next."""
        self._settle()
        for books in self._queue:
            self._rounds.add((books.id,), books.num_gpus)
        self._queue.clear()
        if self._rounds.due(view.now_s):
            self._reset(view, rng)
        self._grants = self._rounds.choose(self._room(view), self._order(rng))
        self.end_s = view.now_s
        self._at_work.clear()
        for grant in self._grants:
            if grant.runs:
                books = self.books[grant.unit[0]]
                books.task = task = self._task(books, books.rates[grant.gpu_type], view.now_s)
                self.end_s = max(self.end_s, task.finish_s)
                self._at_work += [] if task.idle else [grant]

    def _reset(self, view: View, rng: np.random.Generator) -> None:
        """Compute shares; none without jobs."""
        if self._present(view):
            super()._reset(view, rng)
        else:
            self._rounds.reset(view.now_s, {}, {})

    def _present(self, view: View) -> tuple[JobView, ...]:
        return tuple(job for job in super()._present(view) if job.id not in self._given_up)

    def _settle(self) -> None:
        """Credit the micro-tasks, the last to end first."""
        begin_s, ran = self._previous_s, [grant for grant in self._grants if grant.runs]
        if not ran:
            return
        self._previous_s = self.end_s
        for grant in sorted(ran, key=lambda one: self._finish(one.unit[0])):
            job_id = grant.unit[0]
            books = self.books[job_id]
            task = books.task
            assert task is not None
            if not task.failed:
                self._rounds.receive(grant.unit, grant.gpu_type, task.finish_s - begin_s)
                books.left -= task.steps
            books.failures = books.failures + 1 if task.failed else 0
            given_up = books.failures >= _MOST_FAILURES
            if given_up:
                self._given_up.append(job_id)
            if task.ends or given_up:
                self._rounds.remove(job_id)
                self._rates.forget(job_id)

    def _finish(self, job_id: str) -> tuple[float, int]:
        task = self.books[job_id].task
        assert task is not None
        return -task.finish_s, self.books[job_id].order

    def _order(self, rng: np.random.Generator) -> list[str]:
        types = list(FAST_FIRST)
        if self.speeds in ("none", "reference"):
            self._random.shuffle(types)
        return types

    def _carry_out(self, view: View) -> Decision:
        """Place the micro-tasks, and end the jobs that were given up.

        Grants to jobs without shares, or on a type without a rate, leave GPUs idle.
        """
        placed = self._allocator.allocate(self._at_work, view).jobs
        placed = {job_id: at for job_id, at in placed.items() if job_id not in self._given_up}
        wake_at_s = self.end_s if self.end_s > view.now_s else None
        jobs = {**placed, **dict.fromkeys(self._given_up, CANCEL)}
        return Decision.change(jobs, wake_at_s=wake_at_s, renew_leases=True)

    def _task(self, books: Books, rate: float, now_s: float) -> Task:
        steps = min(int(rate * self.round_s), books.left)
        finish_s = max(now_s, now_s + steps / rate) if rate > 0 else now_s
        failed = steps <= 0 or (books.num_gpus > 1 and steps < books.num_gpus)
        return Task(now_s, finish_s, steps, failed, not failed and books.left - steps <= 0)


@dataclass
class ArtifactMakespan(Artifact, Makespan):
    """The makespan policy in the artifact's rounds."""

    name: ClassVar[str] = "gavel-artifact-makespan"
    seed: int = 0


@dataclass
class ArtifactMaxMin(Artifact, MaxMin):
    """Max-min fairness in the artifact's rounds; `seed` draws the order of types if rates are unknown."""

    name: ClassVar[str] = "gavel-artifact-max-min"
    seed: int = 0


@dataclass
class ArtifactFinishTimeFairness(Artifact, FinishTimeFairness):
    """Finish-time fairness in the artifact's rounds."""

    name: ClassVar[str] = "gavel-artifact-finish-time-fairness"
    seed: int = 0


@dataclass
class ArtifactAlloX(Artifact, AlloX):
    """AlloX in the artifact's rounds."""

    name: ClassVar[str] = "gavel-artifact-allox"
    seed: int = 0


@dataclass
class ArtifactFifo(Artifact, GavelFifo):
    """FIFO in the artifact's rounds; if rates are unknown, types are overbooked.

    If some type has room for a job, it goes to the alphabetically last type that is not exactly full. So a job of
    several GPUs may take more than are left; the type then counts as available until its jobs end, and they take turns.
    """

    name: ClassVar[str] = "gavel-artifact-fifo"
    seed: int = 0

    def shares(self, snapshot: Snapshot) -> Mapping[Unit, Sequence[float]]:
        """Give the first jobs all the time of one type, even one on which they have no rate."""
        names = sorted(self._gpus)
        free = dict(zip(self._gpus, snapshot.problem.num_gpus.tolist(), strict=True))
        aware = self.speeds != "none"
        self.on = {} if aware else {job.id: self.on[job.id] for job in snapshot.jobs if job.id in self.on}
        for job in snapshot.jobs:
            if job.id in self.on:
                free[self.on[job.id]] -= job.num_gpus
        for job, row in zip(snapshot.jobs, snapshot.problem.throughput.tolist(), strict=True):
            if job.id in self.on:
                continue
            rate = dict(zip(self._gpus, row, strict=True))
            fits = [name for name in names if free[name] >= job.num_gpus]
            if not fits:
                break
            last = next(name for name in reversed(names) if free[name] != 0)
            self.on[job.id] = max(fits, key=rate.__getitem__) if aware else last
            free[self.on[job.id]] -= job.num_gpus
        return {(job.id,): [float(self.on.get(job.id) == name) for name in self._gpus] for job in snapshot.jobs}
