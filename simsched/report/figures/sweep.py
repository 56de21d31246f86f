"""A metric against the value of a swept key, one line per policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from simsched.report.figures.style import Drawn, Look, legend_above, looks, new_figure, styled
from simsched.report.units import shown_unit
from simsched.results import Row, find_metric, row_name
from simsched.words import duration

#: Inches, to fit a page.
_WIDEST = 9.0
_COLUMNS = ["line", "others", "policy", "metric", "unit", "value", "mean", "low", "high", "seeds", "published"]
#: From this ratio of largest to smallest value, the axis is logarithmic.
_LOG_RATIO = 8
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
            estimate = row.estimate(reading.key)
            if estimate is None or key not in row.point:
                continue
            others = {name: value for name, value in row.point.items() if name != key}
            name, value = row_name(row.shown_policy, others), row.point[key]
            found = (estimate.mean, estimate.low, estimate.high, estimate.n, row.published.get(reading.key))
            lines.append(
                (
                    name,
                    row_name("", others).strip(" []"),
                    row.shown_policy,
                    reading.key,
                    reading.stored_unit,
                    value,
                    *found,
                )
            )
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
    with styled():
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
    seeds = max((int(n) for n in data["seeds"]), default=0)
    text = (
        f"Mean over {seeds} seeds; whiskers: 95 % interval (Student's t)."
        if seeds > 1
        else "One seed, hence no interval."
    )
    return text + (" Diamonds: published values." if data["published"].notna().any() else "")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def values_in_order(values: pd.Series) -> list[Any]:
    """List the swept values: numbers ascending, others in the order of the grid."""
    found = list(dict.fromkeys(values.tolist()))
    return sorted(found) if all(_is_number(value) for value in found) else found


def places(values: Sequence[Any]) -> dict[Any, float]:
    """Return the position of each value on the axis: numbers at their value, others in sequence."""
    numeric = all(_is_number(value) for value in values)
    return {value: float(value if numeric else index) for index, value in enumerate(values)}


def draw_panel(axes: Axes, part: pd.DataFrame, others: str, values: Sequence[Any], styles: Mapping[str, Look]) -> None:
    """Draw the lines of one metric, whose rows of `sweep_data` are `part`, over `values`."""
    reading = find_metric(part["metric"].iloc[0])
    shown = shown_unit(part["unit"].iloc[0], part["mean"])
    where = places(values)
    lines = part[part["others"] == others].groupby("policy", sort=False)
    for number, (name, line) in enumerate(lines):
        look = styles[str(name)]
        x = beside(line["value"].map(where), values, number - (lines.ngroups - 1) / 2)
        order = x.sort_values().index
        x, line = x[order], line.loc[order]
        mean, low, high, published = (line[c] * shown.factor for c in ("mean", "low", "high", "published"))
        dash = look.dash if all(_is_number(value) for value in values) else "none"  # there is nothing between words
        axes.plot(x, mean, color=look.colour, linestyle=dash, marker=look.marker, markersize=5, label=str(name))
        known = high.notna()
        if known.any():
            whiskers = [(mean - low)[known], (high - mean)[known]]
            axes.errorbar(x[known], mean[known], yerr=whiskers, fmt="none", ecolor=look.colour, capsize=3, linewidth=1)
        axes.plot(
            x, published, "D", markersize=6, color="white", markeredgecolor=look.colour, markeredgewidth=1.4, zorder=4
        )
    # With few seeds intervals are far wider than the effect; they may leave the panel rather than flatten the lines.
    tallest = shown.factor * max(
        part["mean"].max(), part["published"].max(skipna=True) if part["published"].notna().any() else 0
    )
    highest = part["high"].max() * shown.factor if part["high"].notna().any() else tallest
    axes.set(ylim=(0, 1.06 * min(max(highest, tallest), 2 * tallest) or 1), title=shown.title(reading.title))


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
