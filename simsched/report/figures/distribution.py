"""The distribution of job completion times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke

from simsched.report.figures.style import BAND_ALPHA, MOST_BANDS, Drawn, Look, legend_above, looks, new_figure, styled
from simsched.report.units import DAY_S, HOUR_S, MINUTE_S
from simsched.words import duration

_POINTS = 400
_COARSE_S = (1, 10, MINUTE_S, 10 * MINUTE_S, HOUR_S, 10 * HOUR_S, 4 * DAY_S, 40 * DAY_S, 400 * DAY_S)
_BETWEEN_S = (3, 30, 3 * MINUTE_S, 30 * MINUTE_S, 3 * HOUR_S, DAY_S, 10 * DAY_S, 100 * DAY_S)
_MOST_TICKS = 9

#: Up to so many curves a legend is enough.
MOST_WITHOUT = 4
_LOWEST, _HIGHEST = 0.15, 0.92
_FONT_SIZE = 7.5
#: Longer names would hide the curves; the legend has them.
_LONGEST = 28

Times = npt.NDArray[np.number]


def jct_cdf(
    times_s: Mapping[str, Sequence[Times]],
    *,
    title: str = "Job completion time",
    styles: Mapping[str, Look] | None = None,
) -> Drawn:
    """Draw the share of jobs finished within a time, one line per policy.

    `times_s` maps labels to one array of completion times (s) per seed. The line pools the seeds; the band, with
    several seeds and at most four policies, spans them. Data: `policy, jct_s, share, low, high`.
    """
    data = cdf_data(times_s)
    styles = styles or looks(times_s)
    seeds = max((len(runs) for runs in times_s.values()), default=0)
    bands = seeds > 1 and len(times_s) <= MOST_BANDS
    caption = "Each line: share of all jobs that finished within the time on the axis (further left is better)."
    if seeds > 1:
        caption += f" {seeds} seeds pooled" + ("; bands span the lowest and the highest seed." if bands else ".")
    with styled():
        figure = new_figure(6.6, 3.6, title, caption)
        axes = figure.subplots()
        parts = {str(label): part for label, part in data.groupby("policy", sort=False)}
        for label, part in parts.items():
            look = styles[label]
            axes.plot(part["jct_s"], 100 * part["share"], color=look.colour, linestyle=look.dash, label=label)
            if bands:
                band = (100 * part["low"], 100 * part["high"])
                axes.fill_between(part["jct_s"], *band, color=look.colour, alpha=BAND_ALPHA, linewidth=0)
        axes.set_ylabel("share of jobs (%)")
        axes.set_ylim(0, 101)
        curves = {
            label: (part["jct_s"].to_numpy(float), part["share"].to_numpy(float)) for label, part in parts.items()
        }
        label_rising(axes, curves, styles)
        duration_axis(axes, "job completion time (logarithmic)")
        legend_above(figure, axes)
    return figure, data


def cdf_data(times_s: Mapping[str, Sequence[Times]]) -> pd.DataFrame:
    """Compute the distribution functions at common times, logarithmically spaced."""
    runs = [np.asarray(run) for seeds in times_s.values() for run in seeds if len(run)]
    lowest, highest = (min(run.min() for run in runs), max(run.max() for run in runs)) if runs else (1, 10)
    grid = np.geomspace(max(lowest, 1), max(highest, 2), _POINTS)
    grid[-1] = max(highest, 2)  # geomspace may end a rounding error short of the largest
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
    axes.set_xlim(low, high)
    axes.set_xlabel(title)


def label_rising(
    axes: Axes,
    curves: Mapping[str, tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]],
    styles: Mapping[str, Look],
) -> None:
    """Write the name of each rising curve onto it, at heights that keep names apart.

    `curves` maps labels to (x, y), y rising from 0 to 1 as a share; the axis shows per cent. Curves further left are
    named higher up, where there is more room on their left. Draws nothing for few curves, nor long names.
    """
    if len(curves) <= MOST_WITHOUT or max(map(len, curves)) > _LONGEST:
        return
    middle = {label: x[min(int(np.searchsorted(y, 0.5)), len(x) - 1)] for label, (x, y) in curves.items()}
    heights = np.linspace(_HIGHEST, _LOWEST, len(curves))
    for height, label in zip(heights, sorted(curves, key=lambda label: (middle[label], label)), strict=True):
        x, y = curves[label]
        place = x[min(int(np.searchsorted(y, height)), len(x) - 1)]
        axes.annotate(
            label,
            (place, 100 * height),
            ha="center",
            va="center",
            size=_FONT_SIZE,
            color=styles[label].colour,
            weight="bold",
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
            zorder=5,
        )
