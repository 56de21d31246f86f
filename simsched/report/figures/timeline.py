"""One job's life: GPUs, batch size and efficiency over time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from simsched.errors import input_error
from simsched.report.figures.style import Drawn, Look, legend_above, looks, new_figure, styled
from simsched.report.units import time_unit

#: The required columns of `allocations`.
LIFE_COLUMNS = ("job_id", "start_s", "end_s", "gpus", "batch_size", "efficiency", "restarting")

_PANELS = (
    ("gpus", "GPUs", 1),
    ("batch_size", "batch size\n(examples)", 1),
    ("efficiency", "statistical\nefficiency (%)", 100),
)


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
    with styled():
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
        panels[-1].set(xlim=(0, None), xlabel=unit.title("time since the job's submission"))
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
    return pd.DataFrame(
        {
            "policy": label,
            "start_s": own["start_s"] - submitted,
            "end_s": own["end_s"] - submitted,
            "gpus": own["gpus"],
            "batch_size": own["batch_size"],
            "efficiency": own["efficiency"],
            "restarting": own["restarting"],
        }
    )


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
