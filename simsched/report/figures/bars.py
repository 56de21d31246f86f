"""Means side by side: metrics as bars, the parts of completion times, and waits by tenant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from simsched.report.figures.style import (
    Drawn,
    Look,
    Plan,
    legend_above,
    looks,
    new_figure,
    row_looks,
    spread_words,
    styled,
)
from simsched.report.units import HOUR_S, Shown, number, shown_unit, time_unit
from simsched.results import Row, Run, find_metric
from simsched.results.analyses import By, by_group

_COLUMNS = ["policy", "metric", "unit", "mean", "low", "high", "seeds", "is_range", "published"]
#: More panels than these do not fit side by side on a page.
_BESIDE = 2


def bar_data(rows: Sequence[Row], metrics: Sequence[str]) -> pd.DataFrame:
    """Gather the data of `metric_bars`: a line for each policy and metric, in the units of the summaries."""
    lines = []
    for metric in metrics:
        reading = find_metric(metric)
        for row in rows:
            spread = row.spread(reading.key)
            if spread is not None:
                lines.append(
                    (row.shown_name, reading.key, reading.stored_unit, *spread, row.published.get(reading.key))
                )
    data = pd.DataFrame(lines, columns=_COLUMNS)
    return data.astype(dict.fromkeys(("mean", "low", "high", "published"), float))


@styled()
def metric_bars(
    data: pd.DataFrame,
    *,
    title: str,
    published_source: str = "",
    styles: Mapping[str, Look] | None = None,
    failed: Sequence[str] = (),
) -> Drawn:
    """Draw one panel per metric, two side by side, and one bar per policy.

    `data` has the columns `policy, metric, unit, mean, low, high, seeds, is_range, published`; `low` and `high` are
    missing with one seed, `published` if nothing was published. Policies that `failed` have marked rows.
    """
    labels = [*dict.fromkeys(data["policy"]), *failed]
    metrics = list(dict.fromkeys(data["metric"]))
    styles = styles or looks(labels)
    columns = max(min(len(metrics), _BESIDE), 1)
    lines = max(-(-len(metrics) // columns), 1)
    height = lines * (0.9 + 0.42 * max(len(labels), 2))
    figure = new_figure(2.1 + 3.0 * columns, height, title, _caption(data, published_source))
    panels = figure.subplots(lines, columns, sharey=True, squeeze=False)
    for axes, metric in zip(panels.flat, metrics, strict=False):
        _panel(axes, data[data["metric"] == metric], labels, styles)
        for label in failed:
            axes.annotate("failed", (0, labels.index(label)), xytext=(5, 0), textcoords="offset points", va="center")
    for axes in panels.flat[len(metrics) :]:
        axes.set_visible(False)
    panels[0, 0].set_yticks(range(len(labels)), labels)
    if failed:
        panels[0, 0].set_ylim(-0.5, len(labels) - 0.5)
    panels[0, 0].invert_yaxis()
    return figure, data


def _caption(data: pd.DataFrame, source: str) -> str:
    text = spread_words(data)
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
        axes.set_xlabel(f"{reading.better} is better", size=8, color="#444444")
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", length=0)


def _bar(axes: Axes, row: Any, place: int, shown: Shown, look: Look) -> float:
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
    text = number(mean)
    if pd.notna(high) and not row.is_range:  # a range has no room beside the bars of a narrow figure
        text += f" ±{number(max(high - mean, mean - low))}"
    where: Any = ("axes fraction", "data")
    axes.annotate(text, (1, place), xycoords=where, xytext=(5, 0), textcoords="offset points", va="center", size=8)
    return reach


#: The most policies and the most groups that fit a figure.
_MOST_ROWS, _MOST_GROUPS = 8, 16
_TENANTS_COLUMNS = ["job_id", "tenant", "user", "num_gpus", "queueing_s", "jct_s", "held_s", "attained_gpu_s", "queue"]
_KINDS: Sequence[By] = ("tenant", "queue", "user", "size")


def tenant_figures(run: Run, rows: Sequence[Row]) -> Iterator[tuple[str, Plan]]:
    """Plan `tenants` if the experiment has tenants and sweeps nothing."""
    if run.experiment.get("tenants") and not run.swept and len(rows) <= _MOST_ROWS:
        data = tenant_waits(
            {row.shown_name: pd.concat(cell.table("jobs", _TENANTS_COLUMNS) for cell in row.cells) for row in rows}
        )
        styles = row_looks(run, rows)
        yield "tenants", partial(draw_tenant_waits, data, title=f"{run.name}: who waits", styles=styles)


def tenant_waits(jobs: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the mean wait in hours of each group of jobs under each policy: `by, group, policy, jobs, mean_wait_h`.

    A single queue or user is left out. Only the groups with the most GPU time are kept.
    """
    lines = []
    for policy, table in jobs.items():
        for by in _KINDS:
            if by in ("queue", "user") and (by not in table or table[by].nunique() < 2):
                continue
            groups = [row for row in by_group(table, by).rows if row.group != "all"]
            kept = {row.group for row in sorted(groups, key=lambda row: -row.gpu_hours)[:_MOST_GROUPS]}
            lines += [(by, row.group, policy, row.jobs, row.mean_wait_s / 3600) for row in groups if row.group in kept]
    return pd.DataFrame(lines, columns=["by", "group", "policy", "jobs", "mean_wait_h"])


@styled()
def draw_tenant_waits(data: pd.DataFrame, *, title: str, styles: Mapping[str, Look]) -> Drawn:
    """Draw a panel for each way to group jobs, with a line for each group and a point on it for each policy."""
    kinds = list(dict.fromkeys(data["by"]))
    most = max(data[data["by"] == by]["group"].nunique() for by in kinds)
    caption = "Points: mean wait of the group's jobs under a policy."
    figure = new_figure(1.0 + 4.0 * len(kinds), 1.6 + 0.3 * most, title, caption)
    unit = time_unit(float(data["mean_wait_h"].max()) * HOUR_S, days=False)
    for axes, by in zip(figure.subplots(1, len(kinds), squeeze=False)[0], kinds, strict=True):
        _tenants_panel(axes, data[data["by"] == by], styles, unit)
        axes.set_title(f"by {by}")
    legend_above(figure, axes)
    return figure, data


def _tenants_panel(axes: Axes, part: pd.DataFrame, styles: Mapping[str, Look], unit: Shown) -> None:
    names = list(dict.fromkeys(part["group"]))
    for policy, points in part.groupby("policy", sort=False):
        look = styles[str(policy)]
        places = [names.index(name) for name in points["group"]]
        waits = HOUR_S * unit.factor * points["mean_wait_h"]
        axes.plot(waits, places, look.marker, color=look.colour, label=str(policy), clip_on=False)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.margins(x=0.05)
    axes.set_xlabel(unit.title("mean wait"))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6))
