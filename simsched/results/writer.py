"""Writes the result tables while a simulation runs, joins those of shards, and writes the JSON files beside them."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from simsched import outlets
from simsched.errors import input_error
from simsched.files import StagedFile, write_text
from simsched.results.arrow import arrow_array, arrow_parts, arrow_schema, read_arrow
from simsched.results.rows import ROUNDS, TABLES, Table

#: Rows that are held in memory before they go to disk as one row group.
ROW_GROUP_ROWS = 65_536
#: Values of a column that Arrow writes at a time: chunks of this size give the same pages as one array.
_WRITTEN_AT_ONCE = 1024
#: Rows kept as tuples before they become columns, which take less memory.
_ROWS_AS_THEY_CAME = _WRITTEN_AT_ONCE
#: Tables with at most this many rows are neither compressed nor dictionary-encoded: that would dominate the time to
#: write them, and save at most a quarter of a few kilobytes.
_ROWS_TOO_FEW_TO_COMPRESS = 32

Row = Sequence[Any]

_DIAGNOSTICS, _PROVISIONED = (i for i, column in enumerate(ROUNDS.columns) if column.type.startswith("map"))


class TableWriter:
    """Streams records to `jobs.parquet`, `allocations.parquet`, `rounds.parquet` and the like in a folder.

    A context manager that takes the engine's records as tuples in the order of the schema. At most `row_group_rows`
    rows of each table are held in memory. The files get their final names when the block succeeds; an exception leaves
    none of them. The same records give the same bytes. Records of tables not among `tables` are dropped. An occasional
    table without records has no file.

    With `keep_short`, files of at most one row group are not written: the caller writes their `contents` and need not
    read them back to hash them.
    """

    def __init__(
        self,
        folder: Path,
        tables: Collection[str] = tuple(TABLES),
        *,
        features: Collection[str] = (),
        row_group_rows: int = ROW_GROUP_ROWS,
        keep_short: bool = False,
    ) -> None:
        """Write into `folder`, created if missing; `features` add columns."""
        unknown = sorted(set(tables) - set(TABLES))
        if unknown:
            raise input_error(folder, f"there is no result table '{unknown[0]}'", f"known: {', '.join(sorted(TABLES))}")
        self._folder = Path(folder)
        self._tables = {
            name: _TableFile(self._folder, table, features, row_group_rows, keep_short) if name in tables else None
            for name, table in TABLES.items()
        }
        self._provisioned: Mapping[str, float] = {}
        self._provisioned_pairs: list[tuple[str, float]] = []
        #: Take a finished job, a closed interval, an outage of a node, and how a job stood after a decision.
        self.job, self.allocation, self.outage, self.reason = (
            _dropped if table is None else table.add for name, table in self._tables.items() if name != "rounds"
        )
        self._rounds = self._tables["rounds"]

    def __enter__(self) -> TableWriter:
        """Make the folder."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if not os.access(self._folder, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except OSError as error:
            raise input_error(self._folder, f"cannot write results: {error.strerror}", "name another folder") from error
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Finish the files, or remove them if the block failed."""
        if kind is not None:
            self._discard()
            return
        try:
            for table in self._open_tables():
                table.close()
        except BaseException:
            self._discard()
            raise
        for table in self._open_tables():
            table.publish()

    def decision(self, record: Row) -> None:
        """Take a decision; its mappings are copied, keys sorted."""
        if self._rounds is not None:
            row = record
            if row[_DIAGNOSTICS] or row[_PROVISIONED]:  # empty mappings equal no pairs
                row = list(record)
                row[_DIAGNOSTICS] = sorted(row[_DIAGNOSTICS].items())
                if row[_PROVISIONED] is not self._provisioned:  # a new mapping only if nodes come or go
                    self._provisioned = row[_PROVISIONED]
                    self._provisioned_pairs = sorted(self._provisioned.items())
                row[_PROVISIONED] = self._provisioned_pairs
            self._rounds.add(row)

    def extend(self, name: str, rows: pa.Table) -> None:
        """Take rows of a table from another file of this kind; missing columns hold their defaults."""
        table = self._tables[name]
        if table is not None:
            table.extend(rows)

    @property
    def short(self) -> dict[str, pa.Table]:
        """The tables of at most one row group, kept to save reading them back."""
        return {
            name: table.whole for name, table in self._tables.items() if table is not None and table.whole is not None
        }

    @property
    def contents(self) -> dict[str, bytes]:
        """The files of these tables, by name."""
        return {table.name: table.content for table in self._open_tables() if table.content is not None}

    def _open_tables(self) -> list[_TableFile]:
        return [table for table in self._tables.values() if table is not None]

    def _discard(self) -> None:
        for table in self._open_tables():
            table.discard()


def _dropped(_: Row) -> None:
    """Drop a record of a table that is not wanted."""


class _TableFile:
    """One Parquet file: written under a temporary name, or kept in memory if it has at most one row group."""

    def __init__(
        self, folder: Path, table: Table, features: Collection[str], row_group_rows: int, keep_short: bool
    ) -> None:
        self.name = table.file
        self._record = table.record
        self._schema, self._places = _layout(table.name, frozenset(features))
        self._path = folder / table.file
        self._keep_short = keep_short
        self._occasional = table.occasional
        self._limit = row_group_rows
        self._rows: list[Row] = []
        self._most_rows = min(_ROWS_AS_THEY_CAME, row_group_rows)
        #: The pending arrays of each column, one per chunk of rows.
        self._columns: list[list[pa.Array]] = [[] for _ in self._schema]
        self._in_columns = 0
        #: The table and its file's content, None if it is not short.
        self.whole: pa.Table | None = None
        self.content: bytes | None = None
        self._staged: StagedFile | None = None
        self._writer: pq.ParquetWriter | None = None

    def add(self, row: Row) -> None:
        rows = self._rows
        rows.append(row)
        if len(rows) >= self._most_rows:
            self._make_columns()

    def extend(self, rows: pa.Table) -> None:
        defaults = self._record._field_defaults
        columns = [
            rows.column(field.name) if field.name in rows.schema.names
            else arrow_array([defaults[field.name]] * rows.num_rows, field.type)
            for field in self._schema
        ]  # fmt: skip
        for batch in pa.Table.from_arrays(columns, schema=self._schema).to_batches():
            at = 0
            while at < batch.num_rows:
                some = batch.slice(at, self._limit - self._in_columns)
                at += some.num_rows
                for kept, array in zip(self._columns, some.columns, strict=True):
                    kept.append(array)
                self._in_columns += some.num_rows
                if self._in_columns == self._limit:
                    self._flush()

    def close(self) -> None:
        self._make_columns()
        if self._writer is None:
            if self._in_columns or not self._occasional:
                self._keep()
            return
        self._flush()
        self._writer.close()
        self._writer = None

    def publish(self) -> None:
        if self._staged is not None:
            self._staged.publish()

    def discard(self) -> None:
        self._rows, self._columns = [], []
        writer, self._writer = self._writer, None
        with contextlib.suppress(OSError):  # a full disk must not hide the error that led here
            if writer is not None:
                writer.close()
        with contextlib.suppress(OSError):
            if self._staged is not None:
                self._staged.discard()

    def _make_columns(self) -> None:
        """Convert the pending rows to columns, and write full row groups."""
        rows, self._rows = self._rows, []
        if rows:
            columns = list(zip(*rows, strict=True))
            for kept, at, field in zip(self._columns, self._places, self._schema, strict=True):
                array = arrow_array(columns[at], field.type)
                # Most columns are constant over the jobs of a long trace.
                kept.append(kept[-1] if kept and _same_bytes(kept[-1], array) else array)
            self._in_columns += len(rows)
        if self._in_columns == self._limit:
            self._flush()
        self._most_rows = min(_ROWS_AS_THEY_CAME, self._limit - self._in_columns)

    def _flush(self) -> None:
        if self._writer is None:
            self._staged = StagedFile(self._path)
            self._writer = self._open(self._staged.path)
        if self._in_columns:
            self._writer.write_table(self._taken(), row_group_size=self._limit)

    def _keep(self) -> None:
        """Return the content of a file of one row group, or of none."""
        sink = pa.BufferOutputStream()
        table = self._taken()
        with self._open(sink, few=table.num_rows <= _ROWS_TOO_FEW_TO_COMPRESS) as writer:
            if table.num_rows:
                writer.write_table(table, row_group_size=self._limit)
        self.whole, self.content = table, sink.getvalue().to_pybytes()
        if not self._keep_short:
            self._staged = StagedFile(self._path)
            self._staged.path.write_bytes(self.content)

    def _taken(self) -> pa.Table:
        """Return the pending columns, and clear them."""
        columns, self._columns, self._in_columns = self._columns, [[] for _ in self._schema], 0
        whole = [pa.chunked_array(parts, field.type) for parts, field in zip(columns, self._schema, strict=True)]
        even = all(len(part) % _WRITTEN_AT_ONCE == 0 for part in columns[0][:-1])
        table = pa.Table.from_arrays(whole, schema=self._schema)
        return table if even else table.combine_chunks()

    def _open(self, where: Path | pa.BufferOutputStream, *, few: bool = False) -> pq.ParquetWriter:
        compression = "none" if few else "zstd"
        return pq.ParquetWriter(
            where, self._schema, compression=compression, use_dictionary=not few, write_page_checksum=True
        )


def _same_bytes(one: pa.Array, other: pa.Array) -> bool:
    """Return whether two arrays of a type have the same slice of the same buffers."""
    return (one.offset, len(one)) == (other.offset, len(other)) and all(
        mine is theirs or (mine is not None and theirs is not None and mine.equals(theirs))
        for mine, theirs in zip(one.buffers(), other.buffers(), strict=True)
    )


@lru_cache(maxsize=64)
def _layout(name: str, features: frozenset[str]) -> tuple[pa.Schema, tuple[int, ...]]:
    """Return the schema of a table's file, and the positions of its columns in a record."""
    table = TABLES[name]
    written = table.written(features)
    return arrow_schema(table, features), tuple(
        place for place, column in enumerate(table.columns) if column in written
    )


def write_json(path: Path, content: object) -> None:
    """Write JSON with sorted keys atomically. NaN and infinity raise `ValueError`: they are not JSON."""
    write_text(Path(path), json_text(content))


def json_text(content: object) -> str:
    """Return JSON with sorted keys, as in all files; raises as `write_json`."""
    return outlets.json_text(content, indent=2, sort_keys=True, allow_nan=False) + "\n"


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
