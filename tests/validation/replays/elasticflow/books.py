"""The bookkeeping of ElasticFlow's artifact, and its execution by the engine.

The artifact looks up to a slot ahead (a decision waits for events within it, unless nothing follows), and notices ends
late. The books are therefore computed for all jobs before the first decision, and jobs then run in leases: until they
end, or until the next decision. The engine checks that GPUs suffice at each instant. A job that is finished but
preempted before its end is noticed ends in the log while it waits: the engine ends it as cancelled at that second, and
a declined job when it is declined.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from simsched.agent import Agent, Lease, LeasingAgent, NoBatchAgent
from simsched.errors import input_error
from simsched.model import ApplicationFacts, Cluster, JobRequest, Site
from simsched.policy import CANCEL, Decision, JobView, Policy, Traits, Triggers, View
from simsched.policy.signals import COMING_JOBS, RECORDED_DURATION, STEPS
from simsched.toolkit import place_consolidated

#: The artifact's `scheduling_slot`.
SLOT_S = 240
#: The numbers of GPUs that an elastic policy gives a job.
LEVELS = (1, 2, 4, 8, 16, 32, 64)
#: All jobs restart every this many decisions, which takes this many additional seconds.
RESTART_EVERY, RESTART_S = 240, 27

_COLUMNS = (
    *("time", "job_id", "num_gpu", "submit_time", "start_time", "end_time", "ddl", "executed_time", "JCT"),
    *("pending_time", "preempt", "promote", "best_effort_job"),
)


@dataclass(eq=False)
class Account:
    """A job in the artifact's books: `left` counts iterations, `rates` iterations a second by the number of GPUs.

    `noticed_s` is when its end is noticed, `end_s` its logged end.
    """

    id: str
    submit_s: float
    deadline_s: float
    model: str
    batch_size: int
    asked_gpus: int
    duration_s: float
    total: float
    rates: Mapping[int, float]
    left: float = 0.0
    gpus: int = 0
    start_s: float | None = None
    end_s: float = math.inf
    noticed_s: float = math.inf
    pending_s: float = 0.0
    preemptions: int = 0

    def __post_init__(self) -> None:
        """Start with all work remaining."""
        self.left = self.total

    def most_gpus(self, bound: int) -> int:
        """Return the largest level that the job can use, within a bound."""
        return max(level for level in LEVELS if level <= min(bound, self.batch_size))

    def floor(self, gpus: float, most: int) -> int:
        """Return the largest level within `most` and the free GPUs, 0 if there is none."""
        return max((level for level in LEVELS if level <= min(gpus, most)), default=0)


@dataclass(frozen=True)
class Turn:
    """A decision: the GPUs that jobs hold from now, and the remaining work of each."""

    now_s: float
    gpus: Mapping[str, int]
    left: Mapping[str, float]


@dataclass
class Books:
    """The decisions, the jobs in the order in which their ends were noticed, and when which were declined."""

    turns: list[Turn] = field(default_factory=list)
    log: list[Account] = field(default_factory=list)
    declined: list[tuple[float, str]] = field(default_factory=list)

    def turn(self, now_s: float, active: Iterable[Account]) -> None:
        """Record a decision, at which the jobs without a noticed end are active."""
        known = list(active)
        gpus = {account.id: account.gpus for account in known if account.gpus}
        self.turns.append(Turn(now_s, gpus, {account.id: account.left for account in known}))

    @property
    def restarts(self) -> bool:
        """Return whether all jobs restart in the next recorded decision."""
        return len(self.turns) > 0 and len(self.turns) % RESTART_EVERY == 0

    def runs_at_its_end(self, account: Account) -> bool:
        """Return whether a job runs at its logged end; otherwise it was preempted before its end was noticed."""
        turn = max((turn for turn in self.turns if turn.now_s < account.end_s), key=lambda turn: turn.now_s)
        return account.id in turn.gpus

    def end(self, account: Account, noticed_s: float) -> None:
        """Record that a job's end is noticed."""
        account.noticed_s = noticed_s
        self.log.append(account)


def stand_still_s(gpus: int) -> float:
    """Return the seconds for which a job pauses when placed on this many GPUs."""
    return 2 + 2 * (math.log2(gpus) + 1) + (20 if gpus >= 256 else 0)


def aligned(now_s: float, time_s: float) -> float:
    """Return the first of now, now plus one slot, plus two slots ... that is not before a time."""
    return now_s + SLOT_S * math.ceil((time_s - now_s) / SLOT_S)


def gathered(now_s: float, times_s: Iterable[float]) -> float:
    """Return the next decision time given these events: not within a slot, except for the last one."""
    coming = sorted(set(times_s))
    return now_s + SLOT_S if len(coming) > 1 and coming[0] <= now_s + SLOT_S else coming[0]


class Bookkeeper(NoBatchAgent, LeasingAgent):
    """Runs a job from decision to decision, until the second at which the books end it."""

    def __init__(self, policy: Artifact, job_id: str) -> None:
        self._policy = policy
        self._id = job_id

    def lease(self, site: Site, progress: float, now_s: float) -> Lease:
        """Return the time until the job ends, or until the next decision."""
        return self._policy.lease(self._id)


@dataclass
class Artifact(Policy):
    """The common part of the artifact's policies: they keep books, and execute them decision by decision."""

    traits: ClassVar[Traits] = Traits(needs={STEPS, RECORDED_DURATION, COMING_JOBS})

    _books: Books | None = field(default=None, init=False, repr=False)
    _turn: int = field(default=-1, init=False, repr=False)
    _over: list[tuple[float, str]] = field(default_factory=list, init=False, repr=False)

    @property
    def triggers(self) -> Triggers:
        """Decide at the times in the books, and at arrivals to learn these times."""
        return Triggers(arrival=True)

    def keep(self, accounts: Sequence[Account], gpus: int) -> Books:
        """Compute the books of all jobs, in order of submission, from the first to the last decision."""
        raise NotImplementedError

    def begin(self, cluster: Cluster) -> None:
        """Begin without books."""
        self._cluster = cluster

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Stand beside a job."""
        return Bookkeeper(self, request.id)

    def check_jobs(self, jobs: Sequence[JobView], cluster: Cluster) -> None:
        """Refuse jobs with unknown rates."""
        for job in jobs:
            _account(job, cluster.gpu_types[0])

    def _keep(self, jobs: Sequence[JobView]) -> Books:
        gpu_type = self._cluster.gpu_types[0]
        accounts = [_account(job, gpu_type) for job in jobs]
        books = self.keep(accounts, sum(node.gpus for node in self._cluster.nodes))
        self._ends_s = {account.id: account.end_s for account in books.log}
        self._totals = {account.id: account.total for account in accounts}
        preempted = [(one.end_s, one.id) for one in books.log if not books.runs_at_its_end(one)]
        self._over = sorted(preempted + books.declined)
        return books

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Execute the current decision of the books, and request a call at the next one."""
        if self._books is None:
            self._books = self._keep([*view.arrived, *view[COMING_JOBS]()])
        turns, before = self._books.turns, self._turn
        while self._until_s <= view.now_s:
            self._turn += 1  # by more than one if no job was active in between
        over = [job_id for end_s, job_id in self._over if end_s <= view.now_s and job_id in view.jobs]
        next_s = min([self._until_s, *(end_s for end_s, _ in self._over if end_s > view.now_s)])
        wake_at_s = next_s if math.isfinite(next_s) else None
        if self._turn == before:
            return Decision.change(dict.fromkeys(over, CANCEL), wake_at_s=wake_at_s)
        turn = turns[self._turn]
        counts = {job_id: gpus for job_id, gpus in turn.gpus.items() if job_id in view.jobs and job_id not in over}
        places = place_consolidated(counts, view, counts, lambda job_id: True)
        jobs = {**places, **dict.fromkeys(sorted(over), CANCEL)}
        return Decision(jobs, wake_at_s=wake_at_s, renew_leases=True)

    @property
    def _until_s(self) -> float:
        assert self._books is not None
        turns = self._books.turns
        return turns[self._turn + 1].now_s if self._turn + 1 < len(turns) else math.inf

    def lease(self, job_id: str) -> Lease:
        """Return how a job runs until the next decision; its progress is that of the books at both."""
        assert self._books is not None
        turns, total, until_s = self._books.turns, self._totals[job_id], self._until_s
        begin_s, done = turns[self._turn].now_s, total - turns[self._turn].left[job_id]
        end_s = self._ends_s[job_id]
        completes = end_s <= until_s
        then = total if completes else total - turns[self._turn + 1].left[job_id]
        last_s = end_s if completes else until_s

        def made(second: float) -> float:
            part = min((second - begin_s) / (last_s - begin_s), 1.0) if last_s > begin_s else 1.0
            return min(max(done + (then - done) * part, 0.0), total)

        return Lease(end_s if completes else math.inf, made, completes)

    def artifacts(self) -> Mapping[str, str]:
        """Return the log of jobs in the artifact's own format."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(_COLUMNS)
        writer.writerows(_row(account) for account in (self._books.log if self._books else ()))
        return {"job.csv": text.getvalue()}


def _account(job: JobView, gpu_type: str) -> Account:
    """Open an account; raises `InputError` for a job with unknown rates or deadline."""
    steps, request = job[STEPS], job.request
    if steps is None:
        message = f"job '{job.id}' has no table of rates"
        raise input_error("applications", message, "give the artifact's rates with -o applications.path=...")
    rates = {level: steps.rate(gpu_type, num_gpus=level) for level in (*LEVELS, request.num_gpus)}
    return Account(
        id=job.id,
        submit_s=request.submit_time_s,
        deadline_s=math.inf if request.deadline_s is None else request.submit_time_s + request.deadline_s,
        model=request.application,
        batch_size=request.batch_size,
        asked_gpus=request.num_gpus,
        duration_s=job[RECORDED_DURATION],
        total=steps.total,
        rates={gpus: rate for gpus, rate in rates.items() if rate},
    )


def _row(account: Account) -> list[Any]:
    start_s = account.start_s or 0
    end_s = account.end_s
    numbers = (
        *(account.noticed_s, account.id, account.gpus, account.submit_s, start_s, end_s, account.deadline_s),
        *(end_s - start_s, int(end_s - account.submit_s), account.pending_s, account.preemptions, 0),
        int(math.isinf(account.deadline_s)),
    )
    return [int(one) if isinstance(one, float) and one.is_integer() else one for one in numbers]
