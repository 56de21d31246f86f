"""A trace at a glance: arrivals, GPU counts, durations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes

from simsched.report.figures.distribution import duration_axis, share_within
from simsched.report.figures.style import PALETTE, Drawn, new_figure, styled
from simsched.report.units import DAY_S, HOUR_S, time_unit

#: Largest GPU count of each class, and its name.
_MIX = ((1, "1"), (2, "2"), (4, "3-4"), (8, "5-8"), (16, "9-16"), (32, "17-32"))
_BUCKETS = ((1, "1 GPU"), (4, "2-4 GPUs"), (8, "5-8 GPUs"))
_BUCKET_NAMES = (*(name for _, name in _BUCKETS), ">8 GPUs")
_POINTS = 300


def trace_picture(jobs: pd.DataFrame, *, title: str) -> Drawn:
    """Draw arrivals per hour, the mix of GPU counts, and durations by GPU count.

    `jobs` has the columns `submit_time_s, num_gpus, duration_s` and may have `gpu_share`; jobs of duration 0 (unknown)
    are left out of GPU time and durations. Data: `panel, series, x, y`.
    """
    timed = jobs[jobs["duration_s"] > 0]
    data = pd.concat([_arrivals(jobs), _mix(jobs, timed), _durations(timed)], ignore_index=True)
    with styled():
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
            grid = np.geomspace(max(own.min(), 1.0), max(own.max(), 2.0), _POINTS)
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
    axes.set(
        title="Arrivals",
        xlabel=unit.title("time since the start of the trace"),
        ylabel="jobs per hour",
        xlim=(0, edges[-1]),
    )


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
