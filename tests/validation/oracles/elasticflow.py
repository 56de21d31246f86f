"""ElasticFlow's simulator under EDF, Tiresias and Themis, in plain loops, as an oracle of its replay.

Written from a description of the published simulator (pkusys/ElasticFlow, Apache-2.0) alone, by somebody who had seen
neither the engine's code nor an earlier replay. EDF and Tiresias give every row of the recorded logs; of Themis the
description has only how many deadlines are met, the mean completion time and the last end, and it gives these.
ElasticFlow itself is in `elasticflow_plans`, Gandiva in `elasticflow_gandiva`.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

SLOT_S = 240
GPUS = 128
LEVELS = (1, 2, 4, 8, 16, 32, 64)
#: Every so many decisions all jobs restart, which takes so many seconds more.
RESTART_EVERY, RESTART_S = 240, 27


@dataclass(eq=False)
class Job:
    """A job of the trace and how far it is; times in seconds."""

    id: int
    submit_s: int
    deadline_s: int
    left: float  # iterations
    rates: dict[int, float]  # iterations a second by the number of GPUs
    most_gpus: int
    asked_gpus: int
    duration_s: int
    gpus: int = 0
    start_s: float | None = None
    end_s: float = math.inf
    attained_s: float = 0.0
    pending_s: float = 0.0
    overhead_s: float = 0.0
    running: bool = False
    preemptions: int = 0


@dataclass(frozen=True)
class Row:
    """What is logged of a job, in whole seconds; `noticed_s` is when the end was noticed."""

    job_id: int
    noticed_s: float
    gpus: int
    start_s: float
    end_s: float
    executed_s: float
    jct_s: int
    pending_s: float
    preemptions: int


def read_jobs(trace: Path, rates: Path, fewer: Mapping[tuple[str, int], int] = MappingProxyType({})) -> list[Job]:
    """Read a trace; `fewer` are the most GPUs of a model at a batch size where they are fewer than for EDF."""
    by_model: dict[tuple[str, str], dict[int, float]] = {}
    with rates.open(newline="") as stream:
        for row in csv.DictReader(stream):
            by_model.setdefault((row["model_name"], row["batch_size"]), {})[int(row["num_gpu"])] = float(row["rate"])
    with trace.open(newline="") as stream:
        return [
            Job(
                id=int(row["job_id"]),
                submit_s=int(row["submit_time"]),
                deadline_s=int(row["ddl"]),
                left=int(row["iteration"]),
                rates=by_model[row["model_name"], row["batch_size"]],
                most_gpus=fewer.get((row["model_name"], batch := int(row["batch_size"])), min(LEVELS[-1], batch)),
                asked_gpus=int(row["num_gpu"]),
                duration_s=int(row["duration"]),
            )
            for row in csv.DictReader(stream)
        ]


def stand_still_s(gpus: int) -> float:
    return 2 + 2 * (math.log2(gpus) + 1)


def aligned(now: float, time_s: float) -> float:
    """The first of the times `now`, a slot later, two slots later ... that is not before."""
    return now + SLOT_S * math.ceil((time_s - now) / SLOT_S)


@dataclass
class Event:
    time_s: float
    starts: list[Job]
    ends: list[Job]


def add_event(events: list[Event], time_s: float, starts: list[Job], ends: list[Job]) -> None:
    for event in events:
        if event.time_s == time_s:
            event.starts += starts
            event.ends += ends
            return
    events.append(Event(time_s, list(starts), list(ends)))
    events.sort(key=lambda event: event.time_s)


def arrivals_of(jobs: list[Job]) -> list[Event]:
    events: list[Event] = []
    for job in jobs:
        add_event(events, job.submit_s, [job], [])
    return events


def gather(now: float, events: list[Event]) -> None:
    """Put an event within a slot off to its end, with what else comes until then; but never the last of all."""
    while len(events) > 1 and events[0].time_s <= now + SLOT_S:
        events[0].time_s = now + SLOT_S
        if events[1].time_s > now + SLOT_S:
            break
        second = events.pop(1)
        events[0].starts += second.starts
        events[0].ends += second.ends


def logged(job: Job, noticed_s: float, pending_s: float) -> Row:
    assert job.start_s is not None
    return Row(
        job_id=job.id,
        noticed_s=noticed_s,
        gpus=job.gpus,
        start_s=job.start_s,
        end_s=job.end_s,
        executed_s=job.end_s - job.start_s,
        jct_s=int(job.end_s - job.submit_s),
        pending_s=pending_s,
        preemptions=job.preemptions,
    )


def replay_edf(jobs: list[Job]) -> list[Row]:
    """By deadline, each job takes all the GPUs that it can use, now and at every time at which more are free."""
    events, present, rows, last = arrivals_of(jobs), [], [], 0.0
    while events:
        event = events.pop(0)
        now = event.time_s
        for job in present:
            train(job, now, last)
        last = now
        ended = sorted((job for job in present if job.end_s <= now), key=lambda job: job.end_s)
        rows += [logged(job, now, (job.start_s or 0) - job.submit_s) for job in ended]
        present = sorted([job for job in present if job.end_s > now] + event.starts, key=lambda job: job.deadline_s)
        free = [(now, GPUS)]  # from which time on how many GPUs are free
        for job in present:
            free = fill(job, free, now)
            if job.gpus and job.start_s is None:
                job.start_s = now
        events = [event for event in events if event.starts]
        for event in events:
            event.ends = []
        for job in present:
            add_event(events, job.end_s, [], [job])
        gather(now, events)
    return rows


def train(job: Job, now: float, last: float) -> None:
    """Train since the last decision; a job that is through before its predicted end ends then."""
    if job.gpus == 0:
        return
    trained_s = now - last - max(0, now - job.end_s)
    rate = job.rates[job.gpus]
    if job.left <= trained_s * rate and job.end_s > now:
        job.end_s = last + math.ceil(job.left / rate)
    job.left -= trained_s * rate


def fill(job: Job, free: list[tuple[float, int]], now: float) -> list[tuple[float, int]]:
    """Plan a job on what is free, and return what is free then."""
    left, after = job.left, []
    times = [time_s for time_s, _ in free[1:]] + [math.inf]
    for index, ((time_s, gpus), until_s) in enumerate(zip(free, times, strict=True)):
        taken = max((level for level in LEVELS if level <= min(gpus, job.most_gpus)), default=0)
        if index == 0:
            job.gpus = taken
        rate = job.rates[taken] if taken else 0.0
        if taken and left <= rate * (until_s - time_s):
            job.end_s = math.ceil(time_s + left / rate)
            after.append((time_s, gpus - taken))
            rest = free[index + 1 :]
            free_again_s = aligned(now, job.end_s)  # never beyond the next step: all steps are whole slots from now
            if not rest or rest[0][0] > free_again_s:
                after.append((free_again_s, gpus))
            return after + rest
        left -= rate * (until_s - time_s)
        after.append((time_s, gpus - taken))
    raise AssertionError(f"job {job.id} never ends")


QUEUE_LIMITS_GPU_S = (3250, 7200)


class Tiresias:
    """Three queues by attained service; GPUs as asked for, and only counted.

    `later` is the version of 2024, in which all jobs that end within the slot end at the same event.
    """

    def __init__(self, jobs: list[Job], *, later: bool = False) -> None:
        self.arrivals = arrivals_of(jobs)
        self.later = later
        self.queues: list[list[Job]] = [[], [], []]
        self.by_size: list[Job] = []  # largest first, an order that lasts
        self.rows: list[Row] = []
        self.last = 0.0
        self.decisions = 0

    def replay(self) -> list[Row]:
        next_end: Event | None = None
        jump_s = math.inf
        while self.arrivals or next_end:
            arrive_s = self.arrivals[0].time_s if self.arrivals else math.inf
            end_s = next_end.time_s if next_end else math.inf
            now = min(arrive_s, end_s, jump_s)
            jumps_alone = jump_s < min(arrive_s, end_s)
            if next_end and end_s == now and not jumps_alone:
                self.end(next_end.ends)
            self.serve(now)
            if arrive_s == now and not jumps_alone:
                self.arrive(self.arrivals.pop(0).starts, now)
            restart = self.decide(now)
            gather(now, self.arrivals)
            next_end, jump_s = self.next_end(now, restart), self.next_jump(now)
        return self.rows

    def end(self, jobs: list[Job]) -> None:
        for job in jobs:
            job.gpus = job.asked_gpus
            self.rows.append(logged(job, job.end_s, job.pending_s))
            self.by_size.remove(job)
            next(queue for queue in self.queues if job in queue).remove(job)

    def serve(self, now: float) -> None:
        for job in self.by_size:
            if not job.running:
                job.pending_s += now - self.last
                continue
            job.attained_s += max(0, now - self.last - job.overhead_s)
            job.overhead_s = 0
            level = next(level for level, queue in enumerate(self.queues) if job in queue)
            if level < len(QUEUE_LIMITS_GPU_S) and job.attained_s * job.asked_gpus >= QUEUE_LIMITS_GPU_S[level]:
                self.queues[level].remove(job)
                self.queues[level + 1].append(job)
        self.last = now

    def arrive(self, jobs: list[Job], now: float) -> None:
        for job in jobs:
            job.pending_s = now - job.submit_s
            self.queues[0].append(job)
            self.by_size.append(job)

    def decide(self, now: float) -> bool:
        """Run what fits, in the order of the queues; whether all jobs restart."""
        free = GPUS
        for job in [job for queue in self.queues for job in queue]:
            fits = job.asked_gpus <= free
            if fits:
                free -= job.asked_gpus
            if fits and not job.running:
                job.overhead_s = stand_still_s(job.asked_gpus)
                job.start_s = now if job.start_s is None else job.start_s
            elif job.running and not fits:
                job.preemptions += 1
            job.running = fits
        for queue in self.queues:
            queue.sort(key=lambda job: not job.running)
        self.by_size.sort(key=lambda job: -job.asked_gpus)
        restart = self.decisions > 0 and self.decisions % RESTART_EVERY == 0
        self.decisions += 1
        for job in self.by_size:
            if restart and job.running:
                job.overhead_s = stand_still_s(job.asked_gpus) + RESTART_S
        return restart

    def next_end(self, now: float, restart: bool) -> Event | None:
        """The first end, put off to the end of the slot where it is earlier; the end that is logged is not."""
        first: Event | None = None
        for job in self.by_size:
            if job.running:
                job.end_s = int(now + job.duration_s - job.attained_s + (job.overhead_s if restart else 0))
                key = max(now + SLOT_S, job.end_s) if self.later else job.end_s
                if first is None or key < first.time_s:
                    first = Event(key, [], [job])
                elif key == first.time_s:
                    first.ends.append(job)
        if first:
            first.time_s = max(now + SLOT_S, first.time_s)
        return first

    def next_jump(self, now: float) -> float:
        jumps = [
            now + math.ceil((limit - job.attained_s) / job.asked_gpus)
            for queue, limit in zip(self.queues, QUEUE_LIMITS_GPU_S, strict=False)
            for job in queue
            if job.running
        ]
        return max(now + SLOT_S, min(jumps, default=math.inf))


def themis_ends(jobs: list[Job]) -> dict[int, float]:
    """When jobs end under Themis, where no more GPUs are asked for than there are: then its program decides nothing.

    Raises `ValueError` where more are.
    """
    ends, held = {}, []
    for job in jobs:
        begin_s = SLOT_S * math.ceil(job.submit_s / SLOT_S)
        left, end_s = job.left, begin_s
        while left > 0:
            left -= SLOT_S * job.rates[job.asked_gpus]
            end_s += SLOT_S
        held.append((begin_s, end_s, job.asked_gpus))
        ends[job.id] = end_s
    for begin_s, _, _ in held:
        if sum(gpus for start_s, end_s, gpus in held if start_s <= begin_s < end_s) > GPUS:
            raise ValueError("more GPUs are asked for than there are")
    return ends
