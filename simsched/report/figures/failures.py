"""Figures of runs in which nodes or jobs fail."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import exp, sqrt

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from simsched.report.figures.style import Drawn, Look, legend_above, looks, new_figure, styled
from simsched.report.figures.sweep import axis_title, sweep_data, sweep_lines, value_axis, values_in_order
from simsched.report.units import number, time_unit
from simsched.results import Row, Run

_RATIO = "effective_training_ratio"
_SUFFERED = ("jct_mean_s", _RATIO, "lost_gpu_hours")
_INTERVAL = "failures.checkpoint_interval_s"


def failure_figures(run: Run, rows: Sequence[Row]) -> Iterator[tuple[str, Drawn]]:
    """Draw the losses from failures over each swept key; over the checkpoint interval, with its optimum."""
    if not any(_RATIO in row.values for row in rows):
        return
    styles = looks(run.shown_policies)
    for key in run.swept:
        if key == _INTERVAL and not any(isinstance(row.point.get(key), str) for row in rows):
            data = sweep_data(rows, key, (_RATIO,))
            title = f"{run.name}: what checkpoints are worth"
            yield "checkpoint-interval", checkpoint_interval(data, _single(rows), title=title, styles=styles)
        elif key.startswith("failures."):
            data = sweep_data(rows, key, _SUFFERED)
            title = f"{run.name}: who suffers, over {axis_title(key)}"
            yield f"failures-{key.rsplit('.', 1)[-1]}", sweep_lines(data, key, title=title, styles=styles)


def checkpoint_interval(
    data: pd.DataFrame, physics: Mapping[str, float] | None, *, title: str, styles: Mapping[str, Look] | None = None
) -> Drawn:
    """Draw the effective training time over the checkpoint interval, one line per policy.

    With `physics` (`mtbf_s`, `cost_s`, `restart_s`) of jobs on one node each, the expected value and the optima of
    Young (1974) and Daly (2006) are included; they hold for exponential failures of nodes with immediate repair.
    """
    names = dict.fromkeys(data["line"])
    styles = styles if styles is not None and set(names) <= set(styles) else looks(names)
    caption = "Productive share of the time from first start to end; whiskers: 95 % interval (Student's t)."
    with styled():
        figure = new_figure(6.2, 3.6, title, caption)
        axes = figure.subplots()
        for name, line in data.groupby("line", sort=False):
            look, part = styles[str(name)], line.sort_values("value")
            axes.plot(
                part["value"], 100 * part["mean"], color=look.colour, marker=look.marker, linestyle="", label=str(name)
            )
            far = [100 * (part["mean"] - part["low"]).clip(0), 100 * (part["high"] - part["mean"]).clip(0)]
            axes.errorbar(part["value"], 100 * part["mean"], yerr=far, fmt="none", ecolor=look.colour, capsize=2)
        axes.set(xscale="log", title="effective training time (%)", ylim=(0, 100))
        if physics is not None:
            _closed_forms(axes, physics, data["value"].min(), data["value"].max())
        values = values_in_order(data["value"])
        value_axis(axes, values, _INTERVAL)
        axes.set_xlabel(axis_title(_INTERVAL, values))
        legend_above(figure, axes)
    return figure, data


def young_s(mtbf_s: float, cost_s: float) -> float:
    """Return the best checkpoint interval by Young (CACM 17(9), 1974), in seconds."""
    return sqrt(2 * cost_s * mtbf_s)


def daly_s(mtbf_s: float, cost_s: float) -> float:
    """Return the best checkpoint interval by Daly (FGCS 22(3), 2006, equation 37), in seconds."""
    if cost_s >= 2 * mtbf_s:
        return mtbf_s
    ratio = cost_s / (2 * mtbf_s)
    return young_s(mtbf_s, cost_s) * (1 + sqrt(ratio) / 3 + ratio / 9) - cost_s


def _closed_forms(axes: Axes, physics: Mapping[str, float], low: float, high: float) -> None:
    mtbf_s, cost_s, restart_s = physics["mtbf_s"], physics["cost_s"], physics["restart_s"]
    grid = np.geomspace(low, high, 200)
    lasting = exp(restart_s / mtbf_s) * (np.exp((grid + cost_s) / mtbf_s) - 1)
    axes.plot(grid, 100 * grid / (mtbf_s * lasting), color="#808080", linewidth=1.2, label="expected (Daly)")
    young, daly = young_s(mtbf_s, cost_s), daly_s(mtbf_s, cost_s)
    axes.axvline(young, color="#332288", linestyle="--", linewidth=1.2, label=f"Young: {_written(young)}")
    axes.axvline(daly, color="#E69F00", linestyle=":", linewidth=1.6, label=f"Daly: {_written(daly)}")


def _written(seconds: float) -> str:
    """Format a time with a readable unit: `15.5 min`."""
    unit = time_unit(seconds)
    return f"{number(seconds * unit.factor)} {unit.unit}"


def _single(rows: Sequence[Row]) -> dict[str, float] | None:
    """Return the physics of a run if all its cells share it and jobs use one node; None otherwise."""
    found = set()
    for cell in (cell for row in rows for cell in row.cells):
        failures, engine = cell.manifest.get("failures") or {}, cell.manifest.get("engine") or {}
        mtbf_s = failures.get("node_mtbf_s")
        nodes = cell.table("allocations", ["nodes"])["nodes"].max() if cell.has("allocations") else 0
        if (
            mtbf_s is None
            or failures.get("repair_median_s")
            or failures.get("weibull_shape") != 1
            or nodes != 1
            or failures.get("causes")
            or isinstance(failures["checkpoint_cost_s"], str)
        ):
            return None
        found.add((mtbf_s, failures["checkpoint_cost_s"], engine.get("restart_delay_s", 0)))
    if len(found) != 1:
        return None
    mtbf_s, cost_s, restart_s = found.pop()
    return {"mtbf_s": mtbf_s, "cost_s": cost_s, "restart_s": restart_s}
