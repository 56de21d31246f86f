"""What packing rules give away of a cluster's GPUs while demand grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from simsched.report.figures.style import BAND_ALPHA, Drawn, legend_above, looks, new_figure, styled
from simsched.results import Estimate


def allocation_curves(
    curves: Mapping[str, tuple[Sequence[float], Sequence[Estimate]]], *, title: str, seeds: int
) -> Drawn:
    """Draw the share of GPUs allocated over that asked for, one curve a rule with its interval over seeds.

    `curves` has demand and allocation by rule; the data are `rule, demand, allocated, low, high`, shares of all GPUs.
    """
    rows = [
        (rule, demand, one.mean, one.low, one.high)
        for rule, (demands, ones) in curves.items()
        for demand, one in zip(demands, ones, strict=True)
    ]
    data = pd.DataFrame(rows, columns=["rule", "demand", "allocated", "low", "high"])
    styles = looks(curves)
    bands = "" if seeds < 2 else f", bands 95 % intervals over {seeds} seeds"
    caption = f"Grey line: all that is asked for. Lines are means{bands}."
    with styled():
        figure = new_figure(5.6, 3.2, title, caption)
        axes = figure.subplots()
        for rule, part in data.groupby("rule", sort=False):
            colour, dash = styles[str(rule)].colour, styles[str(rule)].dash
            axes.plot(part["demand"] * 100, part["allocated"] * 100, color=colour, linestyle=dash, label=str(rule))
            if part["low"].notna().all():
                axes.fill_between(
                    part["demand"] * 100, part["low"] * 100, part["high"] * 100, color=colour, alpha=BAND_ALPHA
                )
        axes.plot([0, 100], [0, 100], color="#999999", linewidth=1.2, zorder=0)
        axes.set_xlabel("GPUs asked for (% of the cluster)")
        axes.set_ylabel("GPUs allocated (%)")
        legend_above(figure, axes)
    return figure, data
