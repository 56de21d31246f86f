"""Metrics over the values of swept keys: lines, ratios to the reference, maps, and parts of completion times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm

from simsched.report.figures.lettering import label_text
from simsched.report.figures.style import (
    PALETTE,
    Drawn,
    Look,
    legend_above,
    looks,
    new_figure,
    plain_log,
    round_ticks,
    spread_words,
    styled,
)
from simsched.report.units import number, shown_unit
from simsched.results import Row, find_metric
from simsched.results.compare import reference_of, row_name
from simsched.results.statistics import ratio
from simsched.words import duration

#: Inches, to fit a page.
_WIDEST = 9.0
_COLUMNS = [
    "line",
    "others",
    "policy",
    "metric",
    "unit",
    "value",
    "mean",
    "low",
    "high",
    "seeds",
    "is_range",
    "published",
]
#: From this ratio of largest to smallest value, the axis is logarithmic.
_LOG_RATIO = 8
#: Values crowd if the axis is this many times as long as their smallest step.
_CROWDED = 20
#: Share of an axis between the whiskers of two lines.
_STEP = 0.014
_UNITS = (("_gpu_s", "GPU s"), ("_s", "s"), ("_h", "h"))


def sweep_data(rows: Sequence[Row], key: str, metrics: Sequence[str]) -> pd.DataFrame:
    """Gather the data of `sweep_lines`, in the units of the summaries.

    Where other keys are swept too, each of their combinations makes lines of its own.
    """
    lines = []
    for metric in metrics:
        reading = find_metric(metric)
        for row in rows:
            spread = row.spread(reading.key)
            if spread is None or key not in row.point:
                continue
            others = {name: value for name, value in row.point.items() if name != key}
            name, value = row_name(row.shown_policy, others), row.point[key]
            words = (name, row_name("", others).strip(" []"), row.shown_policy, reading.key, reading.stored_unit)
            lines.append((*words, value, *spread, row.published.get(reading.key)))
    data = pd.DataFrame(lines, columns=_COLUMNS)
    return data.astype(dict.fromkeys(("mean", "low", "high", "published"), float))


def axis_title(key: str, values: Sequence[Any] = ()) -> str:
    """Turn a dotted key into the title of an axis: `policies.pollux.params.interval_s` to `interval (s)`.

    Where the `values` at the ticks name their units, the title has none.
    """
    last = key.rsplit(".", 1)[-1]
    if values and all(_is_number(one) for one in values) and _is_time(key):
        return last.removesuffix("_s").replace("_", " ")
    for ending, unit in _UNITS:
        if last.endswith(ending) and last != ending:
            return f"{last.removesuffix(ending).replace('_', ' ')} ({unit})"
    return last.replace("_", " ")


def _is_time(key: str) -> bool:
    return key.endswith("_s") and not key.endswith("_gpu_s")


def shown_value(key: str, value: Any) -> str:
    """Format a swept value readably: 1209600 seconds as `14 days`."""
    return duration(value) if _is_number(value) and _is_time(key) else str(value)


@styled()
def sweep_lines(data: pd.DataFrame, key: str, *, title: str = "", styles: Mapping[str, Look] | None = None) -> Drawn:
    """Draw one panel per metric with the swept value on the horizontal axis, one line per policy.

    `data` comes from `sweep_data`: `line, others, policy, metric, unit, value, mean, low, high, seeds, published`.
    Where other keys are swept too, each of their combinations (`others`) has a row of panels of its own.
    """
    metrics = list(dict.fromkeys(data["metric"]))
    rows = list(dict.fromkeys(data["others"]))
    names = dict.fromkeys(data["policy"])
    styles = styles if styles is not None and set(names) <= set(styles) else looks(names)
    values = values_in_order(data["value"])
    width = min(1.4 + 2.7 * len(metrics), _WIDEST)
    figure = new_figure(width, 0.3 + 2.6 * len(rows), title or f"Sweep of {axis_title(key)}", _caption(data))
    panels = figure.subplots(len(rows), len(metrics), squeeze=False, sharex=True, sharey="col")
    for line, others in zip(panels, rows, strict=True):
        for axes, metric in zip(line, metrics, strict=True):
            part = data[data["metric"] == metric]
            draw_panel(axes, part, others, values, styles)
            value_axis(axes, values, key)
            if others:
                axes.set_title(f"{axes.get_title(loc='left')}\n{others}")
    for axes in panels[-1]:
        axes.set_xlabel(axis_title(key, values))
    if len(names) > 1:
        legend_above(figure, panels[0, 0])
    return figure, data


def _caption(data: pd.DataFrame) -> str:
    return spread_words(data) + (" Diamonds: published values." if data["published"].notna().any() else "")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def values_in_order(values: pd.Series) -> list[Any]:
    """List the swept values: numbers ascending, others in the order of the grid."""
    found = list(dict.fromkeys(values.tolist()))
    return sorted(found) if all(_is_number(value) for value in found) else found


def places(values: Sequence[Any]) -> dict[Any, float]:
    """Return the position of each value on the axis: numbers at their value unless they crowd, others in sequence."""
    scaled = all(_is_number(value) for value in values) and not _is_uneven(values)
    return {value: float(value if scaled else index) for index, value in enumerate(values)}


def _is_uneven(values: Sequence[Any]) -> bool:
    """Return whether numbers with zero or below, which no logarithm has, would crowd on an axis: 1, -1 and -10."""
    if min(values) > 0:
        return False
    least, *_, most = sorted(abs(value) for value in values if value) or [1]
    steps = [after - before for before, after in pairwise(sorted(values))]
    return bool(min(values) < 0 and most >= _LOG_RATIO * least) or min(steps, default=1) * _CROWDED < sum(steps)


def draw_panel(axes: Axes, part: pd.DataFrame, others: str, values: Sequence[Any], styles: Mapping[str, Look]) -> None:
    """Draw the lines of one metric, whose rows of `sweep_data` are `part`, over `values`."""
    reading = find_metric(part["metric"].iloc[0])
    shown = shown_unit(part["unit"].iloc[0], part["mean"])
    where = places(values)
    lines = part[part["others"] == others].groupby("policy", sort=False)
    for index, (name, line) in enumerate(lines):
        look = styles[str(name)]
        x = beside(line["value"].map(where), values, index - (lines.ngroups - 1) / 2)
        with_whiskers(axes, x, line, look, str(name), factor=shown.factor, dash=_dash(look, values))
        diamond: Any = {"markersize": 6, "color": "white", "markeredgecolor": look.colour, "markeredgewidth": 1.4}
        axes.plot(x, line["published"] * shown.factor, "D", zorder=4, **diamond)
    highest = shown.factor * float(np.nanmax(part[["mean", "high", "published"]].to_numpy(dtype=float)))
    axes.set(ylim=(0, 1.06 * highest or 1), title=shown.title(reading.title))


def _dash(look: Look, values: Sequence[Any]) -> Any:
    """Return the dashes of a line over values; there is nothing between words."""
    return look.dash if all(_is_number(value) for value in values) else "none"


def with_whiskers(
    axes: Axes, x: pd.Series, part: pd.DataFrame, look: Look, label: str, *, factor: float = 1, dash: Any = "none"
) -> None:
    """Draw the column `mean` over x, in order of x, with whiskers from `low` to `high` where these are known."""
    order = x.sort_values().index
    x, (mean, low, high) = x[order], (part.loc[order, name] * factor for name in ("mean", "low", "high"))
    axes.plot(x, mean, color=look.colour, linestyle=dash, marker=look.marker, markersize=5, label=label)
    known = high.notna()
    if known.any():
        whiskers = [(mean - low)[known].clip(0), (high - mean)[known].clip(0)]
        axes.errorbar(x[known], mean[known], yerr=whiskers, fmt="none", ecolor=look.colour, capsize=3, linewidth=1)


def beside(x: pd.Series, values: Sequence[Any], steps: float) -> pd.Series:
    """Shift positions on the axis by a number of steps, to separate markers and whiskers of several lines."""
    at = places(values).values()
    if is_logarithmic(values):
        return x * float((max(values) / min(values)) ** (_STEP * steps))
    return x + (max(at) - min(at)) * _STEP * steps


def is_logarithmic(values: Sequence[Any]) -> bool:
    """Return whether swept values are so far apart that their axis is logarithmic."""
    return all(_is_number(one) and one > 0 for one in values) and max(values) >= _LOG_RATIO * min(values)


def value_axis(axes: Axes, values: Sequence[Any], key: str = "") -> None:
    """Put the values of a swept key on the horizontal axis, which is logarithmic if they are far apart."""
    if is_logarithmic(values):
        axes.set_xscale("log")
    axes.set_xticks(list(places(values).values()), [shown_value(key, value) for value in values])
    axes.set_xticks([], minor=True)


_PAIRS_COLUMNS = ["policy", "value", "ratio", "low", "high", "seeds"]
_MAP_COLUMNS = ["policy", "across", "up", "value", "seeds"]
#: With more values of a key than this, a map has no room for numbers.
_MOST_NUMBERS = 12
_RAMP = "YlGnBu"


def ratio_data(rows: Sequence[Row], key: str, reference: str, metric: str) -> pd.DataFrame:
    """Gather the data of `sweep_ratios`: the paired ratio of each policy to the reference at each value of the key."""
    name = find_metric(metric).key
    found = []
    for row in rows:
        other = reference_of(row, rows, reference)
        if other is None or other is row or set(row.point) != {key}:
            continue
        estimate = ratio(row.values.get(name, {}), other.values.get(name, {}))
        if estimate is not None:
            found.append((row.shown_policy, row.point[key], estimate.mean, estimate.low, estimate.high, estimate.n))
    data = pd.DataFrame(found, columns=_PAIRS_COLUMNS)
    return data.astype(dict.fromkeys(("ratio", "low", "high"), float))


@styled()
def sweep_ratios(
    data: pd.DataFrame, key: str, reference: str, metric: str, *, title: str, styles: Mapping[str, Look]
) -> Drawn:
    """Draw the ratio of each policy to the reference over a swept key, on a logarithmic axis, seed by seed.

    `data` comes from `ratio_data`: `policy, value, ratio, low, high, seeds`.
    """
    names, values = list(dict.fromkeys(data["policy"])), values_in_order(data["value"])
    styles = styles if set(names) <= set(styles) else looks(names)
    where = places(values)
    words = find_metric(metric).title
    caption = (
        f"Geometric mean over seeds of {words} over that of {reference} under the same seed; whiskers: 95 % interval "
        "(Student's t for the logarithms)."
    )
    figure = new_figure(4.6, 2.8, title, caption)
    axes = figure.subplots()
    for index, name in enumerate(names):
        line, look = data[data["policy"] == name], styles[name]
        x = beside(line["value"].map(where), values, index - (len(names) - 1) / 2)
        with_whiskers(axes, x, line.rename(columns={"ratio": "mean"}), look, name, dash=_dash(look, values))
    axes.axhline(1, color="#888888", linewidth=0.8)
    plain_log(axes)
    axes.set_title(f"{words} / {reference}'s")
    value_axis(axes, values, key)
    axes.set_xlabel(axis_title(key, values))
    if len(names) > 1:
        legend_above(figure, axes)
    return figure, data


def map_data(rows: Sequence[Row], keys: tuple[str, str], metric: str) -> pd.DataFrame:
    """Gather the data of `sweep_map`: the mean of a metric of each policy at each pair of values of two keys."""
    name = find_metric(metric).key
    found = []
    for row in rows:
        estimate = row.estimate(name)
        if estimate is not None and set(row.point) == set(keys):
            found.append((row.shown_policy, row.point[keys[0]], row.point[keys[1]], estimate.mean, estimate.n))
    return pd.DataFrame(found, columns=_MAP_COLUMNS)


@styled()
def sweep_map(data: pd.DataFrame, keys: tuple[str, str], metric: str, *, title: str) -> Drawn:
    """Draw a metric over two swept keys, one map per policy with a common colour scale, with its numbers.

    `data` comes from `map_data`: `policy, across, up, value, seeds`.
    """
    names = list(dict.fromkeys(data["policy"]))
    across, up = values_in_order(data["across"]), values_in_order(data["up"])
    reading = find_metric(metric)
    shown = shown_unit(reading.stored_unit, data["value"])
    small, large = (shown.factor * float(end) for end in (data["value"].min(), data["value"].max()))
    norm = LogNorm(small, large) if is_logarithmic([small, large]) else None
    caption = f"{shown.title(reading.title)}, mean over the seeds; one scale of colours for all panels."
    figure = new_figure(1.2 + (1.0 + 0.55 * len(across)) * len(names), 1.2 + 0.42 * len(up), title, caption)
    panels = figure.subplots(1, len(names), sharey=True, squeeze=False)[0]
    for axes, name in zip(panels, names, strict=True):
        grid = np.full((len(up), len(across)), np.nan)
        for x, y, value in data[data["policy"] == name][["across", "up", "value"]].itertuples(index=False):
            grid[up.index(y), across.index(x)] = shown.factor * value
        limits: dict[str, Any] = {"norm": norm} if norm else {"vmin": small, "vmax": large}
        image = axes.imshow(grid, cmap=_RAMP, origin="lower", aspect="auto", **limits)
        axes.grid(visible=False)
        axes.set_xticks(range(len(across)), [shown_value(keys[0], value) for value in across])
        axes.set_yticks(range(len(up)), [shown_value(keys[1], value) for value in up])
        axes.set(title=label_text(name), xlabel=axis_title(keys[0], across))
        for (row, column), value in np.ndenumerate(grid) if max(len(up), len(across)) <= _MOST_NUMBERS else ():
            if not np.isnan(value):
                dark = float(image.norm(value)) > 0.6
                axes.text(
                    column, row, number(value), ha="center", va="center", size=8, color="white" if dark else "black"
                )
    panels[0].set_ylabel(axis_title(keys[1], up))
    bar = figure.colorbar(image, ax=list(panels), label=shown.title(reading.title), shrink=0.9)
    if norm:
        ticks = round_ticks(small, large)
        bar.set_ticks(ticks, labels=[f"{tick:g}" for tick in ticks])
        bar.minorticks_off()
    return figure, data


_PARTS = ("waiting for GPUs", "restarting", "running")
_COLOURS = (PALETTE[4], "#555555", PALETTE[0])
_PARTS_COLUMNS = ["value", *_PARTS, "jct_mean_s", "low", "high", "seeds", "published"]


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
    data = pd.DataFrame(lines, columns=_PARTS_COLUMNS)
    if pd.api.types.is_numeric_dtype(data["value"]):
        data = data.sort_values("value", ignore_index=True)
    return data.astype({"low": float, "high": float, "published": float})


@styled()
def jct_parts(data: pd.DataFrame, key: str, *, title: str, source: str = "") -> Drawn:
    """Draw the mean completion time at each value of a swept key as a stacked column, with published means."""
    unit = shown_unit("s", data["jct_mean_s"])
    places = range(len(data))
    has_published = data["published"].notna().any()
    figure = new_figure(1.6 + 0.95 * max(len(data), 5), 3.0, title, _parts_caption(data, source))
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
    axes.set_xticks(list(places), [f"{value:g}" if isinstance(value, float) else str(value) for value in data["value"]])
    axes.set(xlabel=axis_title(key), ylabel=unit.title("mean completion time"))
    axes.grid(visible=False, axis="x")
    legend_above(figure, axes)
    return figure, data


def _parts_caption(data: pd.DataFrame, source: str) -> str:
    seeds = max((int(n) for n in data["seeds"]), default=0)
    text = "The number in each column is its height."
    text += f" Mean over {seeds} seeds." if seeds > 1 else " One seed."
    if data["published"].notna().any():
        text += f" Published: {source}." if source else " Diamonds: published."
    return text
