"""A job: what a user requests, and what turns out to be true of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import repeat
from operator import attrgetter, is_
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, runtime_checkable

from simsched.model.plans.plan import Plan
from simsched.model.shape import NodeShape, Terms
from simsched.model.speedup import Speedup

#: The application name of jobs that know only GPUs and seconds.
FIXED_DURATION = "fixed-duration"


class StageProfile(NamedTuple):
    """Seconds of an iteration when alone, and the seconds of it that each resource is busy.

    The resources are storage and processors (loading), the GPU, and the network. They overlap, and some time may be
    spent on none of them.
    """

    iteration_s: float
    stages_s: tuple[float, float, float]


class JobRequest(NamedTuple):
    """What a user submits, and all of a job that a policy sees without asking for a signal.

    `submit_time_s` counts seconds from the start of the workload. `num_gpus` and `batch_size` are what the user asked
    for; a policy may grant others, and a `batch_size` of 0 means not given. `group` names jobs that belong together.
    A `guaranteed` job may not be slowed down by others. `deadline_s` is when the job should be done, in seconds since
    its submission, and `time_limit_s` the run time after which it may be killed (None: not given). `batch_rule` names
    the rule that changes the batch (empty: none), `weight` counts in policies with weights. `profile` is the profile of
    the job on the GPUs asked for (None: not profiled). `queue` is the queue or partition, `qos` the quality of service;
    jobs of higher `priority` are more urgent. `gpu_share` is the part of each GPU that the job wants, which counts
    where the engine gives out parts of GPUs. `shape` says on how many nodes of which types it wants them, with how many
    cores and how much memory (None: `num_gpus` anywhere), `terms` what else its start waits for. `plan` is the plan
    of parallel training asked for (None: any).
    """

    id: str
    submit_time_s: float
    num_gpus: int
    application: str = FIXED_DURATION
    batch_size: int = 0
    tenant: str = ""
    user: str = ""
    group: str = ""
    guaranteed: bool = False
    deadline_s: float | None = None
    time_limit_s: float | None = None
    batch_rule: str = ""
    weight: float = 1.0
    profile: StageProfile | None = None
    queue: str = ""
    priority: float = 0
    qos: str = ""
    gpu_share: float = 1.0
    shape: NodeShape | None = None
    terms: Terms | None = None
    plan: Plan | None = None


class JobTruth(NamedTuple):
    """What only the engine knows of a job.

    `duration_s` is the service time in seconds on the GPUs requested, as a trace recorded it; it drives jobs of fixed
    duration and is otherwise only remembered (0: unknown). `status` is the final state in the trace (`Pass`, `Killed`,
    `Failed`, or empty), `attempts` how often it was tried, and `attempts_s` the seconds in service of each attempt
    (empty: not recorded). `total_steps` are the optimizer steps that the job takes at the batch size asked for (0:
    unknown). `speedup` says how a job known by its duration runs on other numbers of GPUs than it asked for; None means
    that this is not known.
    """

    duration_s: float = 0
    status: str = ""
    attempts: int = 1
    total_steps: float = 0
    attempts_s: tuple[float, ...] = ()
    speedup: Speedup | None = None


_REQUEST, _TRUTH = attrgetter(*JobRequest._fields), attrgetter(*JobTruth._fields)


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One row of a workload: a request and the truth about it, whose fields it has."""

    id: str
    submit_time_s: float
    num_gpus: int
    application: str = FIXED_DURATION
    batch_size: int = 0
    duration_s: float = 0
    tenant: str = ""
    user: str = ""
    status: str = ""
    attempts: int = 1
    group: str = ""
    guaranteed: bool = False
    deadline_s: float | None = None
    time_limit_s: float | None = None
    batch_rule: str = ""
    weight: float = 1.0
    total_steps: float = 0
    profile: StageProfile | None = None
    attempts_s: tuple[float, ...] = ()
    speedup: Speedup | None = None
    queue: str = ""
    priority: float = 0
    qos: str = ""
    gpu_share: float = 1.0
    shape: NodeShape | None = None
    terms: Terms | None = None
    plan: Plan | None = None

    @classmethod
    def of_columns(cls, jobs: int, columns: Mapping[str, Iterable[Any]]) -> list[JobSpec]:
        """Return so many jobs, given the values of some fields; half the time of calling the class for each."""
        specs = list(map(object.__new__, repeat(cls, jobs)))
        for name, default in SPEC_DEFAULTS.items():
            deque(map(getattr(cls, name).__set__, specs, columns.get(name, repeat(default))), maxlen=0)
        return specs

    @staticmethod
    def columns_of(jobs: Iterable[JobSpec]) -> dict[str, list[Any]]:
        """Return the values of the fields that some of the jobs have; `of_columns` makes equal jobs of them."""
        columns = zip(SPEC_DEFAULTS.items(), zip(*map(_SPEC, jobs), strict=True), strict=False)
        return {name: list(found) for (name, default), found in columns if not all(map(is_, found, repeat(default)))}

    @property
    def request(self) -> JobRequest:
        """Return what the user submitted."""
        return tuple.__new__(JobRequest, _REQUEST(self))  # half the time of `_make`

    @property
    def truth(self) -> JobTruth:
        """Return what only the engine may know."""
        return tuple.__new__(JobTruth, _TRUTH(self))


#: What a field holds by default, in their order; three have none.
SPEC_DEFAULTS: Mapping[str, Any] = MappingProxyType({field.name: field.default for field in fields(JobSpec)})
_SPEC = attrgetter(*SPEC_DEFAULTS)


@runtime_checkable
class KeptInColumns(Protocol):
    """Jobs kept by column, whose values are read without making jobs."""

    def values_of(self, *names: str) -> Iterator[Any]:
        """Yield the values of fields of each job, a tuple where they are several."""


def values_of(jobs: Iterable[JobSpec], *names: str) -> Iterator[Any]:
    """Yield the values of fields of each job, a tuple where they are several."""
    return jobs.values_of(*names) if isinstance(jobs, KeptInColumns) else map(attrgetter(*names), jobs)
