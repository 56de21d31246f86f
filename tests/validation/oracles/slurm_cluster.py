"""A small Slurm cluster in plain Python whose truth under changed settings is known: an oracle for operators' answers.

Written from Slurm's documentation ("Scheduling Configuration Guide", "Resource Limits", the manual of slurm.conf) and
not from the engine, of which it imports nothing. The main scheduler runs when a job comes or ends and starts jobs by
partition tier, priority of the quality of service and submission, until one of a partition cannot start. Backfill
runs at multiples of `BF_INTERVAL_S` and plans every tested job on nodes, in steps of `BF_RESOLUTION_S`, so that
nothing that it starts delays a job before it. A job has a shape: nodes, and on each of them GPUs, processors and
memory. A job whose user would hold more GPUs under its quality of service than the cap (MaxTRESPerUser) is passed
over. Nodes are filled from the fullest that fits.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np
import numpy.typing as npt

HOUR_S, DAY_S = 3600, 86400
BF_INTERVAL_S, BF_RESOLUTION_S, BF_WINDOW_S = 60, 300, 3 * DAY_S
#: Jobs that the main scheduler and backfill look at.
QUEUE_DEPTH, BF_MAX_JOB_TEST = 100, 100


@dataclass(frozen=True)
class Kind:
    """Equal nodes, and how many GPUs, processors and MB of memory each has."""

    name: str
    nodes: int
    gpus: int
    gpu_type: str
    cpus: int
    memory_mb: int


@dataclass(frozen=True)
class Partition:
    """A queue, the kinds of nodes that it may use, its tier and the longest time limit."""

    name: str
    kinds: tuple[str, ...]
    tier: int = 1
    max_time_s: int = 4 * DAY_S


@dataclass(frozen=True)
class Site:
    """A cluster and its rules; without a cap no user is limited, and without `counts_cpus` jobs ask for GPUs alone."""

    kinds: tuple[Kind, ...]
    partitions: tuple[Partition, ...]
    qos: tuple[tuple[str, int], ...] = (("normal", 0), ("high", 100))
    cap: int | None = 64
    counts_cpus: bool = True

    def with_nodes(self, kind: str, nodes: int) -> Site:
        """Return the site with so many nodes of a kind."""
        return replace(self, kinds=tuple(replace(one, nodes=nodes) if one.name == kind else one for one in self.kinds))

    def gpus_of(self, partition: str) -> int:
        """Count the GPUs of a partition."""
        kinds = next(one.kinds for one in self.partitions if one.name == partition)
        return sum(one.nodes * one.gpus for one in self.kinds if one.name in kinds)


#: 40 nodes of 8 A100, 16 of 4 V100 and 8 of 8 H100.
REFERENCE = Site(
    (
        Kind("a", 40, 8, "a100", 64, 1_000_000),
        Kind("v", 16, 4, "v100", 32, 380_000),
        Kind("h", 8, 8, "h100", 96, 2_000_000),
    ),
    (
        Partition("a100", ("a",)),
        Partition("v100", ("v",)),
        Partition("h100", ("h",)),
        Partition("debug", ("v",), tier=10, max_time_s=HOUR_S),
    ),
)
#: The cluster of the log that ships: 10 nodes of 8 A100, 5 of 4 V100 and 3 of 8 H100.
SMALL = replace(
    REFERENCE,
    kinds=tuple(replace(one, nodes=n) for one, n in zip(REFERENCE.kinds, (10, 5, 3), strict=True)),
    cap=32,
)


@dataclass(eq=False)
class Job:
    """A job: its shape on each of its nodes, its limit and true run time, and what became of it; times in seconds."""

    id: int
    submit_s: int
    user: str
    account: str
    partition: str
    qos: str
    nodes: int
    gpus: int
    cpus: int
    memory_mb: int
    limit_s: int
    run_s: int
    start_s: int | None = None
    held: tuple[int, ...] = ()
    #: When backfill last planned its start.
    planned_s: int | None = None

    @property
    def all_gpus(self) -> int:
        """Count its GPUs on all nodes."""
        return self.nodes * self.gpus

    @property
    def end_s(self) -> int | None:
        """Return when it ends, None if it never started."""
        return None if self.start_s is None else self.start_s + min(self.run_s, self.limit_s)


#: By partition: its part of the load offered, and the shapes with their weights: nodes, GPUs of each.
_SHAPES = {
    "a100": (((1, 1), 34), ((1, 2), 16), ((1, 4), 16), ((1, 8), 24), ((2, 8), 7), ((4, 8), 3)),
    "v100": (((1, 1), 50), ((1, 2), 25), ((1, 4), 20), ((2, 4), 5)),
    "h100": (((1, 1), 20), ((1, 4), 20), ((1, 8), 45), ((2, 8), 15)),
    "debug": (((1, 1), 70), ((1, 2), 20), ((1, 4), 10)),
}
#: What is offered to each partition, as a part of its GPU-time: waits of hours, and a queue that empties.
LOAD = {"a100": 0.76, "v100": 0.5, "h100": 0.6, "debug": 0.02}
SMALL_LOAD = {"a100": 0.68, "v100": 0.4, "h100": 0.4, "debug": 0.02}
_LIMITS_H = ((1, 15), (2, 10), (4, 15), (8, 10), (12, 12), (24, 25), (48, 13))


def draw_jobs(site: Site, seed: int, days: float, load: dict[str, float]) -> list[Job]:
    """Draw jobs whose GPU-time is `load` of each partition's own nodes, more of them at day than at night."""
    dice = random.Random(seed)
    users = [f"user{i:02d}" for i in range(24)]
    weights = [1 / (1 + i) ** 0.8 for i in range(24)]
    jobs: list[Job] = []
    for partition in site.partitions:
        if partition.name not in load:
            continue
        wanted = load[partition.name] * site.gpus_of(partition.name) * days * DAY_S
        while wanted > 0:
            burst = dice.choices((1, 4, 12), (85, 12, 3))[0]
            job = _draw(site, partition, dice, days, dice.choices(users, weights)[0])
            for _ in range(burst):
                one = replace(job, submit_s=job.submit_s + dice.randrange(120), run_s=_run_time(job.limit_s, dice))
                jobs.append(one)
                wanted -= one.all_gpus * min(one.run_s, one.limit_s)
    jobs.sort(key=lambda one: one.submit_s)
    for number, one in enumerate(jobs, 1000):
        one.id = number
    return jobs


def _draw(site: Site, partition: Partition, dice: random.Random, days: float, user: str) -> Job:
    while True:
        submit_s = dice.randrange(int(days * DAY_S))
        hour = submit_s / HOUR_S % 24
        if dice.random() < (1.0 if 9 <= hour < 20 else 0.35):
            break
    shapes, weights = zip(*_SHAPES[partition.name], strict=True)
    nodes, gpus = dice.choices(shapes, weights)[0]
    kind = next(one for one in site.kinds if one.name == partition.kinds[0])
    hours, share = zip(*_LIMITS_H, strict=True)
    limit_s = min(dice.choices(hours, share)[0] * HOUR_S, partition.max_time_s)
    even = kind.cpus // kind.gpus if site.counts_cpus else 0
    cpus = dice.choices((even // 2, even, 2 * even), (50, 40, 10))[0] * gpus
    memory = site.counts_cpus * int(kind.memory_mb / kind.gpus * dice.choices((0.3, 0.8, 1.5), (60, 30, 10))[0]) * gpus
    qos = dice.choices(("normal", "high"), (88, 12))[0]
    account = f"lab{int(user[4:]) % 5}"
    whole = (max(1, min(cpus, kind.cpus)), max(1, min(memory, kind.memory_mb)))
    return Job(0, submit_s, user, account, partition.name, qos, nodes, gpus, *whole, limit_s, 0)


def _run_time(limit_s: int, dice: random.Random) -> int:
    """Draw a run time: one in eight runs into its limit, the others end at any part of it, most of them early."""
    if dice.random() < 0.125:
        return limit_s + 1
    return max(30, int(limit_s * dice.betavariate(0.8, 1.6)))


@dataclass(eq=False)
class _Nodes:
    """What is free of each node: rows of GPUs, processors and memory."""

    site: Site
    free: npt.NDArray[np.int64] = field(init=False)
    of_partition: dict[str, npt.NDArray[np.int64]] = field(init=False)

    def __post_init__(self) -> None:
        each = [
            (kind.name, kind.gpus, kind.cpus, kind.memory_mb) for kind in self.site.kinds for _ in range(kind.nodes)
        ]
        self.free = np.array([row[1:] for row in each], dtype=np.int64).T.copy()
        self.of_partition = {
            one.name: np.array([i for i, row in enumerate(each) if row[0] in one.kinds]) for one in self.site.partitions
        }

    def fitting(self, job: Job) -> tuple[int, ...] | None:
        """Choose nodes that have room now, the fullest first."""
        return _choose(job, self.of_partition[job.partition], self.free)


def _choose(job: Job, mine: npt.NDArray[np.int64], free: npt.NDArray[np.int64]) -> tuple[int, ...] | None:
    room = (free[0, mine] >= job.gpus) & (free[1, mine] >= job.cpus) & (free[2, mine] >= job.memory_mb)
    good = mine[room]
    if len(good) < job.nodes:
        return None
    order = np.lexsort((good, free[0, good]))
    return tuple(good[order[: job.nodes]].tolist())


class Cluster:
    """Runs jobs on a site from an empty cluster."""

    def __init__(self, site: Site, jobs: Sequence[Job], *, plays_every_pass: bool = False) -> None:
        """Begin with nobody running; `jobs` are copied.

        Unless it `plays_every_pass`, passes of backfill are left out that find what the last one found: it started
        nothing, planned all that it looked at, and no job has come or ended since.
        """
        self.plays_every_pass = plays_every_pass
        self.site, self.jobs = site, [replace(job, start_s=None, held=(), planned_s=None) for job in jobs]
        self.nodes = _Nodes(site)
        self.queue: list[Job] = []
        self.running: dict[int, Job] = {}
        self.used: dict[tuple[str, str], int] = {}
        self._rank = dict(site.qos)
        self._tier = {one.name: one.tier for one in site.partitions}
        self.now_s = 0
        self._tie, self._due_s = count(), 0
        self._events: list[tuple[int, int, int, Job | None]] = [
            (job.submit_s, 1, next(self._tie), job) for job in self.jobs
        ]
        heapq.heapify(self._events)
        #: Whether the last pass started nothing and planned all that it looked at, and nothing has come or ended since.
        self.settled = False

    def run(self, until_s: float = float("inf")) -> list[Job]:
        """Go on until then, and return all jobs with their starts so far."""
        events, tie = self._events, self._tie
        while events and events[0][0] <= until_s:
            self.now_s = now = events[0][0]
            while events and events[0][0] == now:
                _, what, _, job = heapq.heappop(events)
                self.settled = self.settled and job is None
                if job is not None and what == 0:
                    self._finish(job)
                elif job is not None:
                    self.queue.append(job)
            self.queue.sort(key=self._order)
            backfills = now % BF_INTERVAL_S == 0
            started = self._main() + (self._backfill() if backfills else [])
            for job in started:
                heapq.heappush(events, (job.end_s or 0, 0, next(tie), job))
            if self.queue and self._due_s <= now and not (self.settled and not self.plays_every_pass):
                self._due_s = (now // BF_INTERVAL_S + 1) * BF_INTERVAL_S
                heapq.heappush(events, (self._due_s, 2, next(tie), None))
        return self.jobs

    def _order(self, job: Job) -> tuple[int, int, int, int]:
        return -self._tier[job.partition], -self._rank[job.qos], job.submit_s, job.id

    def _finish(self, job: Job) -> None:
        del self.running[job.id]
        self.used[job.qos, job.user] -= job.all_gpus
        self._take(job, -1)

    def _take(self, job: Job, sign: int) -> None:
        at = list(job.held)
        self.nodes.free[0, at] -= sign * job.gpus
        self.nodes.free[1, at] -= sign * job.cpus
        self.nodes.free[2, at] -= sign * job.memory_mb

    def _start(self, job: Job, held: tuple[int, ...]) -> None:
        job.start_s, job.held = self.now_s, held
        self.running[job.id] = job
        self.used[job.qos, job.user] = self.used.get((job.qos, job.user), 0) + job.all_gpus
        self._take(job, 1)

    def _capped(self, job: Job) -> bool:
        return self.site.cap is not None and self.used.get((job.qos, job.user), 0) + job.all_gpus > self.site.cap

    def _main(self) -> list[Job]:
        """Start jobs in order; one that cannot start holds back those of its partition."""
        blocked, started = set[str](), []
        for job in self.queue[:QUEUE_DEPTH]:
            if job.partition in blocked or self._capped(job):
                continue
            held = self.nodes.fitting(job)
            if held is None:
                blocked.add(job.partition)
                continue
            self._start(job, held)
            started.append(job)
        self.queue = [job for job in self.queue if job.start_s is None]
        return started

    def _backfill(self) -> list[Job]:
        """Plan the tested jobs one after the other, and start those whose plan begins now."""
        slots = BF_WINDOW_S // BF_RESOLUTION_S
        first_s = self.now_s // BF_RESOLUTION_S * BF_RESOLUTION_S
        plan = np.repeat(self.nodes.free[:, :, None], slots, axis=2)
        for job in self.running.values():
            assert job.start_s is not None
            slot = -(-(job.start_s + job.limit_s - first_s) // BF_RESOLUTION_S)
            self._book(plan, job, job.held, slot, slots, -1)
        started = []
        self.settled = True
        for job in self.queue[:BF_MAX_JOB_TEST]:
            if self._capped(job):
                continue
            lasts = -(-job.limit_s // BF_RESOLUTION_S)
            at_once = -(-(self.now_s + job.limit_s - first_s) // BF_RESOLUTION_S)
            slot, held = self._earliest(plan, job, lasts, at_once)
            if held is None:
                self.settled = False
                continue
            self._book(plan, job, held, slot, slot + lasts if slot else at_once, 1)
            job.planned_s = max(first_s + slot * BF_RESOLUTION_S, self.now_s)
            if slot == 0:
                self._start(job, held)
                started.append(job)
                self.settled = False
        self.queue = [job for job in self.queue if job.start_s is None]
        return started

    def _book(
        self, plan: npt.NDArray[np.int64], job: Job, held: tuple[int, ...], begin: int, end: int, sign: int
    ) -> None:
        for node in held:
            for row, amount in enumerate((job.gpus, job.cpus, job.memory_mb)):
                plan[row, node, begin:end] -= sign * amount

    def _earliest(
        self, plan: npt.NDArray[np.int64], job: Job, lasts: int, at_once: int
    ) -> tuple[int, tuple[int, ...] | None]:
        """Find the first slot from which enough nodes have room for so many slots, and the fullest of these.

        From the first slot on, which has begun, they are the slots `at_once`.
        """
        mine = self.nodes.of_partition[job.partition]
        part = plan[:, mine]
        room = (part[0] >= job.gpus) & (part[1] >= job.cpus) & (part[2] >= job.memory_mb)
        slots = room.shape[1]
        # What lies beyond the window is taken to be free.
        lacking = np.zeros((len(mine), slots + max(lasts, at_once) + 1), dtype=np.int32)
        np.cumsum(~room, axis=1, out=lacking[:, 1 : slots + 1])
        lacking[:, slots + 1 :] = lacking[:, slots : slots + 1]
        whole = lacking[:, lasts : lasts + slots] == lacking[:, :slots]
        whole[:, 0] = lacking[:, at_once] == 0
        enough = whole.sum(axis=0) >= job.nodes
        slot = int(enough.argmax())
        if not enough[slot]:
            return 0, None
        good = np.flatnonzero(whole[:, slot])
        order = np.lexsort((good, part[0, good, slot]))
        return slot, tuple(mine[good[order[: job.nodes]]].tolist())


def truth(site: Site, jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs as they would have run on a site."""
    return Cluster(site, jobs).run()
