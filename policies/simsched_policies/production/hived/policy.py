"""HiveD: every tenant has a virtual private cluster of cells; others may use them while they are idle.

Idea: tenants own cells (racks, nodes, parts of nodes) instead of numbers of GPUs: a guaranteed job finds GPUs as close
as in a private cluster; opportunistic jobs run on idle cells and are preempted (Zhao et al., OSDI'20, sections 3 and
4). Deviations: the cells of a node are its halves down to single GPUs, the cells above it the domains of the lowest
level of the cluster's topology, as far as their nodes are identical; the engine only counts the GPUs of a node, so the
choice among them only affects where later jobs find room; preempted jobs leave at once and keep their progress.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np

from simsched.agent import Agent
from simsched.errors import input_error
from simsched.model import Allocation, ApplicationFacts, Capacity, Cluster, JobRequest, NodeShape, Tenant
from simsched.policy import QUOTAS, Becomes, Decision, JobView, Policy, Reasons, Traits, View, Why
from simsched_policies.production.hived.ownership import Make, Ownership, divide, leaf
from simsched_policies.production.hived.scheduler import CellScheduler
from simsched_policies.production.hived.spec import (
    MOST_URGENT,
    OPPORTUNISTIC,
    CellCluster,
    Gang,
    Placed,
    PodPlace,
    Preempts,
)

#: The tenant of all jobs whose tenant is not declared; it owns the cluster if no tenant is declared, else nothing.
OTHERS = "(others)"


class _Job(NamedTuple):
    """A job with its number among the gangs; `kinds` are the GPU types that it can run on."""

    id: str
    number: str
    tenant: str
    priority: float
    submit_time_s: float
    gpus: int
    kinds: frozenset[str]
    shape: NodeShape | None = None


@dataclass
class HiveD(Policy):
    """Places guaranteed jobs in their tenants' cells, and opportunistic ones wherever GPUs are idle.

    A tenant owns as many GPUs of each make of nodes as its share covers, in the largest cells. Its jobs are guaranteed
    if their priority is 0 to 1000; jobs with a negative priority, of tenants without cells, or too large for their
    tenant's cells are opportunistic.
    """

    name: ClassVar[str] = "hived"
    traits: ClassVar[Traits] = Traits(
        wants={QUOTAS: Becomes("gives all cells to one tenant, whose jobs all are")}, reads_tenants=True
    )

    tenants: Mapping[str, Tenant] = field(default_factory=dict)
    _cells: CellScheduler | None = field(default=None, init=False, repr=False)
    _owned: Ownership = field(default=Ownership(CellCluster({}, (), {}), {}), init=False, repr=False)
    _room: Counter[Make] = field(default_factory=Counter, init=False, repr=False)
    _makes: list[Make] = field(default_factory=list, init=False, repr=False)
    _jobs: dict[str, _Job] = field(default_factory=dict, init=False, repr=False)
    _numbers: dict[str, str] = field(default_factory=dict, init=False, repr=False)
    _waiting: dict[str, _Job] = field(default_factory=dict, init=False, repr=False)
    _up: list[bool] = field(default_factory=list, init=False, repr=False)

    def begin(self, cluster: Cluster) -> None:
        """Count the GPUs of each make of nodes."""
        self._room = Counter()
        for node in cluster.nodes:
            self._room[node.gpu_type, node.gpus] += node.gpus

    def agent(self, request: JobRequest, facts: ApplicationFacts) -> Agent:
        """Keep the batch; raises `InputError` for a job without GPUs or one that fits on no make of nodes."""
        if not request.num_gpus:
            raise input_error(f"job '{request.id}'", "asks for no GPU, and cells are of GPUs", "leave it out")
        makes = {make: gpus for make, gpus in self._room.items() if facts.runs_on(make[0])}
        most = max(makes.values(), default=request.num_gpus)
        of_one_type = max((sum(makes[one] for one in makes if one[0] == kind) for kind, _ in makes), default=0)
        if most < request.num_gpus <= of_one_type:  # the engine refuses a job that no policy can place
            message = f"policy '{self.name}' places a job on nodes of one make, and they have at most {most} GPUs"
            raise input_error(
                f"job '{request.id}'", message, f"make nodes alike, or leave out jobs of more than {most}"
            )
        return super().agent(request, facts)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Place waiting jobs, guaranteed ones first, by priority and age."""
        cells = self._look(view)
        start: dict[str, Allocation] = {}
        stop: dict[str, None] = {}
        failed: set[tuple[str, int, int, frozenset[str], NodeShape | None]] = set()
        alone = any(job.shape is not None and job.shape.exclusive for job in self._waiting.values())
        free = Capacity.of(view) if alone or view.beside is not None else None
        for job in sorted(self._waiting.values(), key=self._urgency):
            kind = (job.tenant, self._priority(job), job.gpus, job.kinds, job.shape)
            if kind in failed or job.id in stop:
                continue
            places = self._place(cells, job, start, stop)
            if places is not None and free is not None and not free.holds(_allocation(places), job.shape):
                cells.release(job.number)  # the cells are free, but the cores or memory of the nodes are not
                places = None
            if places is None:
                failed.add(kind)
                continue
            start[job.id] = _allocation(places)
            del self._waiting[job.number]
            if free is not None:
                free.take(start[job.id], job.shape)
        if view.reasons is not None:
            self._tell(view.reasons)
        return Decision.change(start, list(stop))

    def _tell(self, reasons: Reasons) -> None:
        """Return the order of waiting jobs, and for guaranteed ones the reason that no cell of their tenant is free."""
        order = sorted(self._waiting.values(), key=self._urgency)
        reasons.order({job.id: self._urgency(job)[:2] for job in order})
        for job in (job for job in order if self._priority(job) >= 0):
            reasons.wait(job.id, Why.OVER_QUOTA, f"no cell of {job.tenant} is free for it")

    def _place(
        self, cells: CellScheduler, job: _Job, start: dict[str, Allocation], stop: dict[str, None]
    ) -> tuple[PodPlace, ...] | None:
        tenant, priority = job.tenant, self._priority(job)
        for make in self._makes:
            pods = self._owned.pods(tenant, make, job.gpus) if priority >= 0 else _pods(job.gpus, make[1])
            if pods is not None and job.shape is not None and job.shape.nodes:
                pods = (job.shape.each.gpus,) * job.shape.nodes if job.shape.each.gpus <= make[1] else None
            if make[0] not in job.kinds or pods is None:
                continue
            gang = Gang(job.number, tenant, priority, pods, gpu_type=leaf(make))
            outcome = cells.schedule(gang)
            if isinstance(outcome, Preempts):
                for victim in outcome.victims:
                    cells.release(victim)
                    self._waiting[victim] = self._jobs[victim]
                    if start.pop(self._jobs[victim].id, None) is None:
                        stop[self._jobs[victim].id] = None
                outcome = cells.schedule(gang)
            if isinstance(outcome, Placed):
                return outcome.places
            if job.number in cells.groups:  # it has reserved cells that it cannot use now
                cells.release(job.number)
        return None

    def _urgency(self, job: _Job) -> tuple[int, float, str]:
        return (-self._priority(job), job.submit_time_s, job.number)

    def _priority(self, job: _Job) -> int:
        """Return a job's priority, or that of opportunistic jobs if its tenant's cells can never hold it."""
        fits = any(
            make[0] in job.kinds and self._owned.pods(job.tenant, make, job.gpus) is not None for make in self._makes
        )
        return min(int(job.priority), MOST_URGENT) if fits and job.priority >= 0 else OPPORTUNISTIC

    def _look(self, view: View) -> CellScheduler:
        if self._cells is None:
            self._makes = list(dict.fromkeys((node.gpu_type, node.gpus) for node in view.nodes))
            self._owned = divide(view.nodes, self.tenants, OTHERS)
            self._cells = CellScheduler(self._owned.cluster)
        cells = self._cells
        for job_id in [*view.finished, *(job.id for job in view.lost)]:
            number = self._numbers.get(job_id, "")
            self._waiting.pop(number, None)
            if number in cells.groups:
                cells.release(number)
        up = list(view.up)
        for node, (was, is_now) in enumerate(zip(self._up or [True] * len(up), up, strict=True)):
            if was != is_now:
                cells.set_health(str(node), healthy=is_now)
        self._up = up
        for job in [*view.lost, *view.arrived]:
            known = self._known(job)
            self._waiting[known.number] = known
        return cells

    def _known(self, job: JobView) -> _Job:
        request = job.request
        number = self._numbers.setdefault(job.id, f"{len(self._numbers):012d}")
        tenant = request.tenant if request.tenant in self.tenants else OTHERS
        kinds = frozenset(kind for kind, _ in self._makes if job.facts.runs_on(kind))
        known = _Job(
            job.id, number, tenant, request.priority, request.submit_time_s, job.num_gpus, kinds, request.shape
        )
        return self._jobs.setdefault(number, known)


def _pods(gpus: int, per_node: int) -> tuple[int, ...]:
    """Return the GPUs of each pod of a job that fills nodes."""
    whole, rest = divmod(gpus, per_node)
    return (*(per_node,) * whole, *((rest,) if rest else ()))


def _allocation(places: tuple[PodPlace, ...]) -> Allocation:
    gpus: dict[int, int] = {}
    for node, indices in places:
        gpus[int(node)] = gpus.get(int(node), 0) + len(indices)
    return tuple(gpus.items())
