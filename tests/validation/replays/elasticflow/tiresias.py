"""Tiresias (`dlas-gpu`) in ElasticFlow's artifact: three queues, GPUs without placement, ends noticed late."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from .books import RESTART_S, SLOT_S, Account, Artifact, Books, gathered, stand_still_s

_LIMITS_GPU_S = (3250, 7200)


@dataclass(eq=False)
class _Served:
    """A job in the queues."""

    account: Account
    queue: int = 0
    running: bool = False
    attained_s: float = 0.0
    still_s: float = 0.0

    def limit_s(self) -> float:
        """Return the seconds missing to the limit of its queue, divided as in the artifact."""
        missing = _LIMITS_GPU_S[self.queue] - self.attained_s if self.queue < len(_LIMITS_GPU_S) else math.inf
        return math.ceil(missing / self.account.asked_gpus) if math.isfinite(missing) else math.inf


@dataclass
class Tiresias(Artifact):
    """Serves the queues in order as far as GPUs go.

    With `ends_together`, as in the version of 2024, all jobs that end within a slot are seen to end at its end, and not
    only those that end with the first of them.
    """

    name: ClassVar[str] = "elasticflow-artifact-tiresias"

    ends_together: bool = False

    def keep(self, accounts: Sequence[Account], gpus: int) -> Books:
        """Decide at arrivals, jumps to the next queue and ends, until all ends have been noticed."""
        return _Queues(list(accounts), gpus, self.ends_together).keep()


@dataclass
class _Queues:
    """The queues, and all active jobs, largest first."""

    coming: list[Account]
    gpus: int
    ends_together: bool
    books: Books = field(default_factory=Books)
    queues: tuple[list[_Served], ...] = field(default_factory=lambda: ([], [], []))
    active: list[_Served] = field(default_factory=list)
    ending: list[_Served] = field(default_factory=list)
    ends_s: float = math.inf
    jumps_s: float = math.inf

    def keep(self) -> Books:
        last_s, arrives_s = 0.0, self.coming[0].submit_s
        while True:
            now_s = min(arrives_s, self.ends_s, self.jumps_s)
            if math.isinf(now_s):
                return self.books
            if now_s == self.ends_s:
                self._end()
            self._serve(now_s, now_s - last_s)
            if now_s == arrives_s:
                self._arrive(now_s)
            self._run(now_s)
            self._predict(now_s, restart=self.books.restarts)
            self.books.turn(now_s, [served.account for served in self.active])
            arrives_s = gathered(now_s, [one.submit_s for one in self.coming]) if self.coming else math.inf
            last_s = now_s

    def _end(self) -> None:
        for served in self.ending:
            served.account.gpus = served.account.asked_gpus
            self.books.end(served.account, served.account.end_s)
            self.active.remove(served)
            self.queues[served.queue].remove(served)

    def _serve(self, now_s: float, elapsed_s: float) -> None:
        for served in self.active:
            if not served.running:
                served.account.pending_s += elapsed_s
                continue
            served.attained_s += max(0, elapsed_s - served.still_s)
            served.still_s = 0.0
            service = served.attained_s * served.account.asked_gpus
            if served.queue < len(_LIMITS_GPU_S) and service >= _LIMITS_GPU_S[served.queue]:
                self.queues[served.queue].remove(served)
                served.queue += 1
                self.queues[served.queue].append(served)

    def _arrive(self, now_s: float) -> None:
        while self.coming and self.coming[0].submit_s <= now_s:
            served = _Served(self.coming.pop(0))
            served.account.pending_s = now_s - served.account.submit_s
            self.queues[0].append(served)
            self.active.append(served)

    def _run(self, now_s: float) -> None:
        left = self.gpus
        for queue in self.queues:
            for served in queue:
                account, before = served.account, served.running
                served.running = account.asked_gpus <= left
                left -= account.asked_gpus if served.running else 0
                if served.running and not before:
                    served.still_s = stand_still_s(account.asked_gpus)
                    account.start_s = now_s if account.start_s is None else account.start_s
                account.preemptions += before and not served.running
                account.gpus = account.asked_gpus if served.running else 0
        for queue in self.queues:
            queue.sort(key=lambda served: not served.running)
        self.active.sort(key=lambda served: -served.account.asked_gpus)

    def _predict(self, now_s: float, *, restart: bool) -> None:
        """Find the next end and jump; a pause counts in an end only if all jobs restart."""
        self.ending, self.ends_s = [], math.inf
        running = [served for served in self.active if served.running]
        for served in running:
            account = served.account
            if restart:
                served.still_s = stand_still_s(account.asked_gpus) + RESTART_S
            account.end_s = int(now_s + account.duration_s - served.attained_s + (served.still_s if restart else 0))
            account.left = account.total * max(1 - served.attained_s / account.duration_s, 0.0)
            seen_s = max(now_s + SLOT_S, account.end_s) if self.ends_together else account.end_s
            if seen_s < self.ends_s:
                self.ending, self.ends_s = [], seen_s
            if seen_s == self.ends_s:
                self.ending.append(served)
        self.ends_s = max(now_s + SLOT_S, self.ends_s)
        self.jumps_s = max(now_s + SLOT_S, min((now_s + served.limit_s() for served in running), default=math.inf))
