"""The figures of a run that need more than its tables: fairness, selected jobs, a sweep of one policy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simsched.report.figures.co_adaptation import JOB_COLUMNS, LIFE_COLUMNS, adaptation_data, chosen_jobs, co_adaptation
from simsched.report.figures.jct_parts import jct_parts, parts_data
from simsched.report.figures.quality import predictions, predictions_data, quality, quality_data
from simsched.report.figures.rho import rho_cdf, rho_data
from simsched.report.figures.style import Drawn, row_looks
from simsched.results import (
    LIFE_COLUMNS as PROGRESS_COLUMNS,
    QUALITY_COLUMNS,
    Cell,
    CurvePoint,
    Life,
    Row,
    Run,
    describe,
    has_predictions,
    lives,
    prediction_errors,
    read_fairness,
    read_losses,
)

_MOST_ROWS = 9
_MOST_FORESEEN = 2


def evaluation_figures(run: Run, rows: Sequence[Row]) -> Iterator[tuple[str, Drawn]]:
    """Draw the additional figures that a run's experiment requests."""
    if len(rows) <= _MOST_ROWS and all(cell.fairness_file for row in rows for cell in row.cells):
        yield "rho-cdf", _rho(run, rows)
    if len(rows) <= _MOST_ROWS and all(read_losses(cell.folder) for row in rows for cell in row.cells):
        yield "quality", _quality(run, rows)
    foreseen = [row for row in rows if all(has_predictions(cell) for cell in row.cells)][:_MOST_FORESEEN]
    if foreseen:
        errors = {row.shown_name: [prediction_errors(cell) for cell in row.cells] for row in foreseen}
        yield "predictions", predictions(predictions_data(errors), title=f"{run.name}: how true predictions were")
    report = run.experiment.get("report") or {}
    follow = report.get("follow") or {}
    if follow:
        yield "co-adaptation", _followed(run, rows, follow)
    keys = list(dict.fromkeys(key for row in rows for key in row.point))
    if len(keys) == 1 and len(run.policies) == 1 and 1 < len(rows) <= _MOST_ROWS:
        title = f"{run.name}: what completion times consist of"
        yield "jct-parts", jct_parts(parts_data(rows, keys[0]), keys[0], title=title, source=run.published_source)


def _quality(run: Run, rows: Sequence[Row]) -> Drawn:
    data = quality_data({row.shown_name: [_lives(cell) for cell in row.cells] for row in rows})
    seeds = max(len(row.cells) for row in rows)
    return quality(data, title=f"{run.name}: how losses fall", seeds=seeds, styles=row_looks(run, rows))


def _lives(cell: Cell) -> list[Life]:
    losses = read_losses(cell.folder) or {}
    return lives(cell.table("jobs", QUALITY_COLUMNS), cell.table("allocations", PROGRESS_COLUMNS), losses)


def curves_of(run: Run, figure: str, rows: Sequence[Row]) -> tuple[CurvePoint, ...]:
    """Return the published curves of a figure; those of rows by their names in figures."""
    shown = {row.name: row.shown_name for row in rows}
    return tuple(
        point._replace(series=shown.get(point.series, point.series))
        for point in run.published_curves
        if point.figure == figure
    )


def _rho(run: Run, rows: Sequence[Row]) -> Drawn:
    ratios = {
        row.shown_name: [
            read_fairness(cell.fairness_file)["rho"].to_numpy() for cell in row.cells if cell.fairness_file
        ]
        for row in rows
    }
    return rho_cdf(
        rho_data(ratios),
        title=f"{run.name}: finish-time fairness",
        meaning=describe(run.fairness),
        curves=curves_of(run, "rho-cdf", rows),
        source=run.published_source,
        styles=row_looks(run, rows),
    )


def _followed(run: Run, rows: Sequence[Row], follow: dict[str, int]) -> Drawn:
    cell = rows[0].cells[0]
    jobs = cell.table("jobs", JOB_COLUMNS)
    data = adaptation_data(jobs, cell.table("allocations", LIFE_COLUMNS), chosen_jobs(jobs, follow))
    title = f"{run.name}: {rows[0].shown_name} adapts jobs to load and training (seed {cell.seed})"
    return co_adaptation(data, title=title, curves=curves_of(run, "co-adaptation", rows), source=run.published_source)
