"""The published Tiresias simulator's queues in plain loops: arrivals, completions and jumps, counting GPUs.

Written from a description of the simulator (SymbioticLab/Tiresias) alone, by somebody who had seen neither the code of
the engine and its policies nor the other oracles of queues. It gives the test vectors of that description. Not here are
the schedules by a Gittins index, whose table comes from a file that is not at hand, and schemes of placement, which
decide about those schedules only that do not preempt.

`Habits` are where the published program leaves the rules of its paper (Gu et al., NSDI'19, sections 3.2 and 3.3): each
can be left out, one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

#: Limits on attained service between the three queues.
LIMITS = (3250, 7200)


@dataclass(frozen=True)
class Habits:
    """Where the published program does otherwise than its paper.

    `late_jumps` takes a limit in GPU-seconds less service in seconds for the time until a job reaches it, so that jobs
    of several GPUs are moved at a later event. With `tails` a job enters its next queue at the tail, and after each
    event pending jobs go behind the running ones of their queue; by the paper jobs of a queue go by their first start,
    those that have not run behind them by arrival. With `waits_add_up` the knob counts all waiting since the last
    promotion against whole seconds, rounded down; by the paper it counts that since the job last ran. `stale` completes
    jobs with an arrival that has once fallen together with their end, whatever has become of them since.
    """

    late_jumps: bool = True
    tails: bool = True
    waits_add_up: bool = True
    stale: bool = True


PUBLISHED, PAPER = Habits(), Habits(late_jumps=False, tails=False, waits_add_up=False, stale=False)


@dataclass(eq=False)
class Job:
    """A row of a trace and what has become of it; times in whole seconds."""

    id: int
    gpus: int
    submit_s: int
    duration_s: int
    running: bool = False
    done_s: int = 0
    served_s: int = 0
    waited_s: int = 0
    last_s: int = 0
    queue: int = 0
    start_s: int | None = None
    end_s: int | None = None
    pending_s: int = 0
    resumes: int = 0
    preemptions: int = 0
    promotions: int = 0
    demoted_s: list[int] = field(default_factory=list)

    @property
    def left_s(self) -> int:
        """Return the work left, as of the last event."""
        return self.duration_s - self.done_s


def jobs_of(rows: Sequence[tuple[int, int, int, int]]) -> list[Job]:
    """Make jobs of (id, GPUs, submission, duration), in order of submission, equal ones as listed."""
    return [Job(*row, last_s=row[2]) for row in sorted(rows, key=lambda row: row[2])]


def completion(live: Sequence[Job], now_s: int) -> tuple[float, list[Job]]:
    """Return the earliest completion among running jobs, and all jobs that share it."""
    ends = [(now_s + job.left_s, job) for job in live if job.running]
    first = min((end for end, _ in ends), default=math.inf)
    return first, [job for end, job in ends if end == first]


def serve(order: Sequence[Job], gpus: int, now_s: int) -> None:
    """Give GPUs to jobs in an order, skipping those that do not fit, and start, resume and preempt accordingly."""
    free = gpus
    for job in order:
        runs = job.gpus <= free
        free -= job.gpus if runs else 0
        if runs and not job.running:
            job.resumes += 1
            job.start_s = now_s if job.start_s is None else job.start_s
        job.preemptions += job.running and not runs
        job.running = runs


def account(job: Job, now_s: int) -> int:
    """Count the time since the last event as work or as waiting; return it."""
    passed, job.last_s = now_s - job.last_s, now_s
    if job.running:
        job.done_s += passed
        job.served_s += passed
    else:
        job.pending_s += passed
    return passed


@dataclass(eq=False)
class _Arrival:
    """The jobs that come at a time, and those that were once due to complete then."""

    time_s: int
    jobs: list[Job]
    completing: list[Job] = field(default_factory=list)


def arrivals_of(jobs: Sequence[Job]) -> list[_Arrival]:
    """Group jobs by the time of their submission, the earliest first."""
    times = sorted({job.submit_s for job in jobs})
    return [_Arrival(time_s, [job for job in jobs if job.submit_s == time_s]) for time_s in times]


class Queues:
    """`dlas` and `dlas-gpu`: least attained service in three queues, by seconds or by GPU-seconds.

    `knob` lifts a job that has waited so many times as long as it has run back to the first queue (0: never).
    """

    def __init__(
        self,
        rows: Sequence[tuple[int, int, int, int]],
        gpus: int,
        *,
        limits: Sequence[int] = LIMITS,
        gpu_time: bool = True,
        knob: float = 0,
        habits: Habits = PUBLISHED,
    ) -> None:
        self.gpus, self.limits, self.gpu_time, self.knob, self.habits = gpus, limits, gpu_time, knob, habits
        self.jobs = jobs_of(rows)
        self.live: list[Job] = []
        self.queues: list[list[Job]] = [[] for _ in range(len(limits) + 1)]

    def replay(self) -> list[Job]:
        """Play all events; return the completed jobs in the order of completion. The others are abandoned."""
        arrivals, finished = arrivals_of(self.jobs), []
        end_s, ending, jump_s = math.inf, [], math.inf
        while arrivals or end_s < math.inf:
            arrival = arrivals[0] if arrivals else None
            next_s = arrival.time_s if arrival else math.inf
            if arrival and next_s == end_s:
                arrival.completing = ending
            now_s = min(next_s, end_s)
            if now_s > jump_s:
                now_s, completing, arriving = jump_s, [], []
                if arrival and not self.habits.stale:
                    arrival.completing = []
            elif end_s < next_s:
                completing, arriving = ending, []
            else:
                completing, arriving = arrival.completing, arrival.jobs
                arrivals.pop(0)
            finished += self._event(int(now_s), completing, arriving)
            end_s, ending = completion(self.live, int(now_s))
            jump_s = min((self._jump_s(job, int(now_s)) for job in self.live), default=math.inf)
        return finished

    def _event(self, now_s: int, completing: Sequence[Job], arriving: Sequence[Job]) -> list[Job]:
        gone = [job for job in self.live if job in completing]
        for job in gone:
            job.end_s = now_s
            self.live.remove(job)
            self.queues[job.queue].remove(job)
        self.live += arriving
        self.queues[0] += arriving
        for job in self.live:
            self._account(job, now_s)
        if not self.habits.tails:
            for queue in self.queues:
                queue.sort(key=self._by_start)
        serve([job for queue in self.queues for job in queue], self.gpus, now_s)
        if self.habits.tails:
            for queue in self.queues:
                queue.sort(key=lambda job: not job.running)
        if not self.habits.waits_add_up:
            for job in self.live:
                job.waited_s *= not job.running
        return gone

    def _by_start(self, job: Job) -> tuple[bool, int, int]:
        began_s = job.submit_s if job.start_s is None else job.start_s
        return job.start_s is None, began_s, self.jobs.index(job)

    def _account(self, job: Job, now_s: int) -> None:
        passed = account(job, now_s)
        if job.running:
            if job.queue < len(self.limits) and self._service(job) >= self.limits[job.queue]:
                self._move(job, job.queue + 1)
                job.demoted_s.append(now_s)
        elif job.served_s > 0:
            job.waited_s += passed
            if self._may_rise(job) and job.waited_s >= self._patience_s(job):
                job.served_s = job.waited_s = 0
                job.promotions += 1
                self._move(job, 0)

    def _service(self, job: Job) -> int:
        return job.served_s * (job.gpus if self.gpu_time else 1)

    def _may_rise(self, job: Job) -> bool:
        return self.knob > 0 and job.queue > 0 and job.done_s > 0 and job.served_s > 0

    def _move(self, job: Job, queue: int) -> None:
        self.queues[job.queue].remove(job)
        job.queue = queue
        self.queues[queue].append(job)

    def _jump_s(self, job: Job, now_s: int) -> float:
        """Return when to look at a job although nothing arrives or completes."""
        if job.running and job.queue < len(self.limits):
            limit, each = self.limits[job.queue], job.gpus if self.gpu_time else 1
            if self.habits.late_jumps:
                return now_s + (limit - job.served_s) // each
            return now_s - (self._service(job) - limit) // each  # rounded up
        if not job.running and self._may_rise(job):
            left_s = self._patience_s(job) - job.waited_s
            return now_s + left_s if left_s > 0 else math.inf
        return math.inf

    def _patience_s(self, job: Job) -> int:
        patience_s = job.served_s * self.knob
        return math.trunc(patience_s) if self.habits.waits_add_up else math.ceil(patience_s)


#: Preemptive schedules without queues, and by what each sorts its jobs at every event.
SORTED: dict[str, Callable[[Job], int]] = {
    "sjf": lambda job: job.gpus,
    "shortest": lambda job: job.left_s,
    "shortest-gpu": lambda job: job.left_s * job.gpus,
}


def replay_sorted(
    rows: Sequence[tuple[int, int, int, int]], gpus: int, schedule: str, *, by_submission: bool = False
) -> list[Job]:
    """Play a preemptive schedule of `SORTED`; return the completed jobs in the order of completion.

    Equal jobs keep their order of the last event, as published, or stand in the order of submission.
    """
    jobs = jobs_of(rows)
    arrivals, live, finished = arrivals_of(jobs), [], []
    end_s, ending = math.inf, []
    while arrivals or end_s < math.inf:
        next_s = arrivals[0].time_s if arrivals else math.inf
        now_s = int(min(next_s, end_s))
        if end_s == now_s:
            finished += [job for job in live if job in ending]
            for job in ending:
                job.end_s = now_s
                live.remove(job)
        if next_s == now_s:
            live += arrivals.pop(0).jobs
        for job in live:
            account(job, now_s)
        if by_submission:
            live.sort(key=jobs.index)
        live.sort(key=SORTED[schedule])
        serve(live, gpus, now_s)
        end_s, ending = completion(live, now_s)
    return finished


def replay_started(rows: Sequence[tuple[int, int, int, int]], gpus: int, schedule: str) -> list[Job]:
    """Play `fifo` or `fjf`, which preempt nobody; return the completed jobs in the order of completion.

    `fifo` starts pending jobs from the head and stops at the first that does not fit; `fjf` tries all.
    """
    arrivals, pending, running, finished, free = arrivals_of(jobs_of(rows)), [], [], [], gpus
    while arrivals or running:
        times = [job.start_s + job.duration_s for job in running] + [one.time_s for one in arrivals[:1]]
        now_s = min(times)
        for job in [job for job in running if job.start_s + job.duration_s == now_s]:
            job.end_s = now_s
            running.remove(job)
            finished.append(job)
            free += job.gpus
        if arrivals and arrivals[0].time_s == now_s:
            pending += arrivals.pop(0).jobs
        for job in list(pending):
            if job.gpus <= free:
                job.start_s, job.pending_s = now_s, now_s - job.submit_s
                free -= job.gpus
                pending.remove(job)
                running.append(job)
            elif schedule == "fifo":
                break
    return finished
