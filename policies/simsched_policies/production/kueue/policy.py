"""Kueue: jobs wait in queues with quotas, borrow what their cohort leaves idle, and are preempted for its owner.

Idea: quota decides who is admitted, and a job is admitted whole (Kueue documentation, "Cluster Queue", "Cohort",
"Preemption", "Fair Sharing", "Admission Fair Sharing"). Every tenant is a cluster queue, parents of tenants are
cohorts, every GPU type is a flavour, and the jobs of a user have a local queue. Deviations: GPUs are the only resource;
victims leave at once: a job that preempts is admitted in the same decision, and a victim is not asked again before the
next one; a preempted job keeps its progress; among jobs of a queue that rank equal in a decision, one that finds no
quota parks those that ask for no less; local queues weigh the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np

from simsched.model import Allocation, Capacity, NodeShape, Tenant
from simsched.policy import QUOTAS, Becomes, Decision, JobView, Policy, Traits, View
from simsched.toolkit import PLACERS, PlacerName
from simsched_policies.production.kueue.cycle import Asking, Entry, Rules, admit, run_cycle
from simsched_policies.production.kueue.model import Reclaim, Within, Workload
from simsched_policies.production.kueue.quotas import OTHERS, RESOURCE, Terms, quotas_of
from simsched_policies.production.kueue.tree import QuotaTree
from simsched_policies.production.kueue.usage import HALF_LIFE_S, SAMPLING_S, DecayedUsage

_WITHIN: Mapping[str, Within] = {rule.value: rule for rule in Within}


@dataclass
class Kueue(Policy):
    """Admits jobs by quota, with borrowing, reclaiming and preemption by priority or for fair sharing.

    `tenants` own shares of every GPU type and may be limited in borrowing, lending and reclaiming; those of one
    `parent` borrow from each other first; tenants not named share one queue that owns the rest. `within` says whom a
    job may preempt in its own queue, and `reclaim` whom in others that borrow; with `borrowing_preempts` even a job
    whose own queue borrows may preempt jobs of lower priority there, at most `borrowing_preempts_up_to`. With
    `fair_sharing`, queues that use least beyond their own come first, by their weights, and preemption evens them out.
    With `admission_fair_sharing` the user with the least recent use comes first within a queue: use is sampled every
    `usage_sampling_s` and halves in `usage_half_life_s`. With `strict_fifo` the head of a queue blocks it.
    """

    name: ClassVar[str] = "kueue"
    traits: ClassVar[Traits] = Traits(
        wants={QUOTAS: Becomes("has one queue for all jobs, which owns the cluster")}, reads_tenants=True
    )

    tenants: Mapping[str, Tenant] = field(default_factory=dict)
    within: Literal["never", "lower-priority", "lower-or-newer-equal-priority"] = "lower-priority"
    reclaim: Literal["lower-priority", "any"] = "any"
    borrowing_preempts: bool = False
    borrowing_preempts_up_to: int | None = None
    fair_sharing: bool = False
    admission_fair_sharing: bool = False
    usage_half_life_s: float = HALF_LIFE_S
    usage_sampling_s: float = SAMPLING_S
    strict_fifo: bool = False
    placement: PlacerName = "fragments"
    _tree: QuotaTree | None = field(default=None, init=False, repr=False)
    _pending: dict[str, Asking] = field(default_factory=dict, init=False, repr=False)
    _held: dict[str, tuple[Workload, Allocation]] = field(default_factory=dict, init=False, repr=False)
    #: The shapes of those that hold GPUs and have one.
    _shapes: dict[str, NodeShape] = field(default_factory=dict, init=False, repr=False)
    _free: Capacity = field(default_factory=lambda: Capacity((), (), ()), init=False, repr=False)
    #: Jobs by the numbers, in order of arrival, under which the quotas know them, and the other way round.
    _jobs: dict[str, str] = field(default_factory=dict, init=False, repr=False)
    _numbers: dict[str, str] = field(default_factory=dict, init=False, repr=False)
    #: The flavours that suit jobs which run on some GPU types only.
    _flavours: dict[str, frozenset[str]] = field(default_factory=dict, init=False, repr=False)
    #: The local queue of each job, and what local queues used.
    _local: dict[str, str] = field(default_factory=dict, init=False, repr=False)
    _usage: DecayedUsage = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse invalid times."""
        if self.usage_half_life_s < 0 or self.usage_sampling_s <= 0:
            raise ValueError("usage_half_life_s must be at least 0 and usage_sampling_s above 0")
        self._usage = DecayedUsage(self.usage_half_life_s, self.usage_sampling_s)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Run cycles of admission until one changes nothing."""
        tree = self._look(view)
        start: dict[str, Allocation] = {}
        evicted: dict[str, None] = {}
        parked: dict[tuple[str, int], int] = {}
        skipped: set[str] = set()
        rules = Rules(self.fair_sharing, queue_usage=self._used if self.admission_fair_sharing else None)
        while True:
            heads = self._heads(parked, {*evicted, *skipped})
            if not heads:
                break
            outcome = run_cycle(tree, heads, self._admitted(), rules)
            for entry in outcome.parked:
                self._park(entry.asking, parked)
            for entry in outcome.preempting:
                for victim in entry.victims:
                    if victim.workload.id not in evicted:
                        self._evict(tree, victim.workload, view.now_s)
                        if start.pop(self._jobs[victim.workload.id], None) is None:
                            evicted[victim.workload.id] = None
                        else:
                            skipped.add(victim.workload.id)
                parked.clear()
            for entry in outcome.admitted:
                allocation = self._admit(tree, entry, view)
                if allocation is None:
                    skipped.add(entry.asking.id)
                else:
                    start[self._jobs[entry.asking.id]] = allocation
        return Decision.change(start, [self._jobs[number] for number in evicted])

    def _heads(self, parked: Mapping[tuple[str, int], int], out: set[str]) -> list[Asking]:
        """Return the first job of every queue that has not been refused in this decision."""
        first: dict[str, Asking] = {}
        blocked: set[str] = set()
        for asking in sorted(self._pending.values(), key=self._urgency):
            if asking.queue in first or asking.queue in blocked:
                continue
            refused = asking.request[RESOURCE] >= parked.get((asking.queue, asking.priority), 1 << 60)
            if asking.id in out or refused:
                if self.strict_fifo:
                    blocked.add(asking.queue)
                continue
            first[asking.queue] = asking
        return [first[name] for name in sorted(first)]

    def _urgency(self, asking: Asking) -> tuple[float, int, float, str]:
        usage = self._used(asking) if self.admission_fair_sharing else 0.0
        return (usage, -asking.priority, asking.created_s, asking.id)

    def _used(self, asking: Asking | Workload) -> float:
        return self._usage.of(self._local[asking.id])

    def _admitted(self) -> list[Workload]:
        workloads = [workload for workload, _ in self._held.values()]
        if not self.admission_fair_sharing:
            return workloads
        return [replace(workload, local_queue_usage=self._used(workload)) for workload in workloads]

    def _sample(self, now_s: float) -> None:
        """Take the last of the samples that are due; what was in use has not changed since the decision before."""
        if not self.admission_fair_sharing or not self._usage.due(now_s):
            return
        in_use: dict[str, dict[str, float]] = {}
        for workload, _ in self._held.values():
            of_queue = in_use.setdefault(self._local[workload.id], {RESOURCE: 0.0})
            of_queue[RESOURCE] += sum(workload.usage.values())
        self._usage.sample(now_s // self.usage_sampling_s * self.usage_sampling_s, in_use)

    @staticmethod
    def _park(asking: Asking, parked: dict[tuple[str, int], int]) -> None:
        kind = (asking.queue, asking.priority)
        parked[kind] = min(asking.request[RESOURCE], parked.get(kind, 1 << 60))

    def _admit(self, tree: QuotaTree, entry: Entry, view: View) -> Allocation | None:
        """Take quota and GPUs for a job; None where the type of its flavour has no room or does not suit it."""
        ((flavour, _), gpus) = next(iter(entry.usage.items()))
        job = view.jobs[self._jobs[entry.asking.id]]
        if not job.facts.runs_on(flavour):
            return None
        placer = PLACERS[self.placement].within(job.request.shape)
        allocation = self._free.choose(placer, gpus, (self._free.types.index(flavour),))
        if allocation is None:
            return None
        self._free.take(allocation, job.request.shape)
        workload = admit(entry, view.now_s)
        tree.add(workload.queue, workload.usage)
        self._held[workload.id] = (workload, allocation)
        if job.request.shape is not None:
            self._shapes[workload.id] = job.request.shape
        del self._pending[workload.id]
        if self.admission_fair_sharing:
            self._usage.charge(self._local[workload.id], {RESOURCE: gpus})
        return allocation

    def _evict(self, tree: QuotaTree, workload: Workload, now_s: float) -> None:
        _, allocation = self._held[workload.id]
        self._release(tree, workload.id)
        self._pending[workload.id] = Asking(
            workload.id,
            workload.queue,
            {RESOURCE: sum(g for _, g in allocation)},
            workload.priority,
            now_s,
            self._flavours.get(workload.id),
        )

    def _release(self, tree: QuotaTree, number: str) -> None:
        workload, allocation = self._held.pop(number)
        tree.remove(workload.queue, workload.usage)
        self._free.give_back(allocation, self._shapes.pop(number, None))

    def _look(self, view: View) -> QuotaTree:
        """Note arrivals, completions and losses, and nodes that went down or came up."""
        if self._tree is None:
            self._tree = self._quotas(view)
        self._sample(view.now_s)
        lost = [job for job in view.lost if self._numbers.get(job.id) in self._held]
        for job_id in [*view.finished, *(job.id for job in lost)]:
            number = self._numbers.get(job_id, "")
            self._pending.pop(number, None)
            if number in self._held:
                self._release(self._tree, number)
        if view.up != self._free.up or view.lost or view.beside is not None:
            self._free = Capacity.of(view)
        for job in [*lost, *view.arrived]:
            asking = self._asking(job)
            self._pending[asking.id] = asking
        return self._tree

    def _asking(self, job: JobView) -> Asking:
        request = job.request
        queue = request.tenant if request.tenant in self.tenants else OTHERS
        number = self._numbers.setdefault(job.id, f"{len(self._numbers):012d}")
        self._jobs[number] = job.id
        self._local[number] = f"{request.tenant}/{request.user}"
        if job.facts.gpu_types is not None:
            self._flavours[number] = frozenset(job.facts.gpu_types)
        flavours = self._flavours.get(number)
        return Asking(number, queue, {RESOURCE: job.num_gpus}, int(request.priority), request.submit_time_s, flavours)

    def _quotas(self, view: View) -> QuotaTree:
        terms = Terms(
            _WITHIN[self.within],
            Reclaim(self.reclaim),
            self.borrowing_preempts,
            self.borrowing_preempts_up_to,
            self.strict_fifo,
        )
        totals: dict[str, int] = {}
        for node in view.nodes:
            totals[node.gpu_type] = totals.get(node.gpu_type, 0) + node.gpus
        return quotas_of(self.tenants, totals, terms)
