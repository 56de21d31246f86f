"""Preemption by quality of service under Slurm: which jobs a job may stop, and what these are owed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from simsched.model import Allocation, Capacity, NodeShape
from simsched_policies.production.slurm.options import Mode


class Running(NamedTuple):
    """A job that holds GPUs, as preemption sees it."""

    id: str
    qos: str
    start_s: float
    allocation: Allocation
    shape: NodeShape | None = None


class Changes(NamedTuple):
    """The jobs that a decision starts, stops and cancels."""

    start: dict[str, Allocation]
    stop: dict[str, None]
    cancel: dict[str, None]


class Claim(NamedTuple):
    """Victims that must leave by `at_s`, and the job for which they leave."""

    at_s: float
    victims: tuple[str, ...]


@dataclass
class Preemption:
    """The rules (`preempts`: quality of service -> those that it preempts) and the jobs under notice or suspended.

    `rank` orders the victims' qualities of service, the lowest first. Source: Slurm, preemption by QOS.
    """

    mode: Mode = "off"
    preempts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    rank: Mapping[str, float] = field(default_factory=dict)
    grace_s: float = 0.0
    youngest_first: bool = False
    claims: dict[str, Claim] = field(default_factory=dict)
    suspended: dict[str, Allocation] = field(default_factory=dict)
    #: Seconds for which stopped jobs have held GPUs, to compute their remaining time limits.
    ran_s: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse empty rules."""
        if self.on and not any(self.preempts.values()):
            raise ValueError(f"preemption '{self.mode}' needs 'limits.qos', as in {{urgent: {{preempts: [normal]}}}}")

    @cached_property
    def on(self) -> bool:
        """Return whether jobs may stop others."""
        return self.mode != "off"

    def may(self, qos: str) -> bool:
        """Return whether jobs of a quality of service preempt any other."""
        return bool(self.preempts.get(qos))

    @property
    def waits_s(self) -> float:
        """Return how long victims are left to run; suspending needs no grace."""
        return 0.0 if self.mode == "suspend" else self.grace_s

    def victims(self, qos: str, running: Iterable[Running], free: Capacity, fits: Callable[[], bool]) -> list[Running]:
        """Choose the jobs to stop to make `fits` true; an empty list if that is impossible.

        Victims of the lowest quality of service go first, of these on the fewest nodes unless `youngest_first`, of
        these the last started; unneeded ones are then spared, latest choice first. `free` is unchanged.
        """
        below, told = self.preempts.get(qos, ()), {name for claim in self.claims.values() for name in claim.victims}
        open_to = [one for one in running if one.qos in below and one.id not in told]
        open_to.sort(key=self._first)
        taken: list[Running] = []
        for one in open_to:
            free.give_back(one.allocation, one.shape)
            taken.append(one)
            if fits():
                break
        chosen = _needed(taken, free, fits) if taken and fits() else []
        for one in chosen or taken:
            free.take(one.allocation, one.shape)
        return chosen

    def _first(self, one: Running) -> tuple[float, int, float, str]:
        nodes = 0 if self.youngest_first else len(one.allocation)
        return self.rank.get(one.qos, 0.0), nodes, -one.start_s, one.id

    def note_run(self, job_id: str, seconds: float, *, anew: bool) -> None:
        """Count the seconds for which a victim ran against its time limit, unless it restarts from scratch."""
        if not (anew and self.mode == "requeue"):
            self.ran_s[job_id] = self.ran_s.get(job_id, 0.0) + seconds

    def keep_back(self, free: Capacity) -> Allocation:
        """Take the idle GPUs of suspended jobs out of `free` and return what was taken: no other job starts on them."""
        kept: dict[int, int] = {}
        for allocation in self.suspended.values():
            for node, gpus in allocation:
                kept[node] = kept.get(node, 0) + gpus
        taken = tuple((node, min(gpus, free.free[node])) for node, gpus in sorted(kept.items()) if free.free[node] > 0)
        free.take(taken)
        return taken


def _needed(taken: Sequence[Running], free: Capacity, fits: Callable[[], bool]) -> list[Running]:
    """Spare unneeded victims, from the last but one backwards; list the others."""
    kept = [taken[-1]]
    for one in reversed(taken[:-1]):
        free.take(one.allocation, one.shape)
        if not fits():
            free.give_back(one.allocation, one.shape)
            kept.append(one)
    return kept[::-1]
