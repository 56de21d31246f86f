"""The distribution of job completion times."""

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
from simsched.words import duration

_POINTS = 400
_COARSE_S = (1, 10, MINUTE_S, 10 * MINUTE_S, HOUR_S, 10 * HOUR_S, 4 * DAY_S, 40 * DAY_S, 400 * DAY_S)
_BETWEEN_S = (3, 30, 3 * MINUTE_S, 30 * MINUTE_S, 3 * HOUR_S, DAY_S, 10 * DAY_S, 100 * DAY_S)
_MOST_TICKS = 9

Times = npt.NDArray[np.number]


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
    with styled():
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
