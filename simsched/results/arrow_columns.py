"""Arrow schemas of the tables, and Arrow arrays of the values of their rows.

`pyarrow.array` loads pandas to check for its types, which takes longer than a short run and more memory than a long
one. Unexpected values still go to it, for its error messages.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate, chain
from typing import Any

import numpy as np
import pyarrow as pa

from simsched.results.rows import FINE_TIME, SCHEMA_VERSION, Table

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
