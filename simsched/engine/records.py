"""Records that the engine emits: rows of the result tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from simsched.engine.options import EngineOptions, FailureOptions
from simsched.model import Cluster, JobSpec
from simsched.model.job import values_of
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
