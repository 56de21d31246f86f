"""Figures for operators: capacity, the effects of a change, recorded and simulated waits, packing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from simsched.report.figures.distribution import duration_axis
from simsched.report.figures.style import BAND_ALPHA, Drawn, legend_above, looks, new_figure, styled
from simsched.report.units import HOUR_S
from simsched.results import SIZES, Estimate

#: Colours of the verdicts, distinct without red and green.
_COLOURS = {"gains": "#0072B2", "loses": "#D55E00", "as before": "#808080"}
_ROW_INCHES = 0.24
_KINDS = (("recorded", "recorded_s", "#222222", "-"), ("simulated", "simulated_s", "#0072b2", "--"))
_POINTS = 200
_LEAST_H = 1 / 60
#: The most queues drawn, and the most letters that fit side by side below a panel.
_MOST_QUEUES, _LETTERS = 8, 44


def capacity_curve(
    curves: Mapping[str, Sequence[tuple[int, float, float | None]]], *, metric: str, bound: float, title: str
) -> Drawn:
    """Draw one curve for each kind of node, and the bound of the target; over costs too, if known.

    A point is the nodes, the metric, and the cost of the cluster per month or None. Data: `label, nodes, value, cost`.
    """
    rows = [(label, *point) for label, points in curves.items() for point in points]
    data = pd.DataFrame(rows, columns=["label", "nodes", "value", "cost"])
    priced = bool(data["cost"].notna().all()) and len(data) > 0
    with styled():
        caption = "Points: runs of the log with so many nodes. Grey line: the target."
        figure = new_figure(8.4 if priced else 5.6, 2.8, title, caption)
        panels = figure.subplots(1, 2 if priced else 1, sharey=True, squeeze=False)[0]
        _capacity_panel(panels[0], data, "nodes", bound)
        panels[0].xaxis.set_major_locator(MaxNLocator(integer=True))
        panels[0].set(xlabel="nodes of the type, the others as they are", ylabel=metric)
        if priced:
            _capacity_panel(panels[1], data.assign(cost=data["cost"] / 1000), "cost", bound)
            panels[1].set_xlabel("cost of the cluster (thousand dollars a month)")
        legend_above(figure, panels[0])
    return figure, data


def _capacity_panel(axes: Axes, data: pd.DataFrame, x: str, bound: float) -> None:
    styles = looks(data["label"])
    for label, points in data.groupby("label", sort=False):
        axes.plot(points[x], points["value"], marker="o", markersize=4, color=styles[str(label)].colour, label=label)
    axes.axhline(bound, color="#999999", linewidth=1.2)
    axes.set_ylim(bottom=0)


def wait_changes(groups: pd.DataFrame, *, title: str) -> Drawn:
    """Draw a line for each group from its mean wait before to its mean wait after, coloured by verdict.

    `groups` has the columns `by, group, before_h, after_h, verdict`; it is also the data of the figure.
    """
    count = len(groups)
    with styled():
        caption = "Ring: mean wait before the change. Dot: after it."
        figure = new_figure(6.4, 0.7 + _ROW_INCHES * count, title, caption)
        axes = figure.subplots()
        labels = [f"{by}: {name}" for by, name in zip(groups["by"], groups["group"], strict=True)]
        before, after = (groups[name].to_numpy("float64") for name in ("before_h", "after_h"))
        for place, verdict in enumerate(groups["verdict"]):
            colour, y = _COLOURS[str(verdict)], count - place
            axes.plot([before[place], after[place]], [y, y], color=colour, linewidth=2)
            axes.plot(before[place], y, "o", color=colour, markerfacecolor="white", markersize=6)
            axes.plot(after[place], y, "o", color=colour, markersize=6)
        for verdict, colour in _COLOURS.items():
            axes.plot([], [], "o-", color=colour, label=verdict)
        axes.set_yticks(range(count, 0, -1), labels)
        axes.set_ylim(0.4, count + 0.6)
        axes.set_xlim(left=0)
        axes.set_xlabel("mean wait (h)")
        axes.grid(visible=False, axis="y")
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure, groups


def wait_comparison(jobs: pd.DataFrame, *, title: str) -> Drawn:
    """Draw the distribution of waits, recorded and simulated, and their 90th percentiles by size and by queue.

    `jobs` has the columns `size, queue, recorded_s, simulated_s`. A single queue has no panel; of many, those with most
    jobs are drawn. Data: `panel, kind, x, value`.
    """
    frames = []
    longest = max(float(jobs[column].max()) for _, column, _, _ in _KINDS) / HOUR_S
    limits = np.geomspace(_LEAST_H, max(longest, 2 * _LEAST_H), _POINTS)
    groups = _groups(jobs)
    for kind, column, _, _ in _KINDS:
        waits = np.sort(jobs[column].to_numpy("float64")) / HOUR_S
        shares = np.searchsorted(waits, limits, side="right") / len(waits)
        frames.append(pd.DataFrame({"panel": "share", "kind": kind, "x": limits, "value": shares}))
        for by, names in groups.items():
            p90 = [float(np.percentile(jobs[jobs[by] == name][column], 90)) / HOUR_S for name in names]
            frames.append(pd.DataFrame({"panel": by, "kind": kind, "x": names, "value": p90}))
    data = pd.concat([frame.astype({"x": object}) for frame in frames], ignore_index=True)
    with styled():
        caption = "Left: share of jobs that waited at most so long. Bars: nine of ten jobs waited at most so long."
        figure = new_figure(4.0 * (1 + len(groups)), 2.8, title, caption)
        left, *bars = figure.subplots(1, 1 + len(groups))
        for number, (kind, _, colour, line) in enumerate(_KINDS):
            part = data[data["kind"] == kind]
            curve = part[part["panel"] == "share"]
            left.plot(HOUR_S * curve["x"].astype(float), 100 * curve["value"], line, color=colour, label=kind)
            for axes, (by, names) in zip(bars, groups.items(), strict=True):
                places = np.arange(len(names)) + 0.4 * (number - 0.5)
                axes.bar(places, part[part["panel"] == by]["value"], width=0.36, color=colour)
        duration_axis(left, "wait (logarithmic)", most_ticks=6)
        left.set(ylabel="share of jobs (%)", ylim=(0, 100))
        for axes, (by, names) in zip(bars, groups.items(), strict=True):
            tilt = 30 if max(map(len, names)) * len(names) > _LETTERS else 0
            axes.set_xticks(range(len(names)), names, rotation=tilt, ha="right" if tilt else "center")
            axes.set(xlabel=f"by {by}", ylabel="90th percentile of waits (h)")
        legend_above(figure, left)
    return figure, data


def _groups(jobs: pd.DataFrame) -> dict[str, list[str]]:
    """Return the sizes, from small to large, and the queues with most jobs."""
    known = [name for name, _ in SIZES]
    groups = {"size": [name for name in known if name in set(jobs["size"])]}
    queues = jobs["queue"].value_counts(sort=False).sort_index().sort_values(ascending=False, kind="stable")
    if len(queues) > 1:
        groups["queue"] = sorted(map(str, queues.index[:_MOST_QUEUES]))
    return groups


def allocation_curves(
    curves: Mapping[str, tuple[Sequence[float], Sequence[Estimate]]], *, title: str, seeds: int
) -> Drawn:
    """Draw the share of allocated GPUs over the requested share, one curve per rule with its interval over seeds.

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
        axes.set(xlabel="GPUs asked for (% of the cluster)", ylabel="GPUs allocated (%)")
        legend_above(figure, axes)
    return figure, data
