"""The results of a run as pandas tables and matplotlib figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from simsched.errors import input_error, nearest
from simsched.experiment import groups_of
from simsched.knowledge import legend, marks
from simsched.model import Cluster
from simsched.results import (
    Cell,
    Columns,
    Row,
    Run,
    comparison,
    find_metric,
    paired_differences,
    read_run as read_folder,
    what_was_run,
)
from simsched.results.compare import usual_metrics

if TYPE_CHECKING:
    from simsched.report.figures import Figure


@dataclass(frozen=True)
class RunResults:
    """The results of a run, read on demand.

    All tables share one index: `policy` (its label), the swept keys by full name, and `seed`.
    """

    run: Run

    @property
    def folder(self) -> Path:
        """Return the folder of the run."""
        return self.run.folder

    @property
    def policies(self) -> tuple[str, ...]:
        """Return the labels of the policies, in the order of the experiment."""
        return self.run.policies

    @property
    def failed(self) -> dict[str, str]:
        """Return the reasons why cells failed, by their names."""
        return dict(self.run.failed)

    @property
    def what_was_run(self) -> str:
        """Describe the run: jobs, seeds, policies, GPUs, and changes."""
        return what_was_run(self.run.cells, self.run.changed)

    @property
    def marks(self) -> tuple[str, ...]:
        """Explain the marks of policies, † and ‡, and which policy reads what; () if there are no marks."""
        return legend({cell.policy: cell.knows for cell in self.run.cells})

    def __repr__(self) -> str:
        """Identify the run."""
        return f"<results of {self.run.name}: {self.what_was_run}>"

    @property
    def replicated_over(self) -> tuple[str, ...]:
        """Return the swept keys that count as replications: the files of a folder of workloads."""
        return self.run.replicated_over

    @cached_property
    def rows(self) -> list[Row]:
        """Return one row per policy and point of the sweep, each over all its seeds."""
        return comparison(self.run, self.replicated_over)

    def table(self, metrics: Sequence[str] | None = None) -> pd.DataFrame:
        """Return one row per policy and point: the mean of each metric, its 95 % interval, and the number of seeds.

        Each metric (default: the usual ones; see `simsched list metrics`) has the columns `NAME`, `NAME_low` and
        `NAME_high` in the unit of the name, the latter two missing without an interval. The column `mark` shows whether
        the policy reads what no real scheduler knows (†) or what was profiled before (‡).
        """
        readings = [find_metric(name) for name in metrics or usual_metrics(self.rows)]
        lines = []
        for row in self.rows:
            line: dict[str, object] = {
                "policy": row.policy,
                **row.point,
                "mark": marks(row.knows),
                "seeds": len(row.cells),
            }
            for name, reading in zip(metrics or [reading.key for reading in readings], readings, strict=True):
                found = row.estimate(reading.key)
                if found is None:
                    continue
                line[name] = found.mean * reading.factor if metrics else found.mean
                factor = reading.factor if metrics else 1.0
                line[f"{name}_low"] = None if found.low is None else found.low * factor
                line[f"{name}_high"] = None if found.high is None else found.high * factor
            lines.append(line)
        table = pd.DataFrame(lines).set_index(["policy", *self._points()])
        return table.astype({name: float for name in table if name not in ("mark", "seeds")})

    def cells(self) -> pd.DataFrame:
        """Return one row per cell (policy, point and seed) with its mark and all its metrics in their units."""
        lines = [{**self._index(cell), "mark": marks(cell.knows), **cell.summary} for cell in self.run.cells]
        return pd.DataFrame(lines).set_index(["policy", *self.run.swept, "seed"])

    def jobs(self) -> pd.DataFrame:
        """Return the finished jobs of all cells; the index ends with `job_id`."""
        return self._gathered("jobs", ["job_id"])

    def allocations(self) -> pd.DataFrame:
        """Return the intervals during which a job ran unchanged; the index ends with `job_id`."""
        return self._gathered("allocations", ["job_id"])

    def decisions(self) -> pd.DataFrame:
        """Return the decisions of the policies; the index ends with `time_s`."""
        return self._gathered("rounds", ["time_s"])

    def outages(self) -> pd.DataFrame:
        """Return the intervals during which a node was out of use, and why; the index ends with `node`."""
        return self._gathered("outages", ["node"])

    def compare(self, policy: str, reference: str, metrics: Sequence[str] | None = None) -> pd.DataFrame:
        """Return paired differences of a policy from a reference, one row per metric and point of the sweep.

        Columns: `difference` (mean of policy - reference), `relative` (mean of that over the reference) with
        `relative_low` and `relative_high`, its 95 % interval, and `seeds`. Raises `InputError` for unknown labels.
        """
        if policy not in self.policies:
            raise input_error(self.folder, f"no policy is labelled '{policy}'", nearest(policy, self.policies))
        wanted = [find_metric(name).key for name in metrics or usual_metrics(self.rows)]
        lines = []
        for one in paired_differences(self.rows, reference, wanted):
            if one.row.policy != policy:
                continue
            for name, pair in one.differences.items():
                relative = pair.relative
                lines.append(
                    {
                        **one.row.point,
                        "metric": name,
                        "difference": pair.absolute.mean,
                        "relative": None if relative is None else relative.mean,
                        "relative_low": None if relative is None else relative.low,
                        "relative_high": None if relative is None else relative.high,
                        "seeds": pair.absolute.n,
                    }
                )
        index = [*self._points(), "metric"]
        columns = [*index, "difference", "relative", "relative_low", "relative_high", "seeds"]
        return (
            pd.DataFrame(lines, columns=columns).set_index(index).astype(dict.fromkeys(columns[len(index) : -1], float))
        )

    def figures(self) -> tuple[str, ...]:
        """Return the names of the figures that fit this run."""
        from simsched.report.figures import figure_names

        return figure_names(self.run, self.replicated_over)

    def plot(self, name: str = "bars", *, metrics: Sequence[str] = ()) -> Figure:
        """Return a figure, which a notebook shows by itself; `figures()` names those that fit.

        `metrics` are for figures that compare metrics (`bars` and sweeps).
        """
        from simsched.report.figures import draw_figure

        return draw_figure(self.run, name, self.replicated_over, metrics)[0]

    def _points(self) -> list[str]:
        return [key for key in self.run.swept if key not in self.replicated_over]

    def _index(self, cell: Cell) -> dict[str, object]:
        point = {key: cell.point.get(key) for key in self.run.swept}
        return {"policy": cell.policy, **point, "seed": cell.seed}

    def _gathered(self, table: str, last: list[str]) -> pd.DataFrame:
        frames = []
        for cell in self.run.cells:
            frame = cell.table(table)
            for position, (key, value) in enumerate(self._index(cell).items()):
                frame.insert(position, key, str(value) if isinstance(value, list | dict) else value)  # type: ignore[arg-type]
            frames.append(frame)
        rows = [frame for frame in frames if len(frame)] or frames[:1]  # without tables, columns have no types
        return pd.concat(rows, ignore_index=True).set_index(["policy", *self.run.swept, "seed", *last])


def read_run(folder: str | Path) -> RunResults:
    """Read the available results of a run from its folder.

    Raises `InputError` if the folder is damaged or not that of a run.
    """
    return RunResults(read_folder(Path(folder)))


#: A path that does not exist, as there are no files apart from the tables.
_NOWHERE = Path("(in memory)")


@dataclass(frozen=True)
class HeldCell(Cell):
    """A cell with `tables` in memory."""

    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)

    def has(self, table: str) -> bool:
        """Return whether the table has rows or belongs to every run."""
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
