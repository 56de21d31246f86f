"""What the policies for spot markets share: a job's clock, what it runs on, and what it may launch.

Rules: Uniform Progress (Wu et al., "Can't Be Late", NSDI'24) and its forms over several zones (SkyNomad, NSDI'27), as
in the artifact of the latter. Each job is served by its own clock: a pool of nodes serves many jobs in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, floor
from typing import ClassVar, NamedTuple

import numpy as np

from simsched.model import Allocation
from simsched.model.outages import Offer, transfer_cost
from simsched.model.placement import NOTHING
from simsched.policy import REMAINING_WORK, Becomes, Decision, JobView, Place, Policy, Traits, Triggers, View
from simsched.policy.physics import DEADLINES
from simsched.policy.signals import OFFERS


class Instance(NamedTuple):
    """A kind of node that a job may hold: a zone by its index, and whether it is spot."""

    zone: int
    spot: bool


@dataclass
class Course:
    """What a policy remembers of a job between its decisions; times are in seconds."""

    work_s: float
    runs: Instance | None = None
    launched_s: float = 0.0
    home: int | None = None
    #: Whether the safety net has taken over, for good.
    saved: bool = False
    memory: dict[str, object] = field(default_factory=dict)


class Turn:
    """One job at one decision: its clock, what it holds, and what it launches.

    Times are seconds since its submission: `now`, `left` of its work, `deadline`; `gap` is the time between decisions.
    """

    def __init__(self, policy: SpotPolicy, view: View, job: JobView, course: Course, free: list[int]) -> None:
        self.course, self.zones, self._groups, self._free = course, policy.zones, policy.groups, free
        self.job_id, self._gpus, self.at, self.restarts = job.id, job.num_gpus, job.allocation, False
        self.gap, self.restart = policy.interval_s, view.restart_delay_s
        self.now = view.now_s - job.request.submit_time_s
        self.left, self.work = job[REMAINING_WORK].seconds, course.work_s
        deadline = job.request.deadline_s
        self.deadline = self.now if deadline is None else deadline
        self.tick = floor(self.now / self.gap + 1e-9)
        if course.runs is not None:
            course.home = course.runs.zone
            if not self.at:
                course.runs = None

    @property
    def runs(self) -> Instance | None:
        """What the job runs on now."""
        return self.course.runs

    @property
    def rest(self) -> float:
        """Seconds of its restart that are still to serve."""
        return max(self.course.launched_s + self.restart - self.now, 0.0)

    def needs(self, restarts: int) -> int:
        """Return the ticks that the work takes with so many restarts."""
        return ceil((self.left + restarts * self.restart) / self.gap)

    @property
    def has(self) -> int:
        """Whole ticks up to the deadline."""
        return floor((self.deadline - self.now) / self.gap)

    @property
    def behind(self) -> bool:
        """Whether less is done than uniform progress asks for."""
        return self.work - self.left < self.now * self.work / self.deadline if self.deadline else True

    @property
    def ahead(self) -> bool:
        """Whether more is done than uniform progress asks for after two restarts."""
        return self.work - self.left > (self.now + 2 * self.restart) * self.work / self.deadline

    def free(self, kind: Instance) -> bool:
        """Return whether such an instance can be had, or is held."""
        return self.runs == kind or bool(self._found(kind))

    def _found(self, kind: Instance) -> Allocation:
        """Return free GPUs of one node of such an instance, else of its first nodes."""
        for nodes in self._groups.get(kind, ()):
            picked, wanted = list[tuple[int, int]](), self._gpus
            for node in sorted(nodes, key=lambda node: self._free[node] < self._gpus):
                if taken := min(wanted, self._free[node]):
                    picked.append((node, taken))
                    wanted -= taken
            if not wanted:
                return tuple(picked)
        return NOTHING

    def stop(self) -> None:
        """Give back what the job holds."""
        for node, gpus in self.at:
            self._free[node] += gpus
        self.at, self.course.runs = NOTHING, None

    def launch(self, kind: Instance) -> bool:
        """Move the job to such an instance, which costs a restart even where it ran before; return whether it fits."""
        found = self._found(kind)
        if not found:
            return False
        self.stop()
        for node, gpus in found:
            self._free[node] -= gpus
        self.at, self.restarts = found, True
        self.course.runs, self.course.launched_s = kind, self.now
        return True

    def launch_first(self, *zones: int | None) -> bool:
        """Launch on demand in the first zone that has room, after those named in any other."""
        order = dict.fromkeys([*(zone for zone in zones if zone is not None), *range(len(self.zones))])
        return any(self.launch(Instance(zone, spot=False)) for zone in order)


def uniform_progress(turn: Turn, runs: Instance | None, *, free: bool, strict: bool) -> tuple[bool | None, bool]:
    """Return what Uniform Progress wants: spot (True), on demand (False) or nothing, and whether it goes back to spot.

    `free` says whether spot can be had; `strict` is the form for several zones.
    """
    on_demand, spot = runs is not None and not runs.spot, runs is not None and runs.spot
    wants = True if free else False if turn.behind else None
    if on_demand and (not free or not turn.ahead):
        wants = False
    if not spot and (turn.needs(2) > turn.has if strict else turn.needs(2) >= turn.has):
        wants = False
    if turn.needs(1) >= turn.has:
        wants = spot and turn.rest == 0
    back = strict and wants is False and on_demand and free and turn.ahead
    return (True if back else wants), back


@dataclass
class SpotPolicy(Policy):
    """Serves each job by its own clock, at its submission and then every `interval_s` seconds.

    Checkpoints have `checkpoint_gb` GB, which cost a transfer between regions.
    """

    name: ClassVar[str] = "spot"
    traits: ClassVar[Traits] = Traits(
        interval="interval_s",
        needs={OFFERS, REMAINING_WORK},
        wants={DEADLINES: Becomes("runs every job on demand at once")},
    )

    interval_s: float = 600
    checkpoint_gb: float = 50
    zones: tuple[str, ...] = field(default=(), init=False)
    groups: dict[Instance, list[Sequence[int]]] = field(default_factory=dict, init=False, repr=False)
    offers: Sequence[Offer] = field(default=(), init=False, repr=False)
    courses: dict[str, Course] = field(default_factory=dict, init=False, repr=False)

    @property
    def triggers(self) -> Triggers:
        """Decide at arrivals and at every interval."""
        return Triggers(interval_s=self.interval_s, arrival=True)

    @property
    def longest_pause_s(self) -> float:
        """A job may wait for spot nodes until its deadline forces it on demand."""
        return float("inf")

    def serve(self, turn: Turn) -> None:
        """Stop and launch instances of a job."""
        raise NotImplementedError

    def price(self, zone: int, *, spot: bool) -> float:
        """Return the dollars of an hour in a zone now; infinite if it offers none."""
        name = self.zones[zone]
        return min((one.price_per_h for one in self.offers if (one.zone, one.spot) == (name, spot)), default=np.inf)

    def cheapest(self, *, spot: bool) -> list[int]:
        """Return the zones by price, the cheapest first."""
        return sorted(range(len(self.zones)), key=lambda zone: self.price(zone, spot=spot))

    def transfer_cost(self, origin: int, target: int) -> float:
        """Return the dollars for moving a checkpoint between zones."""
        return transfer_cost(self.zones[origin], self.zones[target], self.checkpoint_gb)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Serve each job in turn."""
        self._look(view[OFFERS]())
        free, jobs = list(view.free), {}
        for job_id in view.finished:
            self.courses.pop(job_id, None)
        for job in view.jobs.values():
            if job.id not in self.courses:
                self.courses[job.id] = Course(job[REMAINING_WORK].seconds)
            turn = Turn(self, view, job, self.courses[job.id], free)
            self.serve(turn)
            if turn.at:
                jobs[job.id] = Place(turn.at, restart=turn.restarts)
        return Decision(jobs)

    def _look(self, offers: Sequence[Offer]) -> None:
        if not self.zones:
            self.zones = tuple(dict.fromkeys(one.zone for one in offers))
            for one in offers:
                kind = Instance(self.zones.index(one.zone), one.spot)
                self.groups.setdefault(kind, []).append(one.nodes)
        self.offers = offers
