"""The columns of a trace that give the shape of a job's GPUs and other constraints on its start."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from simsched.model import NodeShape
from simsched.model.placement import Amount, Terms

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd


class ShapeColumn(NamedTuple):
    """The meaning of a column, and its value for no entry."""

    meaning: str
    idle: int | str


#: A trace has only those of these columns that hold a value for some job.
SHAPE_COLUMNS: Mapping[str, ShapeColumn] = MappingProxyType(
    {
        "num_nodes": ShapeColumn("nodes that it wants, each with an equal part of its GPUs; 0: any number", 0),
        "gpu_types": ShapeColumn("GPU types that it may run on, separated by |; empty: any", ""),
        "cpu_milli": ShapeColumn("thousandths of cores that it wants, on all nodes together", 0),
        "memory_mib": ShapeColumn("memory in MiB that it wants, on all nodes together", 0),
        "exclusive": ShapeColumn("1 if it uses its nodes exclusively", 0),
        "reservation": ShapeColumn("reservation of nodes that it uses", ""),
        "after": ShapeColumn("jobs that must end before it starts, separated by spaces", ""),
        "group_limit": ShapeColumn("how many jobs of its group run at once; 0: all", 0),
        "licences": ShapeColumn("licences that it uses, as in `matlab:2 ansys:1`", ""),
        "waited_s": ShapeColumn("seconds that it waited elsewhere before it came, which count towards its age", 0),
        "held_nodes": ShapeColumn("nodes that it held when the replay begins, as in `a100:0 a100:5`", ""),
    }
)
_SHAPE = ("num_gpus", "num_nodes", "gpu_types", "cpu_milli", "memory_mib", "exclusive")
_TERMS = ("reservation", "after", "group_limit", "licences", "waited_s", "held_nodes")


def shapes_of(table: pd.DataFrame) -> dict[str, list[Any]]:
    """Return `shape` and `terms` of the jobs in a trace's table; each is left out if no job has one."""
    made: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {"shape": (_shape, _SHAPE), "terms": (_terms, _TERMS)}
    return {
        name: _column(table, make, columns)
        for name, (make, columns) in made.items()
        if any(column in table for column in columns if column in SHAPE_COLUMNS)
    }


def kinds_of(table: pd.DataFrame, columns: Sequence[str]) -> tuple[pd.DataFrame, npt.NDArray[np.integer[Any]]]:
    """Return the rows that are unique in the columns present, and the index of the unique row for each row."""
    there = [name for name in columns if name in table]
    number = table.groupby(there, sort=False).ngroup().to_numpy()
    return table[there].drop_duplicates(), number


def _column(table: pd.DataFrame, make: Callable[..., Any], columns: tuple[str, ...]) -> list[Any]:
    """Build an object from each row; equal rows share one object."""
    rows, number = kinds_of(table, columns)
    idle = {name: SHAPE_COLUMNS[name].idle for name in columns if name not in rows}
    made = [
        make(**idle, **dict(zip(map(str, rows), row, strict=True))) for row in rows.itertuples(index=False, name=None)
    ]
    return [made[one] for one in number]


def _shape(
    num_gpus: int, num_nodes: int, gpu_types: str, cpu_milli: int, memory_mib: int, exclusive: int
) -> NodeShape | None:
    gpus, nodes = int(num_gpus), int(num_nodes)
    named = tuple(kind for kind in str(gpu_types).split("|") if kind) or None
    if nodes and gpus % nodes:
        nodes = 0  # uneven parts, whose places the log does not record
    parts = max(nodes, 1)
    each = Amount(gpus // parts, cpu_milli=-(-int(cpu_milli) // parts), memory_mib=-(-int(memory_mib) // parts))
    shape = NodeShape(nodes, each, named, exclusive=bool(exclusive))
    return shape if named or shape.binds else None


def _terms(
    reservation: str, after: str, group_limit: int, licences: str, waited_s: int, held_nodes: str
) -> Terms | None:
    counted = tuple((name, int(count or 1)) for name, _, count in (one.partition(":") for one in licences.split()))
    held = tuple(held_nodes.split())
    terms = Terms(reservation, tuple(after.split()), int(group_limit), counted, int(waited_s), held)
    return terms if terms != Terms() else None
