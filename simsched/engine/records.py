"""What the engine tells the outside world, as plain records.

The field names are the column names of the result tables (`simsched.results.schema`); a test holds the two together.
All times are seconds from the start of the workload, whole ones where the tick is a second.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, Protocol


class JobRecord(NamedTuple):
    """One finished job."""

    job_id: str
    application: str
    tenant: str
    user: str
    status: str
    num_gpus: int
    batch_size: int
    submit_time_s: float
    start_time_s: float
    end_time_s: float
    jct_s: float
    held_s: float
    queueing_s: float
    restart_s: float
    attained_gpu_s: float
    restarts: int
    attempts: int = 1
    failures: int = 0
    lost_s: float = 0
    lost_gpu_s: float = 0
    checkpoint_s: float = 0
    deadline_s: float = math.inf
    declined: bool = False
    queue: str = ""


class AllocationRecord(NamedTuple):
    """One interval during which nothing about a job's run changed.

    While the job restarts, `restarting` is true and batch, efficiency and throughput are those it will begin with or 0.
    """

    job_id: str
    start_s: float
    end_s: float
    gpus: int
    nodes: int
    placement: str
    restarting: bool
    local_bsz: int
    accum_steps: int
    batch_size: int
    epoch: int
    progress: float
    rate: float
    efficiency: float
    throughput: float
    neighbours: str = ""
    gpu_share: float = 1.0
    relative_speed: float = 1.0
    levels_crossed: int = 0


class DecisionRecord(NamedTuple):
    """One decision of the policy, as it stood afterwards."""

    time_s: float
    active_jobs: int
    running_jobs: int
    allocated_gpus: int
    available_gpus: int
    provisioned_nodes: int
    started: int
    stopped: int
    moved: int
    diagnostics: Mapping[str, float]
    failed_nodes: int = 0
    node_failures: int = 0
    stranded_gpus: int = 0
    stranded_by_node_gpus: int = 0
    stranded_by_domain_gpus: int = 0
    provisioned_gpus: Mapping[str, float] = MappingProxyType({})


class OutageRecord(NamedTuple):
    """One interval during which a node was out of use; `ended` tells that it was over before the run was."""

    node: int
    start_s: float
    end_s: float
    kind: str
    ended: bool


class Recorder(Protocol):
    """Takes the records as they come, in the order in which they happen."""

    def job(self, record: JobRecord) -> None:
        """Take a finished job."""

    def allocation(self, record: AllocationRecord) -> None:
        """Take a closed interval."""

    def decision(self, record: DecisionRecord) -> None:
        """Take a decision."""

    def outage(self, record: OutageRecord) -> None:
        """Take an interval for which a node was out of use."""


class MemoryRecorder:
    """Keeps the records in lists."""

    def __init__(self) -> None:
        """Start empty."""
        self.jobs: list[JobRecord] = []
        self.allocations: list[AllocationRecord] = []
        self.decisions: list[DecisionRecord] = []
        self.outages: list[OutageRecord] = []

    def job(self, record: JobRecord) -> None:
        """Keep a finished job."""
        self.jobs.append(record)

    def allocation(self, record: AllocationRecord) -> None:
        """Keep a closed interval."""
        self.allocations.append(record)

    def decision(self, record: DecisionRecord) -> None:
        """Keep a decision."""
        self.decisions.append(record)

    def outage(self, record: OutageRecord) -> None:
        """Keep an interval for which a node was out of use."""
        self.outages.append(record)
