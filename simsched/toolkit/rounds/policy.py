"""A policy whose shares of time are turned into rounds: Gavel's frame (Narayanan et al., OSDI'20, section 5).

With space sharing (section 4.4) pairs of jobs have shares too. Only jobs of one GPU are paired, as no measurements of
larger jobs are published.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations_with_replacement
from types import MappingProxyType
from typing import ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from simsched.agent import Agent
from simsched.errors import input_error
from simsched.model import ApplicationFacts, Cluster, JobRequest
from simsched.policy import (
    REMAINING_WORK,
    Becomes,
    Decision,
    JobView,
    Policy,
    Signal,
    Traits,
    Triggers,
    View,
    Wants,
    Why,
)
from simsched.policy.physics import GPU_TYPES, SHARED_GPUS
from simsched.policy.signals import PAIR_SPEEDS, TRUE_RATES, PairSpeeds
from simsched.toolkit.programs.problem import ShareProblem, pairs_of_kinds
from simsched.toolkit.rounds.mechanism import Grant, RoundOptions, Rounds, Unit
from simsched.toolkit.rounds.places import Allocator
from simsched.toolkit.rounds.rates import SIGNALS, Fluid, RateSource, Speeds, fill_up, rate_source

Floats = npt.NDArray[np.float64]

#: What an ideal run needs, whatever the policy knows.
_IDEAL: frozenset[Signal] = frozenset({REMAINING_WORK, TRUE_RATES})


@dataclass(frozen=True)
class Snapshot:
    """The input of shares: n jobs in order of arrival, and the problem that they pose.

    `rng` is for randomised policies.
    """

    jobs: Sequence[JobView]
    problem: ShareProblem
    now_s: float
    rng: np.random.Generator

    @cached_property
    def remaining(self) -> Floats:
        """The true remaining progress of each job in the unit of the true rates, shape (n,); needs `REMAINING_WORK`."""
        return np.array([job[REMAINING_WORK].progress for job in self.jobs], dtype=np.float64)

    @property
    def age_s(self) -> Floats:
        """The seconds since each job's submission, shape (n,)."""
        return np.array([job.age_s for job in self.jobs], dtype=np.float64)

    @property
    def ids(self) -> list[str]:
        """The jobs' ids."""
        return [job.id for job in self.jobs]

    def by_job(self, shares: Floats) -> dict[Unit, list[float]]:
        """Return the rows of an array of shares, shape (n, k), by unit.

        With pairs, shape (n + pairs, k), their rows follow; only pairs with a share are returned.
        """
        count = len(self.jobs)
        rows: dict[Unit, list[float]] = {
            (job.id,): row for job, row in zip(self.jobs, shares[:count].tolist(), strict=True)
        }
        pairs = self.problem.pairs
        if pairs is not None and len(shares) > count:
            for place in np.flatnonzero(shares[count:].any(axis=1)):
                one, other = pairs.jobs[place]
                rows[self.jobs[one].id, self.jobs[other].id] = shares[count + place].tolist()
        return rows


@dataclass
class SharesPolicy(Policy):
    """Computes shares of time, and fills rounds of `round_s` seconds by them.

    Shares are computed at the first round after an arrival or a completion, at most every `min_reset_s` seconds; jobs
    that arrive in between wait for them. `speeds` says where the jobs' rates come from. A round begins when the last
    one is over, when nothing runs any more, or when a node goes down or comes back. GPU types are filled in the
    cluster's order, or at random if rates are unknown.

    With `ideal` there are no rounds: shares are computed at every arrival and completion, and granted exactly
    (`simsched.toolkit.rounds.rates`).
    """

    traits: ClassVar[Traits] = Traits(type_aware=True)

    #: Whether a job without a share waits even if GPUs are free.
    idle_without_share: ClassVar[bool] = False

    speeds: Speeds = "true"
    round_s: float = 360.0
    min_reset_s: float = 1920.0
    ideal: bool = False
    _gpus: dict[str, int] = field(default_factory=dict, init=False, repr=False)
    _rates: RateSource = field(init=False, repr=False)
    _rounds: Rounds = field(init=False, repr=False)
    _grants: list[Grant] = field(default_factory=list, init=False, repr=False)
    _allocator: Allocator = field(default_factory=Allocator, init=False, repr=False)
    _begun_s: float = field(default=0.0, init=False, repr=False)
    _up: tuple[bool, ...] = field(default=(), init=False, repr=False)
    _fluid: Fluid = field(default_factory=Fluid, init=False, repr=False)

    def __post_init__(self) -> None:
        """Reject a round without length."""
        self._options = RoundOptions(
            self.round_s, self.min_reset_s, idle_without_share=self.idle_without_share, **self._more_options()
        )

    def _more_options(self) -> Mapping[str, bool]:
        return {}

    @abstractmethod
    def shares(self, snapshot: Snapshot) -> Mapping[Unit, Sequence[float]]:
        """Return the share of time of each unit on each GPU type; a unit left out waits for the next computation."""

    @property
    def signals(self) -> frozenset[Signal]:
        """Return the signals of the parameter `speeds` in addition to those that the policy always reads."""
        return super().signals | SIGNALS[self.speeds] | (_IDEAL if self.ideal else frozenset())

    @property
    def counts_on(self) -> Wants:
        """Return what the policy always counts on, and GPU types if it uses rates by type."""
        weighs = self.traits.type_aware and self.speeds != "none"
        return {**super().counts_on, **({GPU_TYPES: Becomes("has no types to weigh")} if weighs else {})}

    @property
    def needs_sharing(self) -> bool:
        """Return whether shares are granted exactly, for which all jobs hold GPUs at once."""
        return self.ideal

    @property
    def own_agents(self) -> bool:
        """Return whether shares are granted exactly, for which the policy needs its own agents."""
        return self.ideal

    @property
    def longest_pause_s(self) -> float:
        """Return the time between two computations of shares, for which jobs that arrive in between wait."""
        return self.min_reset_s

    @property
    def triggers(self) -> Triggers:
        """Return all events; most of them fall within a round and change nothing."""
        return Triggers.on_events()

    def begin(self, cluster: Cluster) -> None:
        """Start without jobs."""
        self._gpus = dict(cluster.gpus_by_type)
        self._rates = rate_source(self.speeds, self._gpus)
        self._rounds = Rounds(tuple(self._gpus), self._options)

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Create the agent of a job: the one configured; with `ideal`, wrapped to run at the rate granted."""
        agent = super().agent(request, facts)
        return self._fluid.agent(request.id, agent) if self.ideal else agent

    def weight(self, job: JobView) -> float:
        """Return a job's weight, by default the submitted one."""
        return job.request.weight

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Start a round, or let the current one continue."""
        self._learn(view)
        if not view.jobs or not any(view.up):
            return Decision({})
        if self.ideal:
            return self._grant(view, rng)
        if not self._over(view):
            self._tell(view)
            return Decision.change({}, wake_at_s=self._begun_s + self.round_s)
        self._receive(view)
        if self._rounds.due(view.now_s):
            self._reset(view, rng)
        self._grants = self._rounds.choose(self._room(view), self._order(rng))
        self._begun_s, self._up = view.now_s, tuple(view.up)
        self._tell(view)
        return self._carry_out(view)

    def _tell(self, view: View) -> None:
        """Report the order in which units are chosen and, for jobs outside the round, when it ends."""
        if view.reasons is None:
            return
        order = self._rounds.order()
        view.reasons.order(order)
        chosen = {job for grant in self._grants if grant.runs for job in grant.unit}
        end_s = self._begun_s + self.round_s
        for job_id in order.keys() - chosen:
            view.reasons.wait(job_id, Why.ANOTHER_FIRST, f"the round until {end_s:g} s is given to others")

    def _learn(self, view: View) -> None:
        """Admit jobs that have arrived, and forget those that are done."""
        for job_id in view.finished:
            if (job_id,) in self._rounds:
                self._rounds.remove(job_id)
                self._rates.forget(job_id)
        self._fluid.forget(view.finished)
        for job in view.arrived:
            if (job.id,) not in self._rounds:
                self._rounds.add((job.id,), job.num_gpus, self._able(job))

    def _able(self, job: JobView) -> list[str]:
        """Return the GPU types on which a job may run."""
        row = self._rates.rates([job])[0]
        return [gpu_type for gpu_type, rate in zip(self._gpus, row, strict=True) if rate > 0]

    def _over(self, view: View) -> bool:
        """Return whether the round is over: its time is up, nothing of it runs any more, or nodes have changed."""
        running = any(grant.runs and any(job in view.jobs for job in grant.unit) for grant in self._grants)
        return not running or view.now_s >= self._begun_s + self.round_s or tuple(view.up) != self._up

    def _receive(self, view: View) -> None:
        self._rounds.receive_all(self._grants, view.now_s - self._begun_s)

    def _reset(self, view: View, rng: np.random.Generator) -> None:
        jobs = self._present(view)
        snapshot = Snapshot(jobs, self._problem(jobs, view), view.now_s, rng)
        shares = self.shares(snapshot)
        self._rounds.reset(view.now_s, shares, {unit: view.jobs[unit[0]].num_gpus for unit in shares})

    def _present(self, view: View) -> tuple[JobView, ...]:
        return tuple(view.jobs.values())

    def _problem(self, jobs: Sequence[JobView], view: View) -> ShareProblem:
        room = self._room(view)
        return ShareProblem(
            self._rates.rates(jobs),
            np.array([job.num_gpus for job in jobs], dtype=np.int64),
            np.array([room[gpu_type] for gpu_type in self._gpus], dtype=np.int64),
            np.array([self.weight(job) for job in jobs]),
        )

    def _room(self, view: View) -> dict[str, int]:
        """Count the GPUs of each type that are up."""
        room = dict.fromkeys(self._gpus, 0)
        for node, up in zip(view.nodes, view.up, strict=True):
            if up:
                room[node.gpu_type] += node.gpus
        return room

    def _order(self, rng: np.random.Generator) -> list[str]:
        types = list(self._gpus)
        if self.speeds in ("none", "reference") and len(types) > 1:
            rng.shuffle(types)
        return types

    def _carry_out(self, view: View) -> Decision:
        return self._allocator.allocate(self._grants, view)._replace(wake_at_s=view.now_s + self.round_s)

    def _grant(self, view: View, rng: np.random.Generator) -> Decision:
        """Compute shares and grant them as they are."""
        jobs = tuple(view.jobs.values())
        snapshot = Snapshot(jobs, self._problem(jobs, view), view.now_s, rng)
        rows = self.shares(snapshot)
        shares = np.array([rows.get((job.id,), [0.0] * len(self._gpus)) for job in jobs])
        if not self.idle_without_share:
            try:
                shares = fill_up(snapshot.problem, shares)
            except ValueError as error:
                raise input_error("ideal", f"of '{self.name}' {error}", "leave it out") from None
        return self._fluid.grant(jobs, shares, tuple(self._gpus), view)


class _Kind(NamedTuple):
    """What a job's speed next to others depends on."""

    application: str
    batch_size: int
    gpus: int
    guaranteed: bool


_ALONE = Becomes("lets no two jobs run together, as with packed: false", params=MappingProxyType({"packed": False}))


@dataclass
class PackedShares(SharesPolicy):
    """Computes shares that, with `packed`, also let pairs of one-GPU jobs run together.

    Needs true rates, alone and in pairs. All jobs run alone if GPUs may not be shared (`engine.sharing.max_jobs`).
    """

    traits: ClassVar[Traits] = replace(SharesPolicy.traits, wants={SHARED_GPUS: _ALONE})

    packed: bool = False
    _speeds: dict[tuple[_Kind, _Kind, str], tuple[float, float]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        """Raise `InputError` for pairs without true rates."""
        super().__post_init__()
        if self.packed and self.speeds != "true":
            raise input_error("packed", f"speeds is '{self.speeds}'", "packed policies need speeds 'true'")
        if self.packed and self.ideal:
            raise input_error("packed", "ideal is on, too", "leave one of them out")

    @property
    def signals(self) -> frozenset[Signal]:
        """Return the usual signals, and the speeds of pairs if jobs may run together."""
        return super().signals | ({PAIR_SPEEDS} if self.packed else frozenset())

    def begin(self, cluster: Cluster) -> None:
        """Start without speeds of pairs."""
        super().begin(cluster)
        self._speeds.clear()

    def _problem(self, jobs: Sequence[JobView], view: View) -> ShareProblem:
        alone = super()._problem(jobs, view)
        if not self.packed or view.max_jobs_per_gpu < 2:
            return alone
        return with_pairs(alone, jobs, view[PAIR_SPEEDS], tuple(self._gpus), self._speeds)


def with_pairs(
    alone: ShareProblem,
    jobs: Sequence[JobView],
    speeds: PairSpeeds,
    gpu_types: Sequence[str],
    known: dict[tuple[_Kind, _Kind, str], tuple[float, float]] | None = None,
) -> ShareProblem:
    """Return the problem with all pairs of one-GPU jobs that can run together on some type.

    `known` caches the speeds of kinds of jobs across calls.
    """
    known = {} if known is None else known
    kinds = [_kind(job) for job in jobs]
    number: Mapping[_Kind, int] = {kind: place for place, kind in enumerate(dict.fromkeys(kinds))}
    example = {kind: place for place, kind in reversed(list(enumerate(kinds)))}
    beside = np.zeros((len(number), len(number), len(gpu_types)))
    for one, other in combinations_with_replacement([kind for kind in number if kind.gpus == 1], 2):
        rows = alone.throughput[[example[one], example[other]]]
        for column, gpu_type in enumerate(gpu_types):
            if not rows[:, column].all():
                continue
            key = (one, other, gpu_type)
            if key not in known:
                known[key] = speeds.beside(jobs[example[one]].id, jobs[example[other]].id, gpu_type)
            beside[number[one], number[other], column] = known[key][0] * rows[0, column]
            beside[number[other], number[one], column] = known[key][1] * rows[1, column]
    numbers = np.array([number[kind] for kind in kinds], dtype=np.int64)
    return replace(alone, pairs=pairs_of_kinds(numbers, alone.scale_factor, beside), kinds=numbers)


def _kind(job: JobView) -> _Kind:
    request = job.request
    return _Kind(request.application, request.batch_size, job.num_gpus, request.guaranteed)
