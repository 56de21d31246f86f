"""The result tables, each declared once: a class whose fields are its columns.

A field declares its type, meaning, unit and the feature that adds it. The engine fills these rows; the schema of the
files, their writer and reader, the tables of `simsched.simulate` and `docs/results.md` are derived from them. All times
are seconds from the start of the workload, integers if the tick is a second.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_type_hints

import numpy as np

if TYPE_CHECKING:
    import pandas as pd


class Feature(StrEnum):
    """A feature that adds columns if an experiment uses it; fine time makes seconds fractional."""

    SHARING = "sharing"
    FINE_TIME = "fine-time"
    FAILURES = "failures"
    DEADLINES = "deadlines"
    QUEUES = "queues"
    TOPOLOGY = "topology"
    FRAGMENTATION = "fragmentation"
    MAKES = "makes"
    PLANS = "plans"
    CONTENTION = "contention"
    TIERS = "tiers"


SHARING, FINE_TIME, FAILURES, DEADLINES, QUEUES, TOPOLOGY, FRAGMENTATION, MAKES, PLANS, CONTENTION, TIERS = Feature


@dataclass(frozen=True)
class Column:
    """One column: its meaning, its unit (empty for names and plain counts), and the feature that adds it, if any.

    Numbers are at least 0, and finite unless the column is `endless`; texts match the regular expression `form`.
    `name`, and `type`, the name of an Arrow type, come from its field.
    """

    meaning: str
    unit: str = ""
    feature: Feature | None = None
    endless: bool = False
    form: str = ""
    name: str = ""
    type: str = ""


Text = Annotated[str, "string"]
Truth = Annotated[bool, "bool"]
Count = Annotated[int, "int32"]
#: Whole seconds in the files, unless time is finer.
Seconds = Annotated[float, "int64"]
Number = Annotated[float, "double"]
Numbers = Annotated[Mapping[str, float], "map<string, double>"]


class JobRecord(NamedTuple):
    """One finished job, in the order of completion."""

    job_id: Annotated[Text, Column("name of the job, unique within the workload")]
    application: Annotated[Text, Column("what the job trains, or `fixed-duration`")]
    tenant: Annotated[Text, Column("tenant or virtual cluster; empty if unknown")]
    user: Annotated[Text, Column("submitting user; empty if unknown")]
    status: Annotated[
        Text,
        Column("final state in the trace, `TimeLimit` if killed there, `Cancelled` if by the policy; empty if unknown"),
    ]
    num_gpus: Annotated[Count, Column("GPUs that the user asked for", "GPU")]
    batch_size: Annotated[Count, Column("total batch size that the user asked for; 0 if not given", "examples")]
    submit_time_s: Annotated[Seconds, Column("time of submission", "s")]
    start_time_s: Annotated[Seconds, Column("time at which the job first held GPUs", "s")]
    end_time_s: Annotated[Seconds, Column("time of completion", "s")]
    jct_s: Annotated[Seconds, Column("job completion time: `end_time_s - submit_time_s`", "s")]
    held_s: Annotated[Seconds, Column("time for which the job held GPUs, restarting included", "s")]
    queueing_s: Annotated[
        Seconds, Column("time in the system without GPUs, before and between runs: `jct_s - held_s`", "s")
    ]
    restart_s: Annotated[Seconds, Column("part of `held_s` spent starting or restarting", "s")]
    attained_gpu_s: Annotated[
        Seconds, Column("attained service: GPUs held times seconds, restarting included", "GPU s")
    ]
    restarts: Annotated[Count, Column("times the job was started or moved again after its first start")]
    attempts: Annotated[
        Count, Column("times the job was tried; one more for each failure of its own", "", FAILURES)
    ] = 1
    failures: Annotated[Count, Column("failures of nodes that took the job off its GPUs", "", FAILURES)] = 0
    lost_s: Annotated[Seconds, Column("running time whose progress was lost to failures", "s", FAILURES)] = 0
    lost_gpu_s: Annotated[Seconds, Column("the same, times the GPUs held", "GPU s", FAILURES)] = 0
    checkpoint_s: Annotated[Seconds, Column("time spent writing checkpoints, the job pausing", "s", FAILURES)] = 0
    deadline_s: Annotated[
        Number,
        Column("deadline, counted from `submit_time_s`; infinite without one", "s", DEADLINES, endless=True),
    ] = math.inf
    declined: Annotated[Truth, Column("whether the policy ever declined to promise that deadline", "", DEADLINES)] = (
        False
    )
    queue: Annotated[Text, Column("queue or partition asked for; empty if the job names none", "", QUEUES)] = ""


class AllocationRecord(NamedTuple):
    """One interval during which nothing about a job's run changed, in the order of the ends."""

    job_id: Annotated[Text, Column("the job")]
    start_s: Annotated[Seconds, Column("start of the interval", "s")]
    end_s: Annotated[
        Seconds, Column("end of the interval, later than its start (equal for a lease in which nothing was done)", "s")
    ]
    gpus: Annotated[Count, Column("GPUs held", "GPU")]
    nodes: Annotated[Count, Column("nodes over which they are spread")]
    placement: Annotated[
        Text,
        Column(
            "`node:GPUs` pairs in the order in which the nodes were picked, as in `5:4 2:2`",
            form=r"\d{1,6}:\d{1,5}( \d{1,6}:\d{1,5})*",
        ),
    ]
    restarting: Annotated[Truth, Column("true while the job restores or saves its state and makes no progress")]
    local_bsz: Annotated[Count, Column("batch of one GPU and micro-batch; 0 while restarting or unknown", "examples")]
    accum_steps: Annotated[Count, Column("extra gradient accumulation steps")]
    batch_size: Annotated[
        Count,
        Column("total batch: `gpus * local_bsz * (accum_steps + 1)`, with a plan its d instead of `gpus`", "examples"),
    ]
    epoch: Annotated[Count, Column("epoch, counted from 0")]
    progress: Annotated[Number, Column("progress at the start of the interval", "iterations or s")]
    rate: Annotated[Number, Column("progress per second; 0 while restarting", "1/s")]
    efficiency: Annotated[Number, Column("statistical efficiency in (0, 1]; 0 while restarting")]
    throughput: Annotated[Number, Column("examples per second, slow-downs included; 0 while restarting", "examples/s")]
    neighbours: Annotated[Text, Column("ids of the jobs on the same GPUs, separated by spaces", "", SHARING)] = ""
    gpu_share: Annotated[
        Number,
        Column(
            "mean share of its GPUs, split evenly among their holders; the part that it takes of each if jobs take "
            "parts",
            "",
            SHARING,
        ),
    ] = 1.0
    relative_speed: Annotated[Number, Column("speed relative to that when alone on its GPUs", "", SHARING)] = 1.0
    levels_crossed: Annotated[
        Count, Column("levels above the nodes of which its nodes are in several domains", "", TOPOLOGY)
    ] = 0
    plan: Annotated[
        Text,
        Column("plan of parallel training, as in `t8 p4 d16 b2`; empty while restarting or without plans", "", PLANS),
    ] = ""
    congestion: Annotated[
        Number, Column("share of its speed that it loses to others on its uplinks", "", CONTENTION)
    ] = 0.0


class DecisionRecord(NamedTuple):
    """One decision of the policy, as things stood after it."""

    time_s: Annotated[Seconds, Column("time of the decision", "s")]
    active_jobs: Annotated[Count, Column("jobs submitted and not finished")]
    running_jobs: Annotated[Count, Column("jobs that hold GPUs")]
    allocated_gpus: Annotated[Count, Column("GPUs held by jobs", "GPU")]
    available_gpus: Annotated[Count, Column("GPUs of the nodes that are up", "GPU")]
    provisioned_nodes: Annotated[Count, Column("nodes that are up or starting, and so are paid for")]
    started: Annotated[Count, Column("jobs that got GPUs and held none before")]
    stopped: Annotated[Count, Column("jobs that lost all their GPUs")]
    moved: Annotated[Count, Column("jobs whose placement changed in any other way")]
    diagnostics: Annotated[Numbers, Column("the policy's own numbers about the decision, keys sorted")]
    failed_nodes: Annotated[Count, Column("nodes that are out of order", "", FAILURES)] = 0
    node_failures: Annotated[Count, Column("failures of nodes since the start", "", FAILURES)] = 0
    stranded_gpus: Annotated[
        Count,
        Column(
            "free GPUs that no waiting job can use, however it is spread over nodes of one type", "GPU", FRAGMENTATION
        ),
    ] = 0
    stranded_by_node_gpus: Annotated[
        Count,
        Column(
            "free GPUs that no waiting job can use on as few nodes as it needs in an empty cluster",
            "GPU",
            FRAGMENTATION,
        ),
    ] = 0
    stranded_by_domain_gpus: Annotated[
        Count,
        Column(
            "the same in as few domains of the lowest level above the nodes (without levels, the cluster)",
            "GPU",
            FRAGMENTATION,
        ),
    ] = 0
    provisioned_gpus: Annotated[Numbers, Column("GPUs of the nodes that are up or starting, by type", "GPU", MAKES)] = (
        MappingProxyType({})
    )
    fits_in_domain_gpus: Annotated[
        Count, Column("largest job that fits now in one domain of the lowest level above the nodes", "GPU", TIERS)
    ] = 0


class OutageRecord(NamedTuple):
    """One interval during which a node was out of use, in the order of the ends; those of one node may overlap."""

    node: Annotated[Count, Column("the node, counted from 0")]
    start_s: Annotated[Seconds, Column("start of the interval", "s")]
    end_s: Annotated[Seconds, Column("end of the interval, or of the run if that comes first", "s")]
    kind: Annotated[
        Text,
        Column(
            "`node failure` or its cause, `rack failure`, what a list of outages says (else `outage`), or `off`: let "
            "go by the policy, asleep, not rented or a spare, until it is up again"
        ),
    ]
    ended: Annotated[Truth, Column("whether the interval was over before the run was")]


class ReasonRecord(NamedTuple):
    """How one active job stood after one decision, in the order of the workload; with `engine.reasons` alone."""

    time_s: Annotated[Seconds, Column("time of the decision", "s")]
    job_id: Annotated[Text, Column("the job")]
    gpus: Annotated[Count, Column("GPUs held; 0 while it waits", "GPU")]
    rank: Annotated[Count, Column("place in the policy's order (of its GPU type or queue), 1 first; 0 without order")]
    score: Annotated[
        Text, Column("numbers that order it, as the policy has them, separated by spaces; empty if there are none")
    ]
    why: Annotated[
        Text,
        Column(
            "why it waits: `no room`, `not on one node`, `over quota`, `reserved for another`, `another comes first` "
            "or `the policy lets it wait`; empty while it holds GPUs"
        ),
    ]
    detail: Annotated[Text, Column("the same in numbers, or in the policy's words")]


@dataclass(frozen=True)
class Table:
    """One result table: its name and the class of its rows. An `occasional` one exists only if it has a row."""

    name: str
    record: Any
    occasional: bool = False

    @property
    def file(self) -> str:
        """Name of the Parquet file."""
        return f"{self.name}.parquet"

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """All columns in order, with the names and types of their fields."""
        hints = get_type_hints(self.record, include_extras=True)
        fields = ((name, *hints[name].__metadata__) for name in self.record._fields)
        return tuple(replace(column, name=name, type=kind) for name, kind, column in fields)

    def written(self, features: Collection[str] = ()) -> tuple[Column, ...]:
        """Return the columns with these features, in order."""
        return tuple(column for column in self.columns if column.feature is None or column.feature in features)

    def markdown(self) -> str:
        """Return the section of `docs/results.md` on this table."""
        row = self.record.__doc__[0].lower() + self.record.__doc__[1:]
        lines = [
            f"### {self.file}",
            "",
            f"A row is {row}" + (" The file exists only if there is one." if self.occasional else ""),
            "",
            "| column | type | unit | meaning |",
            "|---|---|---|---|",
        ]
        only = {column.name: f" (only with {column.feature})" if column.feature else "" for column in self.columns}
        lines += [f"| `{c.name}` | {c.type} | {c.unit} | {c.meaning}{only[c.name]} |" for c in self.columns]
        return "\n".join(lines) + "\n"


JOBS, ALLOCATIONS, ROUNDS, OUTAGES, REASONS = _TABLES = (
    Table("jobs", JobRecord),
    Table("allocations", AllocationRecord),
    Table("rounds", DecisionRecord),
    Table("outages", OutageRecord, occasional=True),
    Table("reasons", ReasonRecord, occasional=True),
)


class Records:
    """The rows of a table in order; all but the newest are packed in columns, which take a tenth of the memory."""

    def __init__(self, table: Table) -> None:
        """Begin without any; `rows` are the newest."""
        self.rows: list[Any] = []
        self._table = table
        self._packed: list[tuple[int, list[np.ndarray]]] = []

    def pack(self) -> None:
        """Pack the newest rows in columns."""
        if self.rows:
            columns = zip(self._table.columns, zip(*self.rows, strict=True), strict=True)
            self._packed.append((len(self.rows), [_packed(column, values) for column, values in columns]))
            self.rows.clear()

    def __len__(self) -> int:
        return len(self.rows) + sum(count for count, _ in self._packed)

    def __iter__(self) -> Iterator[Any]:
        columns = [self._values(place).tolist() for place in range(len(self._table.columns))]
        return map(self._table.record._make, zip(*columns, strict=True))

    def frame(self, features: Collection[str] = ()) -> pd.DataFrame:
        """Return the rows as a pandas table, with the columns of these features."""
        import pandas as pd  # slow to load, and the engine needs none of it

        wanted = self._table.written(features)
        if not len(self):
            return pd.DataFrame(columns=[column.name for column in wanted])
        places = {column.name: place for place, column in enumerate(self._table.columns) if column in wanted}
        texts = {column.name for column in wanted if column.type == "string"}
        values = {name: self._values(place) for name, place in places.items()}
        return pd.DataFrame({name: list(one) if name in texts else one for name, one in values.items()}, copy=False)

    def _values(self, place: int) -> np.ndarray:
        """Return a column: whole numbers as int64, or as doubles if any is fractional."""
        self.pack()
        parts = [np.broadcast_to(columns[place], count) for count, columns in self._packed]
        kinds = {part.dtype.kind for part in parts}
        kind = np.float64 if "f" in kinds else np.int64 if kinds & {"i", "u"} else None
        return np.concatenate(parts, dtype=kind) if parts else np.empty(0)


def _packed(column: Column, values: Sequence[Any]) -> np.ndarray:
    """Return values as a small array: integers as narrow as they fit, and one value where all are the same."""
    whole = np.array(values, dtype=object if column.type in _OBJECTS else None)
    bits = whole.view(np.int64) if whole.dtype.kind == "f" else whole  # 0 and -0 differ
    if not column.type.startswith("map") and (bits == bits[0]).all():
        return whole[:1].copy()
    if whole.dtype.kind != "i":
        return whole
    return whole.astype(np.promote_types(np.min_scalar_type(whole.min()), np.min_scalar_type(whole.max())))


#: The types of columns whose values are not numbers.
_OBJECTS = frozenset({"string", "map<string, double>"})
#: The largest number in a table, in whatever unit: as seconds, thirty million years.
LARGEST = 1e15
#: Stored in every file, and raised when a column changes its meaning.
SCHEMA_VERSION = "1"
#: The tables of a cell, by name.
TABLES: Mapping[str, Table] = MappingProxyType({table.name: table for table in _TABLES})


def schema_markdown() -> str:
    """Format the tables as Markdown, one section each, as in `docs/results.md`."""
    return "\n".join(table.markdown() for table in TABLES.values())
