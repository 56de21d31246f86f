"""Distributions over jobs: of completion times, and of finish-time fairness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes

from simsched.report.figures.style import (
    MOST_SPANS,
    Drawn,
    Look,
    legend_above,
    looks,
    new_figure,
    span,
    span_words,
    styled,
)
from simsched.report.units import DAY_S, HOUR_S, MINUTE_S
from simsched.results.sheets import CurvePoint
from simsched.words import duration

_POINTS = 400
_COARSE_S = (1, 10, MINUTE_S, 10 * MINUTE_S, HOUR_S, 10 * HOUR_S, 4 * DAY_S, 40 * DAY_S, 400 * DAY_S)
_BETWEEN_S = (3, 30, 3 * MINUTE_S, 30 * MINUTE_S, 3 * HOUR_S, DAY_S, 10 * DAY_S, 100 * DAY_S)
_MOST_TICKS = 9

Times = npt.NDArray[np.number]


@styled()
def jct_cdf(
    times_s: Mapping[str, Sequence[Times]],
    *,
    title: str = "Job completion time",
    styles: Mapping[str, Look] | None = None,
) -> Drawn:
    """Draw the share of jobs finished within a time, one line per policy.

    `times_s` maps labels to one array of completion times (s) per seed. The line pools the seeds; with several, and at
    most four policies, a band or whiskers span them. Data: `policy, jct_s, share, low, high`.
    """
    data = cdf_data(times_s)
    styles = styles or looks(times_s)
    seeds = max((len(runs) for runs in times_s.values()), default=0)
    spans = seeds > 1 and len(times_s) <= MOST_SPANS
    caption = "Each line: share of all jobs that finished within the time on the axis (further left is better)."
    if seeds > 1:
        caption += f" {seeds} seeds pooled{span_words(len(times_s)) if spans else ''}."
    figure = new_figure(6.6, 3.6, title, caption)
    axes = figure.subplots()
    parts = {str(label): part for label, part in data.groupby("policy", sort=False)}
    for place, (label, part) in enumerate(parts.items()):
        look = styles[label]
        style = {"color": look.colour, "linestyle": look.dash, "label": label}
        (curve,) = axes.plot(part["jct_s"], 100 * part["share"], **style)
        if spans:
            span(curve, 100 * part["low"], 100 * part["high"], look, place, len(parts))
    axes.set(ylabel="share of jobs (%)", ylim=(0, 101))
    duration_axis(axes, "job completion time (logarithmic)")
    legend_above(figure, axes)
    return figure, data


def cdf_data(times_s: Mapping[str, Sequence[Times]]) -> pd.DataFrame:
    """Compute the distribution functions at common times, logarithmically spaced."""
    runs = [np.asarray(run) for seeds in times_s.values() for run in seeds if len(run)]
    lowest, highest = (min(run.min() for run in runs), max(run.max() for run in runs)) if runs else (1, 10)
    grid = np.geomspace(max(lowest, 1), max(highest, 2), _POINTS)
    grid[-1] = max(highest, 2)  # geomspace may end slightly below the largest because of rounding
    frames = []
    for label, seeds in times_s.items():
        shares = [share_within(run, grid) for run in seeds if len(run)]
        if not shares:
            continue
        pooled = share_within(np.concatenate([np.asarray(run) for run in seeds]), grid)
        low, high = np.min(shares, axis=0), np.max(shares, axis=0)
        frames.append(pd.DataFrame({"policy": label, "jct_s": grid, "share": pooled, "low": low, "high": high}))
    columns = ["policy", "jct_s", "share", "low", "high"]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=columns)


def share_within(times: Times, limits: Times) -> npt.NDArray[np.float64]:
    """Return the share of `times` that are at most each of `limits`."""
    return np.searchsorted(np.sort(times), limits, side="right") / len(times)


def duration_axis(axes: Axes, title: str, most_ticks: int = _MOST_TICKS) -> None:
    """Make the horizontal axis logarithmic in seconds, with ticks that read as durations."""
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    ticks = [tick for tick in sorted(_COARSE_S + _BETWEEN_S) if low <= tick <= high]
    if len(ticks) > most_ticks:
        ticks = [tick for tick in ticks if tick in _COARSE_S]
    while len(ticks) > most_ticks:
        ticks = ticks[::2]
    axes.set_xticks(ticks, [duration(tick) for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set(xlim=(low, high), xlabel=title)


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


@styled()
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
