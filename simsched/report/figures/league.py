"""Pictures of a league: who is separated from whom, and how far each scheduler goes from FIFO to the best possible."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from simsched.report.figures.lettering import label_text
from simsched.report.figures.style import Drawn, legend_above, looks, new_figure, styled
from simsched.results import LeagueTable, Standings, beside_the_bound

#: More lines than these are not told apart in a panel.
_MOST_LINES = 8
#: Conditions of which the offered load is the only thing that is varied begin with this.
LOADS = "load-"


def critical_differences(found: Standings, *, title: str) -> Drawn:
    """Draw the policies of a table by their mean JCT over that of the first; a bar joins those that are not separated.

    The data are `policy, ratio, low, high, best, worst`, one row a policy.
    """
    rows = [(row.policy, row.ratio.mean, row.ratio.low, row.ratio.high, row.best, row.worst) for row in found.rows]
    data = pd.DataFrame(rows, columns=["policy", "ratio", "low", "high", "best", "worst"])
    names = [row.policy for row in found.rows]
    with styled():
        caption = (
            "Ratio of geometric means of the mean JCT to the first's, with simultaneous 95 % intervals (Bonferroni). "
            "Bars on the right join policies that Holm's procedure does not tell apart."
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
        axes.set_xlim(left=min([0.98, *(row.ratio.low or 1 for row in found.rows)]))
        if float(data["ratio"].max()) > 4:
            axes.set_xscale("log")
        axes.set_xlabel("mean JCT / that of the first")
    return figure, data


def way_to_the_bound(table: LeagueTable, *, title: str) -> Drawn | None:
    """Draw the part of the distance from FIFO to the bound that schedulers cover, over the offered load.

    A panel for each workload that has bounds at several loads, with the schedulers that cover most; None without any.
    The data hold all: `workload, load, policy, way, above`.
    """
    places = {place.name: place for place in table.contests}
    rows = [
        (places[one.contest].workload, places[one.contest].offered_load, one.policy, one.way, one.above)
        for one in beside_the_bound(table)
        if one.way is not None and places[one.contest].condition.startswith(LOADS)
    ]
    data = pd.DataFrame(rows, columns=["workload", "load", "policy", "way", "above"])
    data = data[data["policy"] != "fifo"]
    panels = [name for name, part in data.groupby("workload", sort=False) if part["load"].nunique() > 1]
    if not panels:
        return None
    shown = {name: _foremost(data[data["workload"] == name]) for name in panels}
    styles = looks(sorted({policy for names in shown.values() for policy in names}))
    with styled():
        caption = (
            f"0: as FIFO; 1: at the bound, below which no schedule comes. The {_MOST_LINES} schedulers that cover most "
            "at each workload; values below -0.5 are not shown."
        )
        figure = new_figure(3.2 * len(panels) + 0.6, 2.9, title, caption)
        for axes, name in zip(figure.subplots(1, len(panels), sharey=True, squeeze=False)[0], panels, strict=True):
            for policy in shown[name]:
                line = data[(data["workload"] == name) & (data["policy"] == policy)].sort_values("load")
                look = styles[policy]
                axes.plot(
                    line["load"], line["way"], color=look.colour, linestyle=look.dash, marker=look.marker,
                    markersize=4, label=policy,
                )  # fmt: skip
            axes.axhline(0, color="#888888", linewidth=0.8)
            axes.set_ylim(-0.5, 1)
            axes.set_title(str(name))
            axes.set_xlabel("offered load")
        figure.axes[0].set_ylabel("way from FIFO to the bound")
        lines = {line.get_label(): line for axes in figure.axes for line in axes.lines}
        legend_above(figure, figure.axes[0], lines.values())
    return figure, data


def _foremost(part: pd.DataFrame) -> Sequence[str]:
    means = part.groupby("policy")["way"].mean().sort_values(ascending=False, kind="stable")
    return [str(name) for name in means.index[:_MOST_LINES]]
