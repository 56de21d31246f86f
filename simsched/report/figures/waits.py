"""Recorded and simulated waits side by side."""

from __future__ import annotations

import numpy as np
import pandas as pd

from simsched.report.figures.style import Drawn, legend_above, new_figure, styled

_KINDS = (("recorded", "recorded_s", "#222222", "-"), ("simulated", "simulated_s", "#0072b2", "--"))
_POINTS = 200
_LEAST_H = 1 / 60


def wait_comparison(jobs: pd.DataFrame, *, title: str) -> Drawn:
    """Draw the distribution of waits, recorded and simulated, and their 90th percentiles by size.

    `jobs` has the columns `size, recorded_s, simulated_s`. The data drawn are `panel, kind, x, value`.
    """
    frames = []
    longest = max(float(jobs[column].max()) for _, column, _, _ in _KINDS) / 3600
    limits = np.geomspace(_LEAST_H, max(longest, 2 * _LEAST_H), _POINTS)
    sizes = list(dict.fromkeys(jobs.sort_values("size")["size"]))
    for kind, column, _, _ in _KINDS:
        waits = np.sort(jobs[column].to_numpy("float64")) / 3600
        shares = np.searchsorted(waits, limits, side="right") / len(waits)
        frames.append(pd.DataFrame({"panel": "share", "kind": kind, "x": limits, "value": shares}))
        p90 = [float(np.percentile(jobs[jobs["size"] == size][column], 90)) / 3600 for size in sizes]
        frames.append(pd.DataFrame({"panel": "p90", "kind": kind, "x": sizes, "value": p90}))
    data = pd.concat([frame.astype({"x": object}) for frame in frames], ignore_index=True)
    with styled():
        figure = new_figure(8.0, 2.8, title, "Left: share of jobs that waited at most so long. Right: 90th percentile.")
        left, right = figure.subplots(1, 2)
        for number, (kind, _, colour, line) in enumerate(_KINDS):
            part = data[data["kind"] == kind]
            curve, bars = part[part["panel"] == "share"], part[part["panel"] == "p90"]
            left.plot(curve["x"].astype(float), 100 * curve["value"], line, color=colour, label=kind)
            places = np.arange(len(sizes)) + 0.4 * (number - 0.5)
            right.bar(places, bars["value"], width=0.36, color=colour)
        left.set_xscale("log")
        left.set_xlabel("wait (h)")
        left.set_ylabel("share of jobs (%)")
        left.set_ylim(0, 100)
        right.set_xticks(range(len(sizes)), sizes)
        right.set_ylabel("90th percentile of waits (h)")
        legend_above(figure, left)
    return figure, data
