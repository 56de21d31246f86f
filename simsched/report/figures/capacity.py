"""A metric against the number of nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from simsched.report.figures.style import Drawn, legend_above, looks, new_figure, styled


def capacity_curve(
    curves: Mapping[str, Sequence[tuple[int, float]]], *, metric: str, bound: float, title: str
) -> Drawn:
    """Draw one curve for each kind of node, and the bound of the target; the data are `label, nodes, value`."""
    rows = [(label, nodes, value) for label, points in curves.items() for nodes, value in points]
    data = pd.DataFrame(rows, columns=["label", "nodes", "value"])
    styles = looks(curves)
    with styled():
        figure = new_figure(5.6, 2.8, title, "Points: runs of the log with so many nodes. Grey line: the target.")
        axes = figure.subplots()
        for label, points in curves.items():
            xs, ys = [nodes for nodes, _ in points], [value for _, value in points]
            axes.plot(xs, ys, marker="o", markersize=4, color=styles[label].colour, label=label)
        axes.axhline(bound, color="#999999", linewidth=1.2)
        axes.set_xlabel("nodes")
        axes.set_ylabel(metric)
        axes.set_ylim(bottom=0)
        legend_above(figure, axes)
    return figure, data
