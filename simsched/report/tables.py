"""The tables that compare policies: their metrics, and their differences from a reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from simsched.knowledge import legend
from simsched.report.table import TextTable, csv_text
from simsched.report.units import Shown, number, shown_unit
from simsched.results import Estimate, Row, Run, find_metric, what_policies_become, what_was_run, who_cannot_differ
from simsched.results.compare import DifferenceRow, short_keys, usual_metrics
from simsched.results.metrics import Reading
from simsched.results.statistics import ratio

_EFFICIENCY = "statistical_efficiency"
#: Beyond three times the reference a difference is shown as a factor, since percentages of so little are uninformative.
_FACTOR = 3.0
#: Prefix of a cell that shows a difference in its own unit.
_ITSELF = "Δ "
#: A factor beyond this, or below its inverse, has a negligible denominator: the difference itself is more informative.
_NOTHING = 100.0


def comparison_table(
    rows: Sequence[Row],
    metrics: Sequence[str] | None = None,
    *,
    title: str = "Comparison",
    published_source: str = "",
    run: Run | None = None,
    ranges: bool = True,
) -> TextTable:
    """Show metrics by policy as `mean ±half of the 95 % interval`, followed by published values in brackets.

    `metrics` (default: the headline ones, occasional ones, and those with published values) may name a unit, as in
    `makespan_min`; otherwise each column gets the unit that reads best, and efficiency is left out if no job trains.
    With `ranges` a mean whose interval is wider than itself has the range over the seeds instead. The notes say what a
    `run` was of; policies without any result have marked rows.
    """
    readings = _held(rows, metrics)
    swept = list(dict.fromkeys(key for row in rows for key in row.point))
    short = short_keys(swept)
    shown = [_shown(reading, rows, metrics is not None) for reading in readings]
    titles = [unit.title(reading.title) for reading, unit in zip(readings, shown, strict=True)]
    lines = tuple(_line(row, swept, readings, shown, ranges=ranges) for row in rows)
    keys = [reading.key for reading in readings]
    notes = (*_notes(rows, keys, published_source, ranges=ranges), *marks_legend(rows))
    if run is not None:
        lines += _failed_lines(run, len(swept), len(readings))
        notes += _run_notes(run)
    headers = ("policy", *(short[key] for key in swept), *titles)
    return TextTable(title, headers, lines, notes, 1 + len(swept), _best(rows, readings, 1 + len(swept)))


def _best(rows: Sequence[Row], readings: Sequence[Reading], first: int) -> frozenset[tuple[int, int]]:
    """Return the cells of the best policies at each point, or of the best points if each has one policy."""
    points = [str(row.point) for row in rows]
    alone = len(set(points)) == len(points)
    found: set[tuple[int, int]] = set()
    for column, reading in enumerate(readings, start=first):
        of_point: dict[str, dict[int, float]] = {}
        for place, (row, point) in enumerate(zip(rows, points, strict=True)):
            estimate = row.estimate(reading.key)
            if estimate is not None:
                of_point.setdefault("" if alone else point, {})[place] = estimate.mean
        for means in of_point.values():
            if reading.better and len(set(means.values())) > 1:
                best = (min if reading.better == "lower" else max)(means.values())
                found |= {(place, column) for place, mean in means.items() if mean == best}
    return frozenset(found)


def _held(rows: Sequence[Row], metrics: Sequence[str] | None) -> list[Reading]:
    """Return the metrics that some row has, without the efficiency of jobs that do not train."""
    readings = [reading for reading in _readings(rows, metrics) if any(reading.key in row.values for row in rows)]
    return [one for one in readings if metrics is not None or one.key != _EFFICIENCY or _trains(rows)]


def seeds_table(row: Row, rows: Sequence[Row]) -> TextTable:
    """Show the metrics by which all `rows` are compared for each cell of one of them: the values behind its means."""
    readings = _held(rows, None)
    shown = [_shown(reading, rows, False) for reading in readings]
    headers = ("seed", "folder", *(unit.title(one.title) for one, unit in zip(readings, shown, strict=True)))
    lines = tuple(
        (
            f"seed {cell.seed}"
            + "".join(f", {key}={value}" for key, value in cell.point.items() if key not in row.point),
            f"{cell.folder.parent.name}/{cell.folder.name}",
            *(
                number(cell.summary[one.key] * unit.factor) if one.key in cell.summary else "-"
                for one, unit in zip(readings, shown, strict=True)
            ),
        )
        for cell in row.cells
    )
    return TextTable(f"{row.shown_name}: seed by seed", headers, lines, (), 2)


def runs_tables(runs: Mapping[str, Sequence[Row]]) -> list[TextTable]:
    """Show runs side by side: a table for each metric, a row for each policy and a column for each run."""
    everybody = [row for rows in runs.values() for row in rows]
    names = list(dict.fromkeys(row.shown_name for row in everybody))
    by_run = [{row.shown_name: row for row in rows} for rows in runs.values()]
    found = []
    for reading in _held(everybody, None):
        unit = _shown(reading, everybody, False)
        lines = tuple(
            (
                name,
                *(
                    _estimated(rows[name], reading.key, unit.factor, ranges=True) if name in rows else "-"
                    for rows in by_run
                ),
            )
            for name in names
        )
        found.append(TextTable(unit.title(reading.title), ("policy", *runs), lines))
    return found


def marks_legend(rows: Iterable[Row], *, signals: bool = True) -> tuple[str, ...]:
    """Explain the marks after the labels of policies, a line for each; () if there are none."""
    return legend({row.policy: row.knows for row in rows}, signals=signals)


def _trains(rows: Sequence[Row]) -> bool:
    """Return whether any job trains; jobs described only by a duration all have an efficiency of 1."""
    return any(value != 1 for row in rows for value in row.values.get(_EFFICIENCY, {}).values())


def _failed_lines(run: Run, swept: int, metrics: int) -> tuple[tuple[str, ...], ...]:
    """Return a row for each policy without a result in any cell."""
    return tuple((label, *[""] * swept, "failed", *["-"] * (metrics - 1)) for label in run.lost)


def _run_notes(run: Run) -> tuple[str, ...]:
    notes = [f"What was run: {what_was_run(run.cells, run.changed)}."]
    notes += what_policies_become((cell.policy, cell.manifest.get("without") or {}) for cell in run.cells)
    notes += who_cannot_differ(run.cells)
    if run.published_left_out:
        notes.append("Published values are left out: they are of other settings than those changed here.")
    reasons: dict[str, list[str]] = {}
    for name, reason in run.failed.items():
        reasons.setdefault(reason, []).append(name)
    for reason, names in reasons.items():
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        notes.append(f"Failed: {names[0]}{more}: {reason}")
    unrun = [name for name in run.missing if name not in run.failed]
    if unrun:
        more = f" and {len(unrun) - 1} more" if len(unrun) > 1 else ""
        notes.append(f"Not run yet: {unrun[0]}{more}; the same command continues the run.")
    return tuple(notes)


def _readings(rows: Sequence[Row], metrics: Sequence[str] | None) -> list[Reading]:
    published = (key for row in rows for key in row.published)
    names = [*usual_metrics(rows), *published] if metrics is None else list(metrics)
    return [find_metric(name) for name in dict.fromkeys(names)]


def _shown(reading: Reading, rows: Sequence[Row], asked: bool) -> Shown:
    """Choose the unit of a column: the one in the metric's name if requested by name, else the most readable one."""
    if asked and reading.unit != reading.stored_unit:
        return Shown(reading.unit, reading.factor)
    means = [estimate.mean for row in rows if (estimate := row.estimate(reading.key)) is not None]
    return shown_unit(reading.stored_unit, means)


def _line(
    row: Row, swept: Sequence[str], readings: Sequence[Reading], shown: Sequence[Shown], *, ranges: bool
) -> tuple[str, ...]:
    cells = [row.shown_policy, *(str(row.point.get(key, "")) for key in swept)]
    for reading, unit in zip(readings, shown, strict=True):
        text = _estimated(row, reading.key, unit.factor, ranges=ranges)
        published = row.published.get(reading.key)
        cells.append(text if published is None else f"{text} ({number(published * unit.factor)})")
    return tuple(cells)


def _estimated(row: Row, key: str, factor: float, *, ranges: bool) -> str:
    """Format a row's estimate; if the interval is wider than the mean, with the range over the seeds instead."""
    found = row.spread(key) if ranges else None
    if found is None or not found.is_range or found.low is None or found.high is None:
        return estimate_text(row.estimate(key), factor)
    return f"{number(found.mean * factor)} {_range(found.low * factor, found.high * factor)}"


def _range(low: float, high: float) -> str:
    return f"[{number(low)} to {number(high)}]"


def estimate_text(estimate: Estimate | None, factor: float = 1, write: Callable[[float], str] = number) -> str:
    """Format an estimate as `0.76 ±0.05`, without ± if there is no interval, `-` if there is no value."""
    if estimate is None:
        return "-"
    half = estimate.half_width
    mean = write(estimate.mean * factor)
    return mean if half is None else f"{mean} ±{number(half * factor)}"


def _replication(rows: Sequence[Row]) -> str:
    """Name what rows are means over: seeds, or runs of a seed and a workload if workloads count too."""
    return "seed" if all(len({cell.seed for cell in row.cells}) == len(row.cells) for row in rows) else "run"


def _notes(rows: Sequence[Row], keys: Sequence[str], source: str, *, ranges: bool) -> tuple[str, ...]:
    sizes = sorted({len(row.cells) for row in rows})
    if not sizes:
        return ()
    count = str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    what = f"{_replication(rows)}s"
    copies = [row for row in rows if row.copies]
    all_copies = len(copies) == len(rows)
    notes = [
        f"All {count} {what} gave the same run, which is counted once, hence no interval."
        if all_copies
        else f"One {what[:-1]}, hence no interval."
        if sizes == [1]
        else f"Mean over {count} {what} ±95 % interval (Student's t)."
    ]
    if copies and not all_copies:
        names = ", ".join(row.name for row in copies)
        notes.append(f"Every seed gave the same run, which is counted once: {names}.")
    if ranges and any(found.is_range for row in rows for key in keys if (found := row.spread(key)) is not None):
        notes.append("In square brackets, if the interval is wider than the mean: the smallest and the largest value.")
    if any(len(row.values[key]) < len(row.cells) for row in rows for key in keys if key in row.values):
        notes.append(f"A value that some {what} do not have is the mean over the others.")
    if any(key in row.published for row in rows for key in keys):
        notes.append(f"In brackets: published values{f' ({source})' if source else ''}.")
    return tuple(notes)


def difference_table(found: Sequence[DifferenceRow], metrics: Sequence[str] | None = None) -> TextTable:
    """Show the relative differences from the reference policy in per cent, pair by pair, with 95 % intervals.

    An asterisk marks differences whose interval excludes zero. If the reference is 0 or nearly so, the difference
    itself is shown, in the most readable unit.
    """
    wanted = usual_metrics(one.row for one in found) if metrics is None else metrics
    readings = [find_metric(name) for name in wanted]
    readings = [reading for reading in readings if any(reading.key in one.differences for one in found)]
    if metrics is None and not _trains([row for one in found for row in (one.row, one.reference)]):
        readings = [reading for reading in readings if reading.key != _EFFICIENCY]
    swept = list(dict.fromkeys(key for one in found for key in one.row.point))
    short = short_keys(swept)
    shown = [_shown(reading, [row for one in found for row in (one.row, one.reference)], False) for reading in readings]
    rows = tuple(
        (
            one.row.shown_policy,
            *(str(one.row.point.get(key, "")) for key in swept),
            *(_difference(one, reading.key, unit) for reading, unit in zip(readings, shown, strict=True)),
        )
        for one in found
    )
    reference = found[0].reference.policy if found else "the reference"
    estimates = [each.relative or each.absolute for one in found for each in one.differences.values()]
    one_by_one = _replication([one.row for one in found])
    notes = [
        f"Mean of the relative differences {one_by_one} by {one_by_one} ±95 % interval; * the interval leaves zero out."
        if any(one.half_width is not None for one in estimates)
        else f"One {one_by_one}, hence no interval."
    ]
    cells = [cell for row in rows for cell in row[1 + len(swept) :]]
    if any(cell.startswith("x ") for cell in cells):
        notes.append("x: more than four times as much, or that uncertain: the factor with its interval, by logarithms.")
    if any(cell.startswith(_ITSELF) for cell in cells):
        notes.append(f"{_ITSELF.strip()}: the difference itself, as {reference} has nothing or almost nothing.")
    headers = ("policy", *(short[key] for key in swept), *(f"{reading.title} (%)" for reading in readings))
    return TextTable(f"Difference from {reference}", headers, rows, tuple(notes), 1 + len(swept))


def _difference(one: DifferenceRow, key: str, unit: Shown) -> str:
    difference = one.differences.get(key)
    if difference is None:
        return "-"
    relative = difference.relative
    factor = ratio(one.row.values.get(key, {}), one.reference.values.get(key, {})) if _is_beyond(relative) else None
    if relative is None or (factor is not None and factor.mean > _NOTHING):
        text = estimate_text(difference.absolute, unit.factor, lambda value: f"{value:+,.2f}")
        return " ".join([f"{_ITSELF}{text}", *filter(None, [unit.unit, "*" * difference.absolute.excludes_zero])])
    if factor is not None and factor.low is not None and factor.high is not None and factor.low > 0:
        text = f"x {number(factor.mean)} {_range(factor.low, factor.high)}"
        return f"{text} *" if factor.low > 1 or factor.high < 1 else text
    text = estimate_text(relative, 100, lambda value: f"{value:+.1f}")
    return f"{text} *" if relative.excludes_zero else text


def _is_beyond(relative: Estimate | None) -> bool:
    """Return whether percentages are uninformative: far above the reference, or with an interval below -100 %."""
    if relative is None:
        return False
    return max(abs(relative.mean), relative.half_width or 0.0) > _FACTOR or (
        relative.low is not None and relative.low < -1 <= relative.mean
    )


def to_csv(rows: Sequence[Row], metrics: Sequence[str] | None = None, failed: Sequence[str] = ()) -> str:
    """Write metrics as CSV: a line for each row and metric, in full precision and the unit named.

    Columns: `policy`, the swept keys, `metric`, `unit`, `mean`, `low`, `high` (the 95 % interval), `seeds`,
    `published`, `knows` (what the policy is told beyond the jobs' requests, each signal with how a real scheduler would
    obtain it). Policies that `failed` have a line each with the metric `failed` and 0 seeds.
    """
    swept = list(dict.fromkeys(key for row in rows for key in row.point))
    lines: list[list[object]] = []
    for row in rows:
        for reading in _readings(rows, metrics):
            found = row.estimate(reading.key)
            if found is None:
                continue
            factor = 1.0 if metrics is None else reading.factor
            unit = reading.stored_unit if metrics is None else reading.unit
            numbers = (found.mean, found.low, found.high, row.published.get(reading.key))
            mean, low, high, published = ("" if one is None else one * factor for one in numbers)
            knows = "; ".join(f"{signal}: {known}" for signal, known in sorted(row.knows.items()))
            point = [row.point.get(key, "") for key in swept]
            lines.append([row.policy, *point, reading.key, unit, mean, low, high, found.n, published, knows])
    lines += [[label, *[""] * len(swept), "failed", "", "", "", "", 0, "", ""] for label in failed]
    return csv_text(["policy", *swept, "metric", "unit", "mean", "low", "high", "seeds", "published", "knows"], lines)
