"""A loop over whole seconds: jobs end, arrive, and are chosen; then a second passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass


@dataclass(eq=False)
class Job:
    """A job that asks for GPUs and then needs `work` seconds on them; every start costs a delay first."""

    id: str
    submit: int
    gpus: int
    work: int
    tenant: str = ""
    skewed: bool = False
    delay: int = 0
    held: int = 0
    first_start: int | None = None
    end: int | None = None
    running: bool = False
    nodes: dict[int, int] | None = None

    @property
    def attained(self) -> int:
        return self.held * self.gpus


@dataclass
class Now:
    """One second at which something may be decided: the active jobs in order of arrival, and what has changed."""

    time: int
    active: list[Job]
    arrived: list[Job]
    ended: list[Job]

    @property
    def happened(self) -> bool:
        return bool(self.arrived or self.ended)


#: Says which jobs run from now on, None where all stays as it is.
Rule = Callable[[Now], "Iterable[Job] | None"]


def replay(jobs: Sequence[Job], rule: Rule, restart: int) -> dict[str, int]:
    """Run all jobs to their ends and return when each ended."""
    active: list[Job] = []
    time = 0
    while any(job.end is None for job in jobs):
        ended = [job for job in active if job.running and job.work == 0]
        for job in ended:
            job.end, job.running = time, False
        active = [job for job in active if job.end is None]
        arrived = [job for job in jobs if job.submit == time]
        active += arrived
        chosen = rule(Now(time, active, arrived, ended)) if active else None
        if chosen is not None:
            _switch(active, set(chosen), time, restart)
        for job in active:
            if job.running:
                job.held += 1
                if job.delay:
                    job.delay -= 1
                else:
                    job.work -= 1
        time += 1
        assert time < 100_000, "the oracle makes no progress"
    return {job.id: job.end for job in jobs if job.end is not None}


def _switch(active: list[Job], chosen: set[Job], time: int, restart: int) -> None:
    for job in active:
        if job in chosen and not job.running:
            job.delay = restart
            job.first_start = time if job.first_start is None else job.first_start
        job.running = job in chosen


def fitting(order: Iterable[Job], gpus: int, *, blocking: bool = False) -> list[Job]:
    """Take jobs in order as long as their GPUs are there; skip those that do not fit, or stop at the first."""
    found = []
    for job in order:
        if job.gpus <= gpus:
            found.append(job)
            gpus -= job.gpus
        elif blocking:
            break
    return found
