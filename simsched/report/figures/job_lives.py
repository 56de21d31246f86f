"""The lives of single jobs: GPUs, batch size and efficiency over time, and how they follow the load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from simsched.errors import input_error
from simsched.report.figures.style import (
    PALETTE,
    Drawn,
    Look,
    legend_above,
    looks,
    new_figure,
    plain_log,
    styled,
    time_axis,
)
from simsched.report.units import HOUR_S, Shown, time_unit
from simsched.results.metric import integrals
from simsched.results.sheets import CurvePoint

#: The required columns of `allocations`.
LIFE_COLUMNS = ("job_id", "start_s", "end_s", "gpus", "batch_size", "efficiency", "restarting")

_PANELS = (
    ("gpus", "GPUs", 1),
    ("batch_size", "batch size\n(examples)", 1),
    ("efficiency", "statistical\nefficiency (%)", 100),
)


@styled()
def job_timeline(
    lives: Mapping[str, tuple[pd.DataFrame, pd.DataFrame]],
    job_id: str,
    *,
    title: str = "",
    styles: Mapping[str, Look] | None = None,
) -> Drawn:
    """Draw GPUs, total batch size and statistical efficiency of one job, under one policy or several.

    `lives` maps labels to the tables of jobs and of allocations. Under a single policy restarts are shaded. Data:
    `policy, start_s, end_s` (since submission), `gpus, batch_size, efficiency, restarting`.
    """
    data = pd.concat([timeline_data(*tables, job_id, label) for label, tables in lives.items()], ignore_index=True)
    styles = styles or looks(lives)
    unit = time_unit(float(data["end_s"].max()))
    caption = "Lines end when the job completes; gaps: no GPUs held, or restarting."
    if len(lives) == 1:
        caption += " Shaded: the job restores its state after a change of placement and makes no progress."
    shown = [panel for panel in _PANELS if _tells(data, panel[0])]
    figure = new_figure(7.2, 0.6 + 1.4 * len(shown), title or f"Job {job_id}", caption)
    panels = figure.subplots(len(shown), 1, sharex=True, squeeze=False)[:, 0]
    for (column, name, factor), axes in zip(shown, panels, strict=True):
        for label, part in data.groupby("policy", sort=False):
            x, y = _steps(part, column)
            look = styles[str(label)]
            axes.plot(x * unit.factor, y * factor, color=look.colour, linestyle=look.dash, label=str(label))
        axes.set(ylabel=name, ylim=(0, 103 if column == "efficiency" else None))
        if column == "gpus":
            axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        if len(lives) == 1:
            _shade_restarts(axes, data, unit.factor)
    time_axis(panels[-1], unit, "the job's submission")
    legend_above(figure, panels[0])
    figure.align_ylabels(panels)
    return figure, data


def _tells(data: pd.DataFrame, column: str) -> bool:
    """Return whether a column is informative: jobs described only by a duration have no batch and full efficiency."""
    running = data.loc[~data["restarting"].astype(bool), column]
    return column == "gpus" or bool((running != {"batch_size": 0, "efficiency": 1}[column]).any())


def timeline_data(jobs: pd.DataFrame, allocations: pd.DataFrame, job_id: str, label: str) -> pd.DataFrame:
    """Pick the intervals of one job, with times since its submission; raises `InputError` if it has none."""
    job = jobs[jobs["job_id"] == job_id]
    own = allocations[allocations["job_id"] == job_id].sort_values("start_s")
    if job.empty or own.empty:
        raise input_error(
            label, f"no job '{job_id}' finished here with recorded intervals", "pick one from the table of jobs"
        )
    submitted = int(job["submit_time_s"].iloc[0])
    times = {name: own[name] - submitted for name in ("start_s", "end_s")}
    values = {name: own[name] for name in ("gpus", "batch_size", "efficiency", "restarting")}
    return pd.DataFrame({"policy": label, **times, **values})


def _steps(part: pd.DataFrame, column: str) -> tuple[np.ndarray, np.ndarray]:
    """Trace the values of the intervals: flat within each, broken where the job waits (GPUs: zero there)."""
    start, end, value = (part[name].to_numpy(dtype=float) for name in ("start_s", "end_s", column))
    x, y = [0.0], [0.0 if column == "gpus" else np.nan]
    for begin, finish, height, restarting in zip(start, end, value, part["restarting"], strict=True):
        if begin > x[-1]:
            pause = 0.0 if column == "gpus" else np.nan
            x += [x[-1], begin]
            y += [pause, pause]
        shown = np.nan if restarting and column != "gpus" else height
        x += [begin, finish]
        y += [shown, shown]
    if column == "gpus":
        x.append(x[-1])
        y.append(0.0)
    return np.array(x), np.array(y)


def _shade_restarts(axes: Axes, data: pd.DataFrame, factor: float) -> None:
    restarts = data.loc[data["restarting"], ["start_s", "end_s"]].to_numpy(dtype=float)
    for start, end in restarts * factor:
        axes.axvspan(start, end, color="#999999", alpha=0.35, linewidth=0.5)


#: The columns of `allocations` that a picture of zones needs.
ZONE_COLUMNS = ("job_id", "start_s", "end_s", "placement")


@styled()
def zones_timeline(
    tables: Mapping[str, pd.DataFrame],
    market: Sequence[Mapping[str, Any]],
    outages: pd.DataFrame,
    job_id: str,
    *,
    title: str,
) -> Drawn:
    """Draw what a job held in each zone under each policy, when spot nodes were to be had there, and their prices.

    `market` is that of a manifest. Data: `policy` (empty for the market), `zone`, `what` (`available`, `spot price`,
    `spot` or `on demand`), `start_s, end_s, value`; a value is a price, or 1.
    """
    data = _zones_data(tables, market, outages, job_id)
    zones = list(dict.fromkeys(one["zone"] for one in market))
    unit = time_unit(float(data.loc[data["policy"] != "", "end_s"].max()))
    colours = {"available": "#cccccc", "spot": PALETTE[0], "on demand": PALETTE[1]}
    caption = "Grey: spot nodes are to be had. Blue: the job holds them. Orange: it runs on demand."
    figure = new_figure(7.2, 1.6 + (0.35 + 0.16 * len(zones)) * len(tables), title, caption)
    heights = [*[0.35 + 0.16 * len(zones)] * len(tables), 1.2]
    *panels, bottom = figure.subplots(len(tables) + 1, 1, sharex=True, gridspec_kw={"height_ratios": heights})
    for policy, axes in zip(tables, panels, strict=True):
        for what, colour in colours.items():
            part = data[(data["what"] == what) & data["policy"].isin([policy, ""])]
            places = part["zone"].map(zones.index)
            height, spans = 0.8 if what == "available" else 0.4, (part["end_s"] - part["start_s"]) * unit.factor
            axes.barh(places, spans, height, left=part["start_s"] * unit.factor, color=colour, linewidth=0)
        axes.set_yticks(range(len(zones)), zones)
        axes.invert_yaxis()
        axes.set_title(policy)
        axes.grid(visible=False, axis="y")
    for place, zone in enumerate(zones):
        part = data[(data["what"] == "spot price") & (data["zone"] == zone)]
        times = [*part["start_s"] * unit.factor, *part["end_s"].tail(1) * unit.factor]
        look: dict[str, Any] = {"baseline": None, "color": PALETTE[place % len(PALETTE)], "label": zone}
        bottom.stairs(part["value"], times, **look)
    end = float(data.loc[data["policy"] != "", "end_s"].max()) * unit.factor
    bottom.set(xlim=(0, end), ylim=(0, None), ylabel="spot price\n($/h)", xlabel=unit.title("time"))
    bottom.legend(loc="lower right", ncols=len(zones))
    return figure, data


def _zones_data(
    tables: Mapping[str, pd.DataFrame], market: Sequence[Mapping[str, Any]], outages: pd.DataFrame, job_id: str
) -> pd.DataFrame:
    own = {policy: table[table["job_id"] == job_id] for policy, table in tables.items()}
    last_s = max(float(table["end_s"].max()) for table in own.values())
    group_of = [one for one in market for _ in range(one["nodes"])]
    rows: list[tuple[str, str, str, float, float, float]] = []
    first = 0
    for one in market:
        if one["spot"]:
            gone = outages[outages["node"] == first].sort_values("start_s")
            starts, ends = [0.0, *gone["end_s"]], [*gone["start_s"], last_s]
            rows += [("", one["zone"], "available", a, min(b, last_s), 1.0) for a, b in zip(starts, ends, strict=True)
                     if a < min(b, last_s)]  # fmt: skip
            step_s, prices = float(one["step_s"]), [float(price) for price in one["values"]]
            edges = [place * step_s for place in range(len(prices))]
            ends = [*edges[1:], max(last_s, edges[-1] + step_s)]
            rows += [("", one["zone"], "spot price", *row) for row in zip(edges, ends, prices, strict=True)]
        first += one["nodes"]
    for policy, table in own.items():
        for start_s, end_s, placement in table[["start_s", "end_s", "placement"]].itertuples(index=False):
            group = group_of[int(str(placement).partition(":")[0])]
            rows.append((policy, group["zone"], "spot" if group["spot"] else "on demand", start_s, end_s, 1.0))
    return pd.DataFrame(rows, columns=["policy", "zone", "what", "start_s", "end_s", "value"])


#: The required columns of `jobs`; those of `allocations` are `LIFE_COLUMNS`.
JOB_COLUMNS = ("job_id", "application", "submit_time_s", "end_time_s", "attained_gpu_s")

_BIN_S = 600
_ADAPTATION_PANELS = (
    ("active_jobs", "active jobs"),
    ("gpus", "GPUs"),
    ("batch_size", "batch size\n(examples)"),
    ("efficiency", "statistical\nefficiency (%)"),
)
_ALL = "all"
_MARKS = ("o", "s", "^", "v", "P", "X")


def chosen_jobs(jobs: pd.DataFrame, wanted: Mapping[str, int]) -> list[str]:
    """Choose jobs to follow: the one with the most service of each application, or a spread of one application.

    A spread is even in order of submission, including the first and the last job.
    """
    chosen: list[str] = []
    for application, count in wanted.items():
        own = jobs[jobs["application"] == application].sort_values(["submit_time_s", "job_id"])
        if count == 1 and len(own):
            chosen.append(str(own["job_id"].iloc[int(own["attained_gpu_s"].to_numpy().argmax())]))
        else:
            places = np.unique(np.linspace(0, len(own) - 1, min(count, len(own))).round().astype(int))
            chosen += [str(own["job_id"].iloc[place]) for place in places]
    return chosen


def adaptation_data(jobs: pd.DataFrame, allocations: pd.DataFrame, followed: Sequence[str]) -> pd.DataFrame:
    """Bin the lives of the selected jobs, and the number of jobs in the system, as ten-minute means.

    Columns: `series` (a job or `all`), `panel`, `time_s` (the middle of the bin), `value`. Batch size and efficiency
    average over the time in which the job makes progress; bins without any are left out.
    """
    last_s = float(jobs["end_time_s"].max())
    edges = np.arange(int(-(-last_s // _BIN_S)) + 1, dtype=np.float64) * _BIN_S
    middle = edges[:-1] + _BIN_S / 2
    submit, end = (jobs[name].to_numpy(dtype=float) for name in ("submit_time_s", "end_time_s"))
    frames = [_frame(_ALL, "active_jobs", middle, integrals(submit, end, np.ones(len(submit)), edges) / _BIN_S)]
    for job in followed:
        own = allocations[allocations["job_id"] == job]
        life = jobs[jobs["job_id"] == job].iloc[0]
        lived = (edges[1:] > life["submit_time_s"]) & (edges[:-1] < life["end_time_s"])
        start, end = (own[name].to_numpy(dtype=float) for name in ("start_s", "end_s"))
        held = integrals(start, end, own["gpus"].to_numpy(dtype=float), edges) / _BIN_S
        frames.append(_frame(job, "gpus", middle[lived], held[lived]))
        running = ~own["restarting"].to_numpy(dtype=bool)
        start, end = start[running], end[running]
        seconds = integrals(start, end, np.ones(len(start)), edges)
        for column, factor in (("batch_size", 1), ("efficiency", 100)):
            total = integrals(start, end, factor * own[column].to_numpy(dtype=float)[running], edges)
            some = seconds > 1e-6
            frames.append(_frame(job, column, middle[some], total[some] / seconds[some]))
    return pd.concat(frames, ignore_index=True)


def _frame(series: str, panel: str, time_s: np.ndarray, value: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame({"series": series, "panel": panel, "time_s": time_s, "value": value})


@styled()
def co_adaptation(data: pd.DataFrame, *, title: str, curves: Sequence[CurvePoint] = (), source: str = "") -> Drawn:
    """Draw active jobs, GPUs, batch size and efficiency over time, a line for each job followed.

    `data` comes from `adaptation_data`; `curves` of the same panels, in hours, are drawn thin and grey.
    """
    followed = [name for name in dict.fromkeys(data["series"]) if name != _ALL]
    colours = dict(zip(followed, PALETTE, strict=False))
    names = [name for name in dict.fromkeys(point.series for point in curves) if name != _ALL]
    marks = {_ALL: "D"} | {name: _MARKS[index % len(_MARKS)] for index, name in enumerate(names)}
    figure = new_figure(7.2, 7.0, title, _caption(curves, source))
    panels = figure.subplots(len(_ADAPTATION_PANELS), 1, sharex=True)
    for axes, (panel, name) in zip(panels, _ADAPTATION_PANELS, strict=True):
        _published(axes, [point for point in curves if point.panel == panel], marks)
        for series, part in data[data["panel"] == panel].groupby("series", sort=False):
            label = None if series == _ALL else str(series)
            axes.plot(part["time_s"] / HOUR_S, part["value"], color=colours.get(str(series), "black"), label=label)
        axes.set_ylabel(name)
        if panel == "batch_size":
            plain_log(axes)
        else:
            axes.set_ylim(0, 103 if panel == "efficiency" else None)
    time_axis(panels[-1], Shown("h", 1 / HOUR_S))
    legend_above(figure, panels[1])
    figure.align_ylabels(panels)
    return figure, data


def _published(axes: Axes, points: Sequence[CurvePoint], marks: Mapping[str, str]) -> None:
    for series in dict.fromkeys(point.series for point in points):
        x, y = zip(*[(point.x, point.y) for point in points if point.series == series], strict=True)
        label = f"published ({series})" if series != _ALL else None
        axes.plot(x, y, color="#999999", linewidth=1.0, marker=marks[series], markersize=3.5, label=label, zorder=1)


def _caption(curves: Sequence[CurvePoint], source: str) -> str:
    text = "Means over 10 minutes; batch size and efficiency while the job makes progress."
    if curves:
        text += f" Grey: published{f' ({source})' if source else ''}, other jobs of another workload."
    return text
