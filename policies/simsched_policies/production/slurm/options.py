"""Slurm's settings: backfill, priority, preemption, and limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Literal

from simsched_policies.production.slurm.usage import HALF_LIFE_S, MAX_AGE_S, UPDATE_S

Mode = Literal["off", "requeue", "suspend", "cancel"]

#: Conversion from a file's values: unknown names are an error.
_STRICT: Mapping[str, Any] = {"extra": "forbid", "strict": True}


@dataclass(frozen=True)
class Backfill:
    """How jobs behind the first that must wait are tested; Slurm's names in brackets.

    `kind` is `easy` (the first job that must wait gets a reservation), `conservative` (each of the first `max_jobs`
    that would start within `window_s` gets one, as Slurm does for the jobs that it tests), `greedy` (no job gets one:
    what fits starts) or `none` (the first job that must wait blocks the rest). With `interval_s` (bf_interval, 30 in
    Slurm) backfill runs only `offset_s` after its multiples, and arrivals and completions test the first `queue_depth`
    jobs (default_queue_depth), up to the first that cannot start; without it, backfill runs at once. Limits are planned
    in blocks of `resolution_s` (bf_resolution), on nodes those of the clock, or with `from_pass` of each pass; jobs
    without a time limit count as `default_limit_s` long. On nodes, a job that is planned for later holds its part of
    them, or with `whole_nodes` all of them; with `counts: gpus` plans count the GPUs of a type, wherever they are. With
    `holders: cluster` the only reservation of `easy` is that of the first job that must wait in any partition. The
    tasks of a job array count as one job for `max_jobs` (bf_max_job_test) and `queue_depth`; at most
    `max_jobs_per_user` jobs of each user are tested (bf_max_job_user; 0: all). With `jobs_per_yield` (0: a pass takes
    no time) a backfill pass pauses after that many jobs and resumes `yield_s` later (bf_yield_interval), if no job has
    arrived or left, or if it `continues` anyway (bf_continue).
    """

    __pydantic_config__: ClassVar[Mapping[str, Any]] = _STRICT

    kind: Literal["easy", "conservative", "greedy", "none"] = "easy"
    max_jobs: int = 500
    window_s: int = 1440 * 60
    interval_s: float = 0.0
    queue_depth: int = 100
    max_jobs_per_user: int = 0
    jobs_per_yield: int = 0
    yield_s: float = 2.0
    continues: bool = False
    resolution_s: int = 1
    offset_s: float = 0.0
    from_pass: bool = False
    whole_nodes: bool = False
    counts: Literal["nodes", "gpus"] = "nodes"
    holders: Literal["partition", "cluster"] = "partition"
    default_limit_s: float = 7 * 86400.0

    def __post_init__(self) -> None:
        """Check the values."""
        if self.default_limit_s <= 0 or self.resolution_s <= 0:
            raise ValueError("default_limit_s and resolution_s must be above 0")
        if self.interval_s < 0:
            raise ValueError("interval_s must be at least 0")
        if not 0 <= self.offset_s < max(self.interval_s, 1):
            raise ValueError("offset_s must be at least 0 and below interval_s")


@dataclass(frozen=True)
class Priority:
    """The weight of each factor (`PriorityWeightAge` and so on); all are 0 by default: first come, first served.

    A job has its whole age factor after `max_age_s`. Usage halves in `half_life_s` (0: never) and is updated every
    `update_s`. With `favour_small`, small jobs have the larger size factor. If no quality of service has a priority, a
    job's own over `highest` is the factor.
    """

    __pydantic_config__: ClassVar[Mapping[str, Any]] = _STRICT

    age: float = 0.0
    fair_share: float = 0.0
    size: float = 0.0
    partition: float = 0.0
    qos: float = 0.0
    max_age_s: float = MAX_AGE_S
    half_life_s: float = HALF_LIFE_S
    update_s: float = UPDATE_S
    favour_small: bool = False
    highest: float = 1000.0

    def __post_init__(self) -> None:
        """Check the values."""
        if self.max_age_s <= 0:
            raise ValueError("max_age_s must be above 0")

    @cached_property
    def weighs(self) -> bool:
        """Return whether any factor counts."""
        return bool(self.drifts or self.size or self.partition or self.qos)

    @property
    def drifts(self) -> bool:
        """Return whether priorities change while jobs wait."""
        return bool(self.age or self.fair_share)


@dataclass(frozen=True)
class PreemptionRules:
    """What happens to preempted jobs.

    Jobs stop those of the qualities of service that theirs lists, or with `by` partition_prio those of partitions of a
    lower tier; the lowest in priority first, of these on the fewest nodes, or with `youngest_first` the last started
    (preempt_youngest_first). They wait again (`requeue`), resume in place when the GPUs come free (`suspend`), or end
    (`cancel`), after `grace_s` unless suspended. Requeued jobs save their state first, or with `requeue_loses` fall
    back to their last checkpoint (`failures.checkpoint_interval_s`), without one to the start, and get their whole time
    limit again.
    """

    __pydantic_config__: ClassVar[Mapping[str, Any]] = _STRICT

    mode: Mode = "off"
    by: Literal["qos", "partition_prio"] = "qos"
    youngest_first: bool = False
    grace_s: float = 0.0
    requeue_loses: bool = False

    def __post_init__(self) -> None:
        """Check the values."""
        if self.grace_s < 0:
            raise ValueError(f"grace_s must be at least 0, not {self.grace_s:g}")


#: What limits count, in the order of `Caps`.
AMOUNTS = ("gpus", "cpus", "memory_gb", "nodes", "jobs", "submitted")
#: Internal units: thousandths of cores, MiB.
_UNITS = (1, 1000, 1024, 1, 1, 1)


@dataclass(frozen=True)
class Caps:
    """Limits on what may be held at once, and on running and submitted jobs (None: no limit)."""

    __pydantic_config__: ClassVar[Mapping[str, Any]] = _STRICT

    gpus: int | None = None
    cpus: float | None = None
    memory_gb: float | None = None
    nodes: int | None = None
    jobs: int | None = None
    submitted: int | None = None

    def __getitem__(self, amount: int) -> int | None:
        """Return a limit by its index in `AMOUNTS`, in thousandths of cores and MiB."""
        value = getattr(self, AMOUNTS[amount])
        return None if value is None else round(value * _UNITS[amount])

    def with_gpus(self, gpus: int | None) -> Caps:
        """Return the same with another number of GPUs."""
        return replace(self, gpus=gpus)


@dataclass(frozen=True)
class Partition:
    """A partition, the queue of its jobs; Slurm's names in brackets.

    `gpu_type` is that of its GPUs if the cluster's nodes name no partitions. The highest `tier` (PriorityTier) goes
    first; `priority` is its job factor. No job runs for more than `max_time_h` (MaxTime: it is cancelled then) or on
    more than `max_nodes` (MaxNodes: it is refused); jobs without a time limit count as `default_time_h` long
    (DefaultTime). `qos` is the quality of service whose limits all its jobs have.
    """

    __pydantic_config__: ClassVar[Mapping[str, Any]] = _STRICT

    gpu_type: str = ""
    tier: int = 0
    priority: float = 0.0
    max_time_h: float | None = None
    default_time_h: float | None = None
    max_nodes: int | None = None
    qos: str = ""


@dataclass(frozen=True)
class Qos:
    """A quality of service: its priority, the ones that it preempts, and its limits.

    `group` is for all its jobs together (GrpTRES, GrpJobs, GrpSubmit), `per_user`, `per_account` and `per_job` for
    those of each (MaxTRESPerUser, MaxJobsPerUser, MaxSubmitJobsPerUser and so on), `max_time_h` for each (MaxWall).
    """

    __pydantic_config__: ClassVar[Mapping[str, Any]] = _STRICT

    priority: float = 0.0
    preempts: tuple[str, ...] = ()
    group: Caps = field(default_factory=Caps)
    per_user: Caps = field(default_factory=Caps)
    per_account: Caps = field(default_factory=Caps)
    per_job: Caps = field(default_factory=Caps)
    max_time_h: float | None = None


@dataclass(frozen=True)
class Account:
    """An account: its parent, its shares, and limits on all its jobs, on each of its users, and on each job."""

    __pydantic_config__: ClassVar[Mapping[str, Any]] = _STRICT

    parent: str = ""
    shares: float = 1.0
    group: Caps = field(default_factory=Caps)
    per_user: Caps = field(default_factory=Caps)
    per_job: Caps = field(default_factory=Caps)


@dataclass(frozen=True)
class Reservation:
    """Nodes, by index, reserved from one second of the workload to another for jobs that name the reservation.

    A reservation for maintenance has no name that a job could give: its nodes are drained in time, and no job starts
    there.
    """

    __pydantic_config__: ClassVar[Mapping[str, Any]] = _STRICT

    start_s: int
    end_s: int
    nodes: tuple[int, ...]
    name: str = ""


@dataclass(frozen=True)
class Limits:
    """Partitions, qualities of service, and limits on amounts and times.

    With `max_time_h` no job runs longer at a time, whatever it asked for; it is cancelled then. `users` sets limits by
    `account/user` or by user; `licences` is the number of each licence. With `drains`, outages of the kind maintenance
    are known beforehand, and no job starts on a node unless it ends before its outage.
    """

    __pydantic_config__: ClassVar[Mapping[str, Any]] = _STRICT

    max_time_h: float | None = None
    partitions: Mapping[str, Partition] = field(default_factory=dict)
    qos: Mapping[str, Qos] = field(default_factory=dict)
    accounts: Mapping[str, Account] = field(default_factory=dict)
    users: Mapping[str, Caps] = field(default_factory=dict)
    licences: Mapping[str, int] = field(default_factory=dict)
    reservations: tuple[Reservation, ...] = ()
    drains: bool = False

    def __post_init__(self) -> None:
        """Refuse limits under which no job can run."""
        if self.max_time_h is not None and not self.max_time_h > 0:
            raise ValueError(f"max_time_h must be above 0, not {self.max_time_h:g}")
