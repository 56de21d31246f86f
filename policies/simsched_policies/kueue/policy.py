"""Kueue: jobs wait in queues with quotas, borrow what their cohort leaves idle, and are preempted for its owner.

Idea: quota decides who is admitted, and a job is admitted whole (Kueue documentation, "Cluster Queue", "Cohort",
"Preemption", "Fair Sharing"). Every tenant is a cluster queue of one cohort, and every GPU type a flavour. Deviations:
GPUs are the only resource; victims leave at once, so that a job that preempts is admitted in the same decision, and a
victim is not asked again before the next one; a preempted job keeps its progress; among the jobs of a queue that stand
alike in a decision, one that finds no quota parks those that ask for no less.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from simsched.model.placement import Allocation
from simsched.policy import Decision, Policy, View
from simsched.policy.placers import PLACERS, FreeGpus, PlacerName
from simsched.policy.tenants import Tenant
from simsched.policy.view import JobView
from simsched_policies.kueue.cycle import Asking, Entry, Rules, admit, run_cycle
from simsched_policies.kueue.model import ClusterQueue, FlavourResource, Quota, Reclaim, Within, Workload
from simsched_policies.kueue.tree import QuotaTree

#: The queue of tenants that nobody named; it owns what no other does.
OTHERS = "(others)"
_COHORT = "cluster"
_RESOURCE = "gpu"
_WITHIN: Mapping[str, Within] = {rule.value: rule for rule in Within}


@dataclass
class Kueue(Policy):
    """Admits jobs by quota, with borrowing, reclaiming and preemption by priority or for fair sharing.

    `tenants` own shares of every GPU type and may be limited in borrowing, lending and reclaiming; all others share one
    queue that owns the rest. `within` says whom a job may preempt in its own queue. With `fair_sharing`, queues that
    use least beyond their own come first, by their weights, and preemption evens them out. With `strict_fifo` the head
    of a queue blocks it.
    """

    name: ClassVar[str] = "kueue"

    tenants: Mapping[str, Tenant] = field(default_factory=dict)
    within: Literal["never", "lower-priority", "lower-or-newer-equal-priority"] = "lower-priority"
    fair_sharing: bool = False
    strict_fifo: bool = False
    placement: PlacerName = "fragments"
    _tree: QuotaTree | None = field(default=None, init=False, repr=False)
    _pending: dict[str, Asking] = field(default_factory=dict, init=False, repr=False)
    _held: dict[str, tuple[Workload, Allocation]] = field(default_factory=dict, init=False, repr=False)
    _free: FreeGpus = field(default_factory=lambda: FreeGpus((), (), ()), init=False, repr=False)
    _up: list[bool] = field(default_factory=list, init=False, repr=False)
    #: Jobs by the numbers, in order of arrival, under which the quotas know them, and the other way round.
    _jobs: dict[str, str] = field(default_factory=dict, init=False, repr=False)
    _numbers: dict[str, str] = field(default_factory=dict, init=False, repr=False)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Run cycles of admission until one changes nothing."""
        tree = self._look(view)
        start: dict[str, Allocation] = {}
        evicted: dict[str, None] = {}
        parked: dict[tuple[str, int], int] = {}
        skipped: set[str] = set()
        rules = Rules(fair_sharing=self.fair_sharing)
        while True:
            heads = self._heads(parked, {*evicted, *skipped})
            if not heads:
                break
            outcome = run_cycle(tree, heads, [workload for workload, _ in self._held.values()], rules)
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
        for asking in sorted(self._pending.values(), key=lambda one: (-one.priority, one.created_s, one.id)):
            if asking.queue in first or asking.queue in blocked:
                continue
            refused = asking.request[_RESOURCE] >= parked.get((asking.queue, asking.priority), 1 << 60)
            if asking.id in out or refused:
                if self.strict_fifo:
                    blocked.add(asking.queue)
                continue
            first[asking.queue] = asking
        return [first[name] for name in sorted(first)]

    @staticmethod
    def _park(asking: Asking, parked: dict[tuple[str, int], int]) -> None:
        kind = (asking.queue, asking.priority)
        parked[kind] = min(asking.request[_RESOURCE], parked.get(kind, 1 << 60))

    def _admit(self, tree: QuotaTree, entry: Entry, view: View) -> Allocation | None:
        """Take quota and GPUs for a job; None where the type of its flavour has no room or does not suit it."""
        ((flavour, _), gpus) = next(iter(entry.usage.items()))
        kind = self._free.types.index(flavour)
        if not view.jobs[self._jobs[entry.asking.id]].facts.runs_on(flavour):
            return None
        allocation = self._free.choose_of(kind, PLACERS[self.placement], gpus)
        if allocation is None:
            return None
        self._free.take(allocation)
        workload = admit(entry, view.now_s)
        tree.add(workload.queue, workload.usage)
        self._held[workload.id] = (workload, allocation)
        del self._pending[workload.id]
        return allocation

    def _evict(self, tree: QuotaTree, workload: Workload, now_s: float) -> None:
        _, allocation = self._held[workload.id]
        self._release(tree, workload.id)
        self._pending[workload.id] = Asking(
            workload.id, workload.queue, {_RESOURCE: sum(g for _, g in allocation)}, workload.priority, now_s
        )

    def _release(self, tree: QuotaTree, number: str) -> None:
        workload, allocation = self._held.pop(number)
        tree.remove(workload.queue, workload.usage)
        self._free.give_back(allocation)

    def _look(self, view: View) -> QuotaTree:
        """Take note of what came, ended and was lost, and of nodes that went down or came up."""
        if self._tree is None:
            self._tree = QuotaTree(self._queues(view))
        lost = [job for job in view.lost if self._numbers.get(job.id) in self._held]
        for job_id in [*view.finished, *(job.id for job in lost)]:
            number = self._numbers.get(job_id, "")
            self._pending.pop(number, None)
            if number in self._held:
                self._release(self._tree, number)
        if list(view.up) != self._up or view.lost:
            self._up, self._free = list(view.up), FreeGpus(view.nodes, view.up, view.free)
        for job in [*lost, *view.arrived]:
            asking = self._asking(job)
            self._pending[asking.id] = asking
        return self._tree

    def _asking(self, job: JobView) -> Asking:
        request = job.request
        queue = request.tenant if request.tenant in self.tenants else OTHERS
        number = self._numbers.setdefault(job.id, f"{len(self._numbers):012d}")
        self._jobs[number] = job.id
        return Asking(number, queue, {_RESOURCE: job.num_gpus}, int(request.priority), request.submit_time_s)

    def _queues(self, view: View) -> list[ClusterQueue]:
        totals: dict[str, int] = {}
        for node in view.nodes:
            totals[node.gpu_type] = totals.get(node.gpu_type, 0) + node.gpus
        left = dict(totals)
        queues = []
        for name, tenant in sorted(self.tenants.items()):
            own = _own(tenant, totals, left)
            quotas = {(kind, _RESOURCE): _quota(tenant, own[kind], sum(own.values())) for kind in totals}
            queues.append(self._queue(name, quotas, tenant.weight, Reclaim.ANY if tenant.reclaims else Reclaim.NEVER))
        rest = {(kind, _RESOURCE): Quota(gpus) for kind, gpus in left.items()}
        return [*queues, self._queue(OTHERS, rest, 1.0, Reclaim.ANY)]

    def _queue(
        self, name: str, quotas: Mapping[FlavourResource, Quota], weight: float, reclaim: Reclaim
    ) -> ClusterQueue:
        within = _WITHIN[self.within]
        return ClusterQueue(name, _COHORT, quotas, weight, within, reclaim, strict_fifo=self.strict_fifo)


def _own(tenant: Tenant, totals: Mapping[str, int], left: dict[str, int]) -> dict[str, int]:
    """Return a tenant's own GPUs by type, and take them off what is left: a share of each, or a number of the first."""
    wanted = tenant.gpus
    own: dict[str, int] = {}
    for kind, total in totals.items():
        asked = tenant.own_gpus(total) if wanted is None else wanted
        own[kind] = min(asked, left[kind])
        wanted = None if wanted is None else wanted - own[kind]
        left[kind] -= own[kind]
    return own


def _quota(tenant: Tenant, own: int, own_in_all: int) -> Quota:
    """Return the quota of a type; what may be borrowed in all may be borrowed of every type."""
    borrowing = None if tenant.max_gpus is None else max(0, tenant.max_gpus - own_in_all)
    lends = None if tenant.lends is None else min(tenant.lends, own)
    return Quota(own, borrowing if tenant.borrows else 0, lends)
