"""Joins the tables of the shards of a cell, and measures how much the cuts changed them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from simsched.results.arrow_tables import arrow_parts, read_arrow
from simsched.results.rows import TABLES
from simsched.results.writer import TableWriter

#: The column that orders each table whose rows belong to a job.
_ENDS = MappingProxyType({"jobs": "end_time_s", "allocations": "end_s"})


@dataclass(frozen=True)
class Part:
    """A folder of tables in which the rows of the jobs `ids` count (None: every row of every table).

    Decisions then count from second `from_s`, the submission of the first of these jobs, to before `until_s`.
    """

    folder: Path
    ids: Collection[str] | None = None
    from_s: float = -np.inf
    until_s: float = np.inf


def join_tables(parts: Iterable[Part], writer: TableWriter) -> None:
    """Write the tables of consecutive parts as those of one simulation.

    Holds in memory the rows of one part at a time, and those of jobs that outlast it.
    """
    held: dict[str, pa.Table] = {}
    for part in parts:
        ids = None if part.ids is None else pa.array(part.ids, pa.string())
        for name, table in TABLES.items():
            if table.occasional and not (part.folder / table.file).is_file():
                continue
            rows = _that_count(part, name, ids)
            if ids is not None and name in _ENDS:
                rows = _in_order(name, rows, held, part.from_s)
            for some in rows:
                writer.extend(name, some)
    for name, rest in held.items():
        writer.extend(name, rest)


def _that_count(part: Part, name: str, ids: pa.Array | None) -> Iterator[pa.Table]:
    for rows in arrow_parts(part.folder, name):
        if ids is None:
            yield rows
        elif name in _ENDS:
            yield rows.filter(pc.is_in(rows["job_id"], value_set=ids))
        else:
            times = rows["time_s"]
            yield rows.filter(pc.and_(pc.greater_equal(times, part.from_s), pc.less(times, part.until_s)))


def _in_order(name: str, rows: Iterator[pa.Table], held: dict[str, pa.Table], from_s: float) -> Iterator[pa.Table]:
    """Yield the held rows that end before `from_s`, and hold the rest with the new ones, sorted by their ends."""
    before = [held[name]] if name in held else []
    for table in before:
        yield table.filter(pc.less(table[_ENDS[name]], from_s))
    rest = [table.filter(pc.greater_equal(table[_ENDS[name]], from_s)) for table in before]
    whole = pa.concat_tables([*rest, *rows], promote_options="default")
    held[name] = whole.take(pa.array(np.argsort(whole[_ENDS[name]].to_numpy(), kind="stable")))


def error_of_cutting(cut: Part, uncut: Part) -> dict[str, float]:
    """Compare the jobs that count in a part with the same jobs simulated without a cut before them.

    Returns their number, the share with equal ends, the largest difference of two ends, and mean JCT and mean queueing
    of both.
    """
    columns = ["job_id", "end_time_s", "jct_s", "queueing_s"]
    ids = pa.array(cut.ids, pa.string())
    found = []
    for part in (cut, uncut):
        rows = read_arrow(part.folder, "jobs", columns)
        rows = rows.filter(pc.is_in(rows["job_id"], value_set=ids)).sort_by("job_id")
        found.append({name: rows[name].to_numpy() for name in columns[1:]})
    ours, truth = found
    apart = np.abs(ours["end_time_s"] - truth["end_time_s"])
    return {
        "jobs": len(apart),
        "same_end": float((apart == 0).mean()),
        "largest_difference_s": float(apart.max()),
        "jct_mean_s": float(ours["jct_s"].mean()),
        "uncut_jct_mean_s": float(truth["jct_s"].mean()),
        "queueing_mean_s": float(ours["queueing_s"].mean()),
        "uncut_queueing_mean_s": float(truth["queueing_s"].mean()),
    }
