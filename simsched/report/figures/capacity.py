"""A metric against the number of nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from simsched.report.figures.style import Drawn, legend_above, looks, new_figure, styled


def capacity_curve(
    curves: Mapping[str, Sequence[tuple[int, float, float | None]]], *, metric: str, bound: float, title: str
) -> Drawn:
    """Draw one curve for each kind of node, and the bound of the target; where costs are known, over these too.

    A point is the nodes, the metric, and the cost of the cluster per month or None. The data are
    `label, nodes, value, cost`.
    """
    rows = [(label, *point) for label, points in curves.items() for point in points]
    data = pd.DataFrame(rows, columns=["label", "nodes", "value", "cost"])
    priced = bool(data["cost"].notna().all()) and len(data) > 0
    with styled():
        caption = "Points: runs of the log with so many nodes. Grey line: the target."
        figure = new_figure(8.4 if priced else 5.6, 2.8, title, caption)
        panels = figure.subplots(1, 2 if priced else 1, sharey=True, squeeze=False)[0]
        _panel(panels[0], data, "nodes", bound)
        panels[0].xaxis.set_major_locator(MaxNLocator(integer=True))
        panels[0].set_xlabel("nodes of the type, the others as they are")
        panels[0].set_ylabel(metric)
        if priced:
            _panel(panels[1], data.assign(cost=data["cost"] / 1000), "cost", bound)
            panels[1].set_xlabel("cost of the cluster (thousand dollars a month)")
        legend_above(figure, panels[0])
    return figure, data


def _panel(axes: Axes, data: pd.DataFrame, x: str, bound: float) -> None:
    styles = looks(data["label"])
    for label, points in data.groupby("label", sort=False):
        axes.plot(points[x], points["value"], marker="o", markersize=4, color=styles[str(label)].colour, label=label)
    axes.axhline(bound, color="#999999", linewidth=1.2)
    axes.set_ylim(bottom=0)
