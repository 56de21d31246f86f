"""Recorded and simulated waits side by side."""

from __future__ import annotations

import numpy as np
import pandas as pd

from simsched.report.figures.style import Drawn, legend_above, new_figure, styled
from simsched.results import SIZES

_KINDS = (("recorded", "recorded_s", "#222222", "-"), ("simulated", "simulated_s", "#0072b2", "--"))
_POINTS = 200
_LEAST_H = 1 / 60
#: The most queues that are drawn, and the letters that stand beside each other below a panel.
_MOST_QUEUES, _LETTERS = 8, 44


def wait_comparison(jobs: pd.DataFrame, *, title: str) -> Drawn:
    """Draw the distribution of waits, recorded and simulated, and their 90th percentiles by size and by queue.

    `jobs` has the columns `size, queue, recorded_s, simulated_s`. Where there is one queue its panel is left out, and
    of many the ones with most jobs are drawn. The data drawn are `panel, kind, x, value`.
    """
    frames = []
    longest = max(float(jobs[column].max()) for _, column, _, _ in _KINDS) / 3600
    limits = np.geomspace(_LEAST_H, max(longest, 2 * _LEAST_H), _POINTS)
    groups = _groups(jobs)
    for kind, column, _, _ in _KINDS:
        waits = np.sort(jobs[column].to_numpy("float64")) / 3600
        shares = np.searchsorted(waits, limits, side="right") / len(waits)
        frames.append(pd.DataFrame({"panel": "share", "kind": kind, "x": limits, "value": shares}))
        for by, names in groups.items():
            p90 = [float(np.percentile(jobs[jobs[by] == name][column], 90)) / 3600 for name in names]
            frames.append(pd.DataFrame({"panel": by, "kind": kind, "x": names, "value": p90}))
    data = pd.concat([frame.astype({"x": object}) for frame in frames], ignore_index=True)
    with styled():
        caption = "Left: share of jobs that waited at most so long. Bars: nine of ten jobs waited at most so long."
        figure = new_figure(4.0 * (1 + len(groups)), 2.8, title, caption)
        left, *bars = figure.subplots(1, 1 + len(groups))
        for number, (kind, _, colour, line) in enumerate(_KINDS):
            part = data[data["kind"] == kind]
            curve = part[part["panel"] == "share"]
            left.plot(curve["x"].astype(float), 100 * curve["value"], line, color=colour, label=kind)
            for axes, (by, names) in zip(bars, groups.items(), strict=True):
                places = np.arange(len(names)) + 0.4 * (number - 0.5)
                axes.bar(places, part[part["panel"] == by]["value"], width=0.36, color=colour)
        left.set_xscale("log")
        left.set_xlabel("wait (h)")
        left.set_ylabel("share of jobs (%)")
        left.set_ylim(0, 100)
        for axes, (by, names) in zip(bars, groups.items(), strict=True):
            tilt = 30 if max(map(len, names)) * len(names) > _LETTERS else 0
            axes.set_xticks(range(len(names)), names, rotation=tilt, ha="right" if tilt else "center")
            axes.set_xlabel(f"by {by}")
            axes.set_ylabel("90th percentile of waits (h)")
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
