"""Selects and draws the figures that fit a run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import pandas as pd

from simsched.errors import input_error, nearest
from simsched.knowledge import legend
from simsched.report.figures.bars import bar_data, metric_bars, tenant_figures
from simsched.report.figures.distribution import jct_cdf
from simsched.report.figures.evaluation import curves_of, evaluation_figures
from simsched.report.figures.history import history_figures
from simsched.report.figures.job_lives import LIFE_COLUMNS, ZONE_COLUMNS, job_timeline, zones_timeline
from simsched.report.figures.occupancy import Tables, occupancy, queue_figures, queue_over_time
from simsched.report.figures.output import save
from simsched.report.figures.over_time import (
    INTERVAL_COLUMNS,
    NODE_COLUMNS,
    Rental,
    nodes_data,
    nodes_over_time,
    over_time,
    over_time_data,
    trials_data,
    trials_over_time,
)
from simsched.report.figures.purposes import (
    compares_agents,
    pair_figures,
    purpose_figures,
    type_bars,
    type_metrics,
)
from simsched.report.figures.style import FORMATS, Drawn, Look, Plan, add_to_caption, looks, ramp_looks, row_looks
from simsched.report.figures.sweep import (
    axis_title,
    map_data,
    ratio_data,
    sweep_data,
    sweep_lines,
    sweep_map,
    sweep_ratios,
)
from simsched.results import Cell, Columns, Row, Run, comparison
from simsched.results.compare import row_name, short_keys
from simsched.results.sheets import read_trials
from simsched.results.stays import HELD_COLUMNS, OCCUPANCY_COLUMNS, node_sizes

#: More rows than this (policies times sweep points) are indistinguishable in one figure.
MOST_ROWS = 8
_MOST_LIVES = 4
#: More panels or bars than these are indistinguishable on a page.
_MOST_PANELS = 4
_MOST_BARS = 5000

#: Columns of a figure's data that name policies.
_NAMING = ("policy", "panel")

_BARS = ("jct_mean_s", "makespan_s")
_SWEPT = ("jct_mean_s", "jct_p99_s", "makespan_s")
_SWEPT_ON_MARKET = ("gpu_cost", "deadlines_missed", "jct_mean_s")


def draw_run(
    run: Run, folder: Path, replicate_over: Collection[str] = (), formats: Sequence[str] = FORMATS, style: str = "page"
) -> list[Path]:
    """Draw a run into `folder` and return the files written.

    Up to eight rows are compared as bars, as distributions and over time, with rented nodes and hyper-parameter tuning
    if any; of more rows, those of the middle point of the sweep appear as distributions. A job's timeline is drawn if
    nothing is swept; each swept key with two or more values has its figures, and two swept keys a map. Swept keys in
    `replicate_over` count as replications, like seeds, as in `simsched.results.compare.comparison`.
    """
    paths: list[Path] = []
    for name, drawn in run_figures(run, replicate_over):
        paths += save(*drawn, folder, name, formats, style)
    return paths


def figure_names(run: Run, replicate_over: Collection[str] = ()) -> tuple[str, ...]:
    """Return the names of the figures that fit a run."""
    return tuple(dict(_plans(run, replicate_over, ())))


def draw_figure(run: Run, name: str, replicate_over: Collection[str] = (), metrics: Sequence[str] = ()) -> Drawn:
    """Draw one figure of a run; raises `InputError` if none of that name fits it.

    `metrics` apply to `bars` and the figures of sweeps, by default the usual ones; other figures refuse them.
    """
    plans = dict(_plans(run, replicate_over, metrics))
    if name not in plans:
        raise input_error(run.folder, f"no figure '{name}' fits this run", nearest(name, plans))
    if metrics and name != "bars" and not name.startswith("sweep-"):
        choices = " or ".join(f"'{one}'" for one in plans if one == "bars" or one.startswith("sweep-"))
        raise input_error("--metric", f"the figure '{name}' shows no metric of one's choice", f"draw {choices} of it")
    return _explained(run, plans[name]())


def run_figures(run: Run, replicate_over: Collection[str] = ()) -> Iterator[tuple[str, Drawn]]:
    """Draw the figures that fit a run in turn, each with the name of its files."""
    for name, plan in _plans(run, replicate_over, ()):
        yield name, _explained(run, plan())


def _explained(run: Run, drawn: Drawn) -> Drawn:
    """Explain in a figure's caption the marks after the labels of its policies."""
    figure, data = drawn
    words = [
        figure.texts[0].get_text(),
        *(str(word) for name in _NAMING if name in data for word in data[name].unique()),
    ]
    shown = {cell.policy: cell.knows for cell in run.cells if any(cell.shown_policy in word for word in words)}
    add_to_caption(figure, legend(shown))
    return drawn


def _plans(run: Run, replicate_over: Collection[str], metrics: Sequence[str]) -> Iterator[tuple[str, Plan]]:
    """Find the figures that fit a run, and how to draw each."""
    rows = comparison(run, replicate_over)
    if len(rows) <= MOST_ROWS:
        yield from _row_plans(run, rows, metrics)
    yield from _point_plans(run, rows)
    yield from _zones_plan(run, rows)
    styles = looks(run.shown_policies)
    swept = [key for key in run.swept if key not in replicate_over]
    short = short_keys(swept)
    for key in swept:
        if len({str(row.point.get(key)) for row in rows}) > 1 and not (len(swept) == 1 and compares_agents(rows)):
            yield f"sweep-{short[key]}", partial(_sweep, run, rows, key, styles, metrics)
    wide = [key for key in swept if len({str(row.point.get(key)) for row in rows}) > 1]
    reference = run.reference or rows[0].policy
    if len(wide) == len(swept) == 1 and len(ratios := ratio_data(rows, wide[0], reference, _BARS[0])):
        title = f"{run.name}: {axis_title(wide[0])} and the difference from {reference}"
        told = (ratios, wide[0], reference, _BARS[0])
        yield f"ratios-{short[wide[0]]}", partial(sweep_ratios, *told, title=title, styles=styles)
    if len(wide) == len(swept) == 2 and len(run.policies) <= _MOST_PANELS:
        mapped, keys = map_data(rows, (wide[0], wide[1]), _BARS[0]), (wide[0], wide[1])
        title = f"{run.name}: {axis_title(keys[0])} and {axis_title(keys[1])}"
        if len(mapped):
            yield f"map-{short[keys[0]]}-{short[keys[1]]}", partial(sweep_map, mapped, keys, _BARS[0], title=title)
    yield from history_figures(run, replicate_over)
    yield from evaluation_figures(run, rows)
    yield from purpose_figures(run, rows)
    yield from pair_figures(run)
    yield from tenant_figures(run, rows)
    yield from queue_figures(run, rows)


def placements(cell: Cell) -> float:
    """Return how often the jobs of a cell were placed; each placement is at least one bar."""
    return cell.summary.get("finished_jobs", 0) * (1 + cell.summary.get("restarts_per_job", 0))


def _row_plans(run: Run, rows: Sequence[Row], metrics: Sequence[str]) -> Iterator[tuple[str, Plan]]:
    styles = _row_styles(run, rows)
    yield "bars", partial(_bars, run, rows, metrics, styles)
    yield "jct-cdf", partial(_distribution, run, rows, styles)
    if type_metrics(rows):
        title = f"{run.name}: by GPU type"
        yield "gpu-types", partial(type_bars, rows, title=title, styles=styles)
    if all(cell.has("allocations") for cell in run.cells):
        yield "over-time", partial(_over_time, run, rows, styles)
        cells = [row.cells[0] for row in rows]
        if len(rows) <= _MOST_PANELS and all(placements(cell) <= _MOST_BARS for cell in cells):
            yield "occupancy", partial(_occupancy, run, rows)
        if any(cell.summary.get("queueing_mean_s", 0) > 0 for cell in cells) and len(rows) <= _MOST_PANELS:
            yield "queue-over-time", partial(_queue, run, rows)
        if not any(row.point for row in rows) and rows[0].cells[0].summary.get("finished_jobs", 1) > 0:
            yield "job-timeline", partial(_timeline, run, rows, styles)
    if all(cell.has("rounds") and cell.has("allocations") for cell in run.cells) and any(
        least < most for cell in run.cells for least, most in [cell.extent.get("provisioned_nodes", (0, 0))]
    ):
        yield "nodes-over-time", partial(_nodes, run, rows, styles)
    trials = {row.shown_name: [read_trials(cell.folder) for cell in row.cells] for row in rows}
    known = {name: [one for one in frames if one is not None] for name, frames in trials.items()}
    if known and all(known.values()):
        yield "trials", partial(_trials, run, rows, styles, known)


def _row_styles(run: Run, rows: Sequence[Row]) -> dict[str, Look]:
    """Return the styles of rows: a ramp if they differ by one number alone, else a colour for each policy."""
    keys = {key for row in rows for key in row.point}
    if len({row.policy for row in rows}) == 1 < len(rows) and len(keys) == 1:
        (key,) = keys
        values = [row.point.get(key) for row in rows]
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            return ramp_looks([row.shown_name for row in sorted(rows, key=lambda row: row.point[key])])
    return row_looks(run, rows)


def _point_plans(run: Run, rows: Sequence[Row]) -> Iterator[tuple[str, Plan]]:
    """Find the figures of the middle point of a sweep with too many rows to distinguish."""
    points = list({str(row.point): row.point for row in rows}.values())
    chosen = [row for row in rows if row.point == points[len(points) // 2]]
    if len(rows) <= MOST_ROWS or not 1 < len(chosen) <= MOST_ROWS:
        return
    yield "jct-cdf", partial(_distribution, run, chosen, looks(run.shown_policies))
    cells = [row.cells[0] for row in chosen]
    if len(chosen) <= _MOST_PANELS and all(
        cell.has("allocations") and placements(cell) <= _MOST_BARS for cell in cells
    ):
        yield "occupancy", partial(_occupancy, run, chosen)


def _bars(run: Run, rows: Sequence[Row], metrics: Sequence[str], styles: Mapping[str, Look]) -> Drawn:
    shown = list(metrics) or list(dict.fromkeys([*_BARS, *(key for row in rows for key in row.published)]))
    title = f"{run.name}: policies compared"
    source = run.published_source
    return metric_bars(bar_data(rows, shown), title=title, published_source=source, styles=styles, failed=run.lost)


def _distribution(run: Run, rows: Sequence[Row], styles: Mapping[str, Look]) -> Drawn:
    title, named = _named(run, rows)
    styles = {name: styles[name if name in styles else row.shown_name] for name, row in named.items()}
    times = {name: [cell.columns("jobs", ["jct_s"])["jct_s"] for cell in row.cells] for name, row in named.items()}
    return jct_cdf(times, title=f"{title}: job completion times", styles=styles)


def _named(run: Run, rows: Sequence[Row]) -> tuple[str, dict[str, Row]]:
    """Return the title of a figure and the names of its rows; a point of the sweep common to all is in the title."""
    point = rows[0].point
    if len(rows) > 1 and all(row.point == point for row in rows):
        return row_name(run.name, point), {row.shown_policy: row for row in rows}
    return run.name, {row.shown_name: row for row in rows}


def _occupancy(run: Run, rows: Sequence[Row]) -> Drawn:
    title, named = _named(run, rows)
    tables, first = _held_tables(named), rows[0].cells[0]
    nodes = node_sizes(first.manifest.get("cluster"), [table for _, table in tables.values()])
    outages = {name: row.cells[0].outages for name, row in named.items() if len(row.cells[0].outages)}
    return occupancy(tables, nodes, title=f"{title}: who held which GPUs (seed {first.seed})", outages=outages)


def _held_tables(rows: Mapping[str, Row]) -> dict[str, Tables]:
    """Read jobs and intervals of the first cell of each row."""
    cells = {name: row.cells[0] for name, row in rows.items()}
    return {name: (cell.table("jobs", OCCUPANCY_COLUMNS), cell.table("allocations", HELD_COLUMNS))
            for name, cell in cells.items()}  # fmt: skip


def _queue(run: Run, rows: Sequence[Row]) -> Drawn:
    tables = _held_tables({row.shown_name: row for row in rows})
    return queue_over_time(tables, title=f"{run.name}: waiting jobs (seed {rows[0].cells[0].seed})")


def _nodes(run: Run, rows: Sequence[Row], styles: Mapping[str, Look]) -> Drawn:
    data = nodes_data({row.shown_name: (_rental(cell) for cell in row.cells) for row in rows})
    seeds = max(len(row.cells) for row in rows)
    title = f"{run.name}: nodes over time"
    curves = curves_of(run, "nodes-over-time", rows)
    rented = not all(cell.manifest.get("failures") for cell in run.cells)
    return nodes_over_time(data, seeds=seeds, title=title, styles=styles, curves=curves, rented=rented)


def _rental(cell: Cell) -> Rental:
    rounds, intervals = cell.table("rounds", NODE_COLUMNS), cell.table("allocations", INTERVAL_COLUMNS)
    return Rental(rounds, intervals, cell.summary.get("makespan_s", 0.0))


def _trials(
    run: Run, rows: Sequence[Row], styles: Mapping[str, Look], trials: Mapping[str, Sequence[pd.DataFrame]]
) -> Drawn:
    seeds = max(len(row.cells) for row in rows)
    return trials_over_time(trials_data(trials), seeds=seeds, title=f"{run.name}: tuning over time", styles=styles)


def _over_time(run: Run, rows: Sequence[Row], styles: Mapping[str, Look]) -> Drawn:
    intervals = {row.shown_name: _intervals(row) for row in rows}
    last_s = max((cell.summary.get("makespan_s", 0.0) for cell in run.cells), default=0.0)
    seeds = max(len(row.cells) for row in rows)
    title = f"{run.name}: the cluster over time"
    return over_time(
        over_time_data(intervals, last_s),
        seeds=seeds,
        total_gpus=_total_gpus(run.cells),
        title=title,
        styles=styles,
        curves=curves_of(run, "over-time", rows),
    )


def _intervals(row: Row) -> Iterator[Columns]:
    """Read the intervals of one cell at a time, so that large runs do not fill the memory."""
    for cell in row.cells:
        yield cell.columns("allocations", INTERVAL_COLUMNS)


def _total_gpus(cells: Sequence[Cell]) -> int | None:
    """Find the size of the cluster if all cells share it; None if it is unknown."""
    if not all(cell.has("rounds") for cell in cells):
        return None
    sizes = {cell.extent["available_gpus"][1] for cell in cells if cell.extent}
    return sizes.pop() if len(sizes) == 1 else None


def _timeline(run: Run, rows: Sequence[Row], styles: Mapping[str, Look]) -> Drawn:
    """Draw the job with the most GPU time under the first policy and seed, under each policy that ran it."""
    first = rows[0].cells[0]
    job_id = _largest(first)
    lives = {}
    for row in rows[:_MOST_LIVES]:
        cell = next((c for c in row.cells if (c.seed, c.point) == (first.seed, first.point)), None)
        if cell is not None and (cell.table("jobs", ["job_id"])["job_id"] == job_id).any():
            own = cell.table("jobs", ["job_id", "submit_time_s"])
            lives[row.shown_name] = (own, cell.table("allocations", LIFE_COLUMNS))
    title = f"{run.name}: the largest job, {job_id} (seed {first.seed})"
    return job_timeline(lives, job_id, title=title, styles=styles)


def _largest(cell: Cell) -> str:
    jobs = cell.table("jobs", ["job_id", "attained_gpu_s"])
    return str(jobs["job_id"].iloc[int(jobs["attained_gpu_s"].to_numpy().argmax())])


def _zones_plan(run: Run, rows: Sequence[Row]) -> Iterator[tuple[str, Plan]]:
    """Find the picture of one job over the zones of a market, at the middle point of a sweep."""
    points = list({str(row.point): row.point for row in rows}.values())
    point = points[len(points) // 2]
    cells = {row.shown_policy: row.cells[0] for row in rows if row.point == point}
    first = next(iter(cells.values()))
    market = first.manifest.get("market", ())
    if market and all(one.has("allocations") and one.summary.get("finished_jobs") for one in cells.values()):
        job_id = _largest(first)
        tables = {name: one.table("allocations", ZONE_COLUMNS) for name, one in cells.items()}
        title = row_name(f"{run.name}: job {job_id} over the zones", point)
        yield "zones", partial(zones_timeline, tables, market, first.outages, job_id, title=title)


def _sweep(run: Run, rows: Sequence[Row], key: str, styles: Mapping[str, Look], metrics: Sequence[str]) -> Drawn:
    data = sweep_data(rows, key, metrics or (_SWEPT_ON_MARKET if run.cells[0].manifest.get("market") else _SWEPT))
    return sweep_lines(data, key, title=f"{run.name}: sweep of {axis_title(key)}", styles=styles)
