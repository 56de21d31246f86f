"""What an administrator sets of Slurm: backfill, priority, preemption, and the limits of who may hold how much."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from simsched_policies.production.slurm.multifactor import HALF_LIFE_S, MAX_AGE_S, UPDATE_S

Mode = Literal["off", "requeue", "suspend", "cancel"]

#: How a file's values become these: unknown names are an error.
_STRICT: Mapping[str, Any] = {"extra": "forbid"}


@dataclass(frozen=True)
class Backfill:
    """How jobs behind the first that must wait are looked at; in brackets Slurm's names.

    `kind` is `easy` (the first job that must wait gets a reservation), `conservative` (each of the first `max_jobs`
    that would start within `window_s` gets one, as Slurm does for the jobs that it tests) or `none` (the first job that
    must wait blocks the rest). With `interval_s` (bf_interval, 30 in Slurm) backfill runs at its multiples only, and
    arrivals and completions look at the first `queue_depth` jobs (default_queue_depth), up to the first that cannot
    start; without it, backfill runs at once. Limits are planned in steps of `resolution_s` (bf_resolution), jobs
    without a time limit as `default_limit_s` long. The tasks of a job array count as one job for `max_jobs`
    (bf_max_job_test) and `queue_depth`.
    """

    __pydantic_config__: ClassVar[Mapping[str, Any]] = _STRICT

    kind: Literal["easy", "conservative", "none"] = "easy"
    max_jobs: int = 500
    window_s: int = 1440 * 60
    interval_s: float = 0.0
    queue_depth: int = 100
    resolution_s: int = 1
    default_limit_s: float = 7 * 86400.0

    def __post_init__(self) -> None:
        """Refuse what cannot be counted."""
        if self.default_limit_s <= 0 or self.resolution_s <= 0:
            raise ValueError("default_limit_s and resolution_s must be above 0")
        if self.interval_s < 0:
            raise ValueError("interval_s must be at least 0")


@dataclass(frozen=True)
class Priority:
    """What each factor counts (`PriorityWeightAge` and so on); all are 0 by default: first come, first served.

    A job has its whole age factor after `max_age_s`. Usage halves in `half_life_s` (0: never) and is updated every
    `update_s`. With `favour_small`, small jobs have the larger factor of size. Where no quality of service has a
    priority, a job's own over `highest` is the factor.
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
        """Refuse what cannot be counted."""
        if self.max_age_s <= 0:
            raise ValueError("max_age_s must be above 0")

    @property
    def weighs(self) -> bool:
        """Return whether any factor counts."""
        return bool(self.age or self.fair_share or self.size or self.partition or self.qos)


@dataclass(frozen=True)
class PreemptionRules:
    """What happens to jobs that others stop.

    They wait again (`requeue`), resume in place when the GPUs come free (`suspend`), or end (`cancel`), after `grace_s`
    unless suspended. Requeued jobs save themselves before, or with `requeue_loses` fall back to their last checkpoint
    (`failures.checkpoint_interval_s`), to nothing without one, and get their whole time limit again.
    """

    __pydantic_config__: ClassVar[Mapping[str, Any]] = _STRICT

    mode: Mode = "off"
    grace_s: float = 0.0
    requeue_loses: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        if self.grace_s < 0:
            raise ValueError(f"grace_s must be at least 0, not {self.grace_s:g}")


@dataclass(frozen=True)
class Partition:
    """A partition, the queue of its jobs: its GPU type, its tier (the highest goes first) and its priority."""

    __pydantic_config__: ClassVar[Mapping[str, Any]] = _STRICT

    gpu_type: str = ""
    tier: int = 0
    priority: float = 0.0


@dataclass(frozen=True)
class Qos:
    """A quality of service: its priority, and those whose jobs its jobs may stop."""

    __pydantic_config__: ClassVar[Mapping[str, Any]] = _STRICT

    priority: float = 0.0
    preempts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Limits:
    """What partitions and qualities of service there are, and the longest time for which a job may run.

    With `max_time_h` no job runs longer at a time, whatever it asked for; those that would are cancelled then.
    """

    __pydantic_config__: ClassVar[Mapping[str, Any]] = _STRICT

    max_time_h: float | None = None
    partitions: Mapping[str, Partition] = field(default_factory=dict)
    qos: Mapping[str, Qos] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse what lets no job run."""
        if self.max_time_h is not None and not self.max_time_h > 0:
            raise ValueError(f"max_time_h must be above 0, not {self.max_time_h:g}")
