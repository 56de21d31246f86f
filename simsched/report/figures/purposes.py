"""Figures of what a run is about: deadlines, agents, shared GPUs and their pairs, racks, GPU types, failures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import exp, sqrt
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm
from matplotlib.image import AxesImage

from simsched.report.figures.bars import bar_data, metric_bars
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
from simsched.report.figures.sweep import (
    axis_title,
    draw_panel,
    sweep_data,
    sweep_lines,
    value_axis,
    values_in_order,
    with_whiskers,
)
from simsched.report.units import number, time_unit
from simsched.results import Row, Run
from simsched.results.analyses import pair_speeds
from simsched.results.compare import ratios_to, reference_of

#: The metrics, one row of panels each; ratios if there is a reference, because seeds differ more than agents.
METRICS = ("jct_mean_ratio", "jct_mean_s", "statistical_efficiency")
OWN_AGENT = "batch as submitted"
_WIDEST = 9.0


def agents_of(rows: Sequence[Row]) -> dict[str, tuple[str, str]]:
    """Return policy and agent by the label in figures ("" for the policy's own agent)."""
    found = {}
    for row in rows:
        agent = row.cells[0].manifest.get("agent")
        found[row.shown_policy] = (row.policy_name, str(agent["name"]) if isinstance(agent, Mapping) else "")
    return found


def compares_agents(rows: Sequence[Row]) -> bool:
    """Return whether a policy appears with its own agent and with others."""
    pairs = agents_of(rows).values()
    return any((policy, "") in pairs for policy, agent in pairs if agent)


def agents_data(rows: Sequence[Row], key: str, reference: str = "") -> pd.DataFrame:
    """Gather the data of `agents_panels`: those of `sweep_data`, with columns `panel` and `line`.

    Policies that only run with their own agent are a line in all panels. If the label `reference` is among the rows,
    times are relative to its at the same point and seed.
    """
    pairs = agents_of(rows)
    panels = dict.fromkeys(policy for policy, agent in pairs.values() if agent)
    title = {policy: label for label, (policy, agent) in reversed(pairs.items()) if not agent}
    ratio, time, efficiency = METRICS
    base = [row for row in rows if row.policy == reference and key in row.point]
    if base:
        ratios = [ratios_to(reference_of(row, base, reference), row, time) for row in rows]
        rows = [replace(row, values={**row.values, ratio: own}) for row, own in zip(rows, ratios, strict=True)]
    data = sweep_data(rows, key, (ratio if base else time, efficiency))
    parts = []
    for panel in panels:
        for label, (policy, agent) in pairs.items():
            if policy == panel or policy not in panels:
                line = label if policy not in panels else agent or OWN_AGENT
                part = data[data["policy"] == label]
                parts.append(part.assign(panel=title.get(panel, panel), policy=line, line=line))
    return pd.concat(parts, ignore_index=True)


@styled()
def agents_panels(
    data: pd.DataFrame, key: str, *, title: str, reference: str = "", styles: Mapping[str, Look] | None = None
) -> Drawn:
    """Draw a column of panels for each policy and a row for each metric, over the swept key.

    `reference` is given if values are relative to it.
    """
    names, metrics = list(dict.fromkeys(data["panel"])), list(dict.fromkeys(data["metric"]))
    styles = styles or looks(data["policy"])
    values = values_in_order(data["value"])
    caption = spread_words(data)
    width = min(1.2 + 2.6 * len(names), _WIDEST)
    figure = new_figure(width, 2.5 * len(metrics), title, caption)
    panels = figure.subplots(len(metrics), len(names), squeeze=False, sharex=True, sharey="row")
    for line, metric in zip(panels, metrics, strict=True):
        whole = data[data["metric"] == metric]
        for axes, name in zip(line, names, strict=True):
            draw_panel(axes, whole[whole["panel"] == name], "", values, styles)
            own = axes.get_title(loc="left")
            axes.set_title(f"{name}: {own.replace('reference', reference) if reference else own}")
            value_axis(axes, values)
        line[0].set_ylim(0, 1.06 * max(axes.get_ylim()[1] / 1.06 for axes in line))
    for axes in panels[-1]:
        axes.set_xlabel(axis_title(key))
    legend_above(figure, panels[0, 0])
    return figure, data


_RATIO = "effective_training_ratio"
_INTERVAL = "failures.checkpoint_interval_s"


class Purpose(NamedTuple):
    """Figures of what a run is about: the metrics that it shows, if its rows have the first of `needs`.

    There are lines over each swept key that begins with `keys` (None: over no key), and bars for at most `most_rows`
    rows, with `unswept` only of runs that sweep nothing.
    """

    name: str
    words: str
    metrics: tuple[str, ...]
    needs: tuple[str, ...]
    keys: str | None = ""
    most_rows: int = 16
    unswept: bool = False


_PLACED = ("crossing_share", "fragmentation_by_node", "room_in_domain")
_PURPOSES = (
    Purpose("failures", "who suffers", ("jct_mean_s", _RATIO, "lost_gpu_hours"), (_RATIO,), "failures.", 0),
    Purpose("placement", "where jobs are placed", ("jct_mean_s", *_PLACED), _PLACED, most_rows=8, unswept=True),
    Purpose("deadlines", "deadlines", ("deadlines_met", "promises_kept", "deadlines_declined"), ("deadlines_met",)),
    Purpose("sharing", "what sharing GPUs is worth", ("speed_per_gpu", "jct_mean_s", "gpu_utilisation"),
            ("speed_per_gpu",), None),
)  # fmt: skip


def purpose_figures(run: Run, rows: Sequence[Row]) -> Iterator[tuple[str, Plan]]:
    """Plan what a run is about: lines over swept keys, bars, and agents in panels by scheduler."""
    styles = looks(run.shown_policies)
    swept = [key for key in run.swept if len({str(row.point.get(key)) for row in rows}) > 1]
    for purpose in _PURPOSES:
        if not any(name in row.values for row in rows for name in purpose.needs):
            continue
        for key in swept if purpose.keys is not None else ():
            if key == _INTERVAL and purpose.keys and not any(isinstance(row.point.get(key), str) for row in rows):
                yield "checkpoint-interval", partial(_checkpoints, run, rows, styles)
            elif key.startswith(purpose.keys or ""):
                title = f"{run.name}: {purpose.words}, over {axis_title(key)}"
                data = sweep_data(rows, key, purpose.metrics)
                name = f"{purpose.name}-{key.rsplit('.', 1)[-1]}"
                yield name, partial(sweep_lines, data, key, title=title, styles=styles)
        if len(rows) <= purpose.most_rows and not (purpose.unswept and run.swept):
            title = f"{run.name}: {purpose.words}"
            data = bar_data(rows, purpose.metrics)
            yield purpose.name, partial(metric_bars, data, title=title, styles=row_looks(run, rows))
    if len(swept) == 1 and compares_agents(rows):
        title = f"{run.name}: agents under schedulers over {axis_title(swept[0])}"
        data = agents_data(rows, swept[0], run.reference or "")
        yield "agents", partial(agents_panels, data, swept[0], title=title, reference=run.reference or "")


def _checkpoints(run: Run, rows: Sequence[Row], styles: Mapping[str, Look]) -> Drawn:
    title = f"{run.name}: what checkpoints are worth"
    return checkpoint_interval(sweep_data(rows, _INTERVAL, (_RATIO,)), _single(rows), title=title, styles=styles)


@styled()
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
    figure = new_figure(6.2, 3.6, title, caption)
    axes = figure.subplots()
    for name, line in data.groupby("line", sort=False):
        with_whiskers(axes, line["value"], line, styles[str(name)], str(name), factor=100)
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


_BY_TYPE = ("gpu_utilisation", "jct_mean_s")


def cluster_types(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the GPU types of a run's clusters, sorted; () if each cluster has one."""
    found: set[str] = set()
    for cell in (cell for row in rows for cell in row.cells):
        kinds = {str(group.get("gpu_type")) for group in cell.manifest.get("cluster") or ()}
        found |= kinds if len(kinds) > 1 else set()
    return tuple(sorted(found))


def type_metrics(rows: Sequence[Row], names: Sequence[str] = _BY_TYPE) -> tuple[str, ...]:
    """Return the keys of metrics by GPU type, the types of one metric adjacent."""
    keys = [f"{name}[{kind}]" for name in names for kind in cluster_types(rows)]
    return tuple(key for key in keys if any(key in row.values for row in rows))


def type_bars(rows: Sequence[Row], *, title: str, styles: Mapping[str, Look]) -> Drawn:
    """Draw the utilisation of each GPU type and the JCT of its jobs, a panel for each and a bar for each policy."""
    return metric_bars(bar_data(rows, type_metrics(rows)), title=title, styles=styles)


#: Up to this many kinds of jobs, every cell of the map shows its number.
_MOST_NUMBERS = 30
#: Up to this many kinds of jobs, a cell also shows both speeds.
_MOST_SPEEDS = 8

_Kind = tuple[str, int]


def pair_figures(run: Run) -> Iterator[tuple[str, Plan]]:
    """Plan the map of the pairs that shared a GPU, if their speeds come from a table of measured pairs."""
    measured = [cell for cell in run.cells if (cell.manifest.get("sharing") or {}).get("model") == "pairs"]
    cells = [cell for cell in measured if cell.has("allocations")]
    data = pair_speeds(cells) if cells else None
    if data is not None and len(data):
        yield "pairs", partial(pairs_map, data, title=f"{run.name}: which pairs of jobs gain from sharing a GPU")


@styled()
def pairs_map(data: pd.DataFrame, *, title: str) -> Drawn:
    """Draw the sum of the two speeds of every pair; above 1 the pair does more than either job alone.

    `data` has every pair in both orders: `application, batch_size, other_application, other_batch_size, speed, sum`.
    With `gpu_type` there is a map for each type.
    """
    kinds = sorted(set(zip(data["application"], data["batch_size"], strict=True)))
    types = list(dict.fromkeys(data["gpu_type"])) if "gpu_type" in data else [""]
    cell = 0.5 if len(kinds) <= _MOST_SPEEDS else 0.3
    side = 2.6 + cell * len(kinds)
    figure = new_figure((side - 1.2) * len(types) + 2.0, side, title, _pairs_caption(data, kinds, types))
    panels = figure.subplots(1, len(types), sharey=True, squeeze=False)[0]
    for axes, kind in zip(panels, types, strict=True):
        part = data[data["gpu_type"] == kind] if kind else data
        image = _pairs_of_type(axes, part, kinds)
        if len(types) > 1:
            axes.set_title(f"{kind.upper()}: {_paying(part):.0f} % pay")
    figure.colorbar(image, ax=list(panels), label="sum of the two speeds", shrink=0.8)
    panels[0].set_yticks(range(len(kinds)), _names(kinds), fontsize=8 if len(kinds) <= _MOST_SPEEDS else 6.5)
    return figure, data


def _pairs_caption(data: pd.DataFrame, kinds: Sequence[_Kind], types: Sequence[str]) -> str:
    small = " Small: the speed of the job of the row, beside that of the column." if len(kinds) <= _MOST_SPEEDS else ""
    share = "" if len(types) > 1 else f": {_paying(data):.0f} % of those here"
    return (
        "Sum of the speeds of two jobs on one GPU, each relative to that when alone; blue pays (above 1"
        f"{share}), red does not; white cells with a cross are not known or do not fit.{small}"
    )


def _paying(data: pd.DataFrame) -> float:
    """Return the percentage of the pairs, each counted once, whose sum is above 1."""
    one = list(zip(data["application"], data["batch_size"], strict=True))
    other = list(zip(data["other_application"], data["other_batch_size"], strict=True))
    once = data[[a <= b for a, b in zip(one, other, strict=True)]]
    return 100 * float(np.mean(once["sum"] > 1))


def _names(kinds: Sequence[_Kind]) -> list[str]:
    return [f"{name} {batch}" if batch else name for name, batch in kinds]


def _pairs_of_type(axes: Axes, data: pd.DataFrame, kinds: Sequence[_Kind]) -> AxesImage:
    """Draw the sums of one GPU type."""
    place: dict[Any, int] = {kind: index for index, kind in enumerate(kinds)}
    sums, speeds = (np.full((len(kinds), len(kinds)), np.nan) for _ in range(2))
    columns = ["application", "batch_size", "other_application", "other_batch_size", "sum", "speed"]
    for a, a_size, b, b_size, total, speed in data[columns].itertuples(index=False, name=None):
        at = place[a, a_size], place[b, b_size]
        sums[at], speeds[at] = total, speed
    few = len(kinds) <= _MOST_SPEEDS
    axes.grid(visible=False)
    image = axes.imshow(sums, cmap="RdBu", norm=TwoSlopeNorm(1.0, 0.0, 2.0))
    slant = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if few else {"rotation": 90}
    axes.set_xticks(range(len(kinds)), _names(kinds), fontsize=8 if few else 6.5, **slant)
    missing = np.argwhere(np.isnan(sums)).tolist()
    axes.plot([x for _, x in missing], [y for y, _ in missing], "x", color="#BBBBBB", markersize=3)
    if len(kinds) <= _MOST_NUMBERS:
        for y, x in np.argwhere(~np.isnan(sums)).tolist():
            colour = "white" if abs(sums[y, x] - 1) > 0.6 else "black"
            centre: dict[str, Any] = {"ha": "center", "va": "center", "color": colour}
            axes.text(x, y - 0.12 * few, f"{sums[y, x]:.{1 + few}f}", fontsize=8 if few else 5, **centre)
            if few:
                axes.text(x, y + 0.25, f"{speeds[y, x]:.2f}", fontsize=5.5, **centre)
    return image
