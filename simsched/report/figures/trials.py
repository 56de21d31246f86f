"""The progress of hyper-parameter tuning: the accuracy of its best trials, and the finished trials, over time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from simsched.report.figures.over_time import over_seeds, spanned
from simsched.report.figures.style import MOST_SPANS, Drawn, Look, legend_above, looks, new_figure, span_words, styled
from simsched.report.units import time_unit

_TOP = 5
_STEPS = 240


def trials_data(trials: Mapping[str, Iterable[pd.DataFrame]]) -> pd.DataFrame:
    """Follow the tuning of every policy and seed: mean over the seeds, lowest and highest seed.

    Columns: `policy, time_s, accuracy` (mean of the five best trials finished by then, in per cent; NaN until every
    seed has five), `done` (trials finished), and `_low` and `_high` of both.
    """
    known = {label: [frame.sort_values("end_time_s") for frame in found] for label, found in trials.items()}
    last_s = max((float(frame["end_time_s"].max()) for found in known.values() for frame in found), default=0.0)
    times = np.linspace(0.0, last_s, _STEPS + 1)
    frames = []
    for label, found in known.items():
        counts = [np.searchsorted(frame["end_time_s"].to_numpy(), times, side="right") for frame in found]
        best = [_best_so_far(frame["accuracy"].to_numpy(dtype=float)) for frame in found]
        curves = {"accuracy": [top[done] for top, done in zip(best, counts, strict=True)], "done": counts}
        frames.append(over_seeds(label, times, curves, skipna=False))
    return pd.concat(frames, ignore_index=True)


def _best_so_far(accuracies: np.ndarray) -> np.ndarray:
    """Return the mean of the five best of the first n trials for every n from 0; NaN below five."""
    means = [np.sort(accuracies[:n])[-_TOP:].mean() if n >= _TOP else np.nan for n in range(len(accuracies) + 1)]
    return np.array(means)


def trials_over_time(
    data: pd.DataFrame, *, seeds: int, title: str = "Hyper-parameter tuning", styles: Mapping[str, Look] | None = None
) -> Drawn:
    """Draw the accuracy of the five best trials and the trials finished over time; `data` is of `trials_data`."""
    styles = styles or looks(data["policy"])
    unit = time_unit(float(data["time_s"].max()))
    several = data["policy"].nunique()
    spans = seeds > 1 and several <= MOST_SPANS
    with styled():
        figure = new_figure(7.2, 4.6, title, _caption(seeds, span_words(several) if spans else ""))
        above, below = figure.subplots(2, 1, sharex=True)
        for place, (label, part) in enumerate(data.groupby("policy", sort=False)):
            x, look = part["time_s"] * unit.factor, styles[str(label)]
            for axes, name in ((above, "accuracy"), (below, "done")):
                (curve,) = axes.plot(x, part[name], color=look.colour, linestyle=look.dash, label=str(label))
                if spans:
                    spanned(curve, part, name, 1, look, place, several)
        above.set(title="Mean accuracy of the five best trials so far", ylabel="accuracy (%)")
        below.set(
            title="Trials finished",
            ylabel="trials",
            ylim=(0, None),
            xlim=(0, None),
            xlabel=unit.title("time since the start of tuning"),
        )
        legend_above(figure, above)
    return figure, data


def _caption(seeds: int, spans: str) -> str:
    text = "Accuracies come from a synthetic response surface that knows nothing of the scheduler."
    if seeds > 1:
        text += f" Means over {seeds} seeds{spans}."
    return text
