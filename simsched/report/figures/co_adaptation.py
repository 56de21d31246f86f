"""How GPUs and batch sizes of chosen jobs follow the load of the cluster and the training itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from simsched.report.figures.style import PALETTE, Drawn, legend_above, new_figure, plain_log, styled
from simsched.report.figures.timeline import LIFE_COLUMNS as LIFE_COLUMNS
from simsched.report.units import HOUR_S
from simsched.results import CurvePoint, integrals

#: The columns of `jobs` that are needed here; those of `allocations` are `LIFE_COLUMNS`.
JOB_COLUMNS = ("job_id", "application", "submit_time_s", "end_time_s", "attained_gpu_s")

_BIN_S = 600
_PANELS = (
    ("active_jobs", "active jobs"),
    ("gpus", "GPUs"),
    ("batch_size", "batch size\n(examples)"),
    ("efficiency", "statistical\nefficiency (%)"),
)
_ALL = "all"
_MARKS = ("o", "s", "^", "v", "P", "X")


def chosen_jobs(jobs: pd.DataFrame, wanted: Mapping[str, int]) -> list[str]:
    """Choose jobs to follow: the one with the most service of each application, or a spread of one application.

    A spread is even in the order of submission, the first and the last included.
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
    """Bin the lives of the jobs followed, and the number of jobs in the system, in means over ten minutes.

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


def co_adaptation(data: pd.DataFrame, *, title: str, curves: Sequence[CurvePoint] = (), source: str = "") -> Drawn:
    """Draw active jobs, GPUs, batch size and efficiency over time, a line for each job followed.

    `data` comes from `adaptation_data`; `curves` of the same panels, in hours, are drawn thin and grey.
    """
    followed = [name for name in dict.fromkeys(data["series"]) if name != _ALL]
    colours = dict(zip(followed, PALETTE, strict=False))
    names = [name for name in dict.fromkeys(point.series for point in curves) if name != _ALL]
    marks = {_ALL: "D"} | {name: _MARKS[index % len(_MARKS)] for index, name in enumerate(names)}
    with styled():
        figure = new_figure(7.2, 7.0, title, _caption(curves, source))
        panels = figure.subplots(len(_PANELS), 1, sharex=True)
        for axes, (panel, name) in zip(panels, _PANELS, strict=True):
            _published(axes, [point for point in curves if point.panel == panel], marks)
            for series, part in data[data["panel"] == panel].groupby("series", sort=False):
                label = None if series == _ALL else str(series)
                axes.plot(part["time_s"] / HOUR_S, part["value"], color=colours.get(str(series), "black"), label=label)
            axes.set_ylabel(name)
            if panel == "batch_size":
                plain_log(axes)
            else:
                axes.set_ylim(0, 103 if panel == "efficiency" else None)
        panels[-1].set(xlim=(0, None), xlabel="time since the start of the workload (h)")
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
