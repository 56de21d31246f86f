"""Reads a trace in any known format, whole or in parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from simsched.errors import InputError, Problem, input_error, nearest
from simsched.manifests import is_manifest
from simsched.reading import open_text
from simsched.stops import scratch_folder
from simsched.workload.readers import kubernetes, philly_json, plain, slurm, swf, tables
from simsched.workload.readers.format import Format, Head, Jobs, head_of, is_workload
from simsched.workload.trace import Trace, make_trace, seconds_of

#: Every trace format, in the order of detection.
FORMATS: tuple[Format, ...] = (
    philly_json.FORMAT,
    swf.FORMAT,
    plain.PHILLY,
    plain.ITP,
    slurm.FORMAT,
    *tables.FORMATS,
    kubernetes.FORMAT,
    plain.FORMAT,
)


def read_trace(path: str | Path, format: str = "auto") -> Trace:  # noqa: A002 - the name that users write
    """Read a trace; see `simsched.workload.readers.read_trace`."""
    place = Path(path)
    manifests = format == kubernetes.FORMAT.name or (format == "auto" and is_manifest(place))
    files = [place] if manifests else _files(place)
    chosen = kubernetes.FORMAT if manifests else _format_of(files[0], format)
    found = [chosen.read(file) for file in files]
    columns = found[0].columns if len(found) == 1 else _joined(files, found)
    return make_trace(
        str(place),
        chosen.name,
        columns,
        origin=found[0].origin,
        dropped=_summed([jobs.dropped for jobs in found]),
        adjusted=_summed([jobs.adjusted for jobs in found]),
        examples=found[0].examples if len(found) == 1 else {},
        unused=tuple(dict.fromkeys(name for jobs in found for name in jobs.unused)),
    )


def goes_by_row(path: Path, format: str = "auto") -> bool:  # noqa: A002 - as above
    """Return whether a trace is a single file that can be read in parts."""
    return path.is_file() and _format_of(path, format).by_row


def _files(place: Path) -> list[Path]:
    if not place.is_dir():
        return [place]
    files = sorted([*place.glob("*.csv"), *place.glob("*.csv.gz")])
    if not files:
        raise input_error(place, "the folder holds no CSV file", "name a trace file, or a folder of CSV files")
    return files


def _format_of(path: Path, name: str) -> Format:
    if name != "auto":
        return _named(name)
    head = head_of(path)
    if is_workload(head):
        remedy = "use it as the source of a workload, or show it with `simsched workload describe`"
        raise input_error(path, "this is a list of jobs (workload CSV), not a trace", remedy)
    for candidate in FORMATS:
        if candidate.matches(head):
            return candidate
    raise _unknown(path, head)


def _named(name: str) -> Format:
    known = {candidate.name: candidate for candidate in FORMATS}
    if name not in known:
        raise input_error("format", f"'{name}' is not a trace format", nearest(name, ["auto", "workload", *known]))
    return known[name]


def _unknown(path: Path, head: Head) -> InputError:
    """Name the format whose header is nearest to the file's, or the columns that the file lacks."""
    if not head.line.isprintable() and not head.line.replace("\t", "").isprintable():
        return input_error(path, "the file is not UTF-8 text", "save it as CSV or JSON in UTF-8", line=1)
    separator = _separator(head.line)
    if separator:
        return input_error(path, f"its columns are separated by {separator}", "write commas instead", line=1)
    shapes = {candidate.name: candidate.shape for candidate in FORMATS if candidate.shape.startswith("CSV")}
    # Reversing lets the last format, the plain one, win a tie: it is the one that users write themselves.
    best = max(reversed(shapes), key=lambda name: _likeness(head.columns, _names(shapes[name])))
    missing = [column for column in plain.REQUIRED if column not in head.columns]
    if best == plain.FORMAT.name and _likeness(head.columns, frozenset(plain.REQUIRED)) > 0:
        return _incomplete(path, head, missing)
    if _likeness(head.columns, _names(shapes[best])) > 0:
        remedy = f"nearest is '{best}', {shapes[best]}"
    else:
        remedy = f"name it with `format`, or write it as {plain.FORMAT.shape}"
    return input_error(path, f"no trace format begins like this: {head.line[:60]!r}", remedy, line=1)


def _separator(line: str) -> str:
    """Name the separator of a header's columns; empty if it is the comma."""
    for separator, name in (";", "semicolons"), ("\t", "tabs"), ("|", "bars"):
        if line.count(separator) > line.count(","):
            return name
    return ""


def _incomplete(path: Path, head: Head, missing: Sequence[str]) -> InputError:
    """Name the columns that a plain trace lacks, and the column that may be one of them under another name."""
    named = ", ".join(f"'{column}'" for column in missing)
    likely = get_close_matches(missing[0], sorted(head.columns), n=1, cutoff=0.6)
    rename = f"rename '{likely[0]}'" if likely else f"add {'it' if len(missing) == 1 else 'them'}"
    remedy = f"{rename} (needed: {', '.join(plain.REQUIRED)}; docs/formats.md)"
    return input_error(
        path,
        f"{'column' if len(missing) == 1 else 'columns'} {named} {'is' if len(missing) == 1 else 'are'} missing",
        remedy,
        line=1,
    )


def _likeness(columns: frozenset[str], known: frozenset[str]) -> int:
    """Return the number of columns that a format knows or nearly knows."""
    return sum(1 for column in sorted(columns) if get_close_matches(column, known, n=1, cutoff=0.8))


def _names(shape: str) -> frozenset[str]:
    text = shape.removeprefix("CSV: ").replace("[", "").replace("]", "")
    return frozenset(text.split(","))


def _joined(files: list[Path], found: list[Jobs]) -> dict[str, pd.Series]:
    """Join the jobs of several files in one table; the file name prefixes ids that occur in several files."""
    parts = [pd.DataFrame(dict(jobs.columns)) for jobs in found]
    table = pd.concat(parts, ignore_index=True)
    if "job_id" in table and table["job_id"].duplicated().any():
        stems = [file.name.split(".")[0] for file, part in zip(files, parts, strict=True) for _ in range(len(part))]
        table["job_id"] = pd.Series(stems) + "/" + table["job_id"].astype(str)
    table["row"] = range(len(table))
    return {str(name): table[name] for name in table.columns}


def _summed(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for count in counts:
        for reason, number in count.items():
            total[reason] = total.get(reason, 0) + number
    return total


#: Lines per part.
_LINES = 10_000


def trace_in_parts(path: Path, format: str = "auto", lines: int = _LINES) -> Iterator[Trace]:  # noqa: A002
    """Yield a trace of one job per line (`goes_by_row`) in parts, with the clock and names of the whole.

    Raises `InputError` as `read_trace` does, and if the file is not sorted by submission.
    """
    before: _Before | None = None
    with open_text(path) as stream, scratch_folder() as folder:
        head: list[str] = []
        for line in stream:
            head.append(line)
            if line.strip() and not line.startswith("#"):
                break
        part, done = folder / path.with_suffix("").name, 0
        while some := list(islice(stream, lines)):
            part.write_text("".join([*head, *some]), encoding="utf-8", newline="")
            try:
                read = read_trace(part, format)
            except InputError as error:
                raise InputError(*_located(error, path, part, len(head), done)) from None
            before = before or _Before(path, read)
            yield before.continued(read)
            done += len(some)
        if before is None:
            read_trace(path, format)  # raises for a file without jobs
            return
        before.check_names()


class _Before:
    """State of the previous parts: the start of the clock, the last submission, and the names."""

    def __init__(self, path: Path, first: Trace) -> None:
        self._path, self._origin, self._start_s = path, first.origin, first.start_s
        self._began_s = _began_s(first)
        self._last_s, self._jobs = 0, 0
        self._names: list[npt.NDArray[np.uint64]] = []

    def continued(self, part: Trace) -> Trace:
        later_s = _began_s(part) - self._began_s
        if later_s < self._last_s:
            message = "its jobs are not sorted by submission, so it cannot be read in parts"
            raise input_error(self._path, message, "`simsched trace convert` writes it sorted")
        table = part.table
        columns = dict(part.columns)
        columns["submit_time_s"] = table["submit_time_s"] + later_s
        columns["row"] = table["row"] + self._jobs
        numbers = pd.RangeIndex(len(table)).astype(str)
        if (table["job_id"].to_numpy() == ("job-" + numbers).to_numpy()).all():  # named by number
            columns["job_id"] = "job-" + (pd.Series(range(self._jobs, self._jobs + len(table))).astype(str))
        self._names.append(pd.util.hash_array(np.asarray(columns["job_id"], dtype=object), categorize=False))
        self._last_s = int(columns["submit_time_s"].iloc[-1])
        self._jobs += len(table)
        return replace(part, name=str(self._path), columns=columns, origin=self._origin, start_s=self._start_s)

    def check_names(self) -> None:
        names = np.concatenate(self._names)
        names.sort()
        if (names[1:] == names[:-1]).any():
            raise input_error(self._path, "two of its jobs have the same name", "give each its own")


def _began_s(part: Trace) -> int:
    return part.start_s if part.origin is None else seconds_of(part.origin)


def _located(error: InputError, path: Path, part: Path, head: int, done: int) -> list[Problem]:
    """Return the problems of a part, located in the whole file."""
    return [
        replace(one, where=one.where.replace(str(part), str(path)), line=one.line + done * (one.line > head))
        for one in error.problems
    ]
