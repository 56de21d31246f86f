"""Metrics of several policies as bars, with intervals and published values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from simsched.report.figures.style import Drawn, Look, looks, new_figure, styled
from simsched.report.units import Shown, number, shown_unit
from simsched.results import Row, find_metric

_COLUMNS = ["policy", "metric", "unit", "mean", "low", "high", "seeds", "published"]
#: More panels than these do not fit side by side on a page.
_BESIDE = 2


def bar_data(rows: Sequence[Row], metrics: Sequence[str]) -> pd.DataFrame:
    """Gather the data of `metric_bars`: a line for each policy and metric, in the units of the summaries."""
    lines = []
    for metric in metrics:
        reading = find_metric(metric)
        for row in rows:
            estimate = row.estimate(reading.key)
            if estimate is not None:
                found = (estimate.mean, estimate.low, estimate.high, estimate.n, row.published.get(reading.key))
                lines.append((row.shown_name, reading.key, reading.stored_unit, *found))
    data = pd.DataFrame(lines, columns=_COLUMNS)
    return data.astype(dict.fromkeys(("mean", "low", "high", "published"), float))


def metric_bars(
    data: pd.DataFrame,
    *,
    title: str,
    published_source: str = "",
    styles: Mapping[str, Look] | None = None,
    failed: Sequence[str] = (),
) -> Drawn:
    """Draw one panel per metric, two side by side, and one bar per policy.

    `data` has the columns `policy, metric, unit, mean, low, high, seeds, published`; `low` and `high` are missing with
    one seed, `published` if nothing was published. Policies that `failed` have marked rows.
    """
    labels = [*dict.fromkeys(data["policy"]), *failed]
    metrics = list(dict.fromkeys(data["metric"]))
    styles = styles or looks(labels)
    with styled():
        columns = max(min(len(metrics), _BESIDE), 1)
        lines = max(-(-len(metrics) // columns), 1)
        height = lines * (0.9 + 0.42 * max(len(labels), 2))
        figure = new_figure(2.1 + 3.0 * columns, height, title, _caption(data, published_source))
        panels = figure.subplots(lines, columns, sharey=True, squeeze=False)
        for axes, metric in zip(panels.flat, metrics, strict=False):
            _panel(axes, data[data["metric"] == metric], labels, styles)
            for label in failed:
                axes.annotate(
                    "failed", (0, labels.index(label)), xytext=(5, 0), textcoords="offset points", va="center"
                )
        for axes in panels.flat[len(metrics) :]:
            axes.set_visible(False)
        panels[0, 0].set_yticks(range(len(labels)), labels)
        if failed:
            panels[0, 0].set_ylim(-0.5, len(labels) - 0.5)
        panels[0, 0].invert_yaxis()
    return figure, data


def _caption(data: pd.DataFrame, source: str) -> str:
    seeds = sorted({int(n) for n in data["seeds"]})
    count = f"{seeds[0]} seeds" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]} seeds" if seeds else "no seeds"
    one_seed = seeds == [1]
    text = "One seed, hence no interval." if one_seed else f"Mean over {count}; whiskers: 95 % interval (Student's t)."
    if data["published"].notna().any():
        text += f" Diamonds: published values{f' ({source})' if source else ''}."
    return text


def _panel(axes: Axes, part: pd.DataFrame, labels: Sequence[str], styles: Mapping[str, Look]) -> None:
    reading = find_metric(part["metric"].iloc[0])
    shown = shown_unit(part["unit"].iloc[0], part["mean"])
    reach = 0.0
    for row in part.itertuples(index=False):
        reach = max(reach, _bar(axes, row, labels.index(str(row.policy)), shown, styles[str(row.policy)]))
    axes.set(xlim=(0, reach * 1.05 if reach > 0 else 1), title=shown.title(reading.title))
    if reading.better:
        axes.set_xlabel(f"{reading.better} is better", size=7.5, color="#444444")
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)


def _bar(axes: Axes, row: object, place: int, shown: Shown, look: Look) -> float:
    """Draw one bar with its whisker and diamond, and its value at the right; return their right edge."""
    mean, low, high, published = (getattr(row, name) * shown.factor for name in ("mean", "low", "high", "published"))
    axes.barh(place, mean, height=0.66, color=look.colour)
    reach: float = mean
    if pd.notna(high):
        axes.errorbar(mean, place, xerr=[[mean - low], [high - mean]], color="#222222", capsize=3, linewidth=1.1)
        reach = max(reach, high)
    if pd.notna(published):
        axes.plot(published, place, marker="D", markersize=6, color="white", markeredgecolor="black", zorder=4)
        reach = max(reach, published)
    text = number(mean) + (f" ±{number(max(high - mean, mean - low))}" if pd.notna(high) else "")
    where: Any = ("axes fraction", "data")
    axes.annotate(text, (1, place), xycoords=where, xytext=(5, 0), textcoords="offset points", va="center", size=8)
    return reach
