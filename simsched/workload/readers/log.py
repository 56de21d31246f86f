"""The log of a cluster's scheduler: each job's request, submission, start and end, and what was left out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from simsched.errors import InputError, Problem, input_error
from simsched.reading import check_header, open_text
from simsched.workload.readers.format import Jobs
from simsched.workload.shapes import SHAPE_COLUMNS
from simsched.workload.trace import EPOCH, MOST_SECONDS, raise_all

#: The meaning of each column of a log's table; times are whole seconds since 1970-01-01 UTC.
LOG_COLUMNS: Mapping[str, str] = MappingProxyType(
    {
        "job_id": "name of the job, unique within the log",
        "submit_s": "submission",
        "eligible_s": "when the job could first have started; the submission if the log says nothing",
        "start_s": "first start",
        "end_s": "last end",
        "duration_s": "seconds in service, the sum over all attempts",
        "gpus": "GPUs on all nodes together; a fraction if GPUs are shared",
        "gpu_type": "type of GPU; empty if the log names none",
        "time_limit_s": "time limit in seconds; 0 if there is none",
        "queue": "partition, queue or cluster queue",
        "qos": "quality of service or priority class",
        "array": "job array that the job is a task of, if any",
        "account": "account, namespace, group or virtual cluster",
        "user": "who submitted it",
        "priority": "priority as logged; 0 if the log names none",
        "state": "final state: Pass, Killed or Failed; empty if it is not known",
        "attempts": "how often the job was started",
        "nodes": "nodes that it ran on, separated by commas; empty if the log names none",
        "line": "1-based line of its first row in the file",
    }
)
#: Columns that a log has only if they hold a value: those of shapes, whose types are in `gpu_type`.
LOG_SHAPES = tuple(name for name in SHAPE_COLUMNS if name != "gpu_types")
_DEFAULTS: Mapping[str, Any] = MappingProxyType(
    dict.fromkeys(("gpu_type", "queue", "qos", "array", "account", "user", "state", "nodes"), "")
    | {"time_limit_s": 0.0, "priority": 0.0, "attempts": 1}
)
#: Logs whose types are those that a job asked for, not the one that it got.
_ASK_FOR_TYPES = ("alibaba-openb",)
_LATE = "jobs were eligible only after their start; they count as not having waited"
_PART = "asked for a part of a GPU, which policies that share none take for a whole one"
_ROUNDED = "asked for more than one GPU but not a whole number, rounded up"
#: How many rows become a table at once.
_BLOCK = 20_000
#: How many examples of each reason are kept.
EXAMPLES = 3


@dataclass(frozen=True)
class LeftOut:
    """A reason for leaving out jobs, their number and GPU hours, and the first ones by line and job."""

    reason: str
    count: int
    examples: tuple[tuple[int, str], ...]
    gpu_h: float = 0.0

    def __str__(self) -> str:
        """Render as `12 jobs, 340 GPU hours: asked for more than ... (line 7: 4711, ...)`."""
        hours = f", {self.gpu_h:,.0f} GPU hours" if self.gpu_h >= 1 else ""
        return f"{self.count} {'job' if self.count == 1 else 'jobs'}{hours}: {self.reason}{_named(self.examples)}"


def _named(examples: Iterable[tuple[int, str]]) -> str:
    named = ", ".join(f"line {line}: {job}" for line, job in examples)
    return f" ({named})" if named else ""


@dataclass(frozen=True, eq=False)
class ClusterLog:
    """The jobs of a log in order of submission, with what was left out or changed.

    `table` has the columns of `LOG_COLUMNS`, and those of `LOG_SHAPES` that hold a value; times that are not `dated`
    count from an unnamed day. `adjusted` counts the jobs with corrected values by correction, and `ignored` the lines
    that are not jobs, such as steps. `examples` are the first corrected jobs of each kind, and `unused` the columns
    that are not read. `still` has the jobs, not in `table`, that ran or waited when the log ended; their `end_s` is -1,
    as is the `start_s` of those that waited. `withdrawn` has those cancelled at `end_s` before they started.
    """

    name: str
    source: str
    table: pd.DataFrame
    left_out: tuple[LeftOut, ...] = ()
    adjusted: Mapping[str, int] = field(default_factory=dict)
    ignored: Mapping[str, int] = field(default_factory=dict)
    examples: Mapping[str, tuple[tuple[int, str], ...]] = field(default_factory=dict)
    dated: bool = True
    unused: tuple[str, ...] = ()
    still: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=list(LOG_COLUMNS)))
    withdrawn: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=list(LOG_COLUMNS)))

    def __len__(self) -> int:
        """Count the jobs."""
        return len(self.table)

    @cached_property
    def every(self) -> pd.DataFrame:
        """The jobs of `table` together with those of `still`."""
        return joined(self.table, self.still)

    @property
    def last_s(self) -> int:
        """Return the last time in the log; nothing is known of what came later."""
        names = ("submit_s", "start_s", "end_s")
        return int(max(table[name].max() for table in (self.table, self.still) if len(table) for name in names))

    @property
    def waits_s(self) -> npt.NDArray[np.int64]:
        """Return how long each job waited under the original scheduler, in seconds."""
        waits: npt.NDArray[np.int64] = self.table["start_s"].to_numpy() - self.table["eligible_s"].to_numpy()
        return waits

    def summary(self) -> str:
        """Summarise in a few lines what was read, what was left out, and why."""
        lines = [f"{self.name}: {len(self)} jobs read"]
        lines += [f"  left out: {entry}" for entry in self.left_out]
        lines += [
            f"  changed: {count} {what}{_named(self.examples.get(what, ()))}"
            for what, count in sorted(self.adjusted.items())
        ]
        lines += [f"  ignored: {count} {what}" for what, count in sorted(self.ignored.items())]
        if self.unused:
            lines.append(f"  not used: {', '.join(self.unused)}")
        return "\n".join(lines)

    def jobs(self) -> Jobs:
        """Return the jobs as a trace reader does, with whole GPUs and the share of them that each job uses.

        A fractional number above one is rounded up.
        """
        table = self.table.sort_values("line", kind="stable", ignore_index=True)
        gpus = table["gpus"].to_numpy("float64")
        whole = np.where(gpus > 0, np.maximum(np.ceil(gpus), 1), 0)
        tenant = table["account"].where(table["account"] != "", table["queue"])
        columns = {
            "job_id": table["job_id"],
            "submit_time_s": table["eligible_s"],
            "duration_s": table["duration_s"],
            "num_gpus": whole,
            "tenant": tenant,
            "user": table["user"],
            "status": table["state"],
            "attempts": table["attempts"],
            "time_limit_s": table["time_limit_s"],
            "queue": table["queue"],
            "priority": table["priority"],
            "qos": table["qos"],
            "group": table["array"],
            "gpu_share": np.where(gpus > 0, np.minimum(gpus, 1.0), 1.0),
            "row": np.arange(len(table)),
        }
        shapes = [name for name in LOG_SHAPES if name in table]
        columns |= {name: table[name] for name in shapes}
        if shapes or (self.source in _ASK_FOR_TYPES and table["gpu_type"].any()):
            columns["gpu_types"] = table["gpu_type"]
        adjusted = {
            **self.adjusted,
            _PART: int(((gpus > 0) & (gpus < 1)).sum()),
            _ROUNDED: int(((gpus > 1) & (gpus != whole)).sum()),
        }
        left_out = {entry.reason: entry.count for entry in self.left_out} | dict(self.ignored)
        examples = {**self.examples, **{entry.reason: entry.examples for entry in self.left_out}}
        return Jobs(columns, EPOCH if self.dated else None, left_out, adjusted, examples, self.unused)


def joined(*tables: pd.DataFrame) -> pd.DataFrame:
    """Concatenate tables of jobs, each in the order of its lines."""
    there = [one for one in tables if len(one)]
    if len(there) < 2:
        return there[0] if there else tables[0]
    whole = pd.concat(there, ignore_index=True)
    return whole.fillna({name: column.idle for name, column in SHAPE_COLUMNS.items() if name in whole})


@dataclass(frozen=True)
class Limits:
    """What is known of the cluster: its GPUs (0 if unknown) and the names of its nodes (empty if unknown)."""

    gpus: int = 0
    nodes: frozenset[str] = frozenset()
    #: The nodes with GPUs; jobs without GPUs are kept if they ran on these.
    with_gpus: frozenset[str] = frozenset()


class Sieve:
    """Removes jobs that cannot be replayed from a table and records why."""

    def __init__(self, path: Path, table: pd.DataFrame) -> None:
        """Start with all jobs; `table` needs `job_id` and `line`."""
        self.path, self.table = path, table
        self.left_out: list[LeftOut] = []
        #: All jobs with corrected values, by correction.
        self.mended: dict[str, list[tuple[int, str]]] = {}

    def drop(self, mask: Any, reason: str) -> None:
        """Leave out the jobs where `mask` is true."""
        chosen = np.asarray(mask, dtype=bool)
        if chosen.any():
            gone = self.table[chosen]
            self.note(reason, gone[["line", "job_id"]].itertuples(index=False, name=None))
            if {"gpus", "start_s", "end_s"} <= set(gone):
                gpu_s = (gone["gpus"] * (gone["end_s"] - gone["start_s"]).clip(lower=0)).sum()
                self.left_out[-1] = replace(self.left_out[-1], gpu_h=float(gpu_s) / 3600)
            self.table = self.table[~chosen]

    def mend(self, mask: Any, what: str) -> None:
        """Record the jobs where `mask` is true as corrected."""
        jobs = self.table[np.asarray(mask, dtype=bool)][["line", "job_id"]].itertuples(index=False, name=None)
        self.mended[what] = sorted((int(line), str(job)) for line, job in jobs)

    def note(self, reason: str, jobs: Iterable[tuple[int, str]]) -> None:
        """Record lines that never entered the table."""
        found = sorted((int(line), str(job)) for line, job in jobs)
        if found:
            self.left_out.append(LeftOut(reason, len(found), tuple(found[:EXAMPLES])))


def finish(
    sieve: Sieve,
    source: str,
    *,
    limits: Limits | None = None,
    strict: bool = False,
    adjusted: Mapping[str, int] | None = None,
    ignored: Mapping[str, int] | None = None,
) -> ClusterLog:
    """Check the jobs of a table, in which missing times are NaN, and return the log.

    It leaves out, in this order, jobs that have no GPUs, never started, have no recorded end, end before their start,
    start before their submission, ran on unknown nodes, or asked for more GPUs than the cluster has. Raises
    `InputError` with every reason if `strict`, or if no job is left.
    """
    limits = limits or Limits()
    raise_all(str(sieve.path), _beyond(sieve))
    sieve.drop(sieve.table["gpus"].isna(), "GPUs are not a number")
    sieve.drop((sieve.table["gpus"] <= 0) & ~_beside_gpus(sieve.table, limits), "used no GPU")
    sieve.drop(sieve.table["submit_s"].isna(), "submission is not recorded")
    still = _still(sieve.table)
    withdrawn = sieve.table[sieve.table["start_s"].isna() & (sieve.table["end_s"] > sieve.table["submit_s"])]
    sieve.drop(sieve.table["start_s"].isna(), "never started")
    sieve.drop(sieve.table["line"].isin(still["line"]), _STILL)
    sieve.drop(sieve.table["end_s"].isna(), "end is not recorded")
    sieve.drop(sieve.table["end_s"] < sieve.table["start_s"], "end before their start")
    sieve.drop(sieve.table["start_s"] < sieve.table["submit_s"], "start before their submission")
    if limits.nodes and "nodes" in sieve.table:
        known = sieve.table["nodes"].map(lambda text: _known(text, limits.nodes))
        sieve.drop(~known.to_numpy("bool"), "ran on a node that the cluster does not have")
    if limits.gpus:
        sieve.drop(sieve.table["gpus"] > limits.gpus, f"asked for more than the {limits.gpus} GPUs of the cluster")
        still, withdrawn = (one[one["gpus"] <= limits.gpus] for one in (still, withdrawn))
    if strict and any(entry.reason not in HARMLESS for entry in sieve.left_out):
        problems = [entry for entry in sieve.left_out if entry.reason not in HARMLESS]
        raise InputError(*(Problem(str(sieve.path), str(entry), line=entry.examples[0][0]) for entry in problems))
    if sieve.table.empty and still.empty:
        said = "; ".join(str(entry) for entry in sieve.left_out)
        raise input_error(
            sieve.path, "holds no job that can be replayed", f"left out: {said}" if said else "give one job"
        )
    if "eligible_s" in sieve.table:
        sieve.mend(sieve.table["eligible_s"] > sieve.table["start_s"], _LATE)
    table = _typed(sieve.table)
    counts = {**(adjusted or {}), **{what: len(jobs) for what, jobs in sieve.mended.items()}}
    examples = {what: tuple(jobs[:EXAMPLES]) for what, jobs in sieve.mended.items()}
    reasons = tuple(sieve.left_out)
    log = ClusterLog(str(sieve.path), source, table, reasons, _nonzero(counts), _nonzero(ignored), examples)
    log = replace(log, still=_typed(still)) if len(still) else log
    gone = withdrawn.assign(start_s=-1.0, duration_s=0.0)
    return replace(log, withdrawn=_typed(gone)) if len(gone) else log


_STILL = "still ran when the log ended"
#: Reasons that are no fault of the log: jobs that the simulator does not cover.
HARMLESS: Collection[str] = frozenset({"used no GPU", "never started", _STILL})


def _still(table: pd.DataFrame) -> pd.DataFrame:
    """Return the jobs that ran or waited when the log ended; a job past its limit counts as ended, unrecorded."""
    times = [table[name].to_numpy("float64") for name in ("submit_s", "start_s", "end_s")]
    last = np.nanmax(np.concatenate([*times, [0.0]]))
    limit = table["time_limit_s"].to_numpy("float64") if "time_limit_s" in table else np.zeros(len(table))
    runs_on = ~(times[1] + np.where(limit > 0, limit, np.inf) < last - _LAX_S)
    goes_on = np.isnan(times[2]) & ((table["state"] == "").to_numpy() if "state" in table else True)
    part: pd.DataFrame = table[goes_on & (np.isnan(times[1]) | (times[1] <= last) & runs_on)]
    return part.assign(end_s=-1.0, start_s=part["start_s"].fillna(-1.0), duration_s=0.0)


#: Slurm lets jobs exceed their limit for a while (OverTimeLimit, KillWait).
_LAX_S = 3600


#: The largest absolute value of each column of a log; times count from 1970.
_MOST: Mapping[str, float] = MappingProxyType(
    dict.fromkeys(("submit_s", "eligible_s", "start_s", "end_s", "duration_s", "time_limit_s"), float(MOST_SECONDS))
    | {"gpus": 1e9, "priority": 2.0**53}
)


def _beyond(sieve: Sieve) -> Iterator[Problem]:
    """Find impossible values: infinite ones and those with a misplaced digit."""
    for column, most in _MOST.items():
        if column not in sieve.table:
            continue
        values = sieve.table[column].to_numpy("float64")
        for i in np.flatnonzero(np.abs(values) > most).tolist():
            job, line = str(sieve.table["job_id"].iat[i]), int(sieve.table["line"].to_numpy("int64")[i])
            message = f"job '{job:.40}': '{column}' is {values[i]:g}, beyond {most:g}"
            yield Problem(str(sieve.path), message, "correct the line, or leave it out", line)


def _beside_gpus(table: pd.DataFrame, limits: Limits) -> npt.NDArray[np.bool_]:
    """Return which jobs had cores on nodes with GPUs and on no other nodes."""
    if not limits.with_gpus or "nodes" not in table or "cpu_milli" not in table:
        return np.zeros(len(table), dtype=bool)
    known = {text: bool(text) and _known(text, limits.with_gpus) for text in table["nodes"].unique()}
    return table["nodes"].map(known).to_numpy("bool") & (table["cpu_milli"] > 0).to_numpy("bool")


def _known(text: str, nodes: frozenset[str]) -> bool:
    return all(name in nodes for name in text.split(",") if name)


def _typed(table: pd.DataFrame) -> pd.DataFrame:
    table = table.copy()
    for column, value in _DEFAULTS.items():
        if column not in table:
            table[column] = value
    if "duration_s" not in table:
        table["duration_s"] = table["end_s"] - table["start_s"]
    eligible = table["eligible_s"] if "eligible_s" in table else table["submit_s"]
    held = eligible.fillna(table["submit_s"]).clip(lower=table["submit_s"])
    table["eligible_s"] = held.clip(upper=table["start_s"].where(table["start_s"] >= 0, np.inf))
    counts = [name for name in LOG_SHAPES if name in table and SHAPE_COLUMNS[name].idle == 0]
    for column in ("submit_s", "eligible_s", "start_s", "end_s", "attempts", "line", *counts):
        table[column] = table[column].astype("int64")
    table = table.sort_values(["submit_s", "line"], kind="stable", ignore_index=True)
    shapes = [name for name in LOG_SHAPES if name in table and (table[name] != SHAPE_COLUMNS[name].idle).any()]
    return table[[*LOG_COLUMNS, *shapes]]


def _nonzero(counts: Mapping[str, int] | None) -> Mapping[str, int]:
    return MappingProxyType({what: count for what, count in (counts or {}).items() if count})


def read_lines(path: Path, separator: str) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """Split a text file (plain or .gz) into its header and its numbered rows, which are read on demand.

    Blank lines, and lines at the top that begin with #, are skipped.

    Raises `InputError` if the file is missing, unreadable or empty, possibly only while rows are read.
    """
    rows = ((i, line.split(separator)) for i, line in _lines(path))
    _, header = next(rows, (0, []))
    first = next(rows, None)
    if first is None:
        raise input_error(path, "the file holds no job", "give a header line and one line a job")
    return [name.strip().lstrip("\ufeff") for name in header], chain([first], rows)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines that are not blank, without the comments at the top."""
    begun = False
    with open_text(path, newline="\n") as file:
        for i, line in enumerate(file, 1):
            begun = begun or bool(line.strip() and not line.startswith("#"))
            if begun and line.strip():
                yield i, line.removesuffix("\n").removesuffix("\r")


def frame(
    path: Path,
    header: Sequence[str],
    rows: Iterable[tuple[int, Sequence[str]]],
    key: str,
    convert: Callable[[pd.DataFrame], pd.DataFrame] = lambda block: block,
) -> Sieve:
    """Return the rows with as many fields as the header as a table of text; leave out the others.

    Rows are processed in blocks, since text takes less memory in a table than in lists; `convert` reduces each block to
    what is kept. Raises `InputError` if the header names a column twice.
    """
    check_header(path, header, line=0)
    blocks, short, wide = [convert(_block(header, (), key))], [], []
    rest = iter(rows)
    while block := list(islice(rest, _BLOCK)):
        blocks.append(convert(_block(header, [row for row in block if len(row[1]) == len(header)], key)))
        short += [(i, str(cells[0])) for i, cells in block if len(cells) < len(header)]
        wide += [(i, str(cells[0])) for i, cells in block if len(cells) > len(header)]
    table = pd.concat(blocks[-1:] if len(blocks) < 3 else blocks, ignore_index=True)
    sieve = Sieve(path, table)
    sieve.note("line is cut short", short)
    sieve.note("line has too many fields", wide)
    return sieve


def _block(header: Sequence[str], rows: Sequence[tuple[int, Sequence[str]]], key: str) -> pd.DataFrame:
    table = pd.DataFrame([cells for _, cells in rows], columns=list(header), dtype=str)
    table["line"] = np.array([i for i, _ in rows], dtype=np.int64)
    table["job_id"] = table[key] if key in table else [f"line-{i}" for i in table["line"]]
    return table
