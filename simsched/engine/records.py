"""The rows of the result tables: their recorders, and how they follow from the state of jobs and cluster."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple, Protocol

from simsched.engine.clock import Clock
from simsched.engine.options import EngineOptions, FailureOptions
from simsched.engine.state import ClusterState, JobState
from simsched.model import Cluster, JobSpec
from simsched.model.job import values_of
from simsched.model.placement import describe
from simsched.results import TABLES, Feature
from simsched.results.rows import (
    AllocationRecord as AllocationRecord,
    DecisionRecord as DecisionRecord,
    JobRecord as JobRecord,
    OutageRecord as OutageRecord,
    ReasonRecord as ReasonRecord,
    Records,
)


def features_of(
    cluster: Cluster,
    jobs: Sequence[JobSpec],
    options: EngineOptions,
    failures: FailureOptions | None = None,
    *,
    plans: bool = False,
) -> frozenset[Feature]:
    """Return the features of a simulation that appear in its tables; `plans` says whether an application has plans."""
    promised = {(due is not None, bool(queue)) for due, queue in values_of(jobs, "deadline_s", "queue")}
    used = {
        Feature.SHARING: options.max_jobs_per_gpu > 1,
        Feature.FINE_TIME: options.tick_s != 1,
        Feature.FAILURES: failures is not None,
        Feature.DEADLINES: any(deadline for deadline, _ in promised),
        Feature.QUEUES: any(queue for _, queue in promised),
        Feature.TOPOLOGY: bool(cluster.levels),
        Feature.FRAGMENTATION: options.fragmentation,
        Feature.PLANS: plans,
        Feature.CONTENTION: options.contention,
        Feature.TIERS: options.fragmentation and cluster.tiered and bool(cluster.levels),
        Feature.MAKES: len({(node.gpus, node.gpu_type) for node in cluster.nodes}) > 1,
    }
    return frozenset(feature for feature, there in used.items() if there)


class Recorder(Protocol):
    """Receives records in the order of events."""

    def job(self, record: JobRecord) -> None:
        """Receive a finished job."""
        return

    def allocation(self, record: AllocationRecord) -> None:
        """Receive a closed interval."""
        return

    def decision(self, record: DecisionRecord) -> None:
        """Receive a decision."""
        return

    def outage(self, record: OutageRecord) -> None:
        """Receive an interval during which a node was out of use."""
        return

    def reason(self, record: ReasonRecord) -> None:
        """Receive the state of a job after a decision, if reasons are kept."""
        return


#: Decisions after which rows are packed.
_PACKED_EVERY = 4096


class MemoryRecorder:
    """Keeps the records in columns, `tables` by name."""

    def __init__(self) -> None:
        self.tables = {name: Records(table) for name, table in TABLES.items()}
        add = {name: table.rows.append for name, table in self.tables.items()}
        self.job, self.allocation, self.outage, self.reason = (add[it] for it in add if it != "rounds")
        self._decided, self._unpacked = self.tables["rounds"].rows, 0

    def decision(self, record: DecisionRecord) -> None:
        """Keep a decision, and pack what has come when many have."""
        self._decided += (record,)
        self._unpacked += 1
        if self._unpacked == _PACKED_EVERY:
            self._unpacked = 0
            for table in self.tables.values():
                table.pack()

    @property
    def jobs(self) -> list[JobRecord]:
        """The finished jobs."""
        return list(self.tables["jobs"])

    @property
    def allocations(self) -> list[AllocationRecord]:
        """The closed intervals."""
        return list(self.tables["allocations"])

    @property
    def decisions(self) -> list[DecisionRecord]:
        """The decisions."""
        return list(self.tables["rounds"])

    @property
    def outages(self) -> list[OutageRecord]:
        """The intervals during which a node was out of use."""
        return list(self.tables["outages"])

    @property
    def reasons(self) -> list[ReasonRecord]:
        """The states of jobs after decisions."""
        return list(self.tables["reasons"])


class JobRecorder(Recorder):
    """Keeps only the records of finished jobs; intervals, the bulk of all records, are not created."""

    def __init__(self) -> None:
        self.jobs: list[JobRecord] = []

    def job(self, record: JobRecord) -> None:
        """Keep a finished job."""
        self.jobs.append(record)


class Stranded(NamedTuple):
    """Free GPUs that no waiting job can use: on any nodes of one type, on the fewest nodes, in the fewest domains.

    The fewest are those needed in the empty cluster; domains are of the lowest level above nodes, or the cluster.
    """

    gpus: int = 0
    by_node: int = 0
    by_domain: int = 0


NONE_STRANDED = Stranded()


class _Units:
    """Nodes or domains of one GPU type: their sizes, and the fewest each job needs."""

    def __init__(self, nodes_of: Sequence[Sequence[int]], gpus: Sequence[int]) -> None:
        self.nodes_of = nodes_of
        self._sizes = sorted((sum(gpus[node] for node in nodes) for nodes in nodes_of), reverse=True)

    def stranded(self, free: Sequence[int], wanted: Iterable[int]) -> int:
        """Count the free GPUs that no job of sizes `wanted` can get on as few units as it needs."""
        left = sorted((sum(free[node] for node in nodes) for nodes in self.nodes_of), reverse=True)
        least = min((self._least(left, gpus) for gpus in wanted), default=inf)
        return sum(gpus for gpus in left if gpus < least)

    def _least(self, left: Sequence[int], gpus: int) -> float:
        """Return the fewest free GPUs that make a unit useful to a job, infinity if none is."""
        before = 0
        missing = gpus
        for size, has in zip(self._sizes, left, strict=True):
            if missing <= size:
                least = gpus - before
                return max(least, 1) if has >= least else inf
            missing -= size
            before += has
        return inf


class StrandedGpus:
    """Counts stranded GPUs; walks nodes and jobs only if GPUs are free and jobs wait."""

    def __init__(self, cluster: Cluster, *, rigid: bool) -> None:
        """Prepare for policies that grant full requests (`rigid`), or any number of GPUs."""
        self._rigid = rigid
        self._tiered = cluster.tiered and bool(cluster.levels)
        gpus = [node.gpus for node in cluster.nodes]
        domains = cluster.levels[0].domains if cluster.levels else (tuple(range(len(gpus))),)
        self._units: dict[str, tuple[_Units, _Units, _Units]] = {}
        for kind in cluster.gpu_types:
            of_type = [node.index for node in cluster.nodes if node.gpu_type == kind]
            held = [tuple(node for node in domain if cluster.nodes[node].gpu_type == kind) for domain in domains]
            groups = ([of_type], [(node,) for node in of_type], [nodes for nodes in held if nodes])
            pool, nodes, inside = (_Units(group, gpus) for group in groups)
            self._units[kind] = pool, nodes, inside

    def fits_in_domain(self, free: Sequence[int]) -> int:
        """Return the most free GPUs of a type in one domain of the lowest level, 0 if no tier has uplinks."""
        inside = (unit.nodes_of for _, _, unit in self._units.values()) if self._tiered else ()
        return max((sum(free[node] for node in nodes) for domains in inside for nodes in domains), default=0)

    def stranded(self, free: Sequence[int], active: Mapping[str, JobState]) -> Stranded:
        """Count the free GPUs that no waiting job can use, zero if none waits."""
        if not any(free):
            return NONE_STRANDED
        waiting = [job for job in active.values() if not job.allocation]
        if not waiting:
            return NONE_STRANDED
        kinds = {(job.request.num_gpus if self._rigid else 1, job.facts.gpu_types) for job in waiting}
        totals = [0, 0, 0]
        for kind, units in self._units.items():
            wanted = {gpus for gpus, types in kinds if types is None or kind in types}
            for place, unit in enumerate(units):
                totals[place] += unit.stranded(free, wanted)
        return Stranded(*totals)


#: The final state of a job killed at its time limit.
TIME_LIMIT = "TimeLimit"
#: The final state of a job cancelled by the policy.
CANCELLED = "Cancelled"
#: Attempts, failures and losses of a job without failures.
_NO_FAILURES = (1, 0, 0, 0, 0)


def job_record(job: JobState, status: str) -> JobRecord:
    """Record a job that ends now in the given final state."""
    clock, request = job.clock, job.request
    now, unit_s = clock.now, clock.unit_s
    jct = now - job.submitted
    values = (
        request.id,
        request.application,
        request.tenant,
        request.user,
        status,
        request.num_gpus,
        request.batch_size,
        job.submitted * unit_s,
        (now if job.first_start is None else job.first_start) * unit_s,
        now * unit_s,
        jct * unit_s,
        job.settled_held * unit_s,
        (jct - job.settled_held) * unit_s,
        job.restart * unit_s,
        job.settled_gpu * unit_s,
        job.starts - 1 if job.starts else 0,
        *_NO_FAILURES,
        math.inf if request.deadline_s is None else request.deadline_s,
        job.declined,
        request.queue,
    )
    record = tuple.__new__(JobRecord, values)  # three times as fast as calling the class
    recovery = job.recovery
    if recovery is None:
        return record
    return record._replace(
        attempts=recovery.attempt + 1,
        failures=recovery.failures,
        lost_s=clock.seconds(recovery.lost),
        lost_gpu_s=clock.seconds(recovery.lost_gpu),
        checkpoint_s=clock.seconds(recovery.checkpointing),
    )


def interval_record(job: JobState, begin: float, clock: Clock) -> AllocationRecord:
    """Record the job's interval that ends now and started at progress `begin`."""
    running = job.running
    local_bsz = accum_steps = batch_size = 0
    rate = efficiency = throughput = 0.0
    if running is not None:
        local_bsz, accum_steps = job.batch.local_bsz, job.batch.accum_steps
        rate, efficiency, throughput = job.rate, running.efficiency, running.throughput
        if throughput:
            batch_size = job.batch.total(job.gpus)
            throughput *= job.undisturbed
    values = (
        job.request.id,
        job.since * clock.unit_s,
        clock.now * clock.unit_s,
        job.gpus,
        job.nodes,
        describe(job.allocation),
        running is None,
        local_bsz,
        accum_steps,
        batch_size,
        job.epoch,
        begin,
        rate,
        efficiency,
        throughput,
        " ".join(job.neighbours) if job.neighbours else "",
        job.gpu_share,
        job.speed,
        0 if job.site is None else job.site.levels_crossed,
        "" if running is None or job.batch.plan is None else str(job.batch.plan),
        job.congestion,
    )
    return tuple.__new__(AllocationRecord, values)  # three times as fast as calling the class, for every interval


#: How many jobs a decision started, stopped and moved.
Moves = tuple[int, int, int]
NO_MOVES: Moves = (0, 0, 0)


def decision_record(
    now_s: float,
    active_jobs: int,
    cluster: ClusterState,
    moves: Moves,
    diagnostics: Mapping[str, float],
    stranded: Stranded,
    fits_in_domain: int = 0,
) -> DecisionRecord:
    """Record a decision that has just been carried out."""
    values = (
        now_s,
        active_jobs,
        cluster.running_jobs,
        cluster.allocated_gpus,
        cluster.available_gpus,
        cluster.provisioned_nodes,
        *moves,
        diagnostics,
        len(cluster.broken) if cluster.broken else 0,
        cluster.failures,
        *stranded,
        cluster.provisioned_gpus,
        fits_in_domain,
    )
    return tuple.__new__(DecisionRecord, values)  # three times as fast as calling the class, at every decision
