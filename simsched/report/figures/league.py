"""Figures of a league: which policies are separated, and how far each covers the way from FIFO to the best possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes

from simsched.report.figures.lettering import label_text
from simsched.report.figures.style import Drawn, Look, looks, new_figure, styled
from simsched.report.league import classes
from simsched.results.league import LeagueTable, Standings, beside_the_bound

#: More lines than these are indistinguishable in a panel.
_MOST_LINES = 8
#: The prefix of conditions that vary only the offered load.
LOADS = "load-"
#: The smallest way shown, how far an interval may exceed the ratios, and the ticks of their axis.
_LEAST_WAY = -0.5
_BEYOND = 1.5
_TICKS = (0.5, 0.7, 1, 1.1, 1.2, 1.5, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100)


def critical_differences(found: Standings, *, title: str) -> Drawn:
    """Draw the policies of a table by their mean JCT over that of the first; a bar joins those that are not separated.

    The data are `policy, ratio, low, high, best, worst`, one row per policy.
    """
    rows = [(row.policy, row.ratio.mean, row.ratio.low, row.ratio.high, row.best, row.worst) for row in found.rows]
    data = pd.DataFrame(rows, columns=["policy", "ratio", "low", "high", "best", "worst"])
    names = [row.policy for row in found.rows]
    with styled():
        caption = (
            "Ratio of geometric means of the mean JCT to the first's, with simultaneous 95 % intervals (Bonferroni). "
            "Bars on the right join policies that Holm's procedure does not tell apart; two without a common "
            "bar may not be told apart either, where one between them is."
        )
        figure = new_figure(7.2, 0.7 + 0.21 * len(names), title, caption)
        axes = figure.subplots()
        for place, row in enumerate(found.rows):
            if row.ratio.low is not None and row.ratio.high is not None:
                axes.plot([row.ratio.low, row.ratio.high], [place, place], color="#888888", linewidth=1)
            axes.plot([row.ratio.mean], [place], "o", color="black", markersize=4)
        for column, clique in enumerate(found.cliques):
            ends = names.index(clique[0]), names.index(clique[-1])
            across = 1.02 + 0.02 * column
            axes.plot(
                [across, across], [ends[0] - 0.2, ends[1] + 0.2], color="#0072B2", linewidth=2.5, clip_on=False,
                transform=axes.get_yaxis_transform(),
            )  # fmt: skip
        axes.set_yticks(range(len(names)), [label_text(name) for name in names])
        axes.set_ylim(len(names) - 0.4, -0.6)
        _ratio_axis(axes, data)
        axes.set_xlabel("mean JCT / that of the first")
    return figure, data


def _ratio_axis(axes: Axes, data: pd.DataFrame) -> None:
    """Make the axis of ratios logarithmic; intervals far wider than the ratios leave the panel."""
    most = float(data["ratio"].max())
    low = max(float(data["low"].fillna(1).min()), 1 / _BEYOND) * 0.98
    high = min(float(data["high"].fillna(1).max()), most * _BEYOND) * 1.02
    axes.set(xscale="log", xlim=(low, max(high, most * 1.05)))
    ticks = [tick for tick in _TICKS if low <= tick <= high]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set_xticks([], minor=True)


def way_to_the_bound(table: LeagueTable, *, title: str) -> Drawn | None:
    """Draw the part of the distance from FIFO to the bound that schedulers cover, over the offered load.

    There is a column for each workload with bounds at several loads and a row for each class, each panel with the
    schedulers that cover most; None without any. The data contain all schedulers: `class, workload, load, policy, way,
    above`.
    """
    data = way_data(table)
    loads = data.groupby("workload", sort=False)["load"].nunique()
    columns = [str(name) for name in loads.index[loads > 1]]
    shown = data[data["workload"].isin(columns)]
    rows = [one for one in classes(table) if one in set(shown["class"])]
    if not rows:
        return None
    panels = {
        (row, column): part[part["policy"].isin(_foremost(part))]
        for row in rows
        for column in columns
        for part in [shown[(shown["class"] == row) & (shown["workload"] == column)]]
    }
    styles = {
        row: looks(sorted({policy for column in columns for policy in panels[row, column]["policy"]})) for row in rows
    }
    with styled():
        caption = (
            f"0: as FIFO; 1: at the bound, below which no schedule comes. In each panel the {_MOST_LINES} schedulers "
            f"of the class that cover most; values below {_LEAST_WAY:g} are not shown."
        )
        figure = new_figure(3.4 * len(columns) + 0.6, 3.5 * len(rows), title, caption)
        grid = figure.subplots(len(rows), len(columns), sharex=True, sharey=True, squeeze=False)
        least = max(_LEAST_WAY, min(0.0, float(min(part["way"].min() for part in panels.values() if len(part)))) - 0.05)
        for axes, ((row, column), part) in zip(grid.flat, panels.items(), strict=True):
            if part.empty:
                axes.set_axis_off()
                continue
            _way_panel(axes, part, styles[row])
            axes.tick_params(labelbottom=True, labelleft=True)
            axes.set(ylim=(least, 1.02), title=f"{column}\n{row}", xlabel="offered load")
            axes.set_ylabel("way from FIFO to the bound")
    return figure, data


def way_data(table: LeagueTable) -> pd.DataFrame:
    """Gather the data of `way_to_the_bound`: every scheduler but FIFO in the contests that differ only in load."""
    places = {place.name: place for place in table.contests}
    found = [
        (
            one.league_class,
            places[one.contest].workload,
            places[one.contest].offered_load,
            one.policy,
            one.way,
            one.above,
        )
        for one in beside_the_bound(table)
        if one.way is not None and one.policy != "fifo" and places[one.contest].condition.startswith(LOADS)
    ]
    return pd.DataFrame(found, columns=["class", "workload", "load", "policy", "way", "above"])


def _way_panel(axes: Axes, part: pd.DataFrame, styles: Mapping[str, Look]) -> None:
    for policy in _foremost(part):
        line, look = part[part["policy"] == policy].sort_values("load"), styles[policy]
        style = {"color": look.colour, "linestyle": look.dash, "marker": look.marker, "markersize": 4}
        axes.plot(line["load"], line["way"], label=label_text(policy), **style)
    axes.axhline(0, color="#888888", linewidth=0.8)
    axes.legend(fontsize=6.5, loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=3, frameon=False)


def _foremost(part: pd.DataFrame) -> Sequence[str]:
    means = part.groupby("policy")["way"].mean().sort_values(ascending=False, kind="stable")
    return [str(name) for name in means.index[:_MOST_LINES]]
