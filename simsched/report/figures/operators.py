"""Figures for operators: a trace, capacity, the effects of a change, waits, packing; and the one of a league."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from simsched.report.figures.distribution import duration_axis, share_within
from simsched.report.figures.lettering import label_text
from simsched.report.figures.style import BAND_ALPHA, PALETTE, Drawn, legend_above, looks, new_figure, styled, time_axis
from simsched.report.units import DAY_S, HOUR_S, time_unit
from simsched.results import Estimate
from simsched.results.analyses import SIZES
from simsched.results.league import LeagueTable, standings

#: Colours of the verdicts, distinct without red and green.
_COLOURS = {"gains": "#0072B2", "loses": "#D55E00", "as before": "#808080"}
_ROW_INCHES = 0.24
_KINDS = (("recorded", "recorded_s", "#222222", "-"), ("simulated", "simulated_s", "#0072b2", "--"))
_POINTS = 200
_LEAST_H = 1 / 60
#: The most queues drawn, and the most letters that fit side by side below a panel.
_MOST_QUEUES, _LETTERS = 8, 44


@styled()
def capacity_curve(
    curves: Mapping[str, Sequence[tuple[int, float, float | None]]], *, metric: str, bound: float, title: str
) -> Drawn:
    """Draw one curve for each kind of node, and the bound of the target; over costs too, if known.

    A point is the nodes, the metric, and the cost of the cluster per month or None. Data: `label, nodes, value, cost`.
    """
    rows = [(label, *point) for label, points in curves.items() for point in points]
    data = pd.DataFrame(rows, columns=["label", "nodes", "value", "cost"])
    priced = bool(data["cost"].notna().all()) and len(data) > 0
    caption = "Points: runs of the log with so many nodes. Grey line: the target."
    figure = new_figure(8.4 if priced else 5.6, 2.8, title, caption)
    panels = figure.subplots(1, 2 if priced else 1, sharey=True, squeeze=False)[0]
    _capacity_panel(panels[0], data, "nodes", bound)
    panels[0].xaxis.set_major_locator(MaxNLocator(integer=True))
    panels[0].set(xlabel="nodes of the type, the others as they are", ylabel=metric)
    if priced:
        _capacity_panel(panels[1], data.assign(cost=data["cost"] / 1000), "cost", bound)
        panels[1].set_xlabel("cost of the cluster (thousand dollars a month)")
    legend_above(figure, panels[0])
    return figure, data


def _capacity_panel(axes: Axes, data: pd.DataFrame, x: str, bound: float) -> None:
    styles = looks(data["label"])
    for label, points in data.groupby("label", sort=False):
        axes.plot(points[x], points["value"], marker="o", markersize=4, color=styles[str(label)].colour, label=label)
    axes.axhline(bound, color="#999999", linewidth=1.2)
    axes.set_ylim(bottom=0)


@styled()
def wait_changes(groups: pd.DataFrame, *, title: str) -> Drawn:
    """Draw a line for each group from its mean wait before to its mean wait after, coloured by verdict.

    `groups` has the columns `by, group, before_h, after_h, verdict`; it is also the data of the figure.
    """
    count = len(groups)
    caption = "Ring: mean wait before the change. Dot: after it."
    figure = new_figure(6.4, 0.7 + _ROW_INCHES * count, title, caption)
    axes = figure.subplots()
    labels = [f"{by}: {name}" for by, name in zip(groups["by"], groups["group"], strict=True)]
    before, after = (groups[name].to_numpy("float64") for name in ("before_h", "after_h"))
    for place, verdict in enumerate(groups["verdict"]):
        colour, y = _COLOURS[str(verdict)], count - place
        axes.plot([before[place], after[place]], [y, y], color=colour, linewidth=2)
        axes.plot(before[place], y, "o", color=colour, markerfacecolor="white", markersize=6)
        axes.plot(after[place], y, "o", color=colour, markersize=6)
    for verdict, colour in _COLOURS.items():
        axes.plot([], [], "o-", color=colour, label=verdict)
    axes.set_yticks(range(count, 0, -1), labels)
    axes.set_ylim(0.4, count + 0.6)
    axes.set_xlim(left=0)
    axes.set_xlabel("mean wait (h)")
    axes.grid(visible=False, axis="y")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure, groups


@styled()
def wait_comparison(jobs: pd.DataFrame, *, title: str) -> Drawn:
    """Draw the distribution of waits, recorded and simulated, and their 90th percentiles by size and by queue.

    `jobs` has the columns `size, queue, recorded_s, simulated_s`. A single queue has no panel; of many, those with most
    jobs are drawn. Data: `panel, kind, x, value`.
    """
    frames = []
    longest = max(float(jobs[column].max()) for _, column, _, _ in _KINDS) / HOUR_S
    limits = np.geomspace(_LEAST_H, max(longest, 2 * _LEAST_H), _POINTS)
    groups = _groups(jobs)
    for kind, column, _, _ in _KINDS:
        waits = np.sort(jobs[column].to_numpy("float64")) / HOUR_S
        shares = np.searchsorted(waits, limits, side="right") / len(waits)
        frames.append(pd.DataFrame({"panel": "share", "kind": kind, "x": limits, "value": shares}))
        for by, names in groups.items():
            p90 = [float(np.percentile(jobs[jobs[by] == name][column], 90)) / HOUR_S for name in names]
            frames.append(pd.DataFrame({"panel": by, "kind": kind, "x": names, "value": p90}))
    data = pd.concat([frame.astype({"x": object}) for frame in frames], ignore_index=True)
    caption = "Left: share of jobs that waited at most so long. Bars: nine of ten jobs waited at most so long."
    figure = new_figure(4.0 * (1 + len(groups)), 2.8, title, caption)
    left, *bars = figure.subplots(1, 1 + len(groups))
    for number, (kind, _, colour, line) in enumerate(_KINDS):
        part = data[data["kind"] == kind]
        curve = part[part["panel"] == "share"]
        left.plot(HOUR_S * curve["x"].astype(float), 100 * curve["value"], line, color=colour, label=kind)
        for axes, (by, names) in zip(bars, groups.items(), strict=True):
            places = np.arange(len(names)) + 0.4 * (number - 0.5)
            axes.bar(places, part[part["panel"] == by]["value"], width=0.36, color=colour)
    duration_axis(left, "wait (logarithmic)", most_ticks=6)
    left.set(ylabel="share of jobs (%)", ylim=(0, 100))
    for axes, (by, names) in zip(bars, groups.items(), strict=True):
        tilt = 30 if max(map(len, names)) * len(names) > _LETTERS else 0
        axes.set_xticks(range(len(names)), names, rotation=tilt, ha="right" if tilt else "center")
        axes.set(xlabel=f"by {by}", ylabel="90th percentile of waits (h)")
    legend_above(figure, left)
    return figure, data


def _groups(jobs: pd.DataFrame) -> dict[str, list[str]]:
    """Return the sizes, from small to large, and the queues with most jobs."""
    known = [name for name, _ in SIZES]
    groups = {"size": [name for name in known if name in set(jobs["size"])]}
    queues = jobs["queue"].value_counts(sort=False).sort_index().sort_values(ascending=False, kind="stable")
    if len(queues) > 1:
        groups["queue"] = sorted(map(str, queues.index[:_MOST_QUEUES]))
    return groups


@styled()
def allocation_curves(
    curves: Mapping[str, tuple[Sequence[float], Sequence[Estimate]]], *, title: str, seeds: int
) -> Drawn:
    """Draw the share of allocated GPUs over the requested share, one curve per rule with its interval over seeds.

    `curves` has demand and allocation by rule; the data are `rule, demand, allocated, low, high`, shares of all GPUs.
    """
    rows = [
        (rule, demand, one.mean, one.low, one.high)
        for rule, (demands, ones) in curves.items()
        for demand, one in zip(demands, ones, strict=True)
    ]
    data = pd.DataFrame(rows, columns=["rule", "demand", "allocated", "low", "high"])
    styles = looks(curves)
    bands = "" if seeds < 2 else f", bands 95 % intervals over {seeds} seeds"
    caption = f"Grey line: all that is asked for. Lines are means{bands}."
    figure = new_figure(5.6, 3.2, title, caption)
    axes = figure.subplots()
    for rule, part in data.groupby("rule", sort=False):
        colour, dash = styles[str(rule)].colour, styles[str(rule)].dash
        axes.plot(part["demand"] * 100, part["allocated"] * 100, color=colour, linestyle=dash, label=str(rule))
        if part["low"].notna().all():
            axes.fill_between(
                part["demand"] * 100, part["low"] * 100, part["high"] * 100, color=colour, alpha=BAND_ALPHA
            )
    axes.plot([0, 100], [0, 100], color="#999999", linewidth=1.2, zorder=0)
    axes.set(xlabel="GPUs asked for (% of the cluster)", ylabel="GPUs allocated (%)")
    legend_above(figure, axes)
    return figure, data


#: Largest GPU count of each class, and its name.
_MIX = ((1, "1"), (2, "2"), (4, "3-4"), (8, "5-8"), (16, "9-16"), (32, "17-32"))
_BUCKETS = ((1, "1 GPU"), (4, "2-4 GPUs"), (8, "5-8 GPUs"))
_BUCKET_NAMES = (*(name for _, name in _BUCKETS), ">8 GPUs")
_TRACE_POINTS = 300


@styled()
def trace_picture(jobs: pd.DataFrame, *, title: str) -> Drawn:
    """Draw arrivals per hour, the mix of GPU counts, and durations by GPU count.

    `jobs` has the columns `submit_time_s, num_gpus, duration_s` and may have `gpu_share`; jobs of duration 0 (unknown)
    are left out of GPU time and durations. Data: `panel, series, x, y`.
    """
    timed = jobs[jobs["duration_s"] > 0]
    data = pd.concat([_arrivals(jobs), _mix(jobs, timed), _durations(timed)], ignore_index=True)
    parts = int((_parts(jobs) < 1).sum())
    caption = f"{len(jobs):,} jobs. GPU time: GPUs asked for times duration."
    if parts:
        caption += f" {parts:,} jobs want a part of a GPU, counted as such in GPU time."
    if len(timed) < len(jobs):
        caption += f" {len(jobs) - len(timed):,} jobs without a duration are left out of GPU time and durations."
    figure = new_figure(8.0, 5.2, title, caption)
    grid = figure.add_gridspec(2, 2)
    _draw_arrivals(figure.add_subplot(grid[0, :]), data[data["panel"] == "arrivals"])
    _draw_mix(figure.add_subplot(grid[1, 0]), data[data["panel"] == "mix"])
    _draw_durations(figure.add_subplot(grid[1, 1]), data[data["panel"] == "durations"])
    return figure, data


def _frame(panel: str, series: str, x: object, y: object) -> pd.DataFrame:
    return pd.DataFrame({"panel": panel, "series": series, "x": x, "y": y}).astype({"x": str, "y": float})


def _arrivals(jobs: pd.DataFrame) -> pd.DataFrame:
    counts = np.bincount((jobs["submit_time_s"].to_numpy(dtype=np.int64) // HOUR_S), minlength=1)
    return _frame("arrivals", "jobs", np.arange(len(counts)) * HOUR_S, counts)


def _classes(gpus: npt.NDArray[np.int64], limits: Sequence[tuple[int, str]]) -> npt.NDArray[np.int64]:
    """Number the class of each job: the first whose limit it does not exceed, or one beyond the last."""
    return np.searchsorted([limit for limit, _ in limits], gpus)


def _mix(jobs: pd.DataFrame, timed: pd.DataFrame) -> pd.DataFrame:
    frames = []
    names = [*(name for _, name in _MIX), ">32"]
    for series, table in (("jobs", jobs), ("GPU time", timed)):
        gpus = table["num_gpus"].to_numpy(dtype=np.int64)
        weight = (
            np.ones(len(table))
            if series == "jobs"
            else gpus * _parts(table) * table["duration_s"].to_numpy(dtype=float)
        )
        share = np.bincount(_classes(gpus, _MIX), weights=weight, minlength=len(names))
        total = share.sum()
        frames.append(_frame("mix", series, names, 100 * share / total if total else share))
    return pd.concat(frames, ignore_index=True)


def _parts(jobs: pd.DataFrame) -> npt.NDArray[np.float64]:
    """Return the part of its GPUs that each job asks for."""
    return jobs["gpu_share"].to_numpy(dtype=float) if "gpu_share" in jobs else np.ones(len(jobs))


def _durations(timed: pd.DataFrame) -> pd.DataFrame:
    seconds = timed["duration_s"].to_numpy(dtype=float)
    buckets = _classes(timed["num_gpus"].to_numpy(dtype=np.int64), _BUCKETS)
    frames = [_frame("durations", "", [], [])]
    for code, name in enumerate(_BUCKET_NAMES):
        own = seconds[buckets == code]
        if len(own):
            grid = np.geomspace(max(own.min(), 1.0), max(own.max(), 2.0), _TRACE_POINTS)
            shares = np.append(0.0, 100 * share_within(own, grid))
            frames.append(_frame("durations", name, np.append(grid[0], grid), shares))
    return pd.concat(frames, ignore_index=True)


def _draw_arrivals(axes: Axes, part: pd.DataFrame) -> None:
    start = part["x"].astype(float).to_numpy()
    unit = time_unit(float(start[-1]) + HOUR_S)
    edges = np.append(start, start[-1] + HOUR_S) * unit.factor
    axes.stairs(
        part["y"].to_numpy(), edges, fill=True, color=PALETTE[0], alpha=0.8 if len(start) * HOUR_S < 30 * DAY_S else 1
    )
    axes.set(title="Arrivals", ylabel="jobs per hour")
    time_axis(axes, unit, "the start of the trace", float(start[-1]) + HOUR_S)


def _draw_mix(axes: Axes, part: pd.DataFrame) -> None:
    names = list(dict.fromkeys(part["x"]))
    shown = [name for name in names if part.loc[part["x"] == name, "y"].sum() > 0]
    for offset, (series, colour) in enumerate((("jobs", PALETTE[0]), ("GPU time", PALETTE[4]))):
        own = part[part["series"] == series].set_index("x")["y"]
        places = np.arange(len(shown)) + 0.38 * (offset - 0.5)
        axes.bar(places, [own[name] for name in shown], width=0.36, color=colour, label=f"share of {series}")
    axes.set_xticks(range(len(shown)), shown)
    axes.grid(visible=False, axis="x")
    axes.set(title="Mix of GPU counts", xlabel="GPUs asked for", ylabel="share (%)")
    axes.legend()


def _draw_durations(axes: Axes, part: pd.DataFrame) -> None:
    axes.set(title="Durations", ylabel="share of jobs (%)", ylim=(0, 101))
    drawn = part[part["series"] != ""]
    if drawn.empty:
        axes.text(0.5, 0.5, "no durations known", transform=axes.transAxes, ha="center")
        axes.set_xticks([])
        return
    colours = dict(zip(_BUCKET_NAMES, PALETTE, strict=False))
    dashes = ("-", "--", "-.", ":")
    for (name, line), dash in zip(drawn.groupby("series", sort=False), dashes, strict=False):
        axes.plot(line["x"].astype(float), line["y"], color=colours[str(name)], linestyle=dash, label=str(name))
    duration_axis(axes, "duration (logarithmic)", most_ticks=6)
    axes.legend()


#: The least share shown.
_LEAST_SHARE = -1.0


@styled()
def way_to_the_bound(table: LeagueTable, *, title: str) -> Drawn | None:
    """Draw the share of the way from FIFO to the bound of each policy that ran all contests; None without any.

    The data are `policy, oracle, share, low, high`.
    """
    found = [(row, oracles) for oracles in (False, True) for row in standings(table, oracles=oracles).rows]
    if not found:
        return None
    rows = [(row.policy, oracle, row.share.mean, row.share.low, row.share.high) for row, oracle in found]
    data = pd.DataFrame(rows, columns=["policy", "oracle", "share", "low", "high"])
    caption = "0: as FIFO; 1: at the bound, below which no schedule comes. Bars are 95 % intervals; oracles, which "
    caption += f"read what no real scheduler has, in another colour. Shares below {_LEAST_SHARE:g} are not shown."
    figure = new_figure(7.2, 0.8 + 0.21 * len(rows), title, caption)
    axes = figure.subplots()
    for place, (_, oracle, share, low, high) in enumerate(rows):
        colour = PALETTE[1] if oracle else PALETTE[0]
        if low is not None and high is not None:
            axes.plot([low, high], [place, place], color=colour, linewidth=1)
        axes.plot([share], [place], "s" if oracle else "o", color=colour, markersize=4)
    axes.axvline(0, color="#888888", linewidth=0.8)
    axes.set_yticks(range(len(rows)), [label_text(name) for name in data["policy"]])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(max(_LEAST_SHARE, min(-0.05, float(data["share"].min()) - 0.05)), 1.02)
    axes.set_xlabel("share of the way from FIFO to the bound")
    return figure, data
