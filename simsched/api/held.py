"""The results of one simulation as a run of one cell whose tables are in memory, so that all figures fit it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from simsched.experiment import groups_of
from simsched.model import Cluster
from simsched.results import Cell, Columns, Run

#: Where nothing lies: what a run keeps beside its tables is not there.
_NOWHERE = Path("(in memory)")


@dataclass(frozen=True)
class HeldCell(Cell):
    """A cell whose `tables` are at hand."""

    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)

    def has(self, table: str) -> bool:
        """Return whether the table has rows, or is one that every run has."""
        return table in self.tables

    def table(self, name: str, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Return a table, or only some of its columns."""
        whole = self.tables[name]
        return whole if columns is None else whole[[column for column in columns if column in whole]]

    def columns(self, name: str, columns: Sequence[str]) -> Columns:
        """Return some columns of a table as arrays."""
        return Columns.of(self.tables[name][list(columns)])


def held_run(
    label: str,
    tables: Mapping[str, pd.DataFrame],
    metrics: Mapping[str, float],
    cluster: Cluster,
    knows: Mapping[str, str],
) -> Run:
    """Return a run of one cell."""
    about = {"cluster": groups_of(cluster), "policy_knows": dict(knows)}
    cell = HeldCell(_NOWHERE, about, metrics, label, label, tables=tables)
    return Run(_NOWHERE, "simulation", (cell,), {}, {})
