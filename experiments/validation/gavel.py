"""Gavel's simulator (OSDI'20, artifact): its own rounds in place of those of `simsched.policy.rounds`.

Everything peculiar to it is here: a round lasts until the last of its micro-tasks has ended, a micro-task does whole
steps, a job of several GPUs with fewer steps left than GPUs does nothing and is given up after five such rounds, the
time of a round counts from the end of the one before, and a job that came after the last computation of shares takes
GPUs but does not run. Jobs run in leases; seconds are doubles, summed in the artifact's order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from simsched_policies.gavel.allox import AlloX
from simsched_policies.gavel.fifo import GavelFifo
from simsched_policies.gavel.finish_time import FinishTimeFairness
from simsched_policies.gavel.makespan import Makespan
from simsched_policies.gavel.max_min import MaxMin

from simsched.agent.agent import Agent, Lease, Measurement
from simsched.model.application import NO_BATCH, ApplicationFacts, BatchChoice
from simsched.model.cluster import Cluster
from simsched.model.job import JobRequest
from simsched.model.placement import Site
from simsched.policy import Decision, JobView, Signal, Triggers, View
from simsched.policy.rounds import Grant, SharesPolicy, Snapshot, Unit
from simsched.policy.signals import REMAINING_WORK, TRUE_RATES

#: GPU types from the first to be filled.
FAST_FIRST = ("v100", "p100", "k80")
_MOST_FAILURES = 5
_TYPE_ORDER_STREAM = 5


@dataclass
class Task:
    """What a job does in one round: `steps` from `begin_s` to `finish_s`, none where it `failed`."""

    begin_s: float
    finish_s: float
    steps: float
    failed: bool
    ends: bool


@dataclass
class Books:
    """The steps that a job has left by the artifact's count, and its failures in a row."""

    order: int
    num_gpus: int
    total: float
    left: float
    rates: Mapping[str, float]
    failures: int = 0
    task: Task | None = None


class TaskAgent:
    """Grants a job its micro-task, and then has it wait for the end of the round."""

    stale = False
    goodput = None

    def __init__(self, artifact: Artifact, job_id: str) -> None:
        """Belong to a job."""
        self._artifact = artifact
        self._id = job_id

    def choose(self, site: Site, epoch: int) -> BatchChoice:
        """Leave the batch as it is."""
        return NO_BATCH

    def observe(self, measurement: Measurement) -> None:
        """Learn nothing."""

    def lease(self, site: Site, progress: float, now_s: float) -> Lease:
        """Run the micro-task; one that has been run is not run again."""
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
        """Return steps left and true rates, too, from which micro-tasks are made."""
        return super().signals | self.artifact

    @property
    def triggers(self) -> Triggers:
        """Decide at the end of the last micro-task, and at arrivals, which only an idle cluster heeds."""
        return Triggers(arrival=True, leases_over=True)

    def _more_options(self) -> Mapping[str, bool]:
        self.books: dict[str, Books] = {}
        self.end_s = 0.0
        self._queue: list[Books] = []
        self._ids: dict[int, str] = {}
        self._given_up: dict[str, Books] = {}
        self._previous_s = 0.0
        self._random = Random(self.seed + _TYPE_ORDER_STREAM)
        #: The type on which a job of the agnostic FIFO is.
        self.on: dict[str, str] = {}
        return {"unallocated_takes_room": True}

    def begin(self, cluster: Cluster) -> None:
        """Start without jobs; where rates are not known, every job is thought to run everywhere."""
        super().begin(cluster)
        if self.speeds == "none":
            self._rates = _Ones(len(self._gpus))

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Make the agent that grants micro-tasks."""
        return TaskAgent(self, request.id)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Leave a round under way alone; arrivals wait for its end."""
        for job in view.arrived:
            left = job[REMAINING_WORK].progress
            order = len(self._ids)
            self._ids[order] = job.id
            self.books[job.id] = Books(order, job.num_gpus, left, left, job[TRUE_RATES])
            self._queue.append(self.books[job.id])
        if self._grants and view.now_s < self.end_s:
            return Decision.change({})
        return super().decide(view, rng)

    def _learn(self, view: View) -> None:
        """Credit the micro-tasks, the last to end first, and admit who came."""
        self._settle()
        for books in self._queue:
            self._rounds.add((self._ids[books.order],), books.num_gpus)
        self._queue.clear()

    def _over(self, view: View) -> bool:
        return True

    def _receive(self, view: View) -> None:
        """Count nothing more."""

    def _settle(self) -> None:
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
            if task.ends:
                self._rounds.remove(job_id)
                self._rates.forget(job_id)
                if task.failed:
                    self._given_up[job_id] = books

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
        """Plan the micro-tasks; grants of jobs without shares, or on a type without a rate, leave GPUs idle.

        A job that was given up leaves the engine as soon as GPUs on which it can run are idle for an instant.
        """
        now_s = view.now_s
        self.end_s = now_s
        for grant in self._grants:
            if grant.runs:
                books = self.books[grant.unit[0]]
                books.task = self._task(books, books.rates[grant.gpu_type], now_s)
                self.end_s = max(self.end_s, books.task.finish_s)
        at_work = [grant for grant in self._grants if grant.runs and self._works(grant)]
        room = self._room(view)
        for grant in self._grants:
            room[grant.gpu_type] -= grant.num_gpus
        for job_id in [job_id for job_id in self._given_up if job_id not in view.jobs]:
            del self._given_up[job_id]
        for job_id, books in self._given_up.items():
            kind = next((kind for kind in room if books.rates[kind] > 0 and room[kind] >= books.num_gpus), None)
            if kind is not None:
                room[kind] -= books.num_gpus
                books.task = Task(now_s, now_s, 0.0, failed=True, ends=True)
                at_work.append(Grant((job_id,), kind, books.num_gpus, runs=True))
        return self._allocator.allocate(at_work, view).decision(self.end_s, renew_leases=True)

    def _works(self, grant: Grant) -> bool:
        return self.books[grant.unit[0]].rates[grant.gpu_type] > 0 and grant.unit[0] not in self._given_up

    def _task(self, books: Books, rate: float, now_s: float) -> Task:
        steps = min(int(rate * self.round_s), books.left)
        finish_s = max(now_s, now_s + steps / rate) if rate > 0 else now_s
        failed = steps <= 0 or (books.num_gpus > 1 and steps < books.num_gpus)
        given_up = failed and books.failures + 1 >= _MOST_FAILURES
        return Task(now_s, finish_s, steps, failed, given_up or (not failed and books.left - steps <= 0))


@dataclass
class ArtifactMakespan(Artifact, Makespan):
    """The makespan policy in the artifact's rounds."""

    name: ClassVar[str] = "gavel-artifact-makespan"
    seed: int = 0


@dataclass
class ArtifactMaxMin(Artifact, MaxMin):
    """Max-min fairness in the artifact's rounds; `seed` draws the order of types where rates are not known."""

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
    """FIFO in the artifact's rounds; where rates are not known, types are overbooked.

    A job that some type has room for goes to the last type of the alphabet that is not exactly full. So a job of
    several GPUs may take more than are left, the type then counts as available until the jobs on it end, and they take
    turns.
    """

    name: ClassVar[str] = "gavel-artifact-fifo"
    seed: int = 0

    def shares(self, snapshot: Snapshot) -> Mapping[Unit, Sequence[float]]:
        """Give the first jobs all the time of one type."""
        if self.speeds != "none":
            return super().shares(snapshot)
        names = sorted(self._gpus)
        free = dict(zip(self._gpus, snapshot.problem.num_gpus.tolist(), strict=True))
        self.on = {job.id: self.on[job.id] for job in snapshot.jobs if job.id in self.on}
        for job in snapshot.jobs:
            if job.id in self.on:
                free[self.on[job.id]] -= job.num_gpus
        for job in snapshot.jobs:
            if job.id in self.on:
                continue
            if not any(free[name] >= job.num_gpus for name in names):
                break
            self.on[job.id] = next(name for name in reversed(names) if free[name] != 0)
            free[self.on[job.id]] -= job.num_gpus
        return {(job.id,): [float(self.on.get(job.id) == name) for name in self._gpus] for job in snapshot.jobs}
