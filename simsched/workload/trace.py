"""A cluster trace: which jobs were submitted when, for how many GPUs, and how long they ran."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from simsched.errors import InputError, Problem, and_alike
from simsched.keys import MOST_SECONDS as MOST_SECONDS
from simsched.model import FIXED_DURATION
from simsched.workload.shapes import SHAPE_COLUMNS

if TYPE_CHECKING:
    import pandas as pd

#: The meaning of each column of a trace's table.
COLUMNS: Mapping[str, str] = MappingProxyType(
    {
        "job_id": "name of the job, unique within the trace",
        "submit_time_s": "submission, in whole seconds after the first submission of the trace",
        "num_gpus": "requested GPUs, at least 1",
        "duration_s": "service time in seconds on `num_gpus` GPUs, summed over all attempts, without waiting",
        "tenant": "virtual cluster, group or queue; empty if the trace names none",
        "user": "who submitted it; empty if the trace names none",
        "status": "final state: Pass, Killed or Failed; empty if the trace records none",
        "attempts": "how often the cluster started the job",
        "attempts_s": "seconds in service of each attempt, separated by spaces; empty if not recorded",
        "application": f"application of the job; `{FIXED_DURATION}` if the trace has only GPUs and seconds",
        "batch_size": "requested total batch size, in examples; 0 if the trace names none",
        "time_limit_s": "requested run time (time limit) in seconds; 0 if the trace names none",
        "queue": "queue or partition; empty if the trace names none",
        "priority": "priority, higher being more urgent; 0 if the trace names none",
        "qos": "quality of service or priority class; empty if the trace names none",
        "group": "job array or group that the job belongs to; empty if the trace names none",
        "gpu_share": "part of each of its GPUs that the job wants, above 0 and at most 1",
        **{name: column.meaning for name, column in SHAPE_COLUMNS.items()},
        "row": "0-based place of the job in the source, before sorting by submission",
    }
)

STATUSES = ("Pass", "Killed", "Failed")
#: How many problems of one file are reported; the rest is only counted.
PROBLEM_CAP = 20

#: The default values of optional columns.
_DEFAULTS: Mapping[str, Any] = MappingProxyType(
    dict.fromkeys(("tenant", "user", "status", "attempts_s", "queue", "qos", "group"), "")
    | {"attempts": 1, "application": FIXED_DURATION, "batch_size": 0}
    | {"time_limit_s": 0.0, "priority": 0.0, "gpu_share": 1.0}
)
#: The columns that a source may omit.
OPTIONAL = tuple(name for name in COLUMNS if name in _DEFAULTS)
_NOTHING: Mapping[str, int] = MappingProxyType({})
_INTEGERS = ("submit_time_s", "num_gpus", "attempts", "batch_size", "row")


@dataclass(frozen=True, eq=False)
class Trace:
    """The jobs of a cluster, sorted by submission, ties in the order of the source.

    `columns` holds the columns of `COLUMNS` by name, each an array or Series with one value per job, and `table` the
    same as a DataFrame; do not modify either. Empty columns of shapes are left out. `origin` is the time of second 0
    (no time zone), None if the source counts seconds from an unknown day; `start_s` is then the second of the source's
    clock at which the first job came. `dropped` counts the rows of the source that are not jobs to replay, by reason;
    `adjusted` counts the jobs with rounded values, by adjustment; `examples` are the first of either by line and job,
    if the reader keeps them; `unused` names the columns of the source that the trace ignores.
    """

    name: str
    source: str
    columns: Mapping[str, Any]
    origin: datetime | None = None
    dropped: Mapping[str, int] = field(default_factory=dict)
    adjusted: Mapping[str, int] = field(default_factory=dict)
    start_s: int = 0
    examples: Mapping[str, tuple[tuple[int, str], ...]] = field(default_factory=dict)
    unused: tuple[str, ...] = ()

    def __len__(self) -> int:
        """Return the number of jobs."""
        return len(self.columns["submit_time_s"])

    @cached_property
    def table(self) -> pd.DataFrame:
        """The jobs as a table with one row each."""
        import pandas as pd  # slow to load, and jobs sampled from a generated trace do not need a table

        return pd.DataFrame(dict(self.columns))

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return one column as an array."""
        return np.asarray(self.columns[name])

    @property
    def gpu_time_s(self) -> npt.NDArray[np.float64]:
        """The GPU-seconds of each job."""
        gpus = self.column("num_gpus") * self.column("gpu_share")
        gpu_time: npt.NDArray[np.float64] = self.column("duration_s") * gpus
        return gpu_time

    def says(self, column: str) -> bool:
        """Return whether any job's value in an optional column differs from the default."""
        return bool((self.column(column) != _DEFAULTS[column]).any())

    def second_of_day(self) -> npt.NDArray[np.int64]:
        """Return the seconds since midnight at which each job came.

        Without an `origin`, second 0 of the source's clock counts as midnight.
        """
        start = self.start_s if self.origin is None else seconds_of(self.origin)
        second: npt.NDArray[np.int64] = (self.column("submit_time_s").astype(np.int64) + start) % 86400
        return second


def seconds_of(moment: datetime) -> int:
    """Return the number of whole seconds from 1970-01-01 to a time without a time zone."""
    return int((moment - EPOCH) // timedelta(seconds=1))


#: Second 0 of the clock of readers of timestamps.
EPOCH = datetime(1970, 1, 1)


def sorted_trace(name: str, source: str, columns: Mapping[str, npt.NDArray[Any]], origin: datetime) -> Trace:
    """Build a trace from columns that are valid and sorted by submission, such as a generator's.

    `columns` and `origin` are those of `make_trace`. Raises `InputError` if there is no job.
    """
    jobs = len(columns["submit_time_s"])
    if not jobs:
        raise InputError(Problem(name, "holds no job that ran", _why_empty({})))
    first = int(columns["submit_time_s"][0])
    whole: dict[str, Any] = {"row": np.arange(jobs), "job_id": _names(jobs), **columns}
    whole["submit_time_s"] = whole["submit_time_s"] - first
    for column, default in _DEFAULTS.items():
        if column not in whole:
            whole[column] = np.full(jobs, default, dtype=object if isinstance(default, str) else None)
    whole |= {column: whole[column].astype(np.int64) for column in _INTEGERS}
    kept = {column: whole[column] for column in COLUMNS if column in whole}
    return Trace(name, source, kept, origin + timedelta(seconds=first))


def _names(jobs: int) -> npt.NDArray[Any]:
    return np.array([f"job-{i}" for i in range(jobs)], dtype=object)


def make_trace(
    name: str,
    source: str,
    columns: Mapping[str, Any],
    *,
    origin: datetime | None = None,
    dropped: Mapping[str, int] = _NOTHING,
    adjusted: Mapping[str, int] = _NOTHING,
    examples: Mapping[str, tuple[tuple[int, str], ...]] = MappingProxyType({}),
    unused: tuple[str, ...] = (),
) -> Trace:
    """Build a trace from columns in any order; check and sort it.

    `columns` needs `submit_time_s`, `num_gpus` and `duration_s`; `origin` is the timestamp of second 0 of the clock on
    which `submit_time_s` counts. Jobs without `job_id` are named `job-0`, `job-1`, ... in order of submission. Raises
    `InputError` naming row and column if a value is missing, negative or zero GPUs, or if there is no job.
    """
    import pandas as pd

    table = pd.DataFrame(dict(columns))
    if table.empty:
        raise InputError(Problem(name, "holds no job that ran", _why_empty(dropped)))
    if "row" not in table:
        table["row"] = np.arange(len(table))
    raise_all(name, _problems(name, table))
    for column in (column for column in _DEFAULTS if column not in table):
        table[column] = _DEFAULTS[column]
    table = table.sort_values(["submit_time_s", "row"], kind="stable", ignore_index=True)
    if "job_id" not in table:
        table["job_id"] = _names(len(table))
    first = int(table["submit_time_s"].iloc[0])
    table["submit_time_s"] -= first
    table = table.astype(dict.fromkeys(_INTEGERS, "int64") | {"duration_s": "float64"})
    start = None if origin is None else origin + timedelta(seconds=first)
    start_s = first if origin is None else 0
    kept = {column: table[column] for column in COLUMNS if column in table}
    return Trace(name, source, kept, start, _frozen(dropped), _frozen(adjusted), start_s, examples, unused)


_PROCESSORS = "whose processors are not a whole number of GPUs; more than one GPU is rounded up"


def in_gpus(trace: Trace, processors: int) -> Trace:
    """Convert a trace's processors to GPUs, with this many processors per GPU.

    Less than one GPU is a part of one; a larger fractional number is rounded up and the jobs affected are counted.
    """
    if processors == 1:
        return trace
    gpus = trace.column("num_gpus") * trace.column("gpu_share") / processors
    whole = np.maximum(np.ceil(gpus), 1)
    columns = {"num_gpus": whole.astype(np.int64), "gpu_share": np.minimum(gpus, 1.0)}
    uneven = {_PROCESSORS: int((gpus != np.ceil(gpus)).sum())}
    return replace(trace, columns={**trace.columns, **columns}, adjusted=_frozen({**trace.adjusted, **uneven}))


def raise_all(where: str, problems: Iterator[Problem]) -> None:
    """Raise one `InputError` with the first problems and a count of the rest; do nothing if there are none."""
    found = sorted(problems, key=lambda problem: problem.line)
    if not found:
        return
    rest = len(found) - PROBLEM_CAP
    if rest > 0:
        found = [*found[:PROBLEM_CAP], Problem(where, f"and {rest} more problems")]
    raise InputError(*found)


def _problems(name: str, table: pd.DataFrame) -> Iterator[Problem]:
    """Find invalid values; rows are counted from 1, as in the source."""
    import pandas as pd

    rows = table["row"].to_numpy() + 1
    for column, least in (
        ("submit_time_s", -np.inf),
        ("duration_s", 0),
        ("num_gpus", 0 if "num_nodes" in table else 1),
    ):
        values = pd.to_numeric(table[column], errors="coerce").to_numpy("float64")
        for wrong, what in ((~np.isfinite(values), "has no number"), (values < least, f"is {{}}, below {least}")):
            if found := rows[wrong].tolist():
                first = what.format(f"{values[wrong.argmax()]:g}")
                yield Problem(name, f"row {found[0]}: column '{column}' {first}{and_alike(found, 'row')}")
    if "job_id" in table and (again := table["job_id"].duplicated().to_numpy()).any():
        found = rows[again].tolist()
        said = f"column 'job_id': '{table['job_id'].iat[int(again.argmax())]}' also names an earlier job"
        yield Problem(name, f"row {found[0]}: {said}{and_alike(found, 'row')}")


def _why_empty(dropped: Mapping[str, int]) -> str:
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(dropped.items()) if count)
    return f"left out: {reasons}" if reasons else "give at least one job"


def _frozen(counts: Mapping[str, int]) -> Mapping[str, int]:
    """Return the reasons that occurred as a read-only mapping."""
    return MappingProxyType({reason: int(count) for reason, count in counts.items() if count})
