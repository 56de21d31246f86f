"""Parts of GPUs: jobs start in order of arrival, and jobs that ask for a part of a GPU share one.

Idea: a job that asks for a quarter of a GPU gets a quarter of one, as on Alibaba's clusters (Weng et al., MLaaS in the
Wild, NSDI'22). Best fit chooses the fullest GPU with enough room, FGD the place that leaves the least room unusable by
typical jobs (Weng et al., Beware of Fragmentation, ATC'23). Published default: FGD. Deviations: only GPUs are counted,
not cores or memory; FGD's typical jobs are those that have arrived so far, and one that asks for more GPUs than a node
has counts as asking for a whole node. If the engine does not share GPUs (`engine.sharing.max_jobs` of 1), every job
gets whole GPUs, and this is first in, first out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

import numpy as np

from simsched.arithmetic import ordered_sum
from simsched.model import Allocation, Capacity
from simsched.model.placement import SLACK, usual_requests
from simsched.policy import Becomes, Decision, JobView, Onto, Place, Policy, Traits, View, Why
from simsched.policy.physics import GPU_PARTS
from simsched.toolkit import PLACERS, PlacerName


class UsualJobs:
    """The most frequent requests so far: GPUs, the part of each, and the share of jobs with this request."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[int, float]] = Counter()
        self._classes: list[tuple[int, float, float]] | None = None

    def note(self, gpus: int, part: float) -> None:
        """Count a job."""
        self._counts[gpus, part] += 1
        self._classes = None

    def classes(self) -> Sequence[tuple[int, float, float]]:
        """Return the most frequent requests that cover 95 % of all, with shares that sum to 1."""
        if self._classes is None:
            self._classes = [(gpus, part, share) for (gpus, part), share in usual_requests(self._counts)]
        return self._classes

    def unusable(self, left: Sequence[float], size: int) -> float:
        """Return how much of a node's free GPU capacity a typical job cannot use, in GPUs, on average.

        `left` is the free part of each GPU of a node of `size`. All of it counts for a job that does not fit on the
        node; for others, only GPUs with less than they ask for.
        """
        lost, total = 0.0, ordered_sum(left)
        for gpus, part, share in self.classes():
            fitting = [one for one in left if one + SLACK >= part]
            lost += share * (total - ordered_sum(fitting) if len(fitting) >= min(gpus, size) else total)
        return lost

    def growth(self, left: Sequence[float], taken: Sequence[float], part: float, size: int) -> float:
        """Return the growth of `unusable` if a job takes `part` of GPUs of which `taken` is left."""
        after = list(left)
        for one in taken:
            after.remove(one)
            after.append(one - part)
        return self.unusable(after, size) - self.unusable(left, size)


class _Wish(NamedTuple):
    """GPUs, the part of each, and the types that a job may have."""

    gpus: int
    part: float
    types: tuple[int, ...]


@dataclass(eq=False)
class _SharedGpu:
    """A shared GPU: its node, its type, and the part of each job, in order of arrival."""

    node: int
    kind: int
    parts: dict[str, float]

    @property
    def left(self) -> float:
        return 1 - ordered_sum(self.parts.values())


@dataclass
class Fractional(Policy):
    """Starts jobs in order of arrival, without preemption, and puts parts of GPUs together.

    By `rule` a part goes to the GPU with the least sufficient room (`best-fit`), to the one with most room
    (`worst-fit`), a free one if there is one, or to the one that was shared first (`first-fit`). Whole GPUs are chosen
    by `placement`. With `fgd` parts, and whole GPUs of one node, go where the fragmentation grows least. A job at the
    head that does not fit blocks those behind it, unless `backfill` lets later ones that fit overtake it.
    """

    name: ClassVar[str] = "fractional"
    traits: ClassVar[Traits] = Traits(
        wants={GPU_PARTS: Becomes("gives whole GPUs, first in, first out", "fifo", {"placement": "fragments"})}
    )

    rule: Literal["best-fit", "worst-fit", "first-fit", "fgd"] = "best-fit"
    backfill: bool = False
    placement: PlacerName = "fragments"
    _waiting: dict[str, _Wish] = field(default_factory=dict, init=False, repr=False)
    _free: Capacity = field(default_factory=lambda: Capacity((), (), ()), init=False, repr=False)
    _whole: dict[str, Allocation] = field(default_factory=dict, init=False, repr=False)
    _part: dict[str, _SharedGpu] = field(default_factory=dict, init=False, repr=False)
    _shared: list[_SharedGpu] = field(default_factory=list, init=False, repr=False)
    _usual: UsualJobs = field(default_factory=UsualJobs, init=False, repr=False)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Start the longest waiting."""
        self._look(view)
        start: dict[str, Allocation] = {}
        onto: dict[str, str] = {}
        refused: set[_Wish] = set()
        if view.reasons is not None:
            view.reasons.order({job_id: view.jobs[job_id].request.submit_time_s for job_id in self._waiting})
        for job_id, wish in self._waiting.items():
            if wish in refused:
                continue
            found = self._place(job_id, wish, view.max_jobs_per_gpu, onto)
            if found is not None:
                start[job_id] = found
            elif self.backfill:
                refused.add(wish)
            else:
                self._tell(view, behind=job_id)
                break
        for job_id in start:
            del self._waiting[job_id]
        return Decision.change(
            {**start, **{job_id: Place(start[job_id], more=(Onto(host),)) for job_id, host in onto.items()}}
        )

    def _tell(self, view: View, behind: str) -> None:
        """Return the job at the head as the reason for all jobs behind it."""
        if view.reasons is not None:
            line = list(self._waiting)
            for job_id in line[line.index(behind) + 1 :]:
                view.reasons.wait(job_id, Why.ANOTHER_FIRST, f"{behind} waits before it")

    def _place(self, job_id: str, wish: _Wish, most: int, onto: dict[str, str]) -> Allocation | None:
        """Choose GPUs, or a shared GPU, for a job, and record that it holds them; None if it must wait."""
        types = wish.types
        whole = wish.part >= 1 or wish.gpus > 1 or most == 1
        least = self._least_growth(wish, most, whole=whole) if self.rule == "fgd" else None
        if whole:
            found = least[0] if least else self._free.choose(PLACERS[self.placement], wish.gpus, types)
            if found is not None:
                self._free.take(found)
                self._whole[job_id] = found
            return found
        shared = least[1] if least else None
        if least is None and (self.rule != "worst-fit" or not any(self._free.total_of(kind) for kind in types)):
            shared = self._fitting(wish, most)
        if shared is not None:
            onto[job_id] = next(one for one in shared.parts if one not in onto)
        else:
            found = least[0] if least else self._free.choose(PLACERS[self.placement], 1, types)
            if found is None:
                return None
            self._free.take(found)
            shared = _SharedGpu(found[0][0], self._free.type_of(found), {})
            self._shared.append(shared)
        shared.parts[job_id] = wish.part
        self._part[job_id] = shared
        return ((shared.node, 1),)

    def _least_growth(self, wish: _Wish, most: int, *, whole: bool) -> tuple[Allocation, _SharedGpu | None] | None:
        """Choose the node, and the shared GPU on it if any, whose fragmentation grows least; None if none fits."""
        on_node: dict[int, list[_SharedGpu]] = {}
        for gpu in self._shared:
            on_node.setdefault(gpu.node, []).append(gpu)
        part = 1.0 if whole else wish.part
        best: tuple[float, int, float] | None = None
        chosen: tuple[Allocation, _SharedGpu | None] | None = None
        for node, free in enumerate(self._free.free):
            if self._free.type_of(((node, 1),)) not in wish.types:
                continue
            shared = on_node.get(node, [])
            left = [1.0] * free + [gpu.left for gpu in shared]
            options: list[tuple[list[float], _SharedGpu | None]] = []
            if free >= wish.gpus:
                options.append(([1.0] * wish.gpus, None))
            if not whole:
                fitting = (gpu for gpu in shared if len(gpu.parts) < most and gpu.left + SLACK >= part)
                options += [([gpu.left], gpu) for gpu in fitting]
            for taken, onto in options:
                key = self._usual.growth(left, taken, part, self._free.nodes[node].gpus), node, sum(taken)
                if best is None or key < best:
                    best, chosen = key, (((node, wish.gpus),), onto)
        return chosen

    def _fitting(self, wish: _Wish, most: int) -> _SharedGpu | None:
        """Choose the shared GPU for a part, None if it fits on none."""
        room = (gpu for gpu in self._shared if gpu.kind in wish.types and len(gpu.parts) < most)
        fitting = ((gpu, left) for gpu in room if (left := gpu.left) + SLACK >= wish.part)
        if self.rule == "first-fit":
            return next((gpu for gpu, _ in fitting), None)
        sign = 1 if self.rule == "best-fit" else -1
        best = min(fitting, key=lambda pair: sign * pair[1], default=None)
        return None if best is None else best[0]

    def _look(self, view: View) -> None:
        """Record arrivals, completions and losses, and nodes that went down or came up."""
        lost = {job.id: job for job in view.lost}
        for job_id in [*view.finished, *lost]:
            self._waiting.pop(job_id, None)
            self._let_go(job_id)
        if lost or view.up != self._free.up:
            self._free = Capacity.of(view)
            back = {job_id: self._wish(job) for job_id, job in lost.items() if job_id in view.jobs}
            self._waiting = back | self._waiting
        self._waiting.update((job.id, self._wish(job)) for job in view.arrived)

    def _wish(self, job: JobView) -> _Wish:
        self._usual.note(job.num_gpus, job.request.gpu_share)
        return _Wish(job.num_gpus, job.request.gpu_share, self._free.fitting(job.facts))

    def _let_go(self, job_id: str) -> None:
        """Release what a job held."""
        whole = self._whole.pop(job_id, None)
        if whole is not None:
            self._free.give_back(whole)
        shared = self._part.pop(job_id, None)
        if shared is not None:
            del shared.parts[job_id]
            if not shared.parts:
                self._shared.remove(shared)
                self._free.give_back(((shared.node, 1),))
