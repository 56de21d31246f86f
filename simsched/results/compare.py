"""Compares the policies of a run with each other, and a run with expected completion times."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from simsched.errors import input_error, nearest
from simsched.results.metric_names import find_metric, is_ratio, range_of, ratio_key
from simsched.results.metrics import HEADLINE, METRICS
from simsched.results.reader import Cell, Run
from simsched.results.statistics import Difference, Estimate, estimate, geometric, paired_difference

#: The replication of a cell: its seed, and the values of swept keys that count as replications.
Replica = tuple[Hashable, ...]


@dataclass(frozen=True)
class Row:
    """One policy at one point of the sweep, over all its seeds.

    `values` has one value per replication for each metric of the summaries; `published` holds the published values, in
    the units of the summaries.
    """

    policy: str
    policy_name: str
    point: Mapping[str, Any]
    cells: tuple[Cell, ...]
    values: Mapping[str, Mapping[Replica, float]]
    published: Mapping[str, float]

    @property
    def name(self) -> str:
        """The label, followed by the point of the sweep, if any: `pollux [load=2.0]`."""
        return row_name(self.policy, self.point)

    @property
    def shown_name(self) -> str:
        """The name with the mark of the policy's knowledge: `srtf † [load=2.0]`."""
        return row_name(self.shown_policy, self.point)

    @property
    def shown_policy(self) -> str:
        """The label with the mark of the policy's knowledge."""
        return self.cells[0].shown_policy if self.cells else self.policy

    @property
    def knows(self) -> Mapping[str, str]:
        """How a real scheduler would obtain each signal that the policy reads: `{'remaining_work': 'oracle'}`."""
        return self.cells[0].knows if self.cells else {}

    @property
    def copies(self) -> bool:
        """Whether all its cells are copies of one run: the same jobs with the same results under every seed."""
        first = self.cells[0]
        jobs = first.manifest.get("jobs_hash")
        return len(self.cells) > 1 and all(
            cell.summary == first.summary and cell.manifest.get("jobs_hash") == jobs for cell in self.cells[1:]
        )

    def estimate(self, metric: str) -> Estimate | None:
        """Average a metric (named as in the summaries) over the replications; None if no summary has it.

        The interval stays within the range of the metric. Ratios use the geometric mean. Copies of one run count once.
        """
        values = self.values.get(metric)
        if not values:
            return None
        chosen = list(values.values())[:1] if self.copies else list(values.values())
        if is_ratio(metric) and min(chosen) > 0:
            return geometric(chosen)
        return estimate(chosen, within=range_of(metric))


@dataclass(frozen=True)
class DifferenceRow:
    """The difference of a row from the reference policy at the same point, by metric."""

    row: Row
    reference: Row
    differences: Mapping[str, Difference]


def short_keys(keys: Collection[str]) -> dict[str, str]:
    """Shorten swept keys to their last part (`workload.load` to `load`) if that is unambiguous."""
    last = [key.rpartition(".")[2] for key in keys]
    return {key: short if last.count(short) == 1 else key for key, short in zip(keys, last, strict=True)}


def row_name(policy: str, point: Mapping[str, Any]) -> str:
    """Name a row by its policy and its point of the sweep."""
    if not point:
        return policy
    short = short_keys(list(point))
    return f"{policy} [{', '.join(f'{short[key]}={value}' for key, value in point.items())}]"


def comparison(run: Run, replicate_over: Collection[str] = ()) -> list[Row]:
    """Gather the cells of a run into rows, one per policy and sweep point, in the order of the grid.

    Swept keys in `replicate_over` (for instance a list of workload files) count as replications, like seeds, not as
    points. Published values are looked up under the name of the row, else under the label of the policy if it has only
    one row. `InputError` for a key that is not swept.
    """
    unknown = [key for key in replicate_over if key not in run.swept]
    if unknown:
        raise input_error(run.folder, f"'{unknown[0]}' is not swept in this run", nearest(unknown[0], run.swept))
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in run.cells:
        groups.setdefault((cell.policy, str(_point(cell, replicate_over))), []).append(cell)
    rows = [
        _row(run, cells, replicate_over, _published(run, cells[0], replicate_over, groups)) for cells in groups.values()
    ]
    return _with_ratios(rows, run.reference or rows[0].policy) if rows else []


def usual_metrics(rows: Iterable[Row]) -> list[str]:
    """List the default metrics of a comparison: the usual ones that rows have.

    With several GPU types, metrics by type are included for each.
    """
    there = sorted({key for row in rows for key in row.values})
    found: list[str] = []
    for name in HEADLINE:
        of_types = METRICS[name].of == "types"
        found += [key for key in there if key == name or (of_types and key.startswith(f"{name}["))]
    return found


def _point(cell: Cell, replicate_over: Collection[str]) -> dict[str, Any]:
    return {key: value for key, value in cell.point.items() if key not in replicate_over}


def _row(run: Run, cells: Sequence[Cell], replicate_over: Collection[str], published: Mapping[str, float]) -> Row:
    values: dict[str, dict[Replica, float]] = {}
    for cell in cells:
        replica = (cell.seed, *(str(cell.point[key]) for key in replicate_over if key in cell.point))
        for metric, value in cell.summary.items():
            of_metric = values.setdefault(metric, {})
            if replica in of_metric:
                message = f"'{row_name(cell.policy, cell.point)}' has seed {cell.seed} twice"
                raise input_error(run.folder, message, "give each policy its own label")
            of_metric[replica] = value
    first = cells[0]
    return Row(first.policy, first.policy_name, _point(first, replicate_over), tuple(cells), values, published)


def _published(
    run: Run, cell: Cell, replicate_over: Collection[str], groups: Iterable[tuple[str, str]]
) -> dict[str, float]:
    """Find the published values of a row, converted to the units of the summaries."""
    rows_of_policy = [policy for policy, _ in groups].count(cell.policy)
    names = [row_name(cell.policy, _point(cell, replicate_over))]
    if rows_of_policy == 1:
        names.append(cell.policy)
    found: Mapping[str, float] = next((run.published[name] for name in names if name in run.published), {})
    readings = {name: find_metric(name) for name in found}
    return {reading.key: float(found[name]) / reading.factor for name, reading in readings.items()}


def _with_ratios(rows: list[Row], reference: str) -> list[Row]:
    """If ratios to the reference policy were published, add those of all rows, by replication."""
    wanted = {ratio_key(key): key for row in rows for key in row.values}
    wanted = {ratio: wanted[ratio] for row in rows for ratio in row.published if ratio in wanted}
    references = [row for row in rows if row.policy == reference]
    found = []
    for row in rows:
        other = next((one for one in references if _same_point(row, one)), None)
        ratios: dict[str, dict[Replica, float]] = {}
        for ratio, key in wanted.items():
            below = {} if other is None else other.values.get(key, {})
            above = row.values.get(key, {})
            values = {replica: above[replica] / below[replica] for replica in above if below.get(replica)}
            if values:
                ratios[ratio] = values
        found.append(replace(row, values={**row.values, **ratios}))
    return found


def paired_differences(
    rows: Sequence[Row], reference: str, metrics: Collection[str] | None = None
) -> list[DifferenceRow]:
    """Compare every row with the row of the policy labelled `reference` at the same point, seed by seed.

    A reference that does not depend on a swept key serves all values of that key. `metrics` are named as in the
    summaries (default: all). Raises `InputError` if no policy has that label.
    """
    references = [row for row in rows if row.policy == reference]
    if not references:
        raise input_error(
            "reference policy", f"no policy is labelled '{reference}'", nearest(reference, {r.policy for r in rows})
        )
    found = []
    for row in rows:
        other = reference_of(row, references, reference)
        if other is None or other is row:
            continue
        names = row.values if metrics is None else metrics
        pairs = {name: _paired(row, other, name) for name in names}
        found.append(DifferenceRow(row, other, {name: pair for name, pair in pairs.items() if pair is not None}))
    return found


def reference_of(row: Row, rows: Sequence[Row], reference: str) -> Row | None:
    """Return the row of the policy labelled `reference` at the point of a row, None if there is none."""
    return next((one for one in rows if one.policy == reference and _same_point(row, one)), None)


def _paired(row: Row, other: Row, name: str) -> Difference | None:
    """Compare two rows seed by seed, only once if both are copies of one run."""
    values, reference = row.values.get(name, {}), other.values.get(name, {})
    if row.copies and other.copies:
        values = dict(list(values.items())[:1])
    return paired_difference(values, reference)


def _same_point(row: Row, reference: Row) -> bool:
    return all(key in row.point and row.point[key] == value for key, value in reference.point.items())
