"""What a swept key does to the differences between policies: ratios over one key, and a map over two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import LogNorm

from simsched.report.figures.lettering import label_text
from simsched.report.figures.style import Drawn, Look, legend_above, looks, new_figure, plain_log, round_ticks, styled
from simsched.report.figures.sweep import (
    axis_title,
    beside,
    is_logarithmic,
    places,
    shown_value,
    value_axis,
    values_in_order,
)
from simsched.report.units import number
from simsched.results import Row, find_metric, ratio, reference_of

_COLUMNS = ["policy", "value", "ratio", "low", "high", "seeds"]
_MAP_COLUMNS = ["policy", "across", "up", "value", "seeds"]
#: More values than these of a key leave no room for the numbers of a map.
_MOST_NUMBERS = 12
_RAMP = "YlGnBu"


def ratio_data(rows: Sequence[Row], key: str, reference: str, metric: str) -> pd.DataFrame:
    """Gather what `sweep_ratios` draws: the paired ratio of each policy to the reference at each value of the key."""
    name = find_metric(metric).key
    found = []
    for row in rows:
        other = reference_of(row, rows, reference)
        if other is None or other is row or set(row.point) != {key}:
            continue
        estimate = ratio(row.values.get(name, {}), other.values.get(name, {}))
        if estimate is not None:
            found.append((row.shown_policy, row.point[key], estimate.mean, estimate.low, estimate.high, estimate.n))
    data = pd.DataFrame(found, columns=_COLUMNS)
    return data.astype(dict.fromkeys(("ratio", "low", "high"), float))


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
    with styled():
        figure = new_figure(4.6, 2.8, title, caption)
        axes = figure.subplots()
        for index, name in enumerate(names):
            line, look = data[data["policy"] == name], styles[name]
            x = beside(line["value"].map(where), values, index - (len(names) - 1) / 2)
            order = x.sort_values().index
            x, line = x[order], line.loc[order]
            dash = look.dash if all(isinstance(value, int | float) for value in values) else "none"
            axes.plot(x, line["ratio"], color=look.colour, linestyle=dash, marker=look.marker, markersize=5, label=name)
            known = line["high"].notna()
            ends = [(line["ratio"] - line["low"])[known], (line["high"] - line["ratio"])[known]]
            axes.errorbar(
                x[known], line["ratio"][known], yerr=ends, fmt="none", ecolor=look.colour, capsize=3, linewidth=1
            )
        axes.axhline(1, color="#888888", linewidth=0.8)
        plain_log(axes)
        axes.set_title(f"{words} / {reference}'s")
        value_axis(axes, values, key)
        axes.set_xlabel(axis_title(key, values))
        if len(names) > 1:
            legend_above(figure, axes)
    return figure, data


def map_data(rows: Sequence[Row], keys: tuple[str, str], metric: str) -> pd.DataFrame:
    """Gather what `sweep_map` draws: the mean of a metric of each policy at each pair of values of two keys."""
    name = find_metric(metric).key
    found = []
    for row in rows:
        estimate = row.estimate(name)
        if estimate is not None and set(row.point) == set(keys):
            found.append((row.shown_policy, row.point[keys[0]], row.point[keys[1]], estimate.mean, estimate.n))
    return pd.DataFrame(found, columns=_MAP_COLUMNS)


def sweep_map(data: pd.DataFrame, keys: tuple[str, str], metric: str, *, title: str) -> Drawn:
    """Draw a metric over two swept keys, a map for each policy in one scale of colours, with its numbers.

    `data` comes from `map_data`: `policy, across, up, value, seeds`.
    """
    from simsched.report.units import shown_unit

    names = list(dict.fromkeys(data["policy"]))
    across, up = values_in_order(data["across"]), values_in_order(data["up"])
    reading = find_metric(metric)
    shown = shown_unit(reading.stored_unit, data["value"])
    small, large = (shown.factor * float(end) for end in (data["value"].min(), data["value"].max()))
    norm = LogNorm(small, large) if is_logarithmic([small, large]) else None
    with styled():
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
                        column, row, number(value), ha="center", va="center", size=7, color="white" if dark else "black"
                    )
        panels[0].set_ylabel(axis_title(keys[1], up))
        bar = figure.colorbar(image, ax=list(panels), label=shown.title(reading.title), shrink=0.9)
        if norm:
            ticks = round_ticks(small, large)
            bar.set_ticks(ticks, labels=[f"{tick:g}" for tick in ticks])
            bar.minorticks_off()
    return figure, data
