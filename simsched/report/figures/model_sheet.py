"""Several applications on one sheet: measurements beside their models."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from simsched.report.figures.style import Drawn, new_figure, plain_log, styled

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
            elif len(line) == 1:  # a line of one point would not be seen
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
