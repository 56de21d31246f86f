"""The distribution of finish-time fairness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from simsched.report.figures.distribution import Times, share_within
from simsched.report.figures.style import Drawn, Look, legend_above, looks, new_figure, styled
from simsched.results import CurvePoint

_POINTS = 400
#: The axis ends here at most; the largest ratios of some policies lie far beyond.
_LIMIT = 4.0


def rho_data(ratios: Mapping[str, Sequence[Times]]) -> pd.DataFrame:
    """Compute the distribution functions, seeds pooled, on common ratios: `policy, rho, share, largest`."""
    frames = []
    limits = np.linspace(0, _LIMIT, _POINTS + 1)
    for label, runs in ratios.items():
        pooled = np.concatenate([np.asarray(run, dtype=float) for run in runs])
        shares = share_within(pooled, limits)
        frames.append(pd.DataFrame({"policy": label, "rho": limits, "share": shares, "largest": pooled.max()}))
    return pd.concat(frames, ignore_index=True)


def rho_cdf(
    data: pd.DataFrame,
    *,
    title: str,
    meaning: str,
    curves: Sequence[CurvePoint] = (),
    source: str = "",
    styles: Mapping[str, Look] | None = None,
) -> Drawn:
    """Draw the share of jobs up to a ratio, one panel per policy, with all policies pale in the background.

    `data` comes from `rho_data`, `meaning` defines the ratio; `curves` of the panel `rho`, in per cent, are
    dashed.
    """
    labels = list(dict.fromkeys(data["policy"]))
    styles = styles or looks(labels)
    columns = min(len(labels), 3)
    lines = -(-len(labels) // columns)
    with styled():
        figure = new_figure(2.9 * columns, 2.3 * lines, title, _caption(meaning, curves, source))
        grid = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
        panels = list(grid.flat)
        for axes, label in zip(panels, labels, strict=False):
            _panel(axes, data, label, styles[label], curves)
        for axes in panels[len(labels) :]:
            axes.set_visible(False)
        for axes in grid[:, 0]:
            axes.set_ylabel("share of jobs (%)")
        for index, axes in enumerate(panels[: len(labels)]):
            if index + columns >= len(labels):
                axes.set_xlabel("rho (below 1: sooner than on\nan equal share of its own)", size=8)
                axes.tick_params(labelbottom=True)
        legend_above(figure, panels[0])
    return figure, data


def _caption(meaning: str, curves: Sequence[CurvePoint], source: str) -> str:
    text = f"{meaning} Pale: the other policies. Seeds pooled."
    return text + (f" Dashed: published{f' ({source})' if source else ''}." if curves else "")


def _panel(axes: Axes, data: pd.DataFrame, label: str, look: Look, curves: Sequence[CurvePoint]) -> None:
    for other, part in data.groupby("policy", sort=False):
        if other != label:
            axes.plot(part["rho"], 100 * part["share"], color="#CCCCCC", linewidth=0.9)
    own = data[data["policy"] == label]
    axes.axvline(1, color="#888888", linewidth=0.8, linestyle=":")
    axes.plot(own["rho"], 100 * own["share"], color=look.colour, label="simsched")
    points = [(point.x, point.y) for point in curves if point.series == label]
    if points:
        x, y = zip(*points, strict=True)
        axes.plot(
            x, y, color="black", linestyle=(0, (4, 2)), linewidth=1.1, marker="D", markersize=3, label="published"
        )
    axes.set_title(label, color=look.colour)
    above = 1 - float(np.interp(1, own["rho"], own["share"]))
    text = f"{100 * above:.0f} % above 1\nlargest {float(own['largest'].iloc[0]):.1f}"
    axes.text(0.97, 0.06, text, transform=axes.transAxes, ha="right", va="bottom", size=8)
    axes.set(xlim=(0, _LIMIT), ylim=(0, 102))
