"""Gavel's policies whose shares of time solve a program (Narayanan et al., OSDI'20, sections 4.1 to 4.3).

Max-min fairness, "LAS", maximises the least rate of a job relative to a proportional share; `speeds: none` is the
agnostic form, which splits time alone. Raised level by level it is water filling, and with entities the hierarchical
policy. Finish-time fairness is after Themis (NSDI'20); as in Gavel's simulator weights are ignored, and the time of
past steps in isolation accumulates from one computation of shares to the next. The makespan, there found by bisection,
is one program here. The mean completion time is `min_jct` of Sia's fork of Gavel (Jayaram Subramanya et al., SOSP'23).

"Minimum cost" is the throughput per dollar. Gavel's simulator adds raw steps per second, which favours models with
short steps; `normalised` counts each job's rate relative to its fastest. POP (Narayanan et al., SOSP'21) solves max-min
fairness in parts; jobs are distributed over them at each computation of shares, in the paper once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import ClassVar, Literal

import numpy as np

from simsched.errors import input_error
from simsched.policy import REMAINING_WORK, Becomes, Signal, Traits
from simsched.policy.physics import DEADLINES, JOBS_OF_TENANTS
from simsched.toolkit.programs import (
    Elapsed,
    Entities,
    Floats,
    Program,
    finish_time,
    isolated,
    makespan,
    max_min,
    min_jct,
    partitioned,
    total_throughput,
    water_filling,
)
from simsched.toolkit.rounds import PackedShares, SharesPolicy, Snapshot, Unit


@dataclass
class MaxMin(PackedShares):
    """Gives every job the same multiple of its proportional share, by job weight.

    With `packed`, jobs of one GPU may also run in pairs, and a job's rate sums both.
    """

    name: ClassVar[str] = "gavel-max-min"

    _program: Program = field(default_factory=Program, init=False, repr=False)

    def shares(self, snapshot: Snapshot) -> Mapping[Unit, Sequence[float]]:
        """Solve the program."""
        return snapshot.by_job(max_min(snapshot.problem, program=self._program))


@dataclass
class _Notes:
    """The record of a job: its rate in isolation and remaining progress at the last update, and seconds so far."""

    isolated_rate: float
    remaining: float
    isolated_s: float = 0.0


@dataclass
class FinishTimeFairness(SharesPolicy):
    """Minimises the largest finish-time ratio; knows the remaining work of jobs.

    With `speeds: reference`, Gavel's agnostic form, all types count as the first of the cluster.
    """

    name: ClassVar[str] = "gavel-finish-time-fairness"
    traits: ClassVar[Traits] = replace(SharesPolicy.traits, needs={REMAINING_WORK})

    speeds: Literal["true", "measured", "fitted", "reference"] = "true"
    _program: Program = field(default_factory=Program, init=False, repr=False)
    _notes: dict[str, _Notes] = field(default_factory=dict, init=False, repr=False)

    def shares(self, snapshot: Snapshot) -> Mapping[Unit, Sequence[float]]:
        """Update the records and solve the program."""
        problem, remaining = snapshot.problem, snapshot.remaining
        rates = (problem.throughput * isolated(problem)).sum(axis=1)
        notes: dict[str, _Notes] = {}
        for job_id, rate, left in zip(snapshot.ids, rates.tolist(), remaining.tolist(), strict=True):
            before = self._notes.get(job_id)
            done_s = 0.0
            if before is not None:
                done_s = before.isolated_s
                if before.isolated_rate > 0:
                    done_s += (before.remaining - left) / before.isolated_rate
            notes[job_id] = _Notes(rate, left, done_s)
        self._notes = notes
        isolated_s = np.array([note.isolated_s for note in notes.values()])
        progress = Elapsed(snapshot.age_s, remaining, np.maximum(isolated_s, 0.0))
        return snapshot.by_job(finish_time(problem, progress, program=self._program))


#: Relative tolerance on the least sum of completion times.
_GAP = 1e-3


@dataclass
class Makespan(PackedShares):
    """Minimises the end of the last present job if shares stay as they are."""

    name: ClassVar[str] = "gavel-makespan"
    traits: ClassVar[Traits] = replace(PackedShares.traits, needs={REMAINING_WORK})

    speeds: Literal["true", "measured", "fitted", "reference"] = "true"
    _program: Program = field(default_factory=Program, init=False, repr=False)

    def shares(self, snapshot: Snapshot) -> Mapping[Unit, Sequence[float]]:
        """Solve the program."""
        return snapshot.by_job(makespan(snapshot.problem, snapshot.remaining, program=self._program))


@dataclass
class MinJct(SharesPolicy):
    """Minimises the sum of the present jobs' completion times if shares stay as they are."""

    name: ClassVar[str] = "gavel-min-jct"
    traits: ClassVar[Traits] = replace(SharesPolicy.traits, needs={REMAINING_WORK})

    speeds: Literal["true", "measured", "fitted", "reference"] = "true"

    def shares(self, snapshot: Snapshot) -> Mapping[Unit, Sequence[float]]:
        """Solve the program."""
        return snapshot.by_job(min_jct(snapshot.problem, snapshot.remaining, gap=_GAP))


#: Dollars an hour of a GPU, as in Gavel's simulator (Google Cloud, preemptible).
GAVEL_PRICES: Mapping[str, float] = MappingProxyType({"k80": 0.135, "p100": 0.43, "v100": 0.74})


@dataclass
class MaxThroughput(SharesPolicy):
    """Maximises the sum of all jobs' rates, raw or `normalised`."""

    name: ClassVar[str] = "gavel-max-throughput"

    normalised: bool = False

    def shares(self, snapshot: Snapshot) -> Mapping[Unit, Sequence[float]]:
        """Solve the program."""
        return snapshot.by_job(total_throughput(snapshot.problem, normalised=self.normalised))


@dataclass
class MinCost(SharesPolicy):
    """Maximises the sum of all jobs' rates per dollar; with `slos`, jobs with a deadline get what they need.

    `prices_per_h` are dollars per GPU-hour by type, Gavel's by default; types without a price cost 1. If not all
    deadlines can be met, none counts; passed deadlines never count. Idle GPUs do not go to jobs without a share of
    them, which would have to pay; Gavel's simulator does give them, and puts jobs on V100s while these are idle.
    """

    name: ClassVar[str] = "gavel-min-cost"
    traits: ClassVar[Traits] = replace(
        SharesPolicy.traits,
        wants={DEADLINES: Becomes("heeds prices alone, as with slos: false", params={"slos": False})},
    )
    idle_without_share: ClassVar[bool] = True

    prices_per_h: dict[str, float] | None = None
    slos: bool = False
    normalised: bool = False

    def __post_init__(self) -> None:
        """Raise `InputError` for a price that is not above 0."""
        super().__post_init__()
        for gpu_type, price in (self.prices_per_h or {}).items():
            if not 0 < price < float("inf"):
                raise input_error("prices_per_h", f"that of {gpu_type} is {price}", "give dollars above 0")

    @property
    def signals(self) -> frozenset[Signal]:
        """Also return the signal of remaining work if deadlines count."""
        return super().signals | ({REMAINING_WORK} if self.slos else frozenset())

    def shares(self, snapshot: Snapshot) -> Mapping[Unit, Sequence[float]]:
        """Solve the program."""
        known = GAVEL_PRICES if self.prices_per_h is None else self.prices_per_h
        price = np.array([known.get(gpu_type, 1.0) for gpu_type in self._gpus])
        least = _least_rates(snapshot) if self.slos else None
        shares = total_throughput(snapshot.problem, normalised=self.normalised, price=price, least_rate=least)
        return snapshot.by_job(shares)


def _least_rates(snapshot: Snapshot) -> Floats:
    """Return the rate that each job needs to meet its deadline, 0 without one or after it."""
    deadlines = [job.request.deadline_s for job in snapshot.jobs]
    left_s = np.array([np.inf if due is None else due for due in deadlines]) - snapshot.age_s
    return np.where(left_s > 0, snapshot.remaining / np.where(left_s > 0, left_s, 1.0), 0.0)


#: How the jobs of an entity share its allocation: by weight, or first come, first served.
Rule = Literal["fairness", "fifo"]


@dataclass
class WaterFilling(SharesPolicy):
    """Gives every job as much as possible without taking from jobs that have less."""

    name: ClassVar[str] = "gavel-water-filling"

    def shares(self, snapshot: Snapshot) -> Mapping[Unit, Sequence[float]]:
        """Solve one program per level."""
        return snapshot.by_job(water_filling(snapshot.problem))


@dataclass
class Hierarchical(SharesPolicy):
    """Shares the cluster between tenants by weight, and inside a tenant by jobs' weights or in order of arrival.

    `weights` and `rules` are by tenant; other tenants have weight 1 and `rule`.
    """

    name: ClassVar[str] = "gavel-hierarchical"
    traits: ClassVar[Traits] = replace(
        SharesPolicy.traits, wants={JOBS_OF_TENANTS: Becomes("divides among the jobs of one tenant")}
    )

    weights: dict[str, float] = field(default_factory=dict)
    rules: dict[str, Rule] = field(default_factory=dict)
    rule: Rule = "fairness"

    def __post_init__(self) -> None:
        """Raise `InputError` for a weight that is not above 0."""
        super().__post_init__()
        for tenant, weight in self.weights.items():
            if not 0 < weight < float("inf"):
                raise input_error("weights", f"that of '{tenant}' is {weight}", "give numbers above 0")

    def shares(self, snapshot: Snapshot) -> Mapping[Unit, Sequence[float]]:
        """Solve the programs, splitting tenants' weights at each level."""
        tenants = list(dict.fromkeys(job.request.tenant for job in snapshot.jobs))
        entities = Entities(
            np.array([tenants.index(job.request.tenant) for job in snapshot.jobs], dtype=np.int64),
            np.array([self.weights.get(tenant, 1.0) for tenant in tenants]),
            [self.rules.get(tenant, self.rule) for tenant in tenants],
        )
        return snapshot.by_job(water_filling(snapshot.problem, entities))


@dataclass
class Pop(SharesPolicy):
    """Solves max-min fairness in `parts` parts, each with its share of every type's GPUs."""

    name: ClassVar[str] = "gavel-pop"

    parts: int = 4

    def __post_init__(self) -> None:
        """Raise `InputError` if there is no part."""
        super().__post_init__()
        if self.parts < 1:
            raise input_error("parts", f"it is {self.parts}", "give the number of parts, at least 1")

    def shares(self, snapshot: Snapshot) -> Mapping[Unit, Sequence[float]]:
        """Solve the parts."""
        solved = partitioned(snapshot.problem, self.parts, lambda part, _: max_min(part), snapshot.rng)
        return snapshot.by_job(solved)
