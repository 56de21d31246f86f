"""AntMan in Muri's simulator, replayed in plain loops.

Written as `muri.py` is: from the description alone, by somebody who had seen neither the engine's code nor an earlier
replay. [figures] marks what the published figures decided where the description is open.

One line was changed after it had been held against simsched: ends were joined within 1e-4 s alone. They are grouped
relatively first, as all ends are, and groups within 1e-4 s are joined, as the third correction in `muri.py` has it.
"""

from __future__ import annotations

import math

from tests.validation.oracles.muri import (
    GPUS,
    GPUS_PER_NODE,
    NODES,
    Group,
    Job,
    arrivals_of,
    ends_of,
    first_of,
    leave,
)


class Shared:
    """AntMan's GPUs: who holds which, and their utilisation, with its drift."""

    def __init__(self, jobs: list[Job]) -> None:
        self.utilisation = [0.0] * GPUS
        self.on: list[list[Job]] = [[] for _ in range(GPUS)]
        self.held: dict[Job, list[int]] = {job: [] for job in jobs}
        self.known: dict[object, list[int]] = {}  # lists of GPUs, kept until anything changes

    def hold(self, job: Job, gpus: list[int]) -> None:
        for gpu in gpus:
            self.on[gpu].append(job)
            self.held[job].append(gpu)
            self.utilisation[gpu] += 0.9 if job.priority else 0.1 - 0.01
            self.known.clear()

    def complete(self, job: Job) -> None:
        if not job.priority:
            self.known.clear()
            for gpu in self.held[job]:
                self.utilisation[gpu] += 0.01

    def release(self, job: Job) -> None:
        for gpu in self.held[job]:
            self.on[gpu].remove(job)
            self.utilisation[gpu] -= 0.9 if job.priority else 0.1
        self.known.clear()

    def free_of(self, node: int) -> list[int]:
        """The GPUs of a node without a guaranteed job, be it running or still reserving."""
        if node not in self.known:
            own = range(node * GPUS_PER_NODE, (node + 1) * GPUS_PER_NODE)
            self.known[node] = [gpu for gpu in own if all(job.priority for job in self.on[gpu])]
        return self.known[node]

    def least_used(self) -> list[int]:
        """The GPUs used for less than 0.8, the least used first."""
        if "least used" not in self.known:
            free = (gpu for gpu in range(GPUS) if self.utilisation[gpu] < 0.8)
            self.known["least used"] = sorted(free, key=self.utilisation.__getitem__)
        return self.known["least used"]

    def reserve(self, job: Job) -> bool:
        """Take what the job can have now; whether it has all its GPUs."""
        if job.priority:
            if len(self.least_used()) >= job.gpus:
                self.hold(job, self.least_used()[: job.gpus])
        elif job.gpus > GPUS_PER_NODE:
            for node in range(NODES):
                if len(self.held[job]) < job.gpus and len(self.free_of(node)) == GPUS_PER_NODE:
                    self.hold(job, self.free_of(node))
        elif self.held[job]:
            more = job.gpus - len(self.held[job])
            self.hold(job, self.free_of(self.held[job][0] // GPUS_PER_NODE)[:more])
        else:
            frees = [self.free_of(node) for node in range(NODES)]
            enough = [free for free in frees if len(free) >= job.gpus]
            self.hold(job, enough[0][: job.gpus] if enough else max(frees, key=len))
        return len(self.held[job]) == job.gpus

    def iteration_s(self, job: Job) -> float:
        """The slowest that its neighbours make a job, and never faster than alone [figures]."""
        times_s = [job.iteration_s]
        if job.priority:
            for neighbour in (other for gpu in self.held[job] for other in self.on[gpu] if other is not job):
                if neighbour.priority:
                    times_s.append(2 * job.iteration_s)
                elif neighbour.running:
                    times_s.append(beside_guaranteed_s(job, neighbour))
        return max(times_s)


def beside_guaranteed_s(job: Job, guaranteed: Job) -> float:
    """Iterations of the guaranteed job that one of the opportunistic job takes, in seconds.

    The quotients are rounded down as such: a division with floor, on floats, gives others now and then [figures].
    """
    data, gpu, net = guaranteed.stages_s
    own_data, own_gpu, own_net = job.stages_s
    count, rest = math.floor(own_data / (gpu + net)), own_data % (gpu + net)
    if rest > 0:
        count += 1
        own_gpu -= min(own_gpu, net, gpu + net - rest)
    count, rest = count + math.floor(own_gpu / (data + net)), own_gpu % (data + net)
    if rest > 0:
        count += 1
        if rest < data:  # only where something is left [figures]
            own_net -= min(own_net, data + gpu - rest)
    count, rest = count + math.floor(own_net / (data + gpu)), own_net % (data + gpu)
    if rest > data:
        count += 1
    return count * guaranteed.iteration_s


def joined(groups: list[Group]) -> list[Group]:
    """Take the groups of ends that follow the first within 1e-4 s for one with it."""
    first_s = first_of(groups)
    return [(first_s, [job for end_s, jobs in groups if end_s - first_s <= 1e-4 for job in jobs])] if groups else []


def replay_antman(jobs: list[Job]) -> None:
    arrivals, ends, shared = arrivals_of(jobs), [], Shared(jobs)
    pending: list[Job] = []
    running: list[Job] = []
    while arrivals or ends:
        now = min(first_of(arrivals), first_of(ends))
        for job in running:
            job.progress(now)
        if first_of(ends) == now:
            for job in ends[0][1]:
                leave([job], now, running)
                shared.release(job)
        if first_of(arrivals) == now:
            pending += arrivals.pop(0)[1]
        pending.sort(key=lambda job: (job.priority, job.submit_s, job.id))
        for job in list(pending):
            if shared.reserve(job):
                shared.complete(job)
                job.start(now)
                pending.remove(job)
                running.append(job)
        for job in running:
            job.iteration_now_s = shared.iteration_s(job)
        ends = joined(ends_of(running, now))
    assert not pending, "a job never got its GPUs"
