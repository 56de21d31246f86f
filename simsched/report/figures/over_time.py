"""Values over time, a line for each policy: GPUs and efficiency, nodes, and trials of tuning."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
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
#: The top of an axis that need not begin at zero.
_FREE = -1.0
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


class Panel(NamedTuple):
    """A column of `over_seeds` to draw: its title, the name and factor of its axis, and the top of that."""

    column: str
    title: str
    axis: str
    factor: float = 1
    top: float | None = None
    steps: bool = False


_EFFICIENCY = Panel("efficiency", "Mean statistical efficiency of running jobs", "efficiency (%)", 100, 103)
_EFFICIENCY_WORDS = "The efficiency of a job is its progress per example relative to its initial batch size."


@styled()
def _drawn(
    data: pd.DataFrame,
    panels: Sequence[Panel],
    title: str,
    caption: str,
    seeds: int,
    *,
    width_s: float = 0.0,
    styles: Mapping[str, Look] | None = None,
    curves: Sequence[CurvePoint] = (),
    most_spans: int = MOST_SPANS,
    level: tuple[float, str] | None = None,
    since: str = "the start of the workload",
) -> Drawn:
    """Draw panels one above the other, a line for each policy, with the range over a few seeds.

    Values hold for `width_s` from their time on. In the `caption` `{}` stands for the words about means and ranges.
    Published `curves` of the panels' columns (x in hours, policies as series) are thin, in the colour of their policy;
    `level` is a dotted line in the first panel, with its name.
    """
    styles = styles or looks(data["policy"])
    unit = time_unit(float(data["time_s"].max()) + width_s)
    several = data["policy"].nunique()
    spans = seeds > 1 and several <= most_spans
    words = f"Means over {duration(width_s)}" if width_s else "Means"
    words += (
        f"{' and' if width_s else ''} over {seeds} seeds{span_words(several) if spans else ''}" if seeds > 1 else ""
    )
    words += ". Thin lines with dots: published" if curves else ""
    figure = new_figure(7.2, 0.6 + 2.0 * len(panels), title, caption.format(words))
    grid = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for axes, panel in zip(grid, panels, strict=True):
        for place, (label, part) in enumerate(data.groupby("policy", sort=False)):
            look, times = styles[str(label)], (part["time_s"] + width_s / 2) * unit.factor
            style = {"color": look.colour, "linestyle": look.dash, "label": str(label)}
            drawn = "steps-mid" if panel.steps and seeds == 1 else "default"
            (curve,) = axes.plot(times, panel.factor * part[panel.column], drawstyle=drawn, **style)
            if spans:
                low, high = (panel.factor * part[f"{panel.column}_{end}"] for end in ("low", "high"))
                span(curve, low, high, look, place, several)
            points = [(one.x, one.y) for one in curves if (one.panel, one.series) == (panel.column, label)]
            if points:
                x, y = zip(*points, strict=True)
                thin: Any = {"linewidth": 0.9, "alpha": 0.6, "marker": ".", "markersize": 3}
                axes.plot(np.array(x) * HOUR_S * unit.factor, y, color=look.colour, **thin)
        axes.set(title=panel.title, ylabel=panel.axis)
        axes.set_ylim(None if panel.top == _FREE else 0, None if panel.top == _FREE else panel.top)
        axes.yaxis.set_major_locator(MaxNLocator(integer=panel.factor == 1 and panel.top != _FREE))
    if level is not None:
        grid[0].axhline(level[0], color="#888888", linestyle=":", linewidth=1, label=level[1])
        grid[0].set_ylim(0, None)
    time_axis(grid[-1], unit, since)
    legend_above(figure, grid[0])
    return figure, data


def _width_s(data: pd.DataFrame) -> int:
    return int(data["time_s"].iloc[1] - data["time_s"].iloc[0]) if len(data) > 1 else MINUTE_S


def _trains(data: pd.DataFrame) -> bool:
    """Return whether any job trains; jobs described only by a duration all have an efficiency of 1."""
    return bool((data["efficiency"].dropna() < 1).any())


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

    `data` comes from `over_time_data`; a dotted line marks the GPUs of the cluster. Published `curves` are of the
    panels `gpus` and `efficiency`.
    """
    trains = _trains(data)
    panels = [Panel("gpus", "GPUs allocated", "GPUs"), *([_EFFICIENCY] if trains else [])]
    caption = "{}" + ". A finished seed counts as 0 GPUs" * (seeds > 1) + "." + f" {_EFFICIENCY_WORDS}" * trains
    level = (total_gpus, f"all {total_gpus:,} GPUs") if total_gpus else None
    return _drawn(
        data, panels, title, caption, seeds, width_s=_width_s(data), styles=styles, curves=curves, level=level
    )


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
    duration. Published `curves` are of the panels `nodes` and `efficiency` (in per cent).
    """
    trains, top = _trains(data), 1.08 * float(data["nodes_high"].max())
    nodes = Panel("nodes", "Nodes rented" if rented else "Nodes up", "nodes", top=top, steps=True)
    after, what = "counts no node", "up unless it has failed and is not yet repaired"
    if rented:
        after = "rents nothing"
        what = "rented while it is up or starting; the area under a line is what the cluster costs"
    done = "" if seeds == 1 else f" A seed whose jobs are done {after} any more."
    caption = f"{{}}.{done} A node is {what}." + f" {_EFFICIENCY_WORDS}" * trains
    return _drawn(
        data, [nodes, *([_EFFICIENCY] if trains else [])], title, caption, seeds, width_s=_width_s(data), styles=styles,
        curves=curves, most_spans=_MOST_SPANS,
    )  # fmt: skip


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
    panels = (
        Panel("accuracy", "Mean accuracy of the five best trials so far", "accuracy (%)", top=_FREE),
        Panel("done", "Trials finished", "trials"),
    )
    caption = "Accuracies come from a synthetic response surface that knows nothing of the scheduler."
    caption += " {}." * (seeds > 1)
    return _drawn(data, panels, title, caption, seeds, styles=styles, since="the start of tuning")
