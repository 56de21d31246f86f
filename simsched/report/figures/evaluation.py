"""The figures that an experiment asks for: fairness, losses, predictions, and selected jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from simsched.report.figures.distribution import rho_cdf, rho_data
from simsched.report.figures.job_lives import JOB_COLUMNS, LIFE_COLUMNS, adaptation_data, chosen_jobs, co_adaptation
from simsched.report.figures.style import (
    BAND_ALPHA,
    PALETTE,
    Drawn,
    Look,
    Plan,
    legend_above,
    looks,
    new_figure,
    plain_log,
    row_looks,
    styled,
    time_axis,
)
from simsched.report.figures.sweep import jct_parts, parts_data
from simsched.report.units import time_unit
from simsched.results import Cell, Row, Run
from simsched.results.analyses import has_predictions, prediction_errors
from simsched.results.fairness import describe, read_fairness
from simsched.results.quality import LIFE_COLUMNS as PROGRESS_COLUMNS, QUALITY_COLUMNS, Life, lives, read_losses
from simsched.results.sheets import CurvePoint

_BINS = 60
_SHARES = (0.25, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 1.0)
_DONE = np.linspace(0, 1, 41)
_LOSS, _TIME = "normalised_loss", "time_to"


def quality_data(lives: Mapping[str, Sequence[Sequence[Life]]]) -> pd.DataFrame:
    """Gather the data of `quality` from the jobs of each policy and seed.

    Columns: `policy`, `panel`, `x`, `y`. In the panel `normalised_loss` y is the mean loss of the jobs in the system at
    second x (averaged over the seeds with jobs); in `time_to` the mean seconds until the loss has fallen by the share
    x.
    """
    last_s = max((job.end_s for runs in lives.values() for run in runs for job in run), default=1.0)
    times = (np.arange(_BINS) + 0.5) / _BINS * last_s
    frames = []
    for label, runs in lives.items():
        means = pd.DataFrame([_mean_over_jobs(run, times) for run in runs]).mean().to_numpy()
        frames.append(pd.DataFrame({"policy": label, "panel": _LOSS, "x": times, "y": means}))
        jobs = [job for run in runs for job in run]
        waits = [float(np.mean([job.time_to(share) for job in jobs])) if jobs else np.nan for share in _SHARES]
        frames.append(pd.DataFrame({"policy": label, "panel": _TIME, "x": _SHARES, "y": waits}))
    return pd.concat(frames, ignore_index=True)


def _mean_over_jobs(jobs: Sequence[Life], times: np.ndarray) -> np.ndarray:
    total, count = np.zeros(len(times)), np.zeros(len(times))
    for job in jobs:
        there = (times >= job.submit_s) & (times < job.end_s)
        total[there] += job.loss_at(times[there])
        count += there
    return np.asarray(np.divide(total, count, out=np.full(len(times), np.nan), where=count > 0), dtype=np.float64)


@styled()
def quality(data: pd.DataFrame, *, title: str, seeds: int, styles: Mapping[str, Look] | None = None) -> Drawn:
    """Draw the mean normalised loss over time, and the mean time until losses have fallen by some share."""
    styles = styles or looks(data["policy"])
    above, below = (data[data["panel"] == panel] for panel in (_LOSS, _TIME))
    over, until = time_unit(float(above["x"].max())), time_unit(float(below["y"].max()))
    caption = (
        "Normalised loss: 1 before training, 0 at its end; mean of the jobs that are in the system"
        f"{f', and over {seeds} runs' if seeds > 1 else ''}. Right: mean over all jobs, waiting included."
    )
    figure = new_figure(7.8, 3.0, title, caption)
    left, right = figure.subplots(1, 2)
    for label, look in styles.items():
        part = above[above["policy"] == label]
        left.plot(part["x"] * over.factor, part["y"], color=look.colour, linestyle=look.dash, label=label)
        part = below[below["policy"] == label]
        right.plot(100 * part["x"], part["y"] * until.factor, color=look.colour, linestyle=look.dash,
                   marker=look.marker, markersize=4)  # fmt: skip
    left.set(title="Mean normalised loss", ylim=(0, None))
    time_axis(left, over)
    right.set(title=until.title("Mean time to a quality"), xlabel="loss reduction (% of that of the whole training)")
    plain_log(right)
    legend_above(figure, left)
    return figure, data


def predictions_data(errors: Mapping[str, Sequence[pd.DataFrame]]) -> pd.DataFrame:
    """Gather the data of `predictions` from `simsched.results.analyses.prediction_errors` of each row and seed.

    Columns: `policy`, `panel`, `series`, `x`, `low`, `y`, `high`: median and 10th and 90th percentile of the relative
    errors. In the panel `end` x is the share of the training done, and a prediction holds until the next; `series` is
    an application or `all`. In `step` x is the number of GPUs.
    """
    frames = []
    for label, runs in errors.items():
        held = pd.concat([_in_force(run) for run in runs], ignore_index=True)
        steps = pd.concat(runs, ignore_index=True).dropna(subset=["step_error"])
        parts = [("end", "all", held.groupby("x")["error"])]
        parts += [("end", str(name), own.groupby("x")["error"]) for name, own in held.groupby("application")]
        parts += [("step", "all", steps.rename(columns={"gpus": "x"}).groupby("x")["step_error"])]
        for panel, series, grouped in parts:
            spread = grouped.quantile(np.array([0.1, 0.5, 0.9])).unstack()
            spread.columns = pd.Index(["low", "y", "high"])
            frames.append(spread.reset_index().assign(policy=label, panel=panel, series=series))
    return pd.concat(frames, ignore_index=True)[["policy", "panel", "series", "x", "low", "y", "high"]]


def _in_force(errors: pd.DataFrame) -> pd.DataFrame:
    """Return for every job the error of the prediction in force at each share of its training."""
    frames = []
    for _, own in errors.groupby("job_id", sort=False):
        place = np.searchsorted(own["done"].to_numpy(), _DONE, side="right") - 1
        known = place >= 0
        error = own["end_error"].to_numpy()[place[known]]
        frames.append(pd.DataFrame({"application": own["application"].iloc[0], "x": _DONE[known], "error": error}))
    return pd.concat(frames, ignore_index=True)


@styled()
def predictions(data: pd.DataFrame, *, title: str) -> Drawn:
    """Draw the errors of predicted completions over training, and of predicted step times over GPUs."""
    labels = list(dict.fromkeys(data["policy"]))
    names = [name for name in dict.fromkeys(data["series"]) if name != "all"]
    colours = {name: PALETTE[index % len(PALETTE)] for index, name in enumerate(names)}
    caption = (
        "Relative error of what a policy predicted, over the jobs of all seeds; band: 10th to 90th percentile, black: "
        "median. Left: progress at completion; axis symmetric-logarithmic beyond 100 %. Right: seconds of a step."
    )
    figure = new_figure(7.8, 2.7 * len(labels), title, caption)
    grid = figure.subplots(len(labels), 2, squeeze=False)
    for (left, right), label in zip(grid, labels, strict=True):
        own = data[data["policy"] == label]
        _band(left, own[(own["panel"] == "end") & (own["series"] == "all")], 100)
        for name, colour in colours.items():
            part = own[(own["panel"] == "end") & (own["series"] == name)]
            left.plot(100 * part["x"], 100 * part["y"], color=colour, linewidth=1.0, label=name)
        _band(right, own[own["panel"] == "step"], 1)
        left.set_yscale("symlog", linthresh=100)
        left.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        right.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        left.set(title=f"{label}: predicted completion", ylabel="error (%)", xlabel="training done (%)")
        right.set(title="predicted step time", xlabel="GPUs")
    legend_above(figure, grid[0, 0])
    return figure, data


def _band(axes: Axes, part: pd.DataFrame, factor: float) -> None:
    x = factor * part["x"]
    axes.axhline(0, color="#888888", linewidth=0.8, linestyle=":")
    axes.fill_between(x, 100 * part["low"], 100 * part["high"], color="#555555", alpha=BAND_ALPHA, linewidth=0)
    axes.plot(x, 100 * part["y"], color="black", linewidth=1.6)


_MOST_ROWS = 9
_MOST_FORESEEN = 2


def evaluation_figures(run: Run, rows: Sequence[Row]) -> Iterator[tuple[str, Plan]]:
    """Plan the additional figures that a run's experiment requests."""
    if len(rows) <= _MOST_ROWS and all(cell.fairness_file for row in rows for cell in row.cells):
        yield "rho-cdf", partial(_rho, run, rows)
    if len(rows) <= _MOST_ROWS and all(read_losses(cell.folder) for row in rows for cell in row.cells):
        yield "quality", partial(_quality, run, rows)
    foreseen = [row for row in rows if all(has_predictions(cell) for cell in row.cells)][:_MOST_FORESEEN]
    if foreseen:
        yield "predictions", partial(_foreseen, run, foreseen)
    report = run.experiment.get("report") or {}
    follow = report.get("follow") or {}
    if follow:
        yield "co-adaptation", partial(_followed, run, rows, follow)
    keys = list(dict.fromkeys(key for row in rows for key in row.point))
    if len(keys) == 1 and len(run.policies) == 1 and 1 < len(rows) <= _MOST_ROWS:
        title = f"{run.name}: what completion times consist of"
        data = parts_data(rows, keys[0])
        yield "jct-parts", partial(jct_parts, data, keys[0], title=title, source=run.published_source)


def _foreseen(run: Run, rows: Sequence[Row]) -> Drawn:
    errors = {row.shown_name: [prediction_errors(cell) for cell in row.cells] for row in rows}
    return predictions(predictions_data(errors), title=f"{run.name}: how true predictions were")


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
