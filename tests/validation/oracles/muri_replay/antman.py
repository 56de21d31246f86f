"""AntMan as Muri's simulator plays it: gangs that reserve GPUs, and opportunistic jobs in their gaps."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, inf

from tests.validation.oracles.muri_replay.inputs import NODE_GPUS, NODES, Job
from tests.validation.oracles.muri_replay.record import Moment, advance, arrivals

_GUARANTEED, _OPPORTUNISTIC, _DRIFT, _BUSY = 0.1, 0.9, 0.01, 0.8

Gpu = tuple[int, int]


class _Gpus:
    """Who holds each GPU, and its utilisation with the rounding that later decides ties."""

    def __init__(self) -> None:
        self.holders: dict[Gpu, list[Job]] = {(n, g): [] for n in range(NODES) for g in range(NODE_GPUS)}
        self.utilisation = dict.fromkeys(self.holders, 0.0)
        self.held: dict[Job, list[Gpu]] = {}
        self.room = [NODE_GPUS] * NODES
        self._open = [[(n, g) for g in range(NODE_GPUS)] for n in range(NODES)]
        self._idle: list[Gpu] | None = None

    def open_to_guaranteed(self, node: int) -> list[Gpu]:
        """List the GPUs of a node that no guaranteed job holds."""
        return self._open[node]

    def idle(self) -> list[Gpu]:
        """List the GPUs that an opportunistic job may take, least utilised first."""
        if self._idle is None:
            idle = [gpu for gpu, use in self.utilisation.items() if use < _BUSY]
            self._idle = sorted(idle, key=self.utilisation.__getitem__)
        return self._idle

    def reserve(self, job: Job, gpus: Sequence[Gpu], utilisation: float) -> None:
        for gpu in gpus:
            self.holders[gpu].append(job)
            self.utilisation[gpu] += utilisation
        self.held.setdefault(job, []).extend(gpus)
        self._changed(gpus)

    def complete(self, job: Job) -> None:
        for gpu in self.held[job]:
            self.utilisation[gpu] += _DRIFT
        self._changed(self.held[job])

    def release(self, job: Job) -> None:
        gpus = self.held.pop(job)
        for gpu in gpus:
            self.holders[gpu].remove(job)
            self.utilisation[gpu] -= _OPPORTUNISTIC if job.opportunistic else _GUARANTEED
        self._changed(gpus)

    def _changed(self, gpus: Sequence[Gpu]) -> None:
        self._idle = None
        for node in {node for node, _ in gpus}:
            of_node = [(node, g) for g in range(NODE_GPUS)]
            self._open[node] = [gpu for gpu in of_node if all(job.opportunistic for job in self.holders[gpu])]
            self.room[node] = len(self._open[node])


def replay_antman(jobs: Sequence[Job]) -> None:
    """Place pending jobs in the order of class, submission and number; nothing is ever preempted."""
    waiting = arrivals(jobs)
    gpus = _Gpus()
    pending: list[Job] = []
    running: list[Job] = []
    end: Moment | None = None
    while waiting or end:
        ends_s = end.time_s if end else inf
        arrives_s = waiting[0].time_s if waiting else inf
        now_s = min(ends_s, arrives_s)
        for job in running:
            advance(job, now_s)
        if end and ends_s <= arrives_s:
            for job in end.jobs:
                job.end_s = now_s
                running.remove(job)
                gpus.release(job)
        if arrives_s <= ends_s:
            pending.extend(waiting.pop(0).jobs)
        pending.sort(key=lambda job: (job.opportunistic, job.submit_s, job.index))
        started = [job for job in pending if _place(job, gpus)]
        for job in started:
            job.checked_s, job.running, job.now_overhead_s = now_s, True, job.overhead_s
        running.extend(started)
        pending = [job for job in pending if not job.running]
        for job in running:
            job.now_iteration_s = _iteration_s(job, gpus)
        end = _next_end(running, now_s)


def _next_end(running: Sequence[Job], now_s: float) -> Moment | None:
    ends = [(now_s + job.remaining * job.now_iteration_s, job) for job in running]
    first_s = min((time_s for time_s, _ in ends), default=inf)
    together = [job for time_s, job in ends if time_s - first_s <= 1e-4]
    return Moment(first_s, together) if together else None


def _next_end(running: Sequence[Job], now_s: float) -> Moment | None:
    """Predict the next completion and those within a tenth of a millisecond after it."""
    ends = [(now_s + job.remaining * job.now_iteration_s, job) for job in running]
    first_s = min((time_s for time_s, _ in ends), default=inf)
    together = [job for time_s, job in ends if time_s - first_s <= 1e-4]
    return Moment(first_s, together) if together else None


def _place(job: Job, gpus: _Gpus) -> bool:
    if job.opportunistic:
        return _place_opportunistic(job, gpus)
    if job.gpus <= NODE_GPUS:
        _reserve_on_one_node(job, gpus)
    else:
        _reserve_nodes(job, gpus)
    complete = len(gpus.held.get(job, ())) == job.gpus
    if complete:
        gpus.complete(job)
    return complete


def _reserve_on_one_node(job: Job, gpus: _Gpus) -> None:
    """Take as many GPUs as there are on the first node with enough, or else on the one with most, for good."""
    held = gpus.held.get(job, [])
    if held:
        node = held[0][0]
    else:
        free = gpus.room
        most = max(free)
        if not most:
            return
        node = next((n for n in range(NODES) if free[n] >= job.gpus), free.index(most))
    take = gpus.open_to_guaranteed(node)[: job.gpus - len(held)]
    if take:
        gpus.reserve(job, take, _GUARANTEED - _DRIFT)


def _reserve_nodes(job: Job, gpus: _Gpus) -> None:
    for node in range(NODES):
        take = gpus.open_to_guaranteed(node)
        if len(take) == NODE_GPUS and len(gpus.held.get(job, ())) < job.gpus:
            gpus.reserve(job, take, _GUARANTEED - _DRIFT)


def _place_opportunistic(job: Job, gpus: _Gpus) -> bool:
    idle = gpus.idle()
    if len(idle) < job.gpus:
        return False
    gpus.reserve(job, idle[: job.gpus], _OPPORTUNISTIC)
    return True


def _iteration_s(job: Job, gpus: _Gpus) -> float:
    """Compute seconds of an iteration: the slowest of what the neighbours on any GPU leave."""
    longest = job.iteration_s
    if not job.opportunistic:
        return longest
    neighbours = {other: None for gpu in gpus.held[job] for other in gpus.holders[gpu] if other is not job}
    for other in neighbours:
        if other.opportunistic:
            longest = max(longest, 2 * job.iteration_s)
        elif other.running:
            longest = max(longest, _turns(job.stages_s, other.stages_s) * other.iteration_s)
    return longest


def _turns(own: tuple[float, float, float], other: tuple[float, float, float]) -> float:
    """Count the iterations of `other` in whose gaps one iteration of a job with stages `own` finds room.

    The quotient is rounded down by itself, apart from the remainder: the two disagree where a division is inexact.
    """
    first, second, third = own
    data, gpu, net = other
    turns, rest = floor(first / (gpu + net)), first % (gpu + net)
    if rest > 0:
        turns += 1
        second -= min(second, net, gpu + net - rest)
    turns, rest = turns + floor(second / (data + net)), second % (data + net)
    if rest > 0:
        turns += 1
        if rest < data:
            third -= min(third, data + gpu - rest)
    turns, rest = turns + floor(third / (data + gpu)), third % (data + gpu)
    return turns + 1 if rest > data else turns
