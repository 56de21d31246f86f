"""Pairs on trial: which jobs share GPUs, the measured speeds of jobs, and which pairs had no gain.

Source: Gandiva (OSDI'18), section 3.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from simsched.model import Allocation, Cluster, Site
from simsched.model.topology import site_of
from simsched.policy import JobView, View
from simsched.policy.signals import GPU_BUSY, MEASURED_SPEEDS
from simsched.toolkit import GpuMemory


class Pairs:
    """Hosts and the guests on their GPUs."""

    def __init__(self, cluster: Cluster, trial_s: float) -> None:
        """Start without pairs; a trial lasts `trial_s` seconds."""
        self._cluster, self._memory, self._trial_s = cluster, GpuMemory.of(cluster), trial_s
        #: The guest of each host.
        self.guests: dict[str, str] = {}
        self._trials: dict[str, float] = {}
        self._alone: dict[tuple[str, Site], float] = {}
        self._refused: set[frozenset[str]] = set()

    @property
    def on_trial(self) -> bool:
        """Return whether a trial is running."""
        return bool(self._trials)

    def update(self, view: View) -> dict[str, str]:
        """Record the speeds of jobs that run alone and dissolve pairs with a finished job; return guests by host."""
        left = {host: guest for host, guest in self.guests.items() if host not in view.jobs and guest in view.jobs}
        self.guests = {host: guest for host, guest in self.guests.items() if {host, guest} <= view.jobs.keys()}
        self._trials = {host: end_s for host, end_s in self._trials.items() if host in self.guests}
        for job in view.jobs.values():
            speed = self._speed(job)
            if speed and not job.neighbours:
                self._alone[job.id, site_of(self._cluster, job.allocation)] = speed
        return left

    def judge(self, view: View) -> dict[str, str]:
        """Separate the pairs whose trial ended without gain, and return their guests by host.

        A trial pauses while its pair does not run.
        """
        parted: dict[str, str] = {}
        for host in [host for host, end_s in self._trials.items() if end_s <= view.now_s]:
            pair = [view.jobs[host], view.jobs[self.guests[host]]]
            if not all(job.running for job in pair):
                self._trials[host] = view.now_s + self._trial_s
                continue
            del self._trials[host]
            if sum(self._relative(job) for job in pair) <= 1:
                parted[host] = self.guests.pop(host)
                self._refused.add(frozenset((host, parted[host])))
        return parted

    def pack(self, waiting: Iterable[JobView], running: Mapping[str, Allocation], view: View) -> list[str]:
        """Pack waiting jobs onto the GPUs of others, on trial, and return them; a waiting pair stays together."""
        packed = []
        free = sorted((view.jobs[host] for host in running if host not in self.guests), key=_busy)
        for guest in sorted((job for job in waiting if job.id not in self.guests), key=_busy):
            sites = ((host, site_of(self._cluster, running[host.id])) for host in free)
            host = next((host for host, site in sites if self._may_share(host, guest, site)), None)
            if host is not None:
                self.guests[host.id] = guest.id
                self._trials[host.id] = view.now_s + self._trial_s
                free.remove(host)
                packed.append(guest.id)
        return packed

    def part(self, host: str) -> None:
        """Dissolve a pair that may be formed again."""
        del self.guests[host]
        self._trials.pop(host, None)

    def gains(self, job: JobView, gpus: int) -> bool:
        """Return whether a job is faster on more GPUs of its node, according to its measurements."""
        node = job.allocation[0][0]
        few, many = (
            self._alone.get((job.id, site_of(self._cluster, ((node, count),)))) for count in (job.num_gpus, gpus)
        )
        return few is None or many is None or many > few

    def _may_share(self, host: JobView, guest: JobView, site: Site) -> bool:
        known = (host.id, site) in self._alone and (guest.id, site) in self._alone
        fits = self._memory.holds(site.gpu_type, host, guest)
        return known and fits and frozenset((host.id, guest.id)) not in self._refused

    def _relative(self, job: JobView) -> float:
        alone = self._alone.get((job.id, site_of(self._cluster, job.allocation)), 0.0)
        return self._speed(job) / alone if alone else 0.0

    def _speed(self, job: JobView) -> float:
        """Return the examples per second of a running job, or else its progress; 0 without measurements."""
        measured = job[MEASURED_SPEEDS].get(site_of(self._cluster, job.allocation)) if job.running else None
        return 0.0 if measured is None else measured.throughput or measured.rate


def _busy(job: JobView) -> float:
    busy = job[GPU_BUSY]
    return 1.0 if busy is None else busy
