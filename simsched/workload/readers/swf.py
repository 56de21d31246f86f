"""The Standard Workload Format, version 2.2, of the Parallel Workloads Archive: 18 numbers per line, comments with `;`.

Source: Feitelson, Parallel Workloads Archive, "The Standard Workload Format". -1 means unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pandas as pd

from simsched.errors import input_error
from simsched.reading import open_text
from simsched.workload.readers.format import Format, Head, Jobs
from simsched.workload.readers.log import Limits, Sieve, finish, frame

#: The fields of a line, in their order.
FIELDS = (
    "job number", "submit time", "wait time", "run time", "allocated processors", "average CPU time", "used memory",
    "requested processors", "requested time", "requested memory", "status", "user", "group", "executable", "queue",
    "partition", "preceding job", "think time",
)  # fmt: skip
#: The codes of whole jobs with their final states in a trace; parts of preempted jobs have 2, 3 and 4.
STATES: Mapping[int, str] = MappingProxyType({0: "Failed", 1: "Pass", 5: "Killed", -1: ""})
_PARTS = (2, 3, 4)
#: Floats represent every whole number up to here exactly.
_MOST = 2.0**53
#: Fields without a counterpart in a trace.
_UNREAD = ("average CPU time", "used memory", "executable", "partition", "think time")
_COMMENT = re.compile(r"\s*;\s*(\w+)\s*:\s*(.*?)\s*$")
_OTHER_SIZE = "ran on a different number of processors than they asked for; the request counts"
_NO_BEFORE = "follow a job that is not in the trace; the dependency is dropped"
_PARTIAL = "partial executions of preempted jobs, which have separate lines"


def _is_swf(head: Head) -> bool:
    """Return whether a file begins with a comment of this format or with 18 numbers."""
    cells = head.line.split()
    return head.line.lstrip().startswith(";") or (len(cells) == len(FIELDS) and all(map(_is_number, cells)))


def _is_number(cell: str) -> bool:
    return re.fullmatch(r"-?\d+(\.\d*)?", cell) is not None


def _read(path: Path) -> Jobs:
    """Read the jobs, one processor as one GPU; invalid jobs are left out with a reason, as for every log."""
    comments: dict[str, list[str]] = {}
    sieve = frame(path, FIELDS, _lines(path, comments), FIELDS[0])
    if sieve.table.empty and not sieve.left_out:
        raise input_error(path, "the file holds no job", "give a line of 18 numbers for each job")
    cells = sieve.table[list(FIELDS)].apply(pd.to_numeric, errors="coerce").astype("float64")
    known = (cells.abs() <= _MOST).all(axis=1)
    sieve.drop(~known, "a field is not a number")
    cells = cells[known]
    partial = int(cells["status"].isin(_PARTS).sum())
    whole = ~cells["status"].isin(_PARTS)
    cells, lines = cells[whole], sieve.table["line"][whole]
    began_s = _unix_start_s(path, comments)
    sieve.table = _table(cells, began_s, _names(comments.get("Queue", []))).assign(line=lines)
    _sift(sieve, cells)
    processors = _count(comments, "MaxProcs")
    log = finish(sieve, FORMAT.name, limits=Limits(gpus=processors), ignored={_PARTIAL: partial})
    unread = tuple(name for name in _UNREAD if (cells[name] != -1).any())
    jobs = replace(log, dated=began_s > 0, unused=unread).jobs()
    return _followed(jobs, cells)


def _lines(path: Path, comments: dict[str, list[str]]) -> Iterator[tuple[int, list[str]]]:
    """Yield the fields of each job with its line, and collect the comments by name."""
    with open_text(path) as stream:
        for i, line in enumerate(stream, 1):
            if found := _COMMENT.match(line):
                comments.setdefault(found[1], []).append(found[2])
            elif line.strip() and not line.lstrip().startswith((";", "#")):
                yield i, line.split()


def _table(cells: pd.DataFrame, began_s: int, queues: Mapping[str, str]) -> pd.DataFrame:
    """Convert the fields to the columns of a log; jobs without a recorded wait count as having started at once."""
    asked, had = cells["requested processors"], cells["allocated processors"]
    submit_s = (cells["submit time"] + began_s).where(cells["submit time"] >= 0)
    start_s = submit_s + cells["wait time"].clip(lower=0)
    processors = asked.where(asked > 0, had)
    memory_kb = cells["requested memory"].clip(lower=0)  # KB per processor
    return pd.DataFrame(
        {
            "job_id": _text(cells["job number"]),
            "gpus": processors,
            "submit_s": np.floor(submit_s),
            "start_s": np.floor(start_s),
            "end_s": np.floor(start_s) + np.ceil(cells["run time"]),
            "duration_s": cells["run time"],
            "time_limit_s": cells["requested time"].clip(lower=0),
            "memory_mib": np.ceil(memory_kb * processors.clip(lower=0) / 1024),
            "state": cells["status"].map(STATES).fillna(""),
            "user": _text(cells["user"]),
            "account": _text(cells["group"]),
            "queue": _text(cells["queue"]).map(lambda number: queues.get(number, number)),
        }
    )


def _sift(sieve: Sieve, cells: pd.DataFrame) -> None:
    """Leave out records of jobs that never ran, and record the jobs that ran on a different size than requested."""
    sieve.drop(sieve.table["job_id"].duplicated(), "have the name of an earlier job")
    own = cells.loc[sieve.table.index]
    sieve.drop((own["status"] == 5) & (own["run time"] <= 0), "never started")
    own = cells.loc[sieve.table.index]
    sieve.drop(own["run time"] < 0, "run time is not recorded")
    own = cells.loc[sieve.table.index]
    asked, had = own["requested processors"], own["allocated processors"]
    sieve.mend((asked > 0) & (had > 0) & (asked != had), _OTHER_SIZE)


def _followed(jobs: Jobs, cells: pd.DataFrame) -> Jobs:
    """Add each job's predecessor, if it is in the trace."""
    before = dict(zip(_text(cells["job number"]), _text(cells["preceding job"]), strict=True))
    names = pd.Series(jobs.columns["job_id"])
    after = names.map(before).fillna("")
    lost = (after != "") & ~after.isin(names)
    if (after == "").all():
        return jobs
    return replace(
        jobs,
        columns={**jobs.columns, "after": after.mask(lost, "")},
        adjusted={**jobs.adjusted, _NO_BEFORE: int(lost.sum())},
    )


def _text(numbers: pd.Series) -> pd.Series:
    """Format numbers of jobs, users and the like as text, empty if unknown."""
    text: pd.Series = numbers.astype("int64").astype(str)
    return text.mask(numbers < 0, "")


def _names(queues: list[str]) -> dict[str, str]:
    """Return the names of queues by number, from comments such as `Queue: 1 batch (jobs of a day)`."""
    words = [line.split() for line in queues]
    return {found[0]: found[1] for found in words if len(found) > 1 and found[0].isdigit()}


def _count(comments: Mapping[str, list[str]], name: str) -> int:
    found = re.match(r"\d+", comments.get(name, [""])[0])
    return int(found[0]) if found else 0


def _unix_start_s(path: Path, comments: Mapping[str, list[str]]) -> int:
    """Return the start of the file's clock in seconds since 1970 UTC; 0 if not given."""
    said = comments.get("UnixStartTime", [""])[0]
    if said and not re.match(r"-?\d", said):
        raise input_error(path, f"UnixStartTime is '{said:.40}'", "give seconds since 1970-01-01 UTC, or leave it out")
    return _count(comments, "UnixStartTime")


FORMAT = Format(
    "swf",
    "Standard Workload Format (Parallel Workloads Archive)",
    "lines of 18 numbers, and comments that begin with ;",
    _is_swf,
    _read,
)
