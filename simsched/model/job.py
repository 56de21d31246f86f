"""A job: what a user requests, and the truth about it."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import islice, repeat
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol, overload, runtime_checkable

from simsched.model.placement import NodeShape, Terms
from simsched.model.plans.plan import Plan


@dataclass(frozen=True, slots=True)
class Speedup:
    """Speed as a function of GPUs: the number of GPUs to the power of `exponent`, or a `table` of (GPUs, speed).

    A table is sorted by GPUs, positive, and linear between its entries; beyond the last entry the speed is constant,
    below the first it falls in proportion. Only ratios of speeds matter.
    """

    exponent: float = 1.0
    table: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        """Raise `ValueError` if the parameters are invalid."""
        if not 0 < self.exponent <= 1:
            raise ValueError(f"the exponent of a speed-up lies above 0 and is at most 1, not {self.exponent:g}")
        gpus = [count for count, _ in self.table]
        if gpus != sorted(set(gpus)) or any(count < 1 or speed <= 0 for count, speed in self.table):
            raise ValueError("a table of speed-up lists [GPUs, speed] by ascending GPUs, all above 0")

    @classmethod
    def of(cls, said: Literal["linear"] | float | Sequence[tuple[int, float]]) -> Speedup:
        """Return a speed-up as experiments declare it: `linear`, an exponent, or a table.

        Raises `TypeError` or `ValueError` for anything else.
        """
        if said == "linear":
            return cls()
        return cls(said) if isinstance(said, int | float) else cls(table=tuple((gpus, speed) for gpus, speed in said))

    def speed(self, gpus: int) -> float:
        """Return the speed on `gpus` GPUs, in the table's units or relative to one GPU."""
        if not self.table:
            return math.pow(gpus, self.exponent)
        after = bisect_right(self.table, (gpus, float("inf")))
        if after == 0:
            first, speed = self.table[0]
            return speed * gpus / first
        low, speed = self.table[after - 1]
        if after == len(self.table):
            return speed
        high, faster = self.table[after]
        return speed + (faster - speed) * (gpus - low) / (high - low)


#: The application name of jobs that have only GPUs and seconds.
FIXED_DURATION = "fixed-duration"


class StageProfile(NamedTuple):
    """Seconds of an iteration when alone, and for how many of them each resource is busy.

    The resources are storage and processors (loading), the GPU, and the network. They overlap, and some time may be
    spent in none of them.
    """

    iteration_s: float
    stages_s: tuple[float, float, float]


class JobRequest(NamedTuple):
    """What a user submits, and all that a policy sees of a job without asking for a signal.

    `submit_time_s` counts seconds from the start of the workload. `num_gpus` and `batch_size` are what the user asks
    for; a policy may grant others, and a `batch_size` of 0 means that none is given. `group` names jobs that belong
    together. Others may not slow a `guaranteed` job down. `deadline_s` is the time by which the job should be done, in
    seconds since its submission, and `time_limit_s` the run time after which it may be killed (None: none).
    `batch_rule` names the rule that changes the batch (empty: none), `weight` matters to policies with weights.
    `profile` is the profile of the job on the GPUs asked for (None: not profiled). `queue` is the queue or partition,
    `qos` the quality of service; jobs of higher `priority` are more urgent. `gpu_share` is the fraction of each GPU
    that the job wants, which matters if the engine allocates parts of GPUs. `shape` gives the number and types of nodes
    on which it wants them, and their cores and memory (None: `num_gpus` anywhere), `terms` what else its start waits
    for. `plan` is the plan of parallel training asked for (None: any).
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
    duration and is otherwise only recorded (0: unknown). `status` is the final state in the trace (`Pass`, `Killed`,
    `Failed`, or empty), `attempts` the number of attempts, and `attempts_s` the seconds in service of each attempt
    (empty: not recorded). `total_steps` are the optimizer steps that the job takes at the batch size asked for (0:
    unknown). `speedup` gives the speed of a job of known duration on other numbers of GPUs than it asks for; None means
    that it is unknown.
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
    """One row of a workload: a request and the truth about it, with the fields of both."""

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
        """Return `jobs` jobs from columns of field values; fields without a column have their defaults."""
        values = [columns.get(name, repeat(default)) for name, default in SPEC_DEFAULTS.items()]
        return [cls(*row) for row in islice(zip(*values, strict=False), jobs)]

    @staticmethod
    def columns_of(jobs: Iterable[JobSpec]) -> dict[str, list[Any]]:
        """Return the fields that are not at their defaults in all jobs, as columns for `of_columns`."""
        columns = zip(SPEC_DEFAULTS.items(), zip(*map(_SPEC, jobs), strict=True), strict=False)
        return {
            name: list(values) for (name, default), values in columns if any(value is not default for value in values)
        }

    @property
    def request(self) -> JobRequest:
        """Return what the user submitted."""
        return JobRequest(*_REQUEST(self))

    @property
    def truth(self) -> JobTruth:
        """Return what only the engine may know."""
        return JobTruth(*_TRUTH(self))


#: Jobs kept by column that exist as objects at a time.
_AT_ONCE = 1024
#: The defaults of the fields, in order; three have none.
SPEC_DEFAULTS: Mapping[str, Any] = MappingProxyType({field.name: field.default for field in fields(JobSpec)})
_SPEC = attrgetter(*SPEC_DEFAULTS)


@runtime_checkable
class KeptInColumns(Protocol):
    """Jobs stored by column, whose values can be read without building jobs."""

    def values_of(self, *names: str) -> Iterator[Any]:
        """Yield the values of fields of each job, as tuples for several fields."""


class JobColumns(Sequence[JobSpec]):
    """Jobs in memory by column, which take a quarter of the memory; few exist as objects at a time."""

    def __init__(self, jobs: int, columns: Mapping[str, Sequence[Any]]) -> None:
        """Take the number of jobs and their fields, numbers best as arrays of numpy; others have their defaults."""
        self._jobs, self._columns = jobs, columns
        self._first, self._made = 0, list[JobSpec]()

    def __len__(self) -> int:
        return self._jobs

    @overload
    def __getitem__(self, index: int) -> JobSpec: ...

    @overload
    def __getitem__(self, index: slice) -> list[JobSpec]: ...

    def __getitem__(self, index: int | slice) -> JobSpec | list[JobSpec]:
        if isinstance(index, slice):
            return [self[place] for place in range(self._jobs)[index]]
        place = range(self._jobs)[index]
        if not 0 <= place - self._first < len(self._made):
            self._first = place - place % _AT_ONCE
            some = slice(self._first, min(self._first + _AT_ONCE, self._jobs))
            columns = {name: _listed(values[some]) for name, values in self._columns.items()}
            self._made = JobSpec.of_columns(some.stop - some.start, columns)
        return self._made[place - self._first]

    def values_of(self, *names: str) -> Iterator[Any]:
        """Yield the values of fields of each job, as tuples for several fields."""
        for first in range(0, self._jobs, _AT_ONCE):
            some = range(self._jobs)[first : first + _AT_ONCE]
            default = (repeat(SPEC_DEFAULTS[name], len(some)) for name in names)
            columns = [
                _listed(self._columns[name][some.start : some.stop]) if name in self._columns else missing
                for name, missing in zip(names, default, strict=True)
            ]
            yield from zip(*columns, strict=True) if len(names) > 1 else columns[0]


def _listed(values: Any) -> Any:
    return values.tolist() if hasattr(values, "tolist") else values


def values_of(jobs: Iterable[JobSpec], *names: str) -> Iterator[Any]:
    """Yield the values of fields of each job, as tuples for several fields."""
    return jobs.values_of(*names) if isinstance(jobs, KeptInColumns) else map(attrgetter(*names), jobs)
