"""The physics of jobs: throughput over GPUs and batch sizes, efficiency over training."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from simsched.report.figures.style import Drawn, legend_above, new_figure, plain_log, styled

_MOST_TICKS = 8


def throughput_figure(model: pd.DataFrame, measured: pd.DataFrame | None = None, *, title: str) -> Drawn:
    """Draw modelled throughput against GPUs (a line per batch size) and against batch size (a line per GPU count).

    Both tables have the columns `gpus, batch_size` (total, examples) and `throughput` (examples/s); `measured` gives
    points. Data: both tables stacked, distinguished by `source`.
    """
    with styled():
        text = "Lines: model" + ("; circles: measured." if measured is not None else ".") + " All axes logarithmic."
        figure = new_figure(8.4, 3.6, title, text)
        left, right = figure.subplots(1, 2, sharey=True)
        _family(left, model, measured, "gpus", "batch_size", "batch size")
        _family(right, model, measured, "batch_size", "gpus", "GPUs")
        left.set(xlabel="GPUs", ylabel="throughput (examples/s)")
        right.set_xlabel("total batch size (examples)")
    return figure, _stacked(model, measured)


def types_figure(model: pd.DataFrame, *, title: str, unit: str = "examples/s") -> Drawn:
    """Draw throughput over GPUs, a panel for each GPU type side by side and a line for each batch size.

    `model` has the columns `gpu_type, gpus, batch_size, throughput`; all panels have the same axes.
    """
    types = sorted(model["gpu_type"].unique())
    sizes = sorted(model["batch_size"].unique())
    shades = dict(zip(sizes, _shades(len(sizes)), strict=True))
    with styled():
        text = "A line for each total batch size; the same axes for all GPU types, logarithmic."
        figure = new_figure(2.2 + 2.9 * len(types), 3.6, title, text)
        panels = figure.subplots(1, len(types), sharex=True, sharey=True, squeeze=False)[0]
        for axes, kind in zip(panels, types, strict=True):
            for size, line in model[model["gpu_type"] == kind].groupby("batch_size"):
                part = line.sort_values("gpus")
                label = f"{size:,}" if size else "none"
                axes.plot(part["gpus"], part["throughput"], "o-", color=shades[size], label=label, markersize=3)
            axes.set(title=str(kind).upper(), xlabel="GPUs")
        _log_axes(panels[0], sorted(model["gpus"].unique()))
        panels[0].set_ylabel(f"throughput ({unit})")
        lines = {line.get_label(): line for axes in panels for line in axes.get_lines()}
        known = [f"{size:,}" if size else "none" for size in sizes]
        panels[-1].legend(
            [lines[label] for label in known], known, title="batch size", loc="center left",
            bbox_to_anchor=(1.0, 0.5), title_fontsize=8, fontsize=8,
        )  # fmt: skip
    return figure, model


def efficiency_figure(model: pd.DataFrame, measured: pd.DataFrame | None = None, *, title: str) -> Drawn:
    """Draw statistical efficiency over training, a line per batch size.

    Both tables have the columns `progress` (share of training done, 0 to 1), `batch_size` and `efficiency` (0 to 1).
    """
    with styled():
        text = "Efficiency: progress per example relative to the initial batch size." + (
            " Lines: model; circles: measured." if measured is not None else ""
        )
        figure = new_figure(6.6, 3.6, title, text)
        axes = figure.subplots()
        scaled = [
            None
            if table is None
            else table.assign(progress=100 * table["progress"], efficiency=100 * table["efficiency"])
            for table in (model, measured)
        ]
        if scaled[0] is not None:
            _family(axes, scaled[0], scaled[1], "progress", "batch_size", "batch size", "efficiency", log=False)
        axes.set(xlim=(0, 100), ylim=(0, 103), xlabel="training done (%)", ylabel="statistical efficiency (%)")
    return figure, _stacked(model, measured)


def _stacked(model: pd.DataFrame, measured: pd.DataFrame | None) -> pd.DataFrame:
    parts = [model.assign(source="model")]
    if measured is not None:
        parts.append(measured.assign(source="measured"))
    return pd.concat(parts, ignore_index=True)


def _family(
    axes: Axes,
    model: pd.DataFrame,
    measured: pd.DataFrame | None,
    x: str,
    family: str,
    title: str,
    y: str = "throughput",
    *,
    log: bool = True,
) -> None:
    """Draw a line for each value of `family`, dark to light as it grows, with measured points in the same colour."""
    members = sorted(model[family].unique())
    for member, colour in zip(members, _shades(len(members)), strict=True):
        line = model[model[family] == member].sort_values(x)
        axes.plot(line[x], line[y], color=colour, label=f"{member:,}", linewidth=1.4)
        if measured is not None:
            points = measured[measured[family] == member]
            axes.plot(points[x], points[y], "o", color=colour, markersize=3.5, markerfacecolor="none")
    if log:
        _log_axes(axes, sorted(model[x].unique()))
    axes.legend(title=title, loc="center left", bbox_to_anchor=(1.0, 0.5), title_fontsize=8, fontsize=8)


def _log_axes(axes: Axes, places: Sequence[float]) -> None:
    """Make both axes logarithmic, with plain numbers at the values or at round numbers."""
    axes.set_xscale("log")
    plain_log(axes)
    shown = places[:: -(-len(places) // _MOST_TICKS)]
    axes.set_xticks(shown, [f"{value:,.0f}" for value in shown])
    axes.set_xticks([], minor=True)


def _shades(count: int) -> Sequence[tuple[float, float, float, float]]:
    """Return colours from dark to light whose order is visible in grey and under colour blindness."""
    return [tuple(shade) for shade in mpl.colormaps["viridis"](np.linspace(0.0, 0.88, max(count, 1)))][:count]


#: Computation is grey; a better plan or network would save the rest.
_COLOURS = {
    "compute": "#999999",
    "tensor": "#0072B2",
    "context": "#56B4E9",
    "pipeline": "#E69F00",
    "data": "#D55E00",
    "optimiser": "#000000",
}


def plan_parts(data: pd.DataFrame, *, title: str) -> Drawn:
    """Draw a bar for each plan, its seconds by part; `data` has one row per plan: `plan`, and the seconds by part."""
    with styled():
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
_MEASURED, _MODEL = "measured", "model"


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
    return _sheet(table, title, text, "gpus", "throughput"), table


def efficiency_sheet(table: pd.DataFrame, *, title: str = "Statistical efficiency: measured and modelled") -> Drawn:
    """Draw statistical efficiency over training, a panel for each application and a line for each total batch size.

    `table` has the columns `application, source, progress` (share of training done), `batch_size, efficiency` (0 to 1).
    """
    text = (
        "Circles: measured; lines: model, each epoch at its start. Efficiency is progress per example relative to the "
        "initial batch size; one colour per total batch size."
    )
    scaled = table.assign(progress=100 * table["progress"], efficiency=100 * table["efficiency"])
    return _sheet(scaled, title, text, "progress", "efficiency"), table


def _sheet(table: pd.DataFrame, title: str, text: str, x: str, y: str) -> Figure:
    """Draw `y` over `x`, a panel for each application."""
    names = list(table["application"].unique())
    rows = -(-len(names) // _COLUMNS)
    with styled():
        figure = new_figure(_PANEL[0] * min(len(names), _COLUMNS), _PANEL[1] * rows, title, text)
        panels = figure.subplots(rows, min(len(names), _COLUMNS), squeeze=False).ravel()
        for name, axes in zip(names, panels, strict=False):
            part = table[table["application"] == name]
            _panel(axes, part, x, y)
            axes.set_title(name)
            if x == "gpus":
                _throughput_axes(axes, sorted(part["gpus"].unique()))
            else:
                _efficiency_axes(axes)
        for axes in panels[len(names) :]:
            axes.set_visible(False)
    return figure


def _panel(axes: Axes, table: pd.DataFrame, x: str, y: str) -> None:
    """Draw a line for each batch size, dark to light as it grows, with measured points in the same colour."""
    sizes = sorted(table["batch_size"].unique())
    for size, colour in zip(sizes, mpl.colormaps["viridis"](np.linspace(0.0, 0.88, len(sizes))), strict=True):
        for source, part in table[table["batch_size"] == size].groupby("source", sort=True):
            line = part.sort_values(x)
            if source == _MEASURED:
                axes.plot(line[x], line[y], "o", color=colour, ms=2.8, markerfacecolor="none", markeredgewidth=0.7)
            elif len(line) == 1:  # a line of one point would be invisible
                axes.plot(line[x], line[y], "_", color=colour, ms=12)
            else:
                axes.plot(line[x], line[y], "-" if source == _MODEL else ":", color=colour, linewidth=1.2)
        axes.plot([], [], color=colour, label=f"{size:,}")
    axes.legend(fontsize=6.5, handlelength=1.0, labelspacing=0.2, borderaxespad=0.2)


def _throughput_axes(axes: Axes, counts: Sequence[int]) -> None:
    axes.set_xscale("log")
    plain_log(axes)
    axes.set_xticks(counts, [f"{count}" for count in counts])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlabel="GPUs", ylabel="examples/s")


def _efficiency_axes(axes: Axes) -> None:
    axes.set(xlim=(0, 100), ylim=(0, 103), xlabel="training done (%)", ylabel="efficiency (%)")
