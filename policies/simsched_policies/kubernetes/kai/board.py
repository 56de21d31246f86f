"""The places of pods during a round; changes update room and queues, and can be undone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from simsched_policies.kubernetes.kai.ledger import Ledger
from simsched_policies.kubernetes.kai.model import Amounts, Job, Pod, Snapshot, SubGroup, mig_gpus, total
from simsched_policies.kubernetes.kai.room import Place, Room


class Seat(NamedTuple):
    """Where a pod is `now` and where it will be; a pod that leaves has no future, a pipelined one no present."""

    now: Place | None = None
    future: Place | None = None


ABSENT = Seat()


class Board:
    """Pods and their seats, and the derived state: room on nodes, and what queues hold."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Read the places of pods from a snapshot and divide the cluster among its queues."""
        self.rules, self.now_s = snapshot.rules, snapshot.now_s
        self.jobs = {job.id: job for job in snapshot.jobs}
        self.job_of = {pod.id: job for job in snapshot.jobs for pod in job.pods}
        self.pods = {pod.id: pod for job in snapshot.jobs for pod in job.pods}
        self.room = Room(snapshot.nodes, snapshot.rules)
        rows = self.room.capacity
        cluster: Amounts = (float(rows[:, 0].sum()), float(rows[:, 1].sum()), _gpus(snapshot))
        self.ledger = Ledger(snapshot.queues, cluster)
        smallest = self.room.smallest_gpu_memory
        self.amounts = {id_: pod.ask.amounts(smallest) for id_, pod in self.pods.items()}
        self._seats: dict[str, Seat] = {}
        self._log: list[tuple[str, Seat]] = []
        for job in snapshot.jobs:
            for pod in job.pods:
                self.ledger.ask(job.queue, self.amounts[pod.id])
        for id_, held in snapshot.held.items():
            place = Place(self.room.index[held.node], held.devices)
            self.set(id_, Seat(place, None if held.releasing else place))
        self._log.clear()
        self.ledger.divide(snapshot.usage, self.rules.k_value)

    def seat(self, pod: str) -> Seat:
        """Return where a pod is."""
        return self._seats.get(pod, ABSENT)

    def set(self, pod: str, seat: Seat) -> None:
        """Move a pod to another seat."""
        old = self.seat(pod)
        self._log.append((pod, old))
        self._apply(pod, old, seat)

    def _apply(self, pod: str, old: Seat, new: Seat) -> None:
        job, ask = self.job_of[pod], self.pods[pod].ask
        for sign, seat in ((-1, old), (1, new)):
            if seat.now is not None:
                self.room.count(ask, seat.now, "now", sign)
            if seat.future is not None:
                self.room.count(ask, seat.future, "future", sign)
                self.ledger.hold(job.queue, self.amounts[pod], sign, preemptible=job.preemptible)
        if new == ABSENT:
            self._seats.pop(pod, None)
        else:
            self._seats[pod] = new

    def mark(self) -> int:
        """Return a mark for `undo`."""
        return len(self._log)

    def undo(self, mark: int) -> None:
        """Undo all changes since a mark."""
        while len(self._log) > mark:
            pod, old = self._log.pop()
            self._apply(pod, self.seat(pod), old)

    def evict(self, pod: str) -> None:
        """Evict a pod from its node."""
        self.set(pod, Seat(self.seat(pod).now, None))

    def seats(self) -> Mapping[str, Seat]:
        """Return the pods that have a place now or later."""
        return self._seats

    def active(self, job: Job, group: SubGroup | None = None) -> list[Pod]:
        """Return the pods of a job, or of one of its sub-groups, that run or have a reserved place."""
        return [p for p in job.pods if (group is None or p.group == group.name) and self.seat(p.id).future is not None]

    def running(self, job: Job) -> list[Pod]:
        """Return the pods that have a place now and keep it."""
        return [pod for pod in job.pods if None not in (seat := self.seat(pod.id)) and seat.now == seat.future]

    def pending(self, job: Job) -> list[Pod]:
        """Return the pods that have no node."""
        return [pod for pod in job.pods if self.seat(pod.id) == ABSENT]

    def asks(self, pods: list[Pod]) -> Amounts:
        """Return the total request of pods."""
        return total(self.amounts[pod.id] for pod in pods)


def _gpus(snapshot: Snapshot) -> float:
    """Return the GPUs of the cluster, counting MIG instances by their size."""
    return float(sum(n.gpus + sum(mig_gpus(profile) * k for profile, k in n.mig) for n in snapshot.nodes))
