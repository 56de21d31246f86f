"""The published Pollux simulator under Tiresias and Optimus in plain loops, measured step times and all.

Written from a description of the simulator (petuum/adaptdl, branch osdi21-artifact) alone, by somebody who had seen
neither the code of the engine and its policies nor the other oracles. It gives the test vectors of that description and
the published completion times. scipy triangulates the step times of five nodes and more, as the artifact does.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from pathlib import Path

import numpy as np
from scipy.interpolate import LinearNDInterpolator

GPUS_PER_NODE = 4
RESTART_S = 30
THRESHOLD_GPU_S = 3600 * 16
#: Bounds that the artifact sets itself, against its measurements.
_MAX_LOCAL = {"yolov3": 8}
_COLUMNS = ("progress", "iteration", "grad_sqr", "grad_var")
#: Applications that Optimus never gives a second GPU.
_ONE_GPU = ("ncf",)


def rounded_up(value: float) -> int:
    """Round up, but for what lies less than 1e-8 above a whole number."""
    return math.ceil(value - 1e-8)


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


class Application:
    """What was measured of an application: step times by placement, and its training by batch size."""

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        sizes = {int(path.stem.partition("-")[2]): _rows(path) for path in folder.glob("validation-*.csv")}
        self.sizes = sorted(sizes)
        self.curves = {
            (size, column): [float(row[column]) for row in sizes[size]] for size in self.sizes for column in _COLUMNS
        }
        self.least, self.most = self.sizes[0], self.sizes[-1]
        self.epochs = len(sizes[self.least])
        ends = zip(*(self.curves[size, "progress"] for size in self.sizes), strict=True)
        self.boundaries = [0.0, *map(min, ends)]
        self.placed: dict[str, list[tuple[int, float, float]]] = {}
        for row in _rows(folder / "placements.csv"):
            point = int(row["local_bsz"]), float(row["step_time"]), float(row["sync_time"])
            self.placed.setdefault(row["placement"], []).append(point)
        for points in self.placed.values():
            points.sort()
        local = [size for points in self.placed.values() for size, _, _ in points]
        self.min_local, self.max_local = min(local), _MAX_LOCAL.get(self.name, max(local))
        self.far = self._triangulated(_rows(folder / "scalability.csv"))
        self.step = cache(self._step)

    def _triangulated(self, scalability: list[dict[str, str]]) -> LinearNDInterpolator:
        same: dict[tuple[int, int, int], list[tuple[float, float]]] = {}
        for placement, points in self.placed.items():
            for size, step_s, sync_s in points:
                key = len(placement), sum(map(int, placement)), size
                same.setdefault(key, []).append((step_s, sync_s))
        keys = sorted(same)
        values = [[float(np.mean([pair[i] for pair in same[key]])) for i in (0, 1)] for key in keys]
        for row in scalability:
            keys.append((int(row["num_nodes"]), int(row["num_replicas"]), int(row["local_bsz"])))
            values.append([float(row["step_time"]), float(row["sync_time"])])
        self.points = len(keys)
        return LinearNDInterpolator(np.array(keys, dtype=float), np.array(values))

    def _step(self, placement: tuple[int, ...], size: int) -> tuple[float, float]:
        """Return the seconds of a step and of its synchronisation for GPUs on nodes in turn, and a size on each GPU."""
        name = "".join(map(str, min(placement[i:] + placement[:i] for i in range(len(placement)))))
        if name not in self.placed:
            step_s, sync_s = self.far([[min(len(placement), 16), sum(placement), size]])[0]
            assert not math.isnan(step_s), (self.name, placement, size)
            return float(step_s), float(sync_s)
        points = self.placed[name]
        if not points[0][0] <= size <= points[-1][0]:
            raise ValueError((self.name, placement, size))
        above = next(i for i in range(1, len(points)) if size <= points[i][0])
        (x, *lows), (x_high, *highs) = points[above - 1], points[above]
        step_s, sync_s = ((high - low) / (x_high - x) * (size - x) + low for low, high in zip(lows, highs, strict=True))
        return step_s, sync_s

    def measured(self, column: str, batch: int, epoch: int) -> float:
        """Interpolate a column of the training curves between measured batch sizes."""
        low = max(size for size in self.sizes if size <= batch)
        high = min(size for size in self.sizes if size >= batch)
        at_low, at_high = self.curves[low, column][epoch], self.curves[high, column][epoch]
        return at_low if low == high else ((batch - low) * at_high + (high - batch) * at_low) / (high - low)

    def split(self, target: int, gpus: int, *, predicted: bool = False) -> tuple[int, int]:
        """Return the size on each GPU and the steps of accumulation for a batch; `predicted` as Optimus thinks."""
        local = rounded_up(target / gpus)
        steps = rounded_up(local / self.max_local) - 1
        if gpus == 1 and (predicted or target > self.least):
            steps = max(1, steps)
        size = rounded_up(local / (steps + 1))
        return min(size, self.most // (gpus * (steps + 1))), steps


@dataclass(eq=False)
class Job:
    """A row of a workload and how far it is; `nodes` lists the node of each of its GPUs, in the order of choosing."""

    name: str
    submit_s: int
    application: Application
    gpus: int
    batch: int
    progress: float = 0.0
    epoch: int = 0
    nodes: list[int] = field(default_factory=list)
    delay_s: int = 0
    restarts: int | None = None
    end_s: int | None = None

    @property
    def placement(self) -> tuple[int, ...]:
        """Return the GPUs on each node in turn."""
        return tuple(len(list(run)) for _, run in groupby(self.nodes))

    def advance(self, now_s: int, seconds: int, slowed: float) -> None:
        """Train for some seconds, at a factor of the measured speed."""
        if not self.nodes or self.end_s is not None:
            return
        application, gpus = self.application, len(self.nodes)
        size, steps = application.split(self.batch, gpus)
        step_s, sync_s = application.step(self.placement, size)
        batch = gpus * size * (steps + 1)
        waits = min(self.delay_s, seconds)
        self.delay_s, seconds, now_s = self.delay_s - waits, seconds - waits, now_s + waits
        while seconds > 0 and self.end_s is None:
            sqr, var = (application.measured(column, batch, self.epoch) for column in ("grad_sqr", "grad_var"))
            gain = (var + sqr) / (var / (batch / application.least) + sqr)
            rate = gain / (step_s + (step_s - sync_s) * steps) * slowed
            until = application.boundaries[self.epoch + 1]
            if self.progress + rate * seconds < until:
                self.progress += rate * seconds
                return
            passed = round((until - self.progress) / rate)
            self.epoch, self.progress = self.epoch + 1, until
            now_s, seconds = now_s + passed, seconds - passed
            if self.epoch > application.epochs - 1:
                self.end_s = now_s


def place(free: list[int], gpus: int) -> list[int]:
    """Take GPUs from the node with most free ones, the first of equals, until there are enough."""
    chosen: list[int] = []
    while len(chosen) < gpus:
        node = free.index(max(free))
        taken = min(free[node], gpus - len(chosen))
        free[node] -= taken
        chosen += [node] * taken
    return chosen


def _free(jobs: list[Job], nodes: int) -> list[int]:
    return [GPUS_PER_NODE - sum(job.nodes.count(node) for job in jobs) for node in range(nodes)]


class Tiresias:
    """Two queues, first in first out, with a limit of 16 GPU-hours; sizes and batches as submitted."""

    def __init__(self) -> None:
        self.queues: tuple[list[Job], list[Job]] = ([], [])
        self.running: set[Job] = set()
        self.executed_s: dict[Job, int] = {}
        self.checked_s: dict[Job, int] = {}

    def decide(self, now_s: int, active: list[Job], nodes: int) -> dict[Job, list[int]]:
        """Return the nodes of each job that runs."""
        first, second = self.queues
        for queue in self.queues:
            queue[:] = [job for job in queue if job in active]
        self.running &= set(active)
        for job in active:
            if job not in self.executed_s:
                self.executed_s[job] = 0
                first.append(job)
            if job in self.running:
                self.executed_s[job] += now_s - self.checked_s[job]
                if job in first and self.executed_s[job] * job.gpus >= THRESHOLD_GPU_S:
                    first.remove(job)
                    second.append(job)
            self.checked_s[job] = now_s
        room, chosen = GPUS_PER_NODE * nodes, []
        for job in first + second:
            if job.gpus <= room:
                room -= job.gpus
                chosen.append(job)
        self.running = set(chosen)
        kept = [job for job in chosen if job.nodes]
        free = _free(kept, nodes)
        return {job: job.nodes or place(free, job.gpus) for job in chosen}


class Optimus:
    """One GPU after the other to whom it shortens most what is left, by true step times; batches as submitted."""

    @staticmethod
    def _left(job: Job) -> float:
        last = job.application.epochs - 1
        if job.epoch >= last:
            return 1.0
        ends = (job.application.measured("iteration", job.batch, epoch) for epoch in (last, job.epoch))
        return next(ends) - next(ends)

    @staticmethod
    def step_s(application: Application, batch: int, gpus: int) -> float:
        """Return the seconds that it believes an iteration takes on as few nodes as possible."""
        whole, rest = divmod(gpus, GPUS_PER_NODE)
        size, steps = application.split(batch, gpus, predicted=True)
        step_s, sync_s = application.step((GPUS_PER_NODE,) * whole + ((rest,) if rest else ()), size)
        return step_s + (step_s - sync_s) * steps

    def decide(self, now_s: int, active: list[Job], nodes: int) -> dict[Job, list[int]]:
        """Return the nodes of each job that gets any."""
        most = {
            job: 1 if job.application.name in _ONE_GPU else job.batch // job.application.min_local for job in active
        }
        left = {job: self._left(job) for job in active}

        def gain(job: Job, gpus: int) -> float:
            if gpus + 1 > most[job]:
                return 0.0
            fewer, more = (self.step_s(job.application, job.batch, count) for count in (gpus, gpus + 1))
            return (fewer - more) * left[job]

        room, counts, gains = GPUS_PER_NODE * nodes, {}, {}
        for job in active:
            counts[job] = int(room > 0)
            room -= counts[job]
            gains[job] = gain(job, 1) if room > 0 else 0.0
        while room > 0 and max(gains.values()) > 0:
            best = max(active, key=lambda job: gains[job])
            counts[best] += 1
            gains[best] = gain(best, counts[best])
            room -= 1
        kept = [job for job in active if len(job.nodes) == counts[job]]
        free = _free(kept, nodes)
        chosen = {job: job.nodes for job in kept}
        for job in sorted(active, key=lambda job: counts[job]):
            if job not in chosen:
                chosen[job] = place(free, counts[job])
        return {job: where for job, where in chosen.items() if where}


#: Read once and kept.
measured_in = cache(Application)


def read_jobs(path: Path, traces: Path) -> list[Job]:
    """Read a workload, with the measurements of its applications."""
    return [
        Job(row["name"], int(row["time"]), measured_in(traces / row["application"]), int(row["num_replicas"]),
            int(row["batch_size"]))
        for row in _rows(path)
    ]  # fmt: skip


def _slowed(job: Job, jobs: list[Job], interference: float) -> float:
    """Return the factor by which a job over several nodes is slower where it meets another such."""
    spread = [set(other.nodes) for other in jobs if len(set(other.nodes)) > 1]
    own = set(job.nodes)
    meets = len(own) > 1 and any(sum(node in other for other in spread) > 1 for node in own)
    return 1 - interference if meets else 1.0


def replay(
    jobs: list[Job], policy: Tiresias | Optimus, *, nodes: int = 16, round_s: int = 60, interference: float = 0.0
) -> dict[str, int]:
    """Play a workload; return the completion time of each job in seconds since its submission."""
    clock_s, holders = 0, list[Job]()
    while any(job.end_s is None for job in jobs):
        factors = {job: _slowed(job, holders, interference) for job in holders} if interference else {}
        for job in jobs:
            job.advance(clock_s, round_s, factors.get(job, 1.0))
        clock_s += round_s
        active = [job for job in jobs if job.submit_s <= clock_s and job.end_s is None]
        if not active:
            continue
        chosen = policy.decide(clock_s, active, nodes)
        for job in active:
            where = chosen.get(job, [])
            if where and where != job.nodes:
                job.delay_s = RESTART_S
                job.restarts = 0 if job.restarts is None else job.restarts + 1
            job.nodes = where
        holders = list(chosen)
    return {job.name: job.end_s - job.submit_s for job in jobs if job.end_s is not None}
