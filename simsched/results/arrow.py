"""Arrow schemas and arrays of the tables, and the columns of stored ones, without pandas.

`pyarrow.array` loads pandas to check for its types, which takes longer than a short run and more memory than a long
one. Unexpected values still go to it, for its error messages.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from simsched.errors import first_line, input_error
from simsched.outlets import one_line, shortened
from simsched.results.metric import Column, Columns
from simsched.results.rows import FINE_TIME, LARGEST, SCHEMA_VERSION, TABLES, Column as Declared, Table
from simsched.results.stored import RUN_AGAIN

_CODES = {pa.int32(): "i", pa.int64(): "q", pa.float64(): "d"}
_MAPPING = pa.map_(pa.string(), pa.float64())
#: The types of columns by their names.
TYPES: Mapping[str, pa.DataType] = {str(kind): kind for kind in (*_CODES, pa.string(), pa.bool_(), _MAPPING)}


def arrow_schema(table: Table, features: Collection[str] = ()) -> pa.Schema:
    """Return the schema of a table's file: no column nullable, the version of the tables as its only metadata.

    With the feature `fine-time` seconds need not be whole.
    """
    fine = {"int64": "double"} if FINE_TIME in features else {}
    fields = [
        pa.field(column.name, TYPES[fine.get(column.type, column.type)], nullable=False)
        for column in table.written(features)
    ]
    return pa.schema(fields, metadata={"simsched_schema": SCHEMA_VERSION})


def arrow_array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return the array that `pyarrow.array` makes of a type; mappings are given as sequences of pairs.

    Raises its errors for values that do not fit the type.
    """
    made = _array(values, kind)
    return pa.array(values, kind) if made is None else made


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array | None:
    """Return an array; None for unsupported values or types."""
    try:
        if kind in _CODES:
            return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(array(_CODES[kind], values))])
        if kind == pa.string():
            return _texts(values)
        if kind == pa.bool_():
            return _truths(values)
        return _mappings(values, kind) if pa.types.is_map(kind) else None
    except (TypeError, ValueError, OverflowError):
        return None


def _truths(values: Sequence[Any]) -> pa.Array | None:
    if not set(map(type, values)) <= {bool}:
        return None
    packed = np.packbits(np.frombuffer(bytes(values), dtype=np.uint8), bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(packed)])


def _texts(values: Sequence[Any]) -> pa.Array:
    whole = "".join(values)
    parts = values if whole.isascii() else [value.encode() for value in values]
    return pa.StringArray.from_buffers(len(values), _ends(map(len, parts)), pa.py_buffer(whole.encode()))


def _mappings(values: Sequence[Any], kind: pa.MapType) -> pa.Array | None:
    pairs = list(chain.from_iterable(values))
    keys = _array([key for key, _ in pairs], kind.key_type)
    items = _array([item for _, item in pairs], kind.item_type)
    if keys is None or items is None:
        return None
    both = pa.struct([kind.key_field, kind.item_field])
    inside = pa.Array.from_buffers(both, len(pairs), [None], children=[keys, items])
    return pa.Array.from_buffers(kind, len(values), [None, _ends(map(len, values))], children=[inside])


def _ends(lengths: Iterable[int]) -> pa.Buffer:
    """Return the start of each of several runs, and the end of the last."""
    return pa.py_buffer(array("i", accumulate(lengths, initial=0)))


#: Tables with more rows are read by several threads, which take longer to start than a short table takes to read.
ROWS_FOR_THREADS = 50_000
#: Rows held as Python objects at a time.
_AT_ONCE = 65_536
_LONGEST_SHOWN = 60


def read_arrow(folder: Path, name: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a result table of a cell folder, or some of its columns, without those of features that it lacks.

    Raises `KeyError` for columns that the table does not declare, and `InputError` for a file that is missing, damaged,
    of another version, or lacks a column of the schema.
    """
    path = Path(folder) / TABLES[name].file
    undeclared = set(columns or ()) - set(TABLES[name].record._fields)
    if undeclared:
        raise KeyError(*undeclared)
    if not path.is_file():
        raise input_error(path, f"the table of {name} is not there", f"record it, or {RUN_AGAIN}")
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            _check_schema(path, name, file.schema_arrow)
            threads = file.metadata.num_rows > ROWS_FOR_THREADS
            table = file.read(columns=None if columns is None else list(columns), use_threads=threads)
    except (pa.ArrowException, OSError, ValueError, NotImplementedError) as error:
        raise input_error(
            path,
            f"cannot be read as Parquet ({first_line(error)})",
            f"`simsched verify --remove RUN`, then {RUN_AGAIN}",
        ) from error
    _check_values(path, name, table)
    return table


def arrow_parts(folder: Path, name: str) -> Iterator[pa.Table]:
    """Yield a table written by this process, in batches as written."""
    with pq.ParquetFile(Path(folder) / TABLES[name].file) as file:
        for number in range(file.num_row_groups):
            yield file.read_row_group(number, use_threads=False)


def stored_columns(folder: Path, name: str) -> Columns:
    """Return the columns of a table in a cell folder, each read on first access; raises as `read_arrow`."""
    whole = read_arrow(folder, name, ())
    there = pq.read_schema(Path(folder) / TABLES[name].file).names
    names = [column for column in TABLES[name].record._fields if column in there]
    return Columns(names, whole.num_rows, lambda column: _read_array(read_arrow(folder, name, [column]).column(column)))


def columns_of(table: pa.Table) -> Columns:
    """Return the columns of a table; each becomes an array on first access."""
    return Columns(table.schema.names, table.num_rows, lambda column: _read_array(table.column(column)))


def _read_array(column: pa.ChunkedArray) -> Column:
    """Return a column as an array, mappings as lists of pairs."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):  # as `to_numpy` would, which loads pandas
        parts = [
            np.frombuffer(part.buffers()[1], kind.to_pandas_dtype(), len(part), part.offset * kind.byte_width)
            for part in column.chunks
            if len(part)
        ]
        return np.concatenate(parts) if parts else np.empty(0, kind.to_pandas_dtype())
    values = (value for at in range(0, len(column), _AT_ONCE) for value in column.slice(at, _AT_ONCE).to_pylist())
    if pa.types.is_string(kind):  # equal texts as one object
        known: dict[str, str] = {}
        values = (known.setdefault(value, value) for value in values)
    return np.fromiter(values, bool if pa.types.is_boolean(kind) else object, len(column))


#: How far rounding in continuous time may push a difference of two times below 0.
_ROUNDING = 1e-6


def _check_schema(path: Path, name: str, schema: pa.Schema) -> None:
    version = (schema.metadata or {}).get(b"simsched_schema", b"none").decode("ascii", "backslashreplace")
    if version != SCHEMA_VERSION:
        message = f"its tables are of version {version}, this simsched reads version {SCHEMA_VERSION}"
        raise input_error(path, message, "run the experiment again with this version")
    missing = [column.name for column in TABLES[name].written() if column.name not in schema.names]
    if missing:
        raise input_error(path, f"lacks the column '{missing[0]}'", RUN_AGAIN)
    for column in TABLES[name].columns:
        found = schema.get_all_field_indices(column.name)
        if len(found) > 1:
            raise input_error(path, f"has the column '{column.name}' twice", RUN_AGAIN)
        kinds = [schema.field(place).type for place in found]
        if kinds and kinds[0] not in _types(column):
            raise input_error(path, f"its column '{column.name}' is of {kinds[0]}, not {column.type}", RUN_AGAIN)


def _types(column: Declared) -> tuple[pa.DataType, ...]:
    """Return the allowed types of a column: times need not be whole seconds."""
    return (pa.int64(), pa.float64()) if column.type == "int64" else (TYPES[column.type],)


def _check_values(path: Path, name: str, table: pa.Table) -> None:
    """Refuse values that no run produces; the schema declares the range of a column."""
    for column in TABLES[name].columns:
        if column.name in table.schema.names:
            fault = _fault_of(table.column(column.name), column)
            if fault:
                raise input_error(path, f"its column '{column.name}' {fault}", RUN_AGAIN)


def _fault_of(values: pa.ChunkedArray, column: Declared) -> str:
    """Describe what is wrong with the values of a column; empty if nothing is."""
    if values.null_count:
        return "lacks values"
    if pa.types.is_floating(values.type) and pc.any(pc.is_nan(values)).as_py():
        return "holds what is not a number"
    if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
        least, most = pc.min_max(values).as_py().values()
        if least is not None and least < -_ROUNDING:
            return f"holds {least}, less than 0"
        return f"holds {most:g}" if most is not None and most > LARGEST and not column.endless else ""
    if column.form:
        fits = pc.match_substring_regex(values, f"^({column.form})$")
        odd = values.filter(pc.invert(fits))
        return f"holds '{shortened(one_line(odd[0].as_py()), _LONGEST_SHOWN)}'" if len(odd) else ""
    return ""
