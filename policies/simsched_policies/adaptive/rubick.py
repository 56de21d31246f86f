"""Rubick: reconfigures GPUs and plans of jobs together for the largest gain; guaranteed jobs keep their speed.

Source: Rubick (MLSys'25, arXiv 2408.08586, published there as Morphling), section 6 and its published artifact. In each
round jobs are served guaranteed ones first, each class ordered by the slope of a job's rate over GPUs. A job that fits
on a node takes the GPUs free there, then GPUs of the job with the least slope on that node, as long as it is below what
it was promised or gains more than the other loses; no guaranteed job falls below its own request. Jobs of several nodes
get whole nodes. The remaining free GPUs go to the jobs that gain most. Every job runs the best plan for its GPUs.

In the artifact a mistake in operator precedence makes the test of the giving job always fail, so that no job ever
shrinks; `shrinks: false` reproduces this. A job moves at most `most_restarts` times, or `most_wide_restarts` across
nodes, and only while restarts take no more than `most_restart_share` of its time. For models of several nodes the
artifact tries a fixed list of GPU counts per model, and releases allocations of 32 or more GPUs in every round; here
such jobs get what they asked for or fewer nodes, and grow from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from simsched.errors import InputError, Problem
from simsched.model import Allocation, Capacity, Cluster, gpus_of
from simsched.policy import Decision, JobView, Place, Policy, Traits, Triggers, View
from simsched.policy.signals import PLANS
from simsched.toolkit import PlanCurves
from simsched.toolkit.placers import CONSOLIDATED, FEWEST_DOMAINS


class _Gift(NamedTuple):
    """GPUs that a job could give up, and the slope of its loss."""

    slope: float
    job: JobView
    left: int
    gpus: int


@dataclass
class Rubick(Policy):
    """Serves jobs every `interval_s`, in order of `rising` or `falling` slope.

    With `shrinks`, jobs give GPUs to jobs that gain more. A guaranteed job is placed only where it is at most
    `least_promise` times slower than promised. Jobs older than `overdue_s` go first and give up nothing. Jobs of
    several nodes grow to `most_growth` times the GPUs asked for.
    """

    name: ClassVar[str] = "rubick"
    traits: ClassVar[Traits] = Traits(needs={PLANS}, rigid=False, type_aware=True)

    interval_s: float = 60.0
    shrinks: bool = True
    order: Literal["rising", "falling"] = "rising"
    most_restarts: int = 5
    most_wide_restarts: int = 7
    most_restart_share: float = 0.03
    least_promise: float = 1.5
    overdue_s: float = 200_000.0
    most_growth: float = 2.0
    _curves: PlanCurves = field(init=False, repr=False)
    _sizes: dict[str, int] = field(init=False, repr=False)

    @property
    def triggers(self) -> Triggers:
        """Return the schedule of rounds."""
        return Triggers(interval_s=self.interval_s, node_change=True)

    def begin(self, cluster: Cluster) -> None:
        """Record the sizes of the nodes."""
        self._curves = PlanCurves(cluster)
        self._sizes = {kind: cluster.gpus_per_node(kind) for kind in cluster.gpu_types}

    def check_jobs(self, jobs: Sequence[JobView], cluster: Cluster) -> None:
        """Refuse jobs without plans, which never scale, that ask for more GPUs than any type has."""
        problems = []
        for job in jobs:
            most = max((gpus for kind, gpus in cluster.gpus_by_type.items() if job.facts.runs_on(kind)), default=0)
            if job[PLANS] is None and job.num_gpus > most:
                said = (
                    f"it asks for {job.num_gpus} GPUs of at most {most}, and without plans rubick never gives it fewer"
                )
                problems.append(Problem(f"workload, job '{job.id}', policy 'rubick'", said, "enlarge the cluster"))
        if problems:
            raise InputError(*problems)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Serve all jobs, let them grow, and place those that changed with their best plans."""
        if not view.jobs:
            return Decision.change({})
        board = Board(view, self._curves, self.overdue_s)
        jobs = sorted(view.jobs.values(), key=lambda job: self._rank(board, job))
        if view.reasons is not None:
            view.reasons.order({job.id: self._rank(board, job) for job in jobs})
        wide = [job for job in jobs if self._is_wide(job)]
        for job in jobs:
            if job not in wide:
                self._place_on_node(view, board, job)
            elif not job.running:
                self._place_wide(board, job, job.num_gpus)
        self._grow(view, board)
        for job in sorted(wide, key=lambda job: -job.num_gpus):
            self._grow_wide(view, board, job)
        start: dict[str, Allocation | Place] = {}
        for job_id, at in board.at.items():
            job = view.jobs[job_id]
            if at != job.allocation:
                plan = self._curves.plan(job, board.total(job_id), board.kind(at[0][0]))
                start[job_id] = at if plan is None else Place(at, plan=plan)
        stop = [job.id for job in view.jobs.values() if job.running and job.id not in board.at]
        return Decision.change(start, stop)

    def _rank(self, board: Board, job: JobView) -> tuple[bool, float]:
        kind = next((kind for kind in self._sizes if job.facts.runs_on(kind)), next(iter(self._sizes)))
        slope = board.slope(job, board.total(job.id), 1, kind)
        overdue = job.age_s > self.overdue_s
        return not job.request.guaranteed, slope if self.order == "rising" and not overdue else -slope

    def _is_wide(self, job: JobView) -> bool:
        """Return whether a job asks for more GPUs than any of its nodes has."""
        return job.num_gpus > max((size for kind, size in self._sizes.items() if job.facts.runs_on(kind)), default=0)

    def _may_restart(self, view: View, job: JobView, most: int) -> bool:
        """Return whether a job may move again: a job that never ran may, one that runs pays for it."""
        if not job.starts:
            return True
        cost_s = job.facts.restart_delay_s or view.restart_delay_s
        spent = (job.restarts + 1) * cost_s <= self.most_restart_share * job.held_s
        return job.restarts < most and (spent or not job.running)

    def _below(self, job: JobView, gpus: int, kind: str) -> bool:
        """Return whether a guaranteed job would be slower than promised."""
        promised = self._curves.asked(job, kind) if job.request.guaranteed else 0.0
        return self._curves.rate(job, gpus, kind) < promised

    def _place_on_node(self, view: View, board: Board, job: JobView) -> None:
        """Give a job the GPUs that are free or given up on a node, on the first node that is good enough."""
        room = board.room
        nodes = [node for node, _ in job.allocation] or sorted(
            (node.index for node in view.nodes if view.up[node.index] and job.facts.runs_on(node.gpu_type)),
            key=lambda node: (-room.free[node], node),
        )
        for node in nodes:
            kind, own = board.kind(node), board.held(job.id, node)
            if self._curves.rate(job, self._sizes[kind], kind) == 0:
                continue
            gpus, gifts = self._bargain(view, board, job, node)
            if job.request.guaranteed:
                good = self.least_promise * self._curves.rate(job, gpus, kind) >= self._curves.asked(job, kind)
            else:
                good = gpus != own
            moves = not own or self._below(job, own, kind) or self._may_restart(view, job, self.most_restarts)
            if good and gpus and gpus != own and moves:
                for gift in gifts:
                    board.move(gift.job.id, ((node, gift.left),) if gift.left else ())
                board.move(job.id, ((node, gpus),))
                return

    def _bargain(self, view: View, board: Board, job: JobView, node: int) -> tuple[int, list[_Gift]]:
        """Return how many GPUs of a node a job would have, and which jobs give some up."""
        kind, size = board.kind(node), board.room.nodes[node].gpus
        free = board.room.free[node] + board.held(job.id, node)
        gpus = max(self._curves.enough(job, min(free, size), kind), board.held(job.id, node))
        gifts: dict[str, _Gift] = {}
        left = {other.id: board.held(other.id, node) for other in board.alone_on(node) if other.id != job.id}
        spare = free - gpus
        while self.shrinks and spare + gpus < size:
            below = self._below(job, gpus, kind)
            if not below and not (self._may_restart(view, job, self.most_restarts) or not job.running):
                break
            gift = self._least(view, board, node, left, below)
            if gift is None:
                break
            wanted = self._curves.enough(job, gpus + spare + gift.gpus, kind)
            gain = board.slope(job, gpus, wanted - gpus, kind) if wanted > gpus else 0.0
            if wanted <= gpus or not (below or gain >= gift.slope):
                break
            spare += gpus + gift.gpus - wanted
            gpus = wanted
            left[gift.job.id] = gift.left
            gifts[gift.job.id] = gift
        return gpus, list(gifts.values())

    def _least(self, view: View, board: Board, node: int, left: dict[str, int], below: bool) -> _Gift | None:
        """Return the offer that costs its giver least among the jobs of a node; it may take all GPUs of a job."""
        kind, found = board.kind(node), list[_Gift]()
        for job_id, held in left.items():
            other = view.jobs[job_id]
            if not held or not (below or self._may_restart(view, other, self.most_restarts)):
                continue
            for gpus in (parcel for parcel in PARCELS if parcel <= held):
                rest = held - gpus if self._curves.rate(other, held - gpus, kind) else 0
                slope = board.slope(other, held, rest - held, kind)
                if not self._below(other, rest, kind):
                    found.append(_Gift(slope, other, rest, held - rest))
        return min(found, key=lambda gift: (gift.slope, gift.gpus), default=None)

    def _place_wide(self, board: Board, job: JobView, most: int, least: int = 0) -> bool:
        """Give a job whole nodes: enough for `most` GPUs, otherwise fewer, but more than `least`."""
        for place, kind in enumerate(board.room.types):
            size = self._sizes[kind]
            for gpus in [most, *range((most - 1) // size * size, least, -size)]:
                enough = self._curves.rate(job, gpus, kind) > self._curves.rate(job, least, kind)
                if gpus <= least or not enough or self._below(job, gpus, kind):
                    continue
                few = board.room.choose_of(place, CONSOLIDATED, gpus)
                near = board.room.choose_of(place, FEWEST_DOMAINS, gpus)
                if few is not None and near is not None:
                    board.move(job.id, near if len(near) == len(few) else few)
                    return True
        return False

    def _grow(self, view: View, board: Board) -> None:
        """Give the free GPUs of each node to its jobs, the one that gains most first."""
        for node in range(len(view.nodes)):
            kind = board.kind(node)
            while board.room.free[node]:
                gains: list[tuple[float, JobView, int]] = []
                for job in board.alone_on(node):
                    held = board.held(job.id, node)
                    more = self._curves.more(job, held, held + board.room.free[node], kind)
                    settled = job.allocation == board.at[job.id]
                    if more is not None and (not settled or self._may_restart(view, job, self.most_restarts)):
                        gains.append((board.slope(job, held, more - held, kind), job, more))
                if not gains:
                    break
                _, job, more = max(gains, key=lambda gain: gain[0])
                board.move(job.id, ((node, more),))

    def _grow_wide(self, view: View, board: Board, job: JobView) -> None:
        """Give a job of several nodes more of them, if it may move."""
        held = board.at.get(job.id)
        if held is None or not self._may_restart(view, job, self.most_wide_restarts):
            return
        kind, gpus = board.room.type_of(held), board.total(job.id)
        board.move(job.id, ())
        free = min(board.room.total_of(kind), int(self.most_growth * job.num_gpus))
        most = self._curves.enough(job, free, board.room.types[kind])
        if most <= gpus or not self._place_wide(board, job, most, gpus):
            board.move(job.id, held)


#: The slope of a job that has waited or run for too long: it is served first and gives up no GPUs.
OVERDUE = 1e9
#: GPUs that change hands in one step, as in the published artifact.
PARCELS = (1, 2, 4, 8)


class Board:
    """The planned GPUs of all jobs and the free ones; starts from what the jobs hold."""

    def __init__(self, view: View, curves: PlanCurves, overdue_s: float) -> None:
        self.room = Capacity.of(view)
        self.at: dict[str, Allocation] = {job.id: job.allocation for job in view.jobs.values() if job.running}
        self._jobs, self._curves, self._overdue_s = view.jobs, curves, overdue_s

    def kind(self, node: int) -> str:
        """Return the GPU type of a node."""
        return self.room.nodes[node].gpu_type

    def move(self, job_id: str, at: Allocation) -> None:
        """Let a job hold these GPUs instead of its current ones."""
        self.room.give_back(self.at.pop(job_id, ()))
        self.room.take(at)
        if at:
            self.at[job_id] = at

    def held(self, job_id: str, node: int) -> int:
        """Return the GPUs of a node that a job holds."""
        return sum(gpus for at, gpus in self.at.get(job_id, ()) if at == node)

    def alone_on(self, node: int) -> Iterator[JobView]:
        """Yield the jobs that hold GPUs of this node and no other."""
        return (self._jobs[one] for one, at in list(self.at.items()) if len(at) == 1 and at[0][0] == node)

    def slope(self, job: JobView, gpus: int, change: int, kind: str) -> float:
        """Return the change of a job's rate per GPU of a change, relative to its rate on the GPUs that it asked for."""
        if job.age_s > self._overdue_s:
            return OVERDUE
        reference = self._curves.rate(job, job.num_gpus, kind) or 1.0
        rate = self._curves.rate
        return abs(rate(job, gpus + change, kind) - rate(job, gpus, kind)) / (reference * abs(change))

    def total(self, job_id: str) -> int:
        """Return the GPUs that a job holds."""
        return gpus_of(self.at.get(job_id, ()))
