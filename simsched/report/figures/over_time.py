"""Values over time, a line for each policy: GPUs and efficiency, nodes, and trials of tuning."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from simsched.report.figures.style import (
    MOST_SPANS,
    Drawn,
    Look,
    legend_above,
    looks,
    new_figure,
    span,
    span_words,
    styled,
    time_axis,
)
from simsched.report.units import DAY_S, HOUR_S, MINUTE_S, time_unit
from simsched.results import Columns
from simsched.results.metric import Floats, held_between_rounds, integrals
from simsched.results.sheets import CurvePoint
from simsched.words import duration

_MOST_BINS = 60
_BINS_S = (
    *(MINUTE_S * minutes for minutes in (1, 2, 5, 10, 15, 30)),
    *(HOUR_S * hours for hours in (1, 2, 3, 6, 12)),
    *(DAY_S * days for days in (1, 2, 7, 14, 28)),
)
#: The required columns of `allocations`.
INTERVAL_COLUMNS = ("start_s", "end_s", "gpus", "restarting", "efficiency")


def binned(intervals: pd.DataFrame | Columns, edges: Floats) -> tuple[Floats, Floats]:
    """Return the mean number of allocated GPUs and the mean efficiency of running jobs in each bin.

    The efficiency is NaN in bins without running jobs.
    """
    start, end, held = (np.asarray(intervals[name], dtype=float) for name in ("start_s", "end_s", "gpus"))
    gpus = integrals(start, end, held, edges) / np.diff(edges)
    running = ~np.asarray(intervals["restarting"], dtype=bool)
    start, end = start[running], end[running]
    efficiency = np.asarray(intervals["efficiency"], dtype=float)[running]
    weighted, seconds = integrals(start, end, efficiency, edges), integrals(start, end, np.ones(len(start)), edges)
    mean = np.divide(weighted, seconds, out=np.full(len(seconds), np.nan), where=seconds > 1e-6)
    return gpus, mean


def bin_edges(last_s: float, most: int, width_s: float | None = None) -> Floats:
    """Return the edges of bins up to `last_s`: at most `most` bins of a round width, unless the width is given."""
    width = width_s or next((width for width in _BINS_S if last_s / width <= most), _BINS_S[-1])
    return float(width) * np.arange(max(math.ceil(last_s / width), 1) + 1, dtype=np.float64)


def over_seeds(label: str, times: object, curves: Mapping[str, Iterable[Floats]], skipna: bool = True) -> pd.DataFrame:
    """Return the mean of curves over the seeds, and the lowest and highest seed: `policy, time_s, NAME, NAME_low, ...`.

    `curves` has, by name, the curve of each seed at the `times`.
    """
    columns: dict[str, object] = {"policy": label, "time_s": times}
    for name, values in curves.items():
        seeds = pd.DataFrame(values).astype(float)
        columns |= {name: seeds.mean(skipna=skipna), f"{name}_low": seeds.min(), f"{name}_high": seeds.max()}
    return pd.DataFrame(columns)


def over_time_data(
    intervals: Mapping[str, Iterable[pd.DataFrame | Columns]], last_s: float, bin_s: int | None = None
) -> pd.DataFrame:
    """Bin the intervals of every policy and seed: mean over the seeds, lowest and highest seed in each bin.

    Columns: `policy, time_s` (start of the bin), `gpus, gpus_low, gpus_high, efficiency, efficiency_low,
    efficiency_high`. The bins cover the time up to `last_s`; there are at most 60 unless `bin_s` is given. Tables are
    read one at a time and may come from a generator.
    """
    edges = bin_edges(last_s, _MOST_BINS, bin_s)
    found = []
    for label, frames in intervals.items():
        gpus, efficiency = zip(*(binned(frame, edges) for frame in frames), strict=True)
        found.append(over_seeds(label, edges[:-1].astype(int), {"gpus": gpus, "efficiency": efficiency}))
    return pd.concat(found, ignore_index=True)


def over_time(
    data: pd.DataFrame,
    *,
    seeds: int,
    total_gpus: int | None = None,
    title: str = "Cluster over time",
    styles: Mapping[str, Look] | None = None,
    curves: Sequence[CurvePoint] = (),
) -> Drawn:
    """Draw allocated GPUs and mean statistical efficiency over time, one line per policy.

    `data` comes from `over_time_data`; a dashed line marks the GPUs of the cluster. With published `curves` of the
    panels `gpus` and `efficiency` (x in hours), every policy has separate panels with its published curve.
    """
    if curves:
        return over_time_beside(data, curves, total_gpus=total_gpus, title=title, styles=styles)
    styles = styles or looks(data["policy"])
    width_s = int(data["time_s"].iloc[1] - data["time_s"].iloc[0]) if len(data) > 1 else MINUTE_S
    unit = time_unit(float(data["time_s"].max()) + width_s)
    several = data["policy"].nunique()
    spans = seeds > 1 and several <= MOST_SPANS
    with styled():
        trains = bool((data["efficiency"].dropna() < 1).any())  # jobs described only by a duration have none
        figure = new_figure(
            7.2, 4.6 if trains else 2.6, title, _caption(seeds, width_s, span_words(several) if spans else "", trains)
        )
        panels = figure.subplots(1 + trains, 1, sharex=True, squeeze=False)[:, 0]
        above, last = panels[0], panels[-1]
        shown = [(above, "gpus", 1), (last, "efficiency", 100)][: 1 + trains]
        times = (data["time_s"] + width_s / 2) * unit.factor
        _lines(shown, data, times, styles, spans=spans)
        if total_gpus:
            above.axhline(total_gpus, color="#888888", linestyle=":", linewidth=1, label=f"all {total_gpus:,} GPUs")
        above.set(title="GPUs allocated", ylabel="GPUs", ylim=(0, None))
        above.yaxis.set_major_locator(MaxNLocator(integer=True))
        if trains:
            last.set(title="Mean statistical efficiency of running jobs", ylabel="efficiency (%)", ylim=(0, 103))
        time_axis(last, unit)
        legend_above(figure, above)
    return figure, data


def over_time_beside(
    data: pd.DataFrame,
    curves: Sequence[CurvePoint],
    *,
    total_gpus: int | None = None,
    title: str = "Cluster over time",
    styles: Mapping[str, Look] | None = None,
) -> Drawn:
    """Draw GPUs and efficiency over time in hours, a column of panels for each policy, published curves in grey."""
    styles = styles or looks(data["policy"])
    labels = list(dict.fromkeys(data["policy"]))
    width_s = int(data["time_s"].iloc[1] - data["time_s"].iloc[0]) if len(data) > 1 else MINUTE_S
    caption = f"Means over {duration(width_s)}. Grey: published, of another workload."
    with styled():
        figure = new_figure(1.0 + 2.9 * len(labels), 4.2, title, caption)
        panels = figure.subplots(2, len(labels), sharex=True, sharey="row", squeeze=False)
        for column, label in enumerate(labels):
            part = data[data["policy"] == label]
            middle = (part["time_s"] + width_s / 2) / HOUR_S
            for axes, name, factor in zip(panels[:, column], ("gpus", "efficiency"), (1, 100), strict=True):
                points = [(p.x, p.y) for p in curves if p.panel == name and p.series == label]
                axes.plot(*np.array(points).reshape(-1, 2).T, color="#999999", linewidth=1.2, label="published")
                axes.plot(middle, factor * part[name], color=styles[label].colour, label="simsched")
                axes.set_ylim(0, 103 if name == "efficiency" else None)
            if total_gpus:
                panels[0, column].axhline(total_gpus, color="#888888", linestyle=":", linewidth=1)
            panels[0, column].set_title(label, color=styles[label].colour)
            panels[1, column].set_xlabel("hours since the start")
        panels[0, 0].set_ylabel("GPUs allocated")
        panels[1, 0].set_ylabel("mean statistical\nefficiency (%)")
        panels[0, 0].set_xlim(0, None)
        panels[0, 0].xaxis.set_major_locator(MaxNLocator(integer=True))
        figure.align_ylabels(panels[:, 0])
        legend_above(figure, panels[0, 0])
    return figure, data


def _lines(
    panels: Sequence[tuple[Axes, str, float]],
    data: pd.DataFrame,
    times: pd.Series,
    styles: Mapping[str, Look],
    *,
    spans: bool,
    steps: Collection[str] = (),
) -> None:
    """Draw columns of `over_seeds` over `times`, a line for each policy, in panels of a column and its factor.

    With `spans` the range over the seeds is shown too; the columns in `steps` change by steps.
    """
    several = data["policy"].nunique()
    for place, (label, part) in enumerate(data.groupby("policy", sort=False)):
        look = styles[str(label)]
        for axes, name, factor in panels:
            style = {"color": look.colour, "linestyle": look.dash, "label": str(label)}
            drawn = "steps-mid" if name in steps else "default"
            (curve,) = axes.plot(times[part.index], factor * part[name], drawstyle=drawn, **style)
            if spans:
                span(curve, factor * part[f"{name}_low"], factor * part[f"{name}_high"], look, place, several)


def _caption(seeds: int, width_s: int, spans: str, trains: bool) -> str:
    text = f"Means over {duration(width_s)}"
    if seeds > 1:
        text += f" and over {seeds} seeds{spans}"
        text += ". A finished seed counts as 0 GPUs"
    if not trains:
        return text + "."
    return text + ". The efficiency of a job is its progress per example relative to its initial batch size."


_NODES_MOST_BINS = 400
_MOST_SPANS = 2  # the number of nodes varies so much between seeds that more bands would hide the lines
#: The columns of `rounds` that are needed here.
NODE_COLUMNS = ("time_s", "provisioned_nodes")


class Rental(NamedTuple):
    """The data of one cell: its rounds, its intervals, and the second at which its last job ends."""

    rounds: pd.DataFrame
    intervals: pd.DataFrame
    makespan_s: float


def nodes_data(rentals: Mapping[str, Iterable[Rental]]) -> pd.DataFrame:
    """Bin nodes rented and mean efficiency of every policy and seed: mean over seeds, lowest and highest seed.

    Columns: `policy, time_s` (start of the bin), `nodes, nodes_low, nodes_high, efficiency, efficiency_low,
    efficiency_high`. A finished seed rents no nodes.
    """
    known = {label: list(found) for label, found in rentals.items()}
    last_s = max((one.makespan_s for found in known.values() for one in found), default=0.0)
    edges = bin_edges(last_s, _NODES_MOST_BINS)
    edges[-1] = max(last_s, 1.0)  # the last bin ends with the last job
    frames = []
    for label, found in known.items():
        nodes, efficiency = [_rented(one, edges) for one in found], [binned(one.intervals, edges)[1] for one in found]
        frames.append(over_seeds(label, edges[:-1].astype(int), {"nodes": nodes, "efficiency": efficiency}))
    return pd.concat(frames, ignore_index=True)


def _rented(rental: Rental, edges: Floats) -> Floats:
    """Return the mean number of nodes in each bin; the first decision's holds from second 0 on."""
    held = held_between_rounds(rental.rounds, "provisioned_nodes", rental.makespan_s)
    return integrals(*held, edges) / np.diff(edges)


def nodes_over_time(
    data: pd.DataFrame,
    *,
    seeds: int,
    title: str = "Nodes over time",
    styles: Mapping[str, Look] | None = None,
    curves: Sequence[CurvePoint] = (),
    rented: bool = True,
) -> Drawn:
    """Draw nodes rented and mean statistical efficiency over time, one line per policy; `data` is of `nodes_data`.

    Without `rented`, nodes come and go because they fail. There is no panel of efficiency if all jobs know only their
    duration. Published `curves` of the panels `nodes` and `efficiency` (in per cent), with policies as series and x in
    hours, are drawn thin in the colour of their policy.
    """
    styles = styles or looks(data["policy"])
    width_s = int(data["time_s"].iloc[1] - data["time_s"].iloc[0]) if len(data) > 1 else MINUTE_S
    unit = time_unit(float(data["time_s"].max()) + width_s)
    several = data["policy"].nunique()
    spans = seeds > 1 and several <= _MOST_SPANS
    with styled():
        trains = bool((data["efficiency"].dropna() < 1).any())
        caption = _nodes_caption(
            seeds, width_s, span_words(several) if spans else "", curves, rented=rented, trains=trains
        )
        figure = new_figure(7.2, 4.6 if trains else 2.6, title, caption)
        panels = figure.subplots(1 + trains, 1, sharex=True, squeeze=False)[:, 0]
        shown = list(zip(panels, ("nodes", "efficiency"), (1, 100), strict=False))
        times = (data["time_s"] + width_s / 2) * unit.factor
        _lines(shown, data, times, styles, spans=spans, steps=("nodes",) if seeds == 1 else ())
        for axes, point_of, _ in shown:
            _published(axes, [point for point in curves if point.panel == point_of], unit.factor * HOUR_S, styles)
        panels[0].set(
            title="Nodes rented" if rented else "Nodes up",
            ylabel="nodes",
            ylim=(0, 1.08 * float(data["nodes_high"].max())),
        )
        panels[0].yaxis.set_major_locator(MaxNLocator(integer=True))
        if trains:
            panels[1].set(title="Mean statistical efficiency of running jobs", ylabel="efficiency (%)", ylim=(0, 103))
        time_axis(panels[-1], unit)
        legend_above(figure, panels[0])
    return figure, data


def _published(axes: Axes, curves: Sequence[CurvePoint], factor: float, styles: Mapping[str, Look]) -> None:
    for label, look in styles.items():
        points = [(point.x * factor, point.y) for point in curves if point.series == label]
        if points:
            x, y = zip(*points, strict=True)
            axes.plot(x, y, color=look.colour, linewidth=0.9, alpha=0.6, marker=".", markersize=3)


def _nodes_caption(
    seeds: int, width_s: int, spans: str, curves: Sequence[CurvePoint], *, rented: bool, trains: bool
) -> str:
    text = f"Means over {duration(width_s)}"
    if seeds > 1:
        text += f" and over {seeds} seeds{spans}"
        text += ". A seed whose jobs are done " + ("rents nothing any more" if rented else "counts no node any more")
    if curves:
        text += ". Thin lines with dots: published"
    if rented:
        text += ". A node is rented while it is up or starting; the area under a line is what the cluster costs."
    else:
        text += ". A node is up unless it has failed and is not yet repaired."
    if not trains:
        return text
    return text + " The efficiency of a job is its progress per example relative to its initial batch size."


_TOP = 5
_STEPS = 240


def trials_data(trials: Mapping[str, Iterable[pd.DataFrame]]) -> pd.DataFrame:
    """Follow the tuning of every policy and seed: mean over the seeds, lowest and highest seed.

    Columns: `policy, time_s, accuracy` (mean of the five best trials finished by then, in per cent; NaN until every
    seed has five), `done` (trials finished), and `_low` and `_high` of both.
    """
    known = {label: [frame.sort_values("end_time_s") for frame in found] for label, found in trials.items()}
    last_s = max((float(frame["end_time_s"].max()) for found in known.values() for frame in found), default=0.0)
    times = np.linspace(0.0, last_s, _STEPS + 1)
    frames = []
    for label, found in known.items():
        counts = [np.searchsorted(frame["end_time_s"].to_numpy(), times, side="right") for frame in found]
        best = [_best_so_far(frame["accuracy"].to_numpy(dtype=float)) for frame in found]
        curves = {"accuracy": [top[done] for top, done in zip(best, counts, strict=True)], "done": counts}
        frames.append(over_seeds(label, times, curves, skipna=False))
    return pd.concat(frames, ignore_index=True)


def _best_so_far(accuracies: np.ndarray) -> np.ndarray:
    """Return the mean of the five best of the first n trials for every n from 0; NaN below five."""
    means = [np.sort(accuracies[:n])[-_TOP:].mean() if n >= _TOP else np.nan for n in range(len(accuracies) + 1)]
    return np.array(means)


def trials_over_time(
    data: pd.DataFrame, *, seeds: int, title: str = "Hyper-parameter tuning", styles: Mapping[str, Look] | None = None
) -> Drawn:
    """Draw the accuracy of the five best trials and the trials finished over time; `data` is of `trials_data`."""
    styles = styles or looks(data["policy"])
    unit = time_unit(float(data["time_s"].max()))
    several = data["policy"].nunique()
    spans = seeds > 1 and several <= MOST_SPANS
    with styled():
        figure = new_figure(7.2, 4.6, title, _trials_caption(seeds, span_words(several) if spans else ""))
        above, below = figure.subplots(2, 1, sharex=True)
        shown = [(above, "accuracy", 1), (below, "done", 1)]
        _lines(shown, data, data["time_s"] * unit.factor, styles, spans=spans)
        above.set(title="Mean accuracy of the five best trials so far", ylabel="accuracy (%)")
        below.set(title="Trials finished", ylabel="trials", ylim=(0, None))
        time_axis(below, unit, "the start of tuning")
        legend_above(figure, above)
    return figure, data


def _trials_caption(seeds: int, spans: str) -> str:
    text = "Accuracies come from a synthetic response surface that knows nothing of the scheduler."
    if seeds > 1:
        text += f" Means over {seeds} seeds{spans}."
    return text
