"""A small Slurm cluster in plain Python whose truth under changed settings is known: an oracle for operators' answers.

Written from Slurm's documentation ("Scheduling Configuration Guide", "Resource Limits", the manual of slurm.conf) and
not from the engine, of which it imports nothing. The main scheduler runs when a job comes or ends and starts jobs by
partition tier, priority of the quality of service and submission, until one of a partition cannot start. Backfill
runs at multiples of `BF_INTERVAL_S` and plans every tested job on nodes, in steps of `BF_RESOLUTION_S`, so that
nothing that it starts delays a job before it. A job has a shape: nodes, and on each of them GPUs, processors and
memory. A job whose user would hold more GPUs under its quality of service than the cap (MaxTRESPerUser) is passed
over. Nodes are filled from the fullest that fits. `Rules` are what another reader of these pages may have made of them.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Literal

import numpy as np
import numpy.typing as npt

HOUR_S, DAY_S = 3600, 86400
BF_INTERVAL_S, BF_RESOLUTION_S, BF_WINDOW_S = 60, 300, 3 * DAY_S
#: Jobs that the main scheduler and backfill look at.
QUEUE_DEPTH, BF_MAX_JOB_TEST = 100, 100
#: So much less is free of a node that takes no jobs.
_AWAY = 1 << 26


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
class Rules:
    """How a cluster schedules where Slurm's pages can be read in several ways; the default is the reference cluster.

    Backfill runs at `offset_s` after multiples of `interval_s`, at each event where that is 0, and plans blocks of
    `resolution_s`, which are counted `from_pass` or on the clock. It protects `all` jobs, the `first` that waits of
    each partition, or `nobody`, or it is `off`; what it plans for later holds parts of nodes, or `whole_nodes`. Nodes
    are taken from the `fullest`, the `first` or the `emptiest` that fits, or by `weight`: every other one is dearer.
    `age` and `fair_share` weigh in beside the quality of service, which has 100000. Jobs are killed up to `overrun_s`
    after their limit. A part `drained` of the nodes takes no jobs, for 8 hours at a time.
    """

    interval_s: int = BF_INTERVAL_S
    offset_s: int = 0
    resolution_s: int = BF_RESOLUTION_S
    from_pass: bool = False
    protects: Literal["all", "first", "nobody", "off"] = "all"
    whole_nodes: bool = False
    nodes: Literal["fullest", "first", "emptiest", "weight"] = "fullest"
    age: int = 0
    fair_share: int = 0
    overrun_s: int = 0
    drained: float = 0.0


@dataclass(frozen=True)
class Site:
    """A cluster and its rules; without a cap no user is limited, and without `counts_cpus` jobs ask for GPUs alone."""

    kinds: tuple[Kind, ...]
    partitions: tuple[Partition, ...]
    qos: tuple[tuple[str, int], ...] = (("normal", 0), ("high", 100))
    cap: int | None = 64
    counts_cpus: bool = True
    rules: Rules = Rules()

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
    #: How long after its limit it would be killed.
    late_s: int = 0

    @property
    def all_gpus(self) -> int:
        """Count its GPUs on all nodes."""
        return self.nodes * self.gpus

    @property
    def end_s(self) -> int | None:
        """Return when it ends, None if it never started."""
        return None if self.start_s is None else self.start_s + min(self.run_s, self.limit_s + self.late_s)


@dataclass(eq=False)
class _Nodes:
    """What is free of each node: rows of GPUs, processors and memory."""

    site: Site
    free: npt.NDArray[np.int32] = field(init=False)
    of_partition: dict[str, npt.NDArray[np.int64]] = field(init=False)

    def __post_init__(self) -> None:
        each = [
            (kind.name, kind.gpus, kind.cpus, kind.memory_mb) for kind in self.site.kinds for _ in range(kind.nodes)
        ]
        self.free = np.array([row[1:] for row in each], dtype=np.int32).T.copy()
        self.of_partition = {
            one.name: np.array([i for i, row in enumerate(each) if row[0] in one.kinds]) for one in self.site.partitions
        }

    def fitting(self, job: Job) -> tuple[int, ...] | None:
        """Choose nodes that have room now."""
        mine, free = self.of_partition[job.partition], self.free
        room = (free[0, mine] >= job.gpus) & (free[1, mine] >= job.cpus) & (free[2, mine] >= job.memory_mb)
        return self.first_of(mine[room], free[0], job.nodes) if room.sum() >= job.nodes else None

    def first_of(self, good: npt.NDArray[np.int64], free: npt.NDArray[np.int32], most: int) -> tuple[int, ...]:
        """Return the first of some nodes, with so many GPUs free of each node, in the order of the site's rules."""
        how = self.site.rules.nodes
        worth = {"fullest": free[good], "emptiest": -free[good], "weight": good % 2, "first": good}[how]
        return tuple(good[np.lexsort((good, worth))[:most]].tolist())


class Cluster:
    """Runs jobs on a site from an empty cluster."""

    def __init__(self, site: Site, jobs: Sequence[Job], *, plays_every_pass: bool = False) -> None:
        """Begin with nobody running; `jobs` are copied.

        Unless it `plays_every_pass`, passes of backfill are left out that find what the last one found: it started
        nothing, planned all that it looked at, and no job has come or ended since.
        """
        rules = site.rules
        self.plays_every_pass = plays_every_pass or bool(rules.age or rules.fair_share or rules.from_pass)
        fresh = {"start_s": None, "held": (), "planned_s": None}
        self.site = site
        self.jobs = [replace(job, **fresh, late_s=7919 * job.id % (rules.overrun_s + 1)) for job in jobs]
        self.nodes = _Nodes(site)
        self.queue: list[Job] = []
        self.running: dict[int, Job] = {}
        self.used: dict[tuple[str, str], int] = {}
        self._rank = dict(site.qos)
        self._tier = {one.name: one.tier for one in site.partitions}
        self.now_s = 0
        self._tie, self._due_s = count(), 0
        self._events: list[tuple[int, int, int, Job | int | None]] = [
            (job.submit_s, 1, next(self._tie), job) for job in self.jobs
        ]
        self._events += self._drains()
        heapq.heapify(self._events)
        self._shares = Shares(self.jobs)
        #: Whether the last pass started nothing and planned all that it looked at, and nothing has come or ended since.
        self.settled = False

    def run(self, until_s: float = float("inf")) -> list[Job]:
        """Go on until then, and return all jobs with their starts so far."""
        events, tie, rules = self._events, self._tie, self.site.rules
        every_s = rules.interval_s
        while events and events[0][0] <= until_s:
            self.now_s = now = events[0][0]
            while events and events[0][0] == now:
                _, what, _, job = heapq.heappop(events)
                self.settled = self.settled and job is None
                if isinstance(job, int):  # a node is drained, or comes back
                    self.nodes.free[:, job] += what * _AWAY
                elif job is not None and what == 0:
                    self._finish(job)
                elif job is not None:
                    self.queue.append(job)
            self._shares.age_to(now)
            self.queue.sort(key=self._order)
            backfills = rules.protects != "off" and (not every_s or now % every_s == rules.offset_s)
            for one in self._main() + (self._backfill() if backfills else []):
                heapq.heappush(events, (one.end_s or 0, 0, next(tie), one))
            goes_on = self.queue and not (self.settled and not self.plays_every_pass)
            if goes_on and self._due_s <= now and every_s and rules.protects != "off":
                self._due_s = ((now - rules.offset_s) // every_s + 1) * every_s + rules.offset_s
                heapq.heappush(events, (self._due_s, 2, next(tie), None))
        return self.jobs

    def _drains(self) -> list[tuple[int, int, int, int]]:
        """Draw when nodes are drained and when they come back."""
        dice, lasts_s, found = random.Random(8), 8 * HOUR_S, []
        last_s = max((job.submit_s for job in self.jobs), default=0)
        nodes = self.nodes.free.shape[1]
        for _ in range(round(self.site.rules.drained * nodes * last_s / lasts_s)):
            node, from_s = dice.randrange(nodes), dice.randrange(last_s)
            found += [(from_s, -1, next(self._tie), node), (from_s + lasts_s, 1, next(self._tie), node)]
        return found

    def _order(self, job: Job) -> tuple[float, float, int, int]:
        rules, most = self.site.rules, max(*self._rank.values(), 1)
        score = 100_000 * self._rank[job.qos] / most + rules.age * min((self.now_s - job.submit_s) / (7 * DAY_S), 1)
        score += rules.fair_share * self._shares.factor(job) if rules.fair_share else 0.0
        return -self._tier[job.partition], -score, job.submit_s, job.id

    def _finish(self, job: Job) -> None:
        del self.running[job.id]
        self.used[job.qos, job.user] -= job.all_gpus
        self._shares.hold(job, -1)
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
        self._shares.hold(job, 1)
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
        rules, step = self.site.rules, self.site.rules.resolution_s
        slots = BF_WINDOW_S // step
        first_s = self.now_s if rules.from_pass else self.now_s // step * step
        plan = np.repeat(self.nodes.free[:, :, None], slots, axis=2)
        for job in self.running.values():
            assert job.start_s is not None
            slot = max(-(-(job.start_s + job.limit_s - first_s) // step), 1)
            self._book(plan, job, job.held, slot, slots, -1)
        started, waits = [], set[str]()
        self.settled = True
        for job in self.queue[:BF_MAX_JOB_TEST]:
            if self._capped(job):
                continue
            lasts = -(-job.limit_s // step)
            at_once = -(-(self.now_s + job.limit_s - first_s) // step)
            if rules.protects == "nobody":
                slot, held = 0, self.nodes.fitting(job)
            else:
                slot, held = self._earliest(plan, job, lasts, at_once)
            if held is None:
                self.settled = False
                continue
            if slot == 0 or rules.protects == "all" or job.partition not in waits:
                self._book(plan, job, held, slot, slot + lasts if slot else at_once, 1)
            job.planned_s = max(first_s + slot * step, self.now_s)
            if slot == 0:
                self._start(job, held)
                started.append(job)
                self.settled = False
            else:
                waits.add(job.partition)
        self.queue = [job for job in self.queue if job.start_s is None]
        return started

    def _book(
        self, plan: npt.NDArray[np.int32], job: Job, held: tuple[int, ...], begin: int, end: int, sign: int
    ) -> None:
        whole = self.site.rules.whole_nodes and sign > 0 and begin > 0
        for node in held:
            for row, amount in enumerate((job.gpus, job.cpus, job.memory_mb)):
                plan[row, node, begin:end] -= _AWAY if whole else sign * amount

    def _earliest(
        self, plan: npt.NDArray[np.int32], job: Job, lasts: int, at_once: int
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
        return slot, self.nodes.first_of(mine[np.flatnonzero(whole[:, slot])], plan[0, :, slot], job.nodes)


class Shares:
    """Usage of users in GPU-seconds that halves in 7 days, counted every 5 minutes, and ranks of the fair tree.

    All accounts have equal shares, and so have all users of one: who used less goes first, by account and then by user.
    """

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._account = {job.user: job.account for job in jobs}
        self._holds: dict[str, int] = dict.fromkeys(self._account, 0)
        self._raw: dict[str, float] = dict.fromkeys(self._account, 0.0)
        self._factors: dict[str, float] = dict.fromkeys(self._account, 1.0)
        self._at_s = self._counted_s = 0

    def hold(self, job: Job, sign: int) -> None:
        """Count in what a job holds, or out."""
        self._holds[job.user] += sign * job.all_gpus

    def factor(self, job: Job) -> float:
        """Return the factor of a job's user."""
        return self._factors[job.user]

    def age_to(self, now_s: int) -> None:
        """Let usage grow and fade until now; rank users where five minutes have passed."""
        lasts_s, self._at_s = now_s - self._at_s, now_s
        fades = 0.5 ** (lasts_s / (7 * DAY_S))
        self._raw = {user: fades * raw + lasts_s * self._holds[user] for user, raw in self._raw.items()}
        if now_s < self._counted_s + 300:
            return
        self._counted_s, of_account = now_s, dict[str, float]()
        for user, raw in self._raw.items():
            of_account[self._account[user]] = of_account.get(self._account[user], 0.0) + raw
        places = {user: (of_account[self._account[user]], raw) for user, raw in self._raw.items()}
        order = sorted(places.values())
        self._factors = {user: 1 - order.index(place) / len(order) for user, place in places.items()}


def truth(site: Site, jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs as they would have run on a site."""
    return Cluster(site, jobs).run()
