"""The physics of jobs: throughput over GPUs and batch sizes, efficiency over training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from simsched.report.figures.style import Drawn, legend_above, new_figure, plain_log, styled

_MOST_TICKS = 8
_MEASURED, _MODEL = "measured", "model"


@styled()
def throughput_figure(model: pd.DataFrame, measured: pd.DataFrame | None = None, *, title: str) -> Drawn:
    """Draw modelled throughput against GPUs (a line per batch size) and against batch size (a line per GPU count).

    Both tables have the columns `gpus, batch_size` (total, examples) and `throughput` (examples/s); `measured` gives
    points. Data: both tables stacked, distinguished by `source`.
    """
    data = _stacked(model, measured)
    text = "Lines: model" + ("; circles: measured." if measured is not None else ".") + " All axes logarithmic."
    figure = new_figure(8.4, 3.6, title, text)
    left, right = figure.subplots(1, 2, sharey=True)
    _family(left, data, "gpus", "batch_size", "throughput", title="batch size")
    _family(right, data, "batch_size", "gpus", "throughput", title="GPUs")
    left.set(xlabel="GPUs", ylabel="throughput (examples/s)")
    right.set_xlabel("total batch size (examples)")
    return figure, data


@styled()
def types_figure(model: pd.DataFrame, *, title: str, unit: str = "examples/s") -> Drawn:
    """Draw throughput over GPUs, a panel for each GPU type side by side and a line for each batch size.

    `model` has the columns `gpu_type, gpus, batch_size, throughput`; all panels have the same axes.
    """
    types = sorted(model["gpu_type"].unique())
    text = "A line for each total batch size; the same axes for all GPU types, logarithmic."
    figure = new_figure(2.2 + 2.9 * len(types), 3.6, title, text)
    panels = figure.subplots(1, len(types), sharex=True, sharey=True, squeeze=False)[0]
    for axes, kind in zip(panels, types, strict=True):
        beside = "batch size" if kind == types[-1] else None
        own, sizes = model[model["gpu_type"] == kind], model["batch_size"]
        _family(axes, own, "gpus", "batch_size", "throughput", members=sizes, title=beside)
        axes.set(title=str(kind).upper(), xlabel="GPUs")
    panels[0].set_ylabel(f"throughput ({unit})")
    return figure, model


@styled()
def efficiency_figure(model: pd.DataFrame, measured: pd.DataFrame | None = None, *, title: str) -> Drawn:
    """Draw statistical efficiency over training, a line per batch size.

    Both tables have the columns `progress` (share of training done, 0 to 1), `batch_size` and `efficiency` (0 to 1).
    """
    data = _stacked(model, measured)
    text = "Efficiency: progress per example relative to the initial batch size." + (
        " Lines: model; circles: measured." if measured is not None else ""
    )
    figure = new_figure(6.6, 3.6, title, text)
    axes = figure.subplots()
    _family(axes, data, "progress", "batch_size", "efficiency", title="batch size")
    axes.set_ylabel("statistical efficiency (%)")
    return figure, data


def _stacked(model: pd.DataFrame, measured: pd.DataFrame | None) -> pd.DataFrame:
    parts = [model.assign(source=_MODEL)]
    if measured is not None:
        parts.append(measured.assign(source=_MEASURED))
    return pd.concat(parts, ignore_index=True)


def _family(
    axes: Axes,
    table: pd.DataFrame,
    x: str,
    family: str,
    y: str,
    *,
    title: str | None = None,
    members: pd.Series | None = None,
) -> None:
    """Draw a line for each value of `family` (of all `members`), dark to light as it grows, on the axes of `y`.

    Rows whose `source` is `measured` are circles in the same colour, those of a second model dotted. A `title` puts the
    legend beside the panel.
    """
    percent = 100 if y == "efficiency" else 1
    values = sorted((table[family] if members is None else members).unique())
    table = table if "source" in table else table.assign(source=_MODEL)
    shades = mpl.colormaps["viridis"](np.linspace(0.0, 0.88, len(values)))
    for value, shade in zip(values, shades, strict=True):
        label = f"{value:,}" if value else "none"
        for source, part in table[table[family] == value].groupby("source", sort=True):
            line = part.sort_values(x)
            look: dict[str, Any] = {"linestyle": "-" if source == _MODEL else ":", "linewidth": 1.3, "label": label}
            if source == _MEASURED:
                look = {"linestyle": "", "marker": "o", "markersize": 3, "markerfacecolor": "none"}
            elif len(line) == 1:  # a line of one point would be invisible
                look = {"linestyle": "", "marker": "_", "markersize": 12, "label": label}
            axes.plot((100 if x == "progress" else 1) * line[x], percent * line[y], color=shade, **look)
    if y == "throughput":
        _log_axes(axes, sorted(table[x].unique()))
    else:
        axes.set(xlim=(0, 100), ylim=(0, 103), xlabel="training done (%)")
    beside: dict[str, Any] = {"title": title, "loc": "center left", "bbox_to_anchor": (1.0, 0.5), "title_fontsize": 8}
    if title or members is None:
        axes.legend(fontsize=8, **(beside if title else {"handlelength": 1.0, "labelspacing": 0.2}))


def _log_axes(axes: Axes, places: Sequence[float]) -> None:
    """Make both axes logarithmic, with plain numbers at the values or at round numbers."""
    axes.set_xscale("log")
    plain_log(axes)
    shown = places[:: -(-len(places) // _MOST_TICKS)]
    axes.set_xticks(shown, [f"{value:,.0f}" for value in shown])
    axes.set_xticks([], minor=True)


#: Computation is grey; a better plan or network would save the rest.
_COLOURS = {
    "compute": "#999999",
    "tensor": "#0072B2",
    "context": "#56B4E9",
    "pipeline": "#E69F00",
    "data": "#D55E00",
    "optimiser": "#000000",
}


@styled()
def plan_parts(data: pd.DataFrame, *, title: str) -> Drawn:
    """Draw a bar for each plan, its seconds by part; `data` has one row per plan: `plan`, and the seconds by part."""
    figure = new_figure(7.2, 1.2 + 0.32 * len(data), title, "Seconds of a step that nothing else hides.")
    axes = figure.subplots()
    begun = pd.Series(0.0, index=data.index)
    for part, colour in _COLOURS.items():
        axes.barh(data.index, data[part], left=begun, color=colour, label=part, height=0.7)
        begun += data[part]
    axes.set_yticks(data.index, data["plan"])
    axes.invert_yaxis()
    axes.set_xlabel("seconds of a step")
    legend_above(figure, axes)
    return figure, data


_COLUMNS = 3
_PANEL = (3.1, 2.5)  # inches


def throughput_sheet(table: pd.DataFrame, *, title: str = "Throughput: measured and modelled") -> Drawn:
    """Draw throughput over GPUs, a panel for each application and a line for each total batch size.

    `table` has the columns `application, source, gpus, batch_size, throughput` (examples/s); `source` is `measured`
    (circles), `model` (lines) or anything else, a second model (dotted lines).
    """
    others = [source for source in table["source"].unique() if source not in (_MEASURED, _MODEL)]
    dotted = f"; dotted: {others[0]}" if others else ""
    text = (
        f"Circles: measured; lines (bars where there is one point): model{dotted}. On as few nodes as possible, one "
        "colour per total batch size."
    )
    return _sheet(table, title, text, "gpus", "throughput")


def efficiency_sheet(table: pd.DataFrame, *, title: str = "Statistical efficiency: measured and modelled") -> Drawn:
    """Draw statistical efficiency over training, a panel for each application and a line for each total batch size.

    `table` has the columns `application, source, progress` (share of training done), `batch_size, efficiency` (0 to 1).
    """
    text = (
        "Circles: measured; lines: model, each epoch at its start. Efficiency is progress per example relative to the "
        "initial batch size; one colour per total batch size."
    )
    return _sheet(table, title, text, "progress", "efficiency")


@styled()
def _sheet(table: pd.DataFrame, title: str, text: str, x: str, y: str) -> Drawn:
    """Draw `y` over `x`, a panel for each application."""
    names = list(table["application"].unique())
    rows = -(-len(names) // _COLUMNS)
    figure = new_figure(_PANEL[0] * min(len(names), _COLUMNS), _PANEL[1] * rows, title, text)
    panels = figure.subplots(rows, min(len(names), _COLUMNS), squeeze=False).ravel()
    for name, axes in zip(names, panels, strict=False):
        _family(axes, table[table["application"] == name], x, "batch_size", y)
        axes.set(title=name, ylabel="examples/s" if x == "gpus" else "efficiency (%)")
        if x == "gpus":
            axes.set_xlabel("GPUs")
    for axes in panels[len(names) :]:
        axes.set_visible(False)
    return figure, table
