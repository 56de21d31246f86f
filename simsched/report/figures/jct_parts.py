"""The parts of completion times: waiting, restarting and running."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from simsched.report.figures.style import PALETTE, Drawn, legend_above, new_figure, styled
from simsched.report.figures.sweep import axis_title
from simsched.report.units import number, shown_unit
from simsched.results import Row

_PARTS = ("waiting for GPUs", "restarting", "running")
_COLOURS = (PALETTE[4], "#555555", PALETTE[0])
_COLUMNS = ["value", *_PARTS, "jct_mean_s", "low", "high", "seeds", "published"]


def parts_data(rows: Sequence[Row], key: str) -> pd.DataFrame:
    """Gather the mean seconds of each part for every value of a swept key; rows without them are left out.

    Columns: `value`, the three parts, `jct_mean_s` with the ends `low, high` of its interval, `seeds`, `published`.
    """
    lines = []
    for row in rows:
        whole = row.estimate("jct_mean_s")
        waiting, held, restarting = (row.estimate(f"{name}_mean_s") for name in ("queueing", "held", "restart"))
        if whole is None or waiting is None or held is None or restarting is None:
            continue
        parts = (waiting.mean, restarting.mean, held.mean - restarting.mean)
        published = row.published.get("jct_mean_s")
        lines.append((row.point.get(key), *parts, whole.mean, whole.low, whole.high, whole.n, published))
    data = pd.DataFrame(lines, columns=_COLUMNS)
    if pd.api.types.is_numeric_dtype(data["value"]):
        data = data.sort_values("value", ignore_index=True)
    return data.astype({"low": float, "high": float, "published": float})


def jct_parts(data: pd.DataFrame, key: str, *, title: str, source: str = "") -> Drawn:
    """Draw the mean completion time at each value of a swept key as a stacked column, with published means."""
    unit = shown_unit("s", data["jct_mean_s"])
    places = range(len(data))
    has_published = data["published"].notna().any()
    with styled():
        figure = new_figure(1.6 + 0.95 * max(len(data), 5), 3.0, title, _caption(data, source))
        axes = figure.subplots()
        bottom = pd.Series(0.0, index=data.index)
        for part, colour in zip(_PARTS, _COLOURS, strict=True):
            axes.bar(places, data[part] * unit.factor, 0.62, bottom=bottom * unit.factor, color=colour, label=part)
            bottom = bottom + data[part]
        if has_published:
            look: dict[str, Any] = {
                "marker": "D",
                "markersize": 6,
                "color": "white",
                "markeredgecolor": "black",
                "linestyle": "none",
            }
            axes.plot(places, data["published"] * unit.factor, label="published mean", zorder=4, **look)
        for place, seconds in zip(places, data["jct_mean_s"], strict=True):
            height = seconds * unit.factor
            axes.annotate(number(height), (place, height / 2), ha="center", va="center", color="white", weight="bold")
        axes.set_ylim(0, 1.1 * unit.factor * max(data["jct_mean_s"].max(), data["published"].fillna(0).max()) or 1)
        axes.set_xticks(
            list(places), [f"{value:g}" if isinstance(value, float) else str(value) for value in data["value"]]
        )
        axes.set(xlabel=axis_title(key), ylabel=unit.title("mean completion time"))
        axes.grid(visible=False, axis="x")
        legend_above(figure, axes)
    return figure, data


def _caption(data: pd.DataFrame, source: str) -> str:
    seeds = max((int(n) for n in data["seeds"]), default=0)
    text = "The number in each column is its height."
    text += f" Mean over {seeds} seeds." if seeds > 1 else " One seed."
    if data["published"].notna().any():
        text += f" Published: {source}." if source else " Diamonds: published."
    return text
