"""Shortest first and Tiresias-L as Muri's artifact plays them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import ClassVar

from simsched.model import Allocation, Cluster

from .books import Account, Artifact, Jobs, first_fit

_LIMITS_GPU_S = (3250, 7200)


class Shortest(Artifact):
    """SRTF, or SRSF which counts GPUs: at every event the jobs with least left, as many as fit, placed again."""

    name: ClassVar[str] = "muri-artifact-shortest"

    def __init__(self, by_service: bool = False, charge_every_event: bool = True) -> None:
        """Order jobs by remaining seconds, or by remaining GPU-seconds."""
        super().__init__(charge_every_event)
        self.by_service = by_service

    def schedule(self, arrived: Sequence[Account], ended: Sequence[Account], now_s: float) -> Jobs:
        """Place the jobs in their order."""
        self._active.sort(key=self._left)
        free, whole = list(self._nodes), max(self._nodes)
        placed: Jobs = {}
        for account in self._active:
            taken = first_fit(free, whole, account.gpus)
            account.running = bool(taken)
            if taken:
                placed[account.request.id] = taken
                account.run(now_s, account.iteration_s, account.overhead_s)
        return placed

    def _left(self, account: Account) -> float:
        left = account.remaining * account.iteration_s
        return left * account.gpus if self.by_service else left


class Queues(Artifact):
    """Tiresias-L: three queues by attained GPU time, GPUs without placement, and a wake-up that is late for gangs."""

    name: ClassVar[str] = "muri-artifact-queues"
    together: ClassVar[float] = 0.0

    def begin(self, cluster: Cluster) -> None:
        """Start with empty queues."""
        super().begin(cluster)
        self._queues: list[list[Account]] = [[], [], []]
        self._held: dict[str, Allocation] = {}

    def schedule(self, arrived: Sequence[Account], ended: Sequence[Account], now_s: float) -> Jobs:
        """Demote, then serve the queues in order while GPUs last."""
        for account in ended:
            self._queues[account.queue].remove(account)
        self._queues[0] += arrived
        for account in self._active:
            self._demote(account)
        left = sum(self._nodes)
        for queue in self._queues:
            for account in queue:
                account.running = account.gpus <= left
                if account.running:
                    left -= account.gpus
                    account.run(now_s, account.iteration_s, account.overhead_s)
            queue.sort(key=lambda account: not account.running)
        running = [account for account in self._active if account.running]
        # Here the seconds of a gang are not multiplied by its GPUs, unlike at its demotion.
        looks = [
            math.ceil(_LIMITS_GPU_S[one.queue] / one.gpus) - one.executed_s + now_s for one in running if one.queue < 2
        ]
        self._wake_s = min(looks, default=None)
        if self._wake_s is not None and self._wake_s <= now_s:
            if self._round(running, now_s):
                return self.schedule((), (), now_s)
            self._wake_s = math.nextafter(now_s, math.inf)  # the artifact would loop forever
        self._held = self._places(running)
        return self._held

    def _round(self, running: Sequence[Account], now_s: float) -> bool:
        """Process the event due at this instant; return whether it changes anything.

        A job may miss its limit by less than the clock's resolution, and adding zero time may round that away.
        """
        before_s = [account.executed_s for account in running]
        for account in running:
            account.advance(now_s)
        return before_s != [account.executed_s for account in running]

    def _demote(self, account: Account) -> None:
        service = account.executed_s * account.gpus
        if account.running and account.queue < len(_LIMITS_GPU_S) and service >= _LIMITS_GPU_S[account.queue]:
            self._queues[account.queue].remove(account)
            account.queue += 1
            self._queues[account.queue].append(account)

    def _places(self, running: Iterable[Account]) -> dict[str, Allocation]:
        """Keep placed jobs where they are, and place the others on the remaining GPUs, node by node."""
        ids = {account.request.id: account.gpus for account in running}
        places = {job_id: held for job_id, held in self._held.items() if job_id in ids}
        free = list(self._nodes)
        for held in places.values():
            for node, count in held:
                free[node] -= count
        for job_id, missing in ids.items():
            taken = []
            for node, count in enumerate(free):
                take = 0 if job_id in places else min(count, missing)
                if take:
                    taken.append((node, take))
                    free[node] -= take
                    missing -= take
            places.setdefault(job_id, tuple(taken))
        return places
