"""Where jobs take their turns: heights and affinities of nodes, the placement of new jobs, and migration.

Source: Gandiva (OSDI'18), Algorithm 1 and sections 3.2 and 4. The height of a node is the ratio of the GPUs that its
jobs ask for to those that it has; above 1 they take turns. Its affinity is the size of the jobs for which it is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum

from simsched.model import Allocation, Capacity, Cluster, Site, gpus_of
from simsched.model.topology import site_of
from simsched.policy import JobView, View
from simsched.policy.signals import GPU_BUSY, MEASURED_SPEEDS
from simsched.toolkit import GpuMemory, gpu_types


class Fit(IntEnum):
    """How well a node suits a job, best first: the order in which Algorithm 1 searches nodes."""

    OWN = 0
    EMPTY = 1
    ROOM = 2
    CROWDED = 3
    NONE = 4


class Homes:
    """The GPUs on which each job takes its turns, whether it runs or waits.

    The affinity of a node is the size of its oldest job, none if it is empty. The size of a job larger than a node is,
    on each of its nodes, the GPUs that it has there. Without `by_affinity` every node suits any job.
    """

    def __init__(self, cluster: Cluster, *, by_affinity: bool, sparse_share: float) -> None:
        """Start with empty nodes; a node in use with at least `sparse_share` of its GPUs free is to be emptied."""
        self._types = [node.gpu_type for node in cluster.nodes]
        self._kinds = gpu_types(cluster.nodes)
        self._sizes = [node.gpus for node in cluster.nodes]
        self._used = [0] * len(self._sizes)
        #: The size of each job of a node, in order of arrival.
        self._jobs: list[dict[str, int]] = [{} for _ in self._sizes]
        self._of: dict[str, Allocation] = {}
        self._by_affinity = by_affinity
        self._sparse_share = sparse_share

    def update(self, view: View) -> None:
        """Forget the homes of jobs that are gone, and those on nodes that are down."""
        self._sizes = [node.gpus if up else 0 for node, up in zip(view.nodes, view.up, strict=True)]
        for job_id, home in list(self._of.items()):
            if job_id not in view.jobs or not all(view.up[node] for node, _ in home):
                self.leave(job_id)

    def of(self, job_id: str) -> Allocation | None:
        """Return the home of a job, None while it is in the queue."""
        return self._of.get(job_id)

    def affinity(self, node: int) -> int | None:
        """Return the size of the jobs for which a node is kept, None if it is empty."""
        return next(iter(self._jobs[node].values()), None)

    def room(self, node: int) -> int:
        """Count the GPUs of a node that its jobs do not ask for; negative if they take turns."""
        return self._sizes[node] - self._used[node]

    def settle(self, job: JobView, *, worst: Fit = Fit.CROWDED) -> bool:
        """Give a job a home on the nodes that suit it best, none worse than `worst`; return whether it now has one."""
        found = [home for kind in self._kinds if job.facts.runs_on(kind) and (home := self._best(job, kind))]
        best = min(found, key=lambda pair: pair[0], default=None)
        if best is None or best[0][0] > worst:
            return False
        self.move(job, best[1])
        return True

    def move(self, job: JobView, home: Allocation) -> None:
        """Replace the home of a job; one on a single node may be larger than it asks for."""
        self.leave(job.id)
        self._of[job.id] = home
        for node, gpus in home:
            self._used[node] += gpus
            self._jobs[node][job.id] = min(gpus, job.num_gpus)

    def leave(self, job_id: str) -> None:
        """Remove a job's home."""
        for node, gpus in self._of.pop(job_id, ()):
            self._used[node] -= gpus
            del self._jobs[node][job_id]

    def running(self, order: Iterable[JobView], view: View) -> dict[str, Allocation]:
        """Return the homes of the jobs that run together, in `order`; a job that does not fit is skipped."""
        left = Capacity.idle(view)
        chosen: dict[str, Allocation] = {}
        for job in order:
            home = self._of.get(job.id)
            if home is not None and left.holds(home):
                chosen[job.id] = home
                left.take(home)
        return chosen

    def migrate(self, jobs: Iterable[JobView]) -> None:
        """Move jobs to nodes of matching affinity, then off nodes that are almost empty."""
        jobs = [job for job in jobs if len(self._of.get(job.id, ())) == 1]
        for job in jobs:
            source = self._of[job.id][0][0]
            if self._by_affinity and self.affinity(source) != self._jobs[source][job.id]:
                self._move_to(job, self._targets(job, source, own=True))
        for job in jobs:
            source = self._of[job.id][0][0]
            if self._used[source] <= (1 - self._sparse_share) * self._sizes[source]:
                fuller = [one for one in self._targets(job, source) if self._is_fuller(one, source)]
                own = [one for one in fuller if self._fit(one, self._jobs[source][job.id]) is Fit.OWN]
                self._move_to(job, own or fuller)

    def _is_fuller(self, node: int, other: int) -> bool:
        return (self._used[node], -node) > (self._used[other], -other)

    def _targets(self, job: JobView, source: int, *, own: bool = False) -> list[int]:
        """List the nodes in use, other than its own, that have room for all that a job holds."""
        size, gpus = self._jobs[source][job.id], gpus_of(self._of[job.id])
        return [
            node
            for node, kind in enumerate(self._types)
            if node != source and kind == self._types[source] and self._jobs[node] and self.room(node) >= gpus
            and (not own or self.affinity(node) == size)
        ]  # fmt: skip

    def _move_to(self, job: JobView, targets: Sequence[int]) -> None:
        """Move a job to the fullest of some nodes, if there is one."""
        if targets:
            self.move(job, ((min(targets, key=self.room), gpus_of(self._of[job.id])),))

    def _best(self, job: JobView, kind: str) -> tuple[tuple[Fit, float], Allocation] | None:
        """Return the fewest nodes of a type that suit a job best, with the worst fit and height among them.

        None if they are too few.
        """
        nodes = [node for node, own in enumerate(self._types) if own == kind and self._sizes[node]]
        largest = max((self._sizes[node] for node in nodes), default=0)
        chosen: dict[int, int] = {}
        worst = (Fit.OWN, 0.0)
        missing = job.num_gpus
        while missing and largest:
            part = min(missing, largest)
            keys = [(self._key(node, part), node) for node in nodes if node not in chosen]
            key, node = min(keys, default=((Fit.NONE, 0.0), -1))
            if key[0] is Fit.NONE:
                largest = max((size for node in nodes if (size := self._sizes[node]) < part), default=0)
                continue
            chosen[node] = part
            missing -= part
            worst = max(worst, key)
        return (worst, tuple(chosen.items())) if chosen and not missing else None

    def _key(self, node: int, gpus: int) -> tuple[Fit, float]:
        if gpus > self._sizes[node]:
            return Fit.NONE, 0.0
        return self._fit(node, gpus), self._used[node] / self._sizes[node]

    def _fit(self, node: int, gpus: int) -> Fit:
        """Return how well a node suits a job, or a part of one, of this many GPUs."""
        own = not self._by_affinity or self.affinity(node) == gpus
        if self.room(node) >= gpus:
            return Fit.OWN if own else Fit.ROOM if self._jobs[node] else Fit.EMPTY
        return Fit.CROWDED if own else Fit.NONE


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
