"""Every column of the result tables, written down once: name, type, unit and meaning.

The columns stand in the order of the fields of the engine's records (`simsched.engine.records`), which this package
does not import; a test holds the two together, and another holds `docs/results.md` to this page.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import pyarrow as pa

from simsched.results.version import SCHEMA_VERSION

#: Features that show in the tables: GPUs that are shared, time finer than a second, failures, jobs with deadlines, ...
SHARING, FINE_TIME, FAILURES, DEADLINES = "sharing", "fine-time", "failures", "deadlines"
QUEUES = "queues"
#: ... levels above the nodes, free GPUs that are of no use, and nodes of several makes.
TOPOLOGY, FRAGMENTATION, MAKES = "topology", "fragmentation", "makes"

_TEXT = pa.string()
_TIME = pa.int64()
_COUNT = pa.int32()
_NUMBER = pa.float64()
#: No number of a table is larger, in whatever unit: as seconds, thirty million years.
LARGEST = 1e15
_TEXT_NUMBERS = pa.map_(pa.string(), pa.float64())


@dataclass(frozen=True)
class Column:
    """One column: its Arrow type, its unit (empty for names and plain counts) and what it tells.

    One with a `feature` is there only where the experiment uses that feature of the engine. Numbers are at least 0, and
    finite unless the column is `endless`; texts have the form of the regular expression `form`.
    """

    name: str
    type: pa.DataType
    unit: str
    meaning: str
    feature: str = ""
    endless: bool = False
    form: str = ""

    @property
    def types(self) -> tuple[pa.DataType, ...]:
        """The Arrow types that it can have: times need not be whole seconds."""
        return (self.type, _NUMBER) if self.type == _TIME else (self.type,)


@dataclass(frozen=True)
class Table:
    """One result table: what a row is, and its columns in order.

    An `occasional` one is there only where it has a row.
    """

    name: str
    row: str
    columns: tuple[Column, ...]
    occasional: bool = False

    @property
    def file(self) -> str:
        """Name of the Parquet file."""
        return f"{self.name}.parquet"

    def written(self, features: Collection[str] = ()) -> tuple[Column, ...]:
        """Return the columns that are there with some features, in order."""
        return tuple(column for column in self.columns if not column.feature or column.feature in features)

    def arrow(self, features: Collection[str] = ()) -> pa.Schema:
        """Return the Arrow schema, no column nullable, with the version of the tables as its only metadata.

        With the feature `fine-time` times are not whole seconds.
        """
        fine = {_TIME: _NUMBER} if FINE_TIME in features else {}
        columns = self.written(features)
        fields = [pa.field(column.name, fine.get(column.type, column.type), nullable=False) for column in columns]
        return pa.schema(fields, metadata={"simsched_schema": SCHEMA_VERSION})


JOBS = Table(
    "jobs",
    "one finished job, in the order of completion",
    (
        Column("job_id", _TEXT, "", "name of the job, unique within the workload"),
        Column("application", _TEXT, "", "what the job trains, or `fixed-duration`"),
        Column("tenant", _TEXT, "", "tenant or virtual cluster; empty where unknown"),
        Column("user", _TEXT, "", "submitting user; empty where unknown"),
        Column(
            "status",
            _TEXT,
            "",
            "final state in the trace, `TimeLimit` if killed there, `Cancelled` if by the policy; empty where unknown",
        ),
        Column("num_gpus", _COUNT, "GPU", "GPUs that the user asked for"),
        Column("batch_size", _COUNT, "examples", "total batch size that the user asked for; 0 where not given"),
        Column("submit_time_s", _TIME, "s", "time of submission"),
        Column("start_time_s", _TIME, "s", "time at which the job first held GPUs"),
        Column("end_time_s", _TIME, "s", "time of completion"),
        Column("jct_s", _TIME, "s", "job completion time: `end_time_s - submit_time_s`"),
        Column("held_s", _TIME, "s", "time for which the job held GPUs, restarting included"),
        Column("queueing_s", _TIME, "s", "time in the system without GPUs, before and between runs: `jct_s - held_s`"),
        Column("restart_s", _TIME, "s", "part of `held_s` spent starting or restarting"),
        Column("attained_gpu_s", _TIME, "GPU s", "attained service: GPUs held times seconds, restarting included"),
        Column("restarts", _COUNT, "", "times the job was started or moved again after its first start"),
        Column("attempts", _COUNT, "", "times the job was tried; one more for each failure of its own", FAILURES),
        Column("failures", _COUNT, "", "failures of nodes that took the job off its GPUs", FAILURES),
        Column("lost_s", _TIME, "s", "running time whose progress was lost to failures", FAILURES),
        Column("lost_gpu_s", _TIME, "GPU s", "the same, times the GPUs held", FAILURES),
        Column("checkpoint_s", _TIME, "s", "time spent writing checkpoints, the job pausing", FAILURES),
        Column(
            "deadline_s",
            _NUMBER,
            "s",
            "deadline, counted from `submit_time_s`; infinite where there is none",
            DEADLINES,
            endless=True,
        ),
        Column("declined", pa.bool_(), "", "whether the policy ever declined to promise that deadline", DEADLINES),
        Column("queue", _TEXT, "", "queue or partition asked for; empty where the job names none", QUEUES),
    ),
)

ALLOCATIONS = Table(
    "allocations",
    "one interval during which nothing about a job's run changed, in the order of the ends",
    (
        Column("job_id", _TEXT, "", "the job"),
        Column("start_s", _TIME, "s", "begin of the interval"),
        Column(
            "end_s",
            _TIME,
            "s",
            "end of the interval, later than its begin (equal for a lease in which nothing was done)",
        ),
        Column("gpus", _COUNT, "GPU", "GPUs held"),
        Column("nodes", _COUNT, "", "nodes over which they are spread"),
        Column(
            "placement",
            _TEXT,
            "",
            "`node:GPUs` pairs in the order in which the nodes were picked, as in `5:4 2:2`",
            form=r"\d{1,6}:\d{1,5}( \d{1,6}:\d{1,5})*",
        ),
        Column("restarting", pa.bool_(), "", "true while the job restores or saves its state and makes no progress"),
        Column("local_bsz", _COUNT, "examples", "batch of one GPU and micro-batch; 0 while restarting or unknown"),
        Column("accum_steps", _COUNT, "", "extra gradient accumulation steps"),
        Column("batch_size", _COUNT, "examples", "total batch: `gpus * local_bsz * (accum_steps + 1)`"),
        Column("epoch", _COUNT, "", "epoch, counted from 0"),
        Column("progress", _NUMBER, "iterations or s", "progress at the begin of the interval"),
        Column("rate", _NUMBER, "1/s", "progress per second; 0 while restarting"),
        Column("efficiency", _NUMBER, "", "statistical efficiency in (0, 1]; 0 while restarting"),
        Column("throughput", _NUMBER, "examples/s", "examples per second, slow-downs included; 0 while restarting"),
        Column("neighbours", _TEXT, "", "ids of the jobs on the same GPUs, separated by spaces", SHARING),
        Column(
            "gpu_share",
            _NUMBER,
            "",
            "mean share of its GPUs, split evenly among their holders; the part that it takes of each where jobs take "
            "parts",
            SHARING,
        ),
        Column("relative_speed", _NUMBER, "", "speed relative to that when alone on its GPUs", SHARING),
        Column(
            "levels_crossed", _COUNT, "", "levels above the nodes of which its nodes are in several domains", TOPOLOGY
        ),
    ),
)

ROUNDS = Table(
    "rounds",
    "one decision of the policy, as things stood after it",
    (
        Column("time_s", _TIME, "s", "time of the decision"),
        Column("active_jobs", _COUNT, "", "jobs submitted and not finished"),
        Column("running_jobs", _COUNT, "", "jobs that hold GPUs"),
        Column("allocated_gpus", _COUNT, "GPU", "GPUs held by jobs"),
        Column("available_gpus", _COUNT, "GPU", "GPUs of the nodes that are up"),
        Column("provisioned_nodes", _COUNT, "", "nodes that are up or starting, and so are paid for"),
        Column("started", _COUNT, "", "jobs that got GPUs and held none before"),
        Column("stopped", _COUNT, "", "jobs that lost all their GPUs"),
        Column("moved", _COUNT, "", "jobs whose placement changed in any other way"),
        Column("diagnostics", _TEXT_NUMBERS, "", "the policy's own numbers about the decision, keys sorted"),
        Column("failed_nodes", _COUNT, "", "nodes that are out of order", FAILURES),
        Column("node_failures", _COUNT, "", "failures of nodes since the start", FAILURES),
        Column(
            "stranded_gpus",
            _COUNT,
            "GPU",
            "free GPUs that no waiting job can use, however it is spread over nodes of one type",
            FRAGMENTATION,
        ),
        Column(
            "stranded_by_node_gpus",
            _COUNT,
            "GPU",
            "free GPUs that no waiting job can use on as few nodes as it needs in an empty cluster",
            FRAGMENTATION,
        ),
        Column(
            "stranded_by_domain_gpus",
            _COUNT,
            "GPU",
            "the same in as few domains of the lowest level above the nodes (without levels, the cluster)",
            FRAGMENTATION,
        ),
        Column("provisioned_gpus", _TEXT_NUMBERS, "GPU", "GPUs of the nodes that are up or starting, by type", MAKES),
    ),
)

OUTAGES = Table(
    "outages",
    "one interval during which a node was out of use, in the order of the ends; those of one node may overlap",
    (
        Column("node", _COUNT, "", "the node, counted from 0"),
        Column("start_s", _TIME, "s", "begin of the interval"),
        Column("end_s", _TIME, "s", "end of the interval, or of the run where that comes first"),
        Column(
            "kind",
            _TEXT,
            "",
            "`node failure`, `rack failure`, what a list of outages says (else `outage`), or `off`: let go by the "
            "policy, asleep or not rented, until it is up again",
        ),
        Column("ended", pa.bool_(), "", "whether the interval was over before the run was"),
    ),
    occasional=True,
)

#: The tables of a cell, by name.
TABLES: dict[str, Table] = {table.name: table for table in (JOBS, ALLOCATIONS, ROUNDS, OUTAGES)}


def schema_markdown() -> str:
    """Write the tables as markdown, one section each, as it stands in `docs/results.md`."""
    sections = [_section(table) for table in TABLES.values()]
    return "\n".join(sections)


def _only(column: Column) -> str:
    return f" (only with {column.feature})" if column.feature else ""


def _section(table: Table) -> str:
    lines = [
        f"### {table.file}",
        "",
        f"A row is {table.row}." + (" Only where there is such an interval." if table.occasional else ""),
        "",
        "| column | type | unit | meaning |",
        "|---|---|---|---|",
    ]
    lines += [f"| `{c.name}` | {c.type} | {c.unit} | {c.meaning}{_only(c)} |" for c in table.columns]
    return "\n".join(lines) + "\n"
