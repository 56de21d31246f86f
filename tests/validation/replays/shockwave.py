"""Shockwave's artifact: its own bookkeeping of rounds, steps and charges, which the engine carries out.

Everything peculiar to the published simulator of Shockwave (Zheng et al., NSDI'23) is here, most of it behind a switch.
Seconds are doubles, and every sum is made in the artifact's order, because which of two jobs of equal priority runs
depends on the last bit. Jobs run in leases: until the end of their round, or until they end in it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from simsched_policies.queues.recorded import Recorded
from simsched_policies.rounds.shockwave import Outlook, Planner

from simsched.agent import Agent, Lease, LeasingAgent, Measurement
from simsched.agent.rule_agent import NOTHING_MEASURED, Accordion, BatchRule, BatchState, NoiseSchedule
from simsched.errors import input_error
from simsched.model import ApplicationFacts, BatchChoice, Cluster, JobRequest, Site
from simsched.model.regimes import BatchRegimes
from simsched.policy import Decision, JobView, Traits, Triggers, View
from simsched.policy.signals import STEPS, StepCounts
from simsched.toolkit.programs.shockwave import PlanOptions
from simsched.toolkit.recording import play
from simsched.toolkit.rounds import Grant, Unit, whole_places

#: A micro-task shorter than a round by this much is not charged for a restart.
_SLACK_S = 5
#: A solution belongs to this computation of shares if their times differ by at most this.
_SAME_TIME_S = 1e-6
_REMEDY = "give the recording of this trace, these rates and this cluster"
#: The number of digits of fairness ratios in the artifact.
_DIGITS = 5
_NO_REGIMES = BatchRegimes(samples=1, smallest=0, largest=0, doublings={})


class Steps(NamedTuple):
    """Optimizer steps of a job, in total and done, both counted at `batch`."""

    total: int
    done: int
    batch: int


def epoch_of(steps: Steps, regimes: BatchRegimes) -> int:
    """Return the current epoch of the job as Shockwave's triggers count it: epochs started so far."""
    return math.ceil(steps.done / regimes.steps_per_epoch(steps.batch))


def rescaled(steps: Steps, batch: int, regimes: BatchRegimes) -> Steps:
    """Count the steps at another batch, keeping the number of epochs.

    The total covers the same examples unless that changes the number of epochs; the steps done are rounded up to whole
    epochs, so a change of batch can finish the current epoch (Shockwave's artifact).
    """
    old, new = regimes.steps_per_epoch(steps.batch), regimes.steps_per_epoch(batch)
    epochs = math.ceil(steps.total / old)
    total = math.ceil(steps.total * steps.batch / batch)
    if math.ceil(total / new) != epochs:
        total = epochs * new
    return Steps(total, math.ceil(steps.done / old) * new, batch)


@dataclass(frozen=True)
class Task:
    """What a job does in one round: `steps` until `finish_s`, of which `credit` count, in `seconds` charged.

    `failed` means that it did nothing, `ends` that it completes the job.
    """

    begin_s: float
    finish_s: float
    seconds: float
    credit: int
    failed: bool
    ends: bool


@dataclass
class Account:
    """A job in the artifact's books; `pending` is the batch requested by its rule."""

    order: int
    request: JobRequest
    counts: StepCounts
    gpu_type: str
    deadline_s: float
    profile_s: float
    rule: BatchRule | None
    steps: Steps
    charged_s: float = 0.0
    pending: int = 0
    failures: int = 0
    task: Task | None = None
    end_s: float = math.nan

    @property
    def rate(self) -> float:
        """Steps per second at the present batch."""
        return self.counts.rate(self.gpu_type, self.steps.batch)

    @property
    def regimes(self) -> BatchRegimes:
        """The regimes of the training; without any, only the requested batch."""
        return self.counts.regimes or _NO_REGIMES


class TaskAgent(LeasingAgent):
    """Stands beside a job and grants it the leases that the books say."""

    goodput = None

    def __init__(self, books: Artifact, request: JobRequest) -> None:
        self._books = books
        self._id = request.id
        self._chosen = request.batch_size

    @property
    def stale(self) -> bool:
        """Whether the batch has changed since the last call."""
        return self._books.account(self._id).steps.batch != self._chosen

    def choose(self, site: Site, epoch: int) -> BatchChoice:
        """Return the batch in the books."""
        self._chosen = self._books.account(self._id).steps.batch
        return BatchChoice(self._chosen, 0)

    def observe(self, measurement: Measurement) -> None:
        """Learn nothing."""

    def lease(self, site: Site, progress: float, now_s: float) -> Lease:
        """Run until the job ends, or else until the round does."""
        account = self._books.account(self._id)
        task, end_s = account.task, self._books.round_end_s
        assert task is not None
        scale = account.steps.batch / max(account.request.batch_size, 1)
        done, last_s = account.steps.done, task.finish_s - task.begin_s

        def made(second: float) -> float:
            part = min((second - task.begin_s) / last_s, 1.0) if last_s > 0 else 1.0
            return (done + task.credit * part) * scale

        return Lease(task.finish_s if task.ends else end_s, made, task.ends)


@dataclass
class Artifact(Recorded):
    """Replays recorded shares with the quirks of Shockwave's artifact, each of which can be switched off.

    `restart_s` are deducted from the credited steps of a job that did not run in the previous round (0: restarts are
    free). A job ends after `deadline_factor` times its profiled duration (0: never), or after `most_failures` rounds
    without a step. With `follow_rules` batches change by the jobs' rules, with `whole_epochs` the steps done are then
    rounded up to whole epochs. `blocking`: a job without a share still takes room. `idle_counts`: the first
    round after an idle cluster is charged from the end of the last one.
    """

    name: ClassVar[str] = "shockwave-artifact"
    traits: ClassVar[Traits] = replace(Recorded.traits, needs={STEPS})

    round_s: float = 120
    min_reset_s: float = 1000
    restart_s: float = 20
    deadline_factor: float = 1.5
    most_failures: int = 5
    follow_rules: bool = True
    whole_epochs: bool = True
    blocking: bool = True
    idle_counts: bool = True
    round_end_s: float = field(default=-1.0, init=False, repr=False)
    _accounts: dict[str, Account] = field(default_factory=dict, init=False, repr=False)
    _active: dict[str, Account] = field(default_factory=dict, init=False, repr=False)
    _queue: list[Account] = field(default_factory=list, init=False, repr=False)
    _schedule: list[list[int]] = field(default_factory=list, init=False, repr=False)
    _chosen: list[Account] = field(default_factory=list, init=False, repr=False)
    _last_end_s: float = field(default=0.0, init=False, repr=False)
    _gpus: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        """Read the recording."""
        super().__post_init__()
        self._options = replace(self._options, unallocated_takes_room=self.blocking)

    @property
    def triggers(self) -> Triggers:
        """Decide at the end of a round, even without jobs, and at arrivals, which matter only in an idle cluster."""
        return Triggers(arrival=True, leases_over=True, quiet=True)

    def begin(self, cluster: Cluster) -> None:
        """Record the only GPU type."""
        super().begin(cluster)
        self._gpus = cluster.total_gpus

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Create the agent that grants a job its rounds."""
        return TaskAgent(self, request)

    def check_jobs(self, jobs: Sequence[JobView], cluster: Cluster) -> None:
        """Run all jobs in the books alone, to check that the recording belongs to these jobs at these rates."""
        super().check_jobs(jobs, cluster)
        if self._recording is not None:
            play(self, jobs, cluster)
            if self._played < len(self._recording.entries):
                message = f"is not asked for: these jobs take {self._played} solutions"
                raise self._recording.problem(self._played, message, _REMEDY)

    def due(self) -> tuple[float, list[str]]:
        """Return when the round ends, and the jobs that end in it."""
        end_s = self.round_end_s if self._chosen else math.inf
        return end_s, [account.request.id for account in self._chosen if _task(account).ends]

    def account(self, job_id: str) -> Account:
        """Return a job's account."""
        return self._accounts[job_id]

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Close the round that has ended, and plan the next; nothing happens within a round."""
        now = view.now_s
        self._queue += [self._open(job) for job in view.arrived]
        if self._chosen and now < self.round_end_s:
            return Decision.change({})
        if self._chosen:
            self._close()
        for account in self._queue:
            self._active[account.request.id] = account
            self._rounds.add((account.request.id,), account.request.num_gpus)
        self._queue.clear()
        if self._rounds.due(now):
            self._rounds.reset(now, self._shares_at(now), {})
        return self._plan(now, view)

    def _shares_at(self, now: float) -> Mapping[Unit, Sequence[float]]:
        """Compute shares; refuse a recording whose next solution has another time, or that has none left.

        The solution without jobs may be missing: a recording has it if the next one is of now or, without times, of no
        jobs.
        """
        recording, jobs = self._recording, list(self._active)
        if recording is not None:
            entry = next(iter(recording.entries[self._played :]), {})
            of_now = abs(entry["t"] - now) <= _SAME_TIME_S if "t" in entry else bool(jobs) or entry.get("x") == {}
            if not jobs and not of_now:
                return {}
            if not of_now:
                message = f"was made at {entry['t']:.6f} s, and is asked for at {now:.6f} s"
                raise recording.problem(self._played, message, _REMEDY)
            if not entry and all("t" in one for one in recording.entries):
                raise recording.problem(self._played, f"is asked for at {now:.6f} s, and there are no more", _REMEDY)
        return self._next_shares(jobs, self._gpus)

    def artifacts(self) -> Mapping[str, str]:
        """Return the jobs of every round, and the fairness ratios as the artifact computes and rounds them."""
        crowd = max(1, len(self._accounts) / self._gpus)
        lines = ["job_id,profile_s,rho"]
        for job_id, account in self._accounts.items():
            rho = (account.end_s - account.request.submit_time_s) / (account.profile_s * crowd)
            lines.append(f"{job_id},{account.profile_s!r},{round(rho, _DIGITS)!r}")
        return {
            "shockwave-fairness.csv": "\n".join(lines) + "\n",
            "shockwave-rounds.json": json.dumps(self._schedule) + "\n",
        }

    def _open(self, job: JobView) -> Account:
        """Open the books of a job that has arrived."""
        counts, request = job[STEPS], job.request
        if counts is None:
            message = f"job '{job.id}' ({request.application}) has no steps per second"
            raise input_error("applications", message, "name a table of rates with applications.path")
        gpu_type = self._types[0]
        profile_s = sum(counts.profile_s(gpu_type))
        deadline_s = int(self.deadline_factor * int(profile_s)) if self.deadline_factor else math.inf
        steps = Steps(counts.total, 0, request.batch_size)
        rule = self._rule(request, counts.regimes)
        account = Account(len(self._accounts), request, counts, gpu_type, deadline_s, profile_s, rule, steps)
        self._accounts[request.id] = account
        return account

    def _rule(self, request: JobRequest, regimes: BatchRegimes | None) -> BatchRule | None:
        if regimes is None or not self.follow_rules:
            return None
        if request.batch_rule == "gns":
            return NoiseSchedule(regimes)
        return Accordion(regimes) if request.batch_rule == "accordion" and regimes.critical else None

    def _close(self) -> None:
        """Settle the tasks of the round, the last to finish first, and let the rules look at what is left."""
        order = sorted(self._chosen, key=lambda one: (-_task(one).finish_s, one.order))
        for account in order:
            self._settle(account, _task(account))
        self._chosen = []
        self._last_end_s = self.round_end_s
        for account in self._active.values():
            if account.rule is not None:
                account.pending = _asked(account) or account.pending

    def _settle(self, account: Account, task: Task) -> None:
        unit = (account.request.id,)
        account.charged_s += task.seconds
        if task.failed:
            account.failures += 1
            self._rounds.ask_reset()
        else:
            account.failures = 0
            account.steps = account.steps._replace(done=account.steps.done + task.credit)
            self._rounds.receive(unit, account.gpu_type, task.seconds)
        if account.pending:
            self._rescale(account)
            account.pending = 0
        account.task = None
        if task.ends:
            del self._active[account.request.id]
            self._rounds.remove(account.request.id)

    def _rescale(self, account: Account) -> None:
        old, new, regimes = account.steps, account.pending, account.regimes
        if account.request.batch_size == regimes.largest or not account.counts.rate(account.gpu_type, new):
            return
        steps = rescaled(old, new, regimes)
        if not self.whole_epochs:
            steps = steps._replace(done=int(old.done * old.batch / new))
        account.steps = steps

    def _plan(self, now: float, view: View) -> Decision:
        """Choose the jobs of the next round, and compute what each of them will do in it."""
        gpu_type = self._types[0]
        placed = whole_places(self._grants(now), view)
        begin_s = self._last_end_s if self.idle_counts else now
        for (job_id,) in placed:
            account = self._active[job_id]
            account.task = self._task(account, now, begin_s)
            if account.task.ends:
                account.end_s = account.task.finish_s
            self._chosen.append(account)
        self._ran = dict.fromkeys(placed, gpu_type)
        self.round_end_s = max((_task(account).finish_s for account in self._chosen), default=now)
        self._schedule.append(sorted(account.order for account in self._chosen))
        allocations = {job_id: allocation for (job_id,), allocation in placed.items()}
        return Decision(allocations, diagnostics={"round": float(len(self._schedule) - 1)})

    def _grants(self, now: float) -> list[Grant]:
        """Choose the jobs of a round by the mechanism."""
        return self._rounds.choose({self._types[0]: self._gpus}, self._types, self._ran)

    def _task(self, account: Account, now: float, begin_s: float) -> Task:
        steps, rate = account.steps, account.rate
        number = min(int(rate * self.round_s), steps.total - steps.done)
        finish_s = max(now, now + number / rate)
        seconds, fraction = finish_s - begin_s, 1.0
        restarted = self._schedule and account.order not in self._schedule[-1]
        if restarted and seconds != 0 and seconds > self.round_s - _SLACK_S:
            fraction = (seconds - self.restart_s) / seconds
            seconds -= self.restart_s
        credit = int(number * fraction)
        failed = credit <= 0 and seconds <= 0
        late = account.charged_s + seconds > account.deadline_s
        ends = account.failures + 1 >= self.most_failures if failed else steps.done + credit >= steps.total or late
        return Task(now, finish_s, seconds, credit, failed, ends)


@dataclass
class Planned(Artifact):
    """Runs the plans of Shockwave, with everything else as in the artifact.

    `forecast` selects what is known of the lengths of a job's regimes: all ("profile"), or only those of finished ones
    ("expected"). The others are settings of the plan (`PlanOptions`).
    """

    name: ClassVar[str] = "shockwave-planned"

    forecast: Literal["profile", "expected"] = "profile"
    relative_gap: float = 1e-3
    node_limit: int = 2000
    replan_rounds: int = 8
    most_unfair: float = 1.0
    fairness_power: float = 12.0
    makespan_weight: float = 1e-3
    early: Literal["unfair", "short"] = "unfair"
    spare: Literal["long", "short", "nobody"] = "long"
    _planner: Planner = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Set up the plan."""
        super().__post_init__()
        options = PlanOptions(
            relative_gap=self.relative_gap, node_limit=self.node_limit, replan_rounds=self.replan_rounds,
            most_unfair=self.most_unfair, fairness_power=self.fairness_power, makespan_weight=self.makespan_weight,
            early=self.early, spare=self.spare,
        )  # fmt: skip
        self._planner = Planner(options)

    def _grants(self, now: float) -> list[Grant]:
        outlooks = [_outlook(one, now, self.forecast) for one in self._active.values()]
        chosen = self._planner.choose(outlooks, self._gpus)
        return [Grant((job,), self._types[0], self._active[job].request.num_gpus, True) for job in chosen]


def _outlook(account: Account, now: float, forecast: str) -> Outlook:
    steps, request = account.steps, account.request
    done = steps.done / account.regimes.steps_per_epoch(steps.batch)
    left_s = (steps.total - steps.done) / account.rate
    epoch_s: Sequence[float] = account.counts.profile_s(account.gpu_type)
    if forecast == "expected":
        epoch_s = expected_profile(epoch_s, done)
    return Outlook(request.id, request.num_gpus, epoch_s, done, now - request.submit_time_s, left_s, steps.batch)


def _task(account: Account) -> Task:
    assert account.task is not None
    return account.task


def _asked(account: Account) -> int:
    """Return the batch that the job's rule requests, 0 if that is the current one."""
    assert account.rule is not None
    steps, request, regimes = account.steps, account.request, account.regimes
    epoch = epoch_of(steps, regimes)
    state = BatchState(request.batch_size, steps.batch, epoch, request.num_gpus, regimes.smallest, regimes.largest)
    wanted = account.rule(state, NOTHING_MEASURED)
    return wanted if wanted != steps.batch else 0


def expected_epochs(epochs: int, past: Sequence[int], current: int, regimes: int) -> list[float]:
    """Return the expected epochs of each regime in the whole training (section 5), adding up to `epochs`.

    `past` are the lengths of finished regimes, `current` the epochs so far in the present one, and `regimes` the number
    of all. The prior is uniform. Finished regimes are known; the remaining epochs, plus `current`, are shared evenly by
    the present regime, which keeps at least `current`, and those to come (a reading of the paper's restated prior).
    Raises `ValueError` if more regimes are over than exist.
    """
    if len(past) >= regimes:
        raise ValueError(f"{len(past)} regimes are over, of {regimes} in all, and one is running")
    rest = epochs - sum(past)
    ahead = regimes - len(past)
    present = max(rest / ahead, float(min(current, rest)))
    later = (rest - present) / max(ahead - 1, 1)
    known = [float(length) for length in past]
    return [*known, rest - later * (ahead - 1), *[later] * (ahead - 1)]


def expected_profile(epoch_s: Sequence[float], done: float) -> list[float]:
    """Return the expected seconds of every epoch after `done` epochs, given the seconds they will really take.

    `epoch_s` gives the order and the speeds of the regimes; lengths are known only for finished regimes
    (`expected_epochs`) and are rounded to whole epochs.
    """
    runs = [(second, len(list(same))) for second, same in groupby(epoch_s)]
    past: list[int] = []
    whole, before = min(int(done), len(epoch_s) - 1), 0
    while before + runs[len(past)][1] <= whole:
        before += runs[len(past)][1]
        past.append(runs[len(past)][1])
    lengths = expected_epochs(len(epoch_s), past, whole - before, len(runs))
    ends = np.rint(np.cumsum(lengths)).astype(int).tolist()
    begins = [0, *ends[:-1]]
    profile: list[float] = []
    for (second, _), begin, end in zip(runs, begins, ends, strict=True):
        profile += [second] * (end - begin)
    return profile
