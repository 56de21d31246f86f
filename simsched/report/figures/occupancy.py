"""Who held what of the cluster: jobs on GPUs, waiting jobs, quotas of queues, and racks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from simsched.artifacts import QUOTAS_FILE, QuotaRow
from simsched.reading import read_records
from simsched.report.figures.style import REST, Drawn, Plan, area_colours, legend_above, new_figure, styled, time_axis
from simsched.report.units import Shown, time_unit
from simsched.results import Cell, Row, Run
from simsched.results.metric import integrals
from simsched.results.stays import OFF, Stay, colour_groups, outages_told, rows_of_nodes, stays_of, waiting_by

#: More nodes than this are indistinguishable on a page.
MOST_NODES = 32
_MOST_BINS = 120
#: The number of waiting jobs from which an axis has integers; below, means over time are fractions.
_LEAST_WHOLE = 4
_STARTING = "#FFFFFF"
_BAR = 0.92
#: How far the notch of a restart reaches into the bar, in rows, so that bars of frequently restarted jobs stay visible.
_NOTCH = 0.35
#: Colour of nodes that are off, and hatches of failed ones, by kind.
_OFF_GREY, _BROKEN_GREY, _HATCH_GREY, _BREAKS = "#E4E4E4", "#F2F2F2", "#777777", "#C00020"
_HATCHES = ("/////", "\\\\\\\\\\", "xxxxx", ".....")

_OFF_LABEL = "node off"
_NONE: Mapping[str, pd.DataFrame] = MappingProxyType({})
#: Jobs and intervals of one cell.
Tables = tuple[pd.DataFrame, pd.DataFrame]


@styled()
def occupancy(
    cells: Mapping[str, Tables],
    nodes: Sequence[int],
    *,
    title: str = "Occupancy",
    outages: Mapping[str, pd.DataFrame] = _NONE,
) -> Drawn:
    """Draw one panel per policy: every node a row of GPUs, every job a bar on the GPUs that it held.

    `cells` maps labels to the tables of jobs and allocations of one cell each; `nodes` has the GPUs of each node, of
    which the first 32 are drawn. Colours distinguish applications, else tenants, else neighbouring jobs. A bar is pale
    while the job starts or restarts, with a black notch from the second placement on; a cross ends a job that failed or
    was killed. `outages` are the tables of outages of these cells, if any: a node's rows are hatched while it is
    failed, and grey while it is off. Data: `policy` and the fields of `simsched.results.stays.Stay`; with outages also
    `kind`, on rows without a job.
    """
    shown = list(nodes[:MOST_NODES])
    by, groups = _common_groups(cells)
    colours = area_colours(sorted(set(groups.values())))
    found = {label: stays_of(intervals, jobs, len(shown)) for label, (jobs, intervals) in cells.items()}
    last_s = max((stay.end_s for own in found.values() for stay in own), default=1.0)
    unit = time_unit(last_s)
    out_of_use = _kinds(outages)
    height = max(1.2, min(0.16 * sum(shown) + 0.3, 5.0))
    told = "" if not outages else _outages_caption(outages)
    figure = new_figure(7.2, height * len(cells) + 0.5, title, _caption(by, len(nodes)) + told)
    panels = figure.subplots(len(cells), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (label, own) in zip(panels, found.items(), strict=True):
        failed = set(cells[label][0].query("status in ('Failed', 'Killed')")["job_id"])
        tops = np.cumsum([0, *rows_of_nodes(shown, own)])  # the first row of each node, and the end of the last
        if label in outages:
            times = {name: outages[label][name] * unit.factor for name in ("start_s", "end_s")}
            _bands(axes, outages[label].assign(**times), out_of_use, tops)
        _panel(axes, own, tops, unit, {job: colours[group] for job, group in groups.items()}, failed)
        axes.set_title(label)
    time_axis(panels[-1], unit, last_s=last_s)
    handles = [] if by == "job" else [Patch(color=colour, label=name) for name, colour in colours.items()]
    handles += [Patch(**look, label=_OFF_LABEL if kind == OFF else kind) for kind, look in out_of_use.items()]
    legend_above(figure, panels[0], handles)
    lines = pd.DataFrame([{"policy": label, **asdict(stay)} for label, own in found.items() for stay in own])
    return figure, _with_outages(lines, outages, shown)


def _common_groups(cells: Mapping[str, Tables]) -> tuple[str, dict[str, str]]:
    jobs = pd.concat([jobs for jobs, _ in cells.values()]).drop_duplicates("job_id").sort_values("submit_time_s")
    return colour_groups(jobs)


def _caption(by: str, nodes: int) -> str:
    told = {"job": "neighbouring jobs", "tenant": "tenants", "application": "applications"}[by]
    text = f"A row is a GPU, grey lines part the nodes; a bar is a job on its GPUs, colours tell {told} apart."
    text += (
        " Black notch: restarted or moved; pale: it restores its state and makes no progress; cross: it failed or was"
    )
    text += " killed in the trace."
    if nodes > MOST_NODES:
        text += f" The first {MOST_NODES} of {nodes} nodes."
    return text


def _outages_caption(outages: Mapping[str, pd.DataFrame]) -> str:
    kinds = {kind for table in outages.values() for kind in table["kind"]}
    hatched = " Hatched: the node is out of order, from the red line on." if kinds - {OFF} else ""
    grey = " Grey: the policy has let the node go (it is asleep or not rented)." if OFF in kinds else ""
    told = "; ".join(f"{label}: {outages_told(table)}" for label, table in outages.items() if len(table))
    return f"{hatched}{grey} Out of use under {told}."


def _kinds(outages: Mapping[str, pd.DataFrame]) -> dict[str, dict[str, Any]]:
    """Return the style of nodes out of use, by kind, failed ones first."""
    names = sorted({kind for table in outages.values() for kind in table["kind"]}, key=lambda kind: (kind == OFF, kind))
    return {
        name: {"facecolor": _OFF_GREY, "edgecolor": _OFF_GREY, "linewidth": 0.0}
        if name == OFF
        else {"facecolor": _BROKEN_GREY, "edgecolor": _HATCH_GREY, "linewidth": 0.0,
              "hatch": _HATCHES[place % len(_HATCHES)]}
        for place, name in enumerate(names)
    }  # fmt: skip


def _with_outages(lines: pd.DataFrame, outages: Mapping[str, pd.DataFrame], nodes: Sequence[int]) -> pd.DataFrame:
    rows = [
        {"policy": label, "job_id": "", "node": node, "first_gpu": 0, "gpus": nodes[node], "start_s": start,
         "ready_s": start, "end_s": end, "number": 0, "ended": ended, "kind": kind}
        for label, table in outages.items()
        for node, start, end, kind, ended in table.itertuples(index=False)
        if node < len(nodes)
    ]  # fmt: skip
    return pd.concat([lines.assign(kind=""), pd.DataFrame(rows)], ignore_index=True) if rows else lines


def _bands(axes: Axes, outages: pd.DataFrame, looks: Mapping[str, Mapping[str, Any]], tops: np.ndarray) -> None:
    """Draw when each node was out of use, behind the jobs; times are in the unit of the axis."""
    for kind, look in looks.items():
        own = outages[(outages["kind"] == kind) & (outages["node"] < len(tops) - 1)]
        first, last = (own[name].to_numpy() for name in ("start_s", "end_s"))
        top, bottom = (tops[own["node"].to_numpy() + down] for down in (0, 1))
        corners = np.stack([[first, top], [last, top], [last, bottom], [first, bottom]]).transpose(2, 0, 1)
        axes.add_collection(PolyCollection(list(corners), **look, zorder=0.4 if kind == OFF else 0.5))
        if kind != OFF:
            axes.add_collection(LineCollection(list(corners[:, [0, 3]]), colors=_BREAKS, linewidths=0.9, zorder=2.5))


def _panel(
    axes: Axes, own: Sequence[Stay], tops: np.ndarray, unit: Shown, colours: Mapping[str, str], failed: set[str]
) -> None:
    nodes, heights = range(len(tops) - 1), np.diff(tops)
    bars = [_box(stay, tops, stay.start_s, stay.end_s, unit.factor) for stay in own]
    pale = [_box(stay, tops, stay.start_s, stay.ready_s, unit.factor) for stay in own if stay.ready_s > stay.start_s]
    faces = [colours.get(stay.job_id, REST) for stay in own]
    axes.add_collection(PolyCollection(bars, facecolors=faces, edgecolors="white", linewidths=0.3))
    axes.add_collection(PolyCollection(pale, facecolors=_STARTING, alpha=0.65, linewidths=0))
    corners = [_box(stay, tops, stay.start_s, stay.start_s, unit.factor)[0] for stay in own if stay.number > 1]
    notches = [((at, top), (at, top + _NOTCH)) for at, top in corners]
    axes.add_collection(LineCollection(notches, colors="black", linewidths=0.8))
    edges = [((0, top), (1, top)) for top in tops]
    lines = LineCollection(edges, colors="#BBBBBB", linewidths=0.5, transform=axes.get_yaxis_transform())
    axes.add_collection(lines)
    crosses = [stay for stay in own if stay.ended and stay.job_id in failed]
    axes.plot(
        [stay.end_s * unit.factor for stay in crosses],
        [tops[stay.node] + stay.first_gpu + stay.gpus / 2 for stay in crosses],
        "x", color="black", markersize=4, markeredgewidth=1,
    )  # fmt: skip
    axes.set_ylim(max(tops[-1], 1), 0)
    every = max(1, -(-len(nodes) // 16))
    places = range(0, len(nodes), every)
    axes.set_yticks([tops[node] + heights[node] / 2 for node in places], [str(node) for node in places])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False)
    axes.set_ylabel("node")


def _box(stay: Stay, tops: np.ndarray, start_s: float, end_s: float, factor: float) -> list[tuple[float, float]]:
    top = tops[stay.node] + stay.first_gpu + (1 - _BAR) / 2
    bottom = top + stay.gpus - (1 - _BAR)
    left, right = start_s * factor, end_s * factor
    return [(left, top), (right, top), (right, bottom), (left, bottom)]


@styled()
def queue_over_time(cells: Mapping[str, Tables], *, title: str = "Waiting jobs") -> Drawn:
    """Draw the number of waiting jobs over time, one panel per policy, stacked by tenant if there are several.

    `cells` maps labels to the tables of jobs and allocations of one cell each. Data: `policy, time_s` (start of the
    bin) and one column per tenant.
    """
    jobs = pd.concat([jobs for jobs, _ in cells.values()]).drop_duplicates("job_id")
    by, groups = colour_groups(jobs.assign(application=""))
    groups = groups if by == "tenant" else dict.fromkeys(jobs["job_id"], "jobs")
    colours = area_colours(sorted(set(groups.values())))
    last_s = float(max(own["end_time_s"].max() for own, _ in cells.values()))
    edges = np.linspace(0.0, last_s, _MOST_BINS + 1)
    unit = time_unit(last_s)
    frames = []
    caption = "Mean number of jobs that are in the system and hold no GPU, before their first start and between runs."
    figure = new_figure(7.2, 1.5 * len(cells) + 0.6, title, caption)
    panels = figure.subplots(len(cells), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, (label, (own, intervals)) in zip(panels, cells.items(), strict=True):
        waiting = waiting_by(own, intervals, groups, edges)[list(colours)]
        heights = [waiting[name].to_numpy() for name in colours]
        axes.stackplot(edges[:-1] * unit.factor, heights, colors=list(colours.values()), step="post",
                       labels=list(colours))  # fmt: skip
        axes.set(title=label, ylabel="jobs")
        frames.append(waiting.assign(policy=label, time_s=edges[:-1]))
    panels[0].set_ylim(0, None)
    whole = panels[0].get_ylim()[1] >= _LEAST_WHOLE
    panels[0].yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 5, 10], integer=whole))
    time_axis(panels[-1], unit, last_s=last_s)
    if by == "tenant":
        legend_above(figure, panels[0])
    return figure, pd.concat(frames, ignore_index=True)


#: More queues or domains than these are indistinguishable.
_MOST_QUEUES, _MOST_DOMAINS, _MOST_ROWS = 16, 64, 4
_BINS = 120
_OWN, _BORROWED, _QUOTA, _RECLAIMED = "#0072B2", "#E69F00", "#000000", "#C00020"


def queue_figures(run: Run, rows: Sequence[Row]) -> Iterator[tuple[str, Plan]]:
    """Plan `quotas` if a policy recorded them, and a figure for each level of racks or islands, of the first seed."""
    if run.swept or len(rows) > _MOST_ROWS:
        return
    kept = next((row.cells[0] for row in rows if (row.cells[0].folder / QUOTAS_FILE).is_file()), None)
    if kept is not None:
        last_s = float(kept.summary.get("makespan_s", 0.0))
        title = f"{run.name}: quota and its use (seed {kept.seed})"
        yield "quotas", partial(quotas_over_time, _quotas(kept), last_s, title=title)
    for level in (run.experiment.get("cluster") or {}).get("topology") or ():
        domains = level.get("domains")
        if domains and len(domains) <= _MOST_DOMAINS and all(row.cells[0].has("allocations") for row in rows):
            cells = {row.shown_name: row.cells[0] for row in rows}
            title = f"{run.name}: GPUs in use by {level['level']} (seed {rows[0].cells[0].seed})"
            yield f"by-{level['level']}", partial(domains_over_time, cells, level["level"], domains, title=title)


def _quotas(cell: Cell) -> pd.DataFrame:
    table = pd.DataFrame([cells for _, cells in read_records(cell.folder / QUOTAS_FILE, QuotaRow._fields)])
    return table.astype({name: "float64" for name in QuotaRow._fields if name != "queue"})


@styled()
def quotas_over_time(data: pd.DataFrame, last_s: float = 0.0, *, title: str) -> Drawn:
    """Draw a panel for each queue: its use of its own quota, its borrowing, its quota, and its reclaimed GPUs.

    `data` has the columns of `QuotaRow`; the last row of each queue holds until `last_s`. Only the queues that used
    most are drawn.
    """
    used = data.groupby("queue")["used"].max().sort_values(ascending=False, kind="stable")
    names = sorted(used.index[:_MOST_QUEUES])
    last_s = max(last_s, float(data["time_s"].max()))
    unit = time_unit(last_s)
    caption = "Reclaimed: GPUs taken back from other queues by preemption, summed since the start."
    figure = new_figure(7.2, 1.2 * len(names) + 0.8, title, caption)
    panels = figure.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]
    for axes, name in zip(panels, names, strict=True):
        part = data[data["queue"] == name]
        x = np.append(part["time_s"].to_numpy("float64"), last_s) * unit.factor
        own, borrowed, quota, back = (
            np.append(values, values[-1])
            for values in (
                (part["used"] - part["borrowed"]).to_numpy("float64"),
                *(part[key].to_numpy("float64") for key in ("borrowed", "quota", "reclaimed")),
            )
        )
        axes.stackplot(x, own, borrowed, colors=[_OWN, _BORROWED], labels=["own quota in use", "borrowed"], step="post")
        axes.step(x, quota, where="post", color=_QUOTA, linestyle="--", linewidth=1, label="quota")
        axes.step(x, back, where="post", color=_RECLAIMED, linewidth=1, label="reclaimed so far")
        axes.set(title=name, ylabel="GPUs", ylim=(0, None))
    time_axis(panels[-1], unit, last_s=last_s)
    legend_above(figure, panels[0])
    return figure, data


@styled()
def domains_over_time(cells: Mapping[str, Cell], level: str, domains: Sequence[Sequence[int]], *, title: str) -> Drawn:
    """Draw a panel for each policy: a row for each domain of a level, darker with more of its GPUs in use.

    Data: `policy, domain, time_s` (start of the bin) and the mean `share` of the GPUs in use.
    """
    last_s = max(float(cell.summary.get("makespan_s", 1.0)) for cell in cells.values())
    edges = np.linspace(0.0, last_s, _BINS + 1)
    unit = time_unit(last_s)
    frames = []
    figure = new_figure(
        7.2, len(cells) * (0.7 + 0.22 * len(domains)) + 0.8, title, "Dark: all GPUs in use; white: none."
    )
    panels = figure.subplots(len(cells), 1, sharex=True, squeeze=False)[:, 0]
    for axes, (label, cell) in zip(panels, cells.items(), strict=True):
        shares = _shares(cell, domains, edges)
        axes.pcolormesh(edges * unit.factor, np.arange(len(domains) + 1), shares, cmap="Blues", vmin=0, vmax=1)
        axes.set_yticks(np.arange(len(domains)) + 0.5, [str(number) for number in range(len(domains))])
        axes.invert_yaxis()
        axes.grid(visible=False)
        axes.set(ylabel=level, title=label)
        for number, row in enumerate(shares):
            frames.append(pd.DataFrame({"policy": label, "domain": number, "time_s": edges[:-1], "share": row}))
    time_axis(panels[-1], unit, last_s=last_s)
    return figure, pd.concat(frames, ignore_index=True)


def _shares(cell: Cell, domains: Sequence[Sequence[int]], edges: Any) -> np.ndarray:
    """Return the mean share of each domain's GPUs in use in each bin."""
    held = cell.table("allocations", ["start_s", "end_s", "placement"])
    pairs = held["placement"].str.split().explode().str.split(":", expand=True)
    node, gpus = pairs[0].astype("int64"), pairs[1].astype("float64")
    of_node = {node: number for number, domain in enumerate(domains) for node in domain}
    start, end = held["start_s"].reindex(node.index), held["end_s"].reindex(node.index)
    number = node.map(of_node).fillna(-1).to_numpy("int64")
    sizes = [one["gpus_per_node"] for one in cell.manifest["cluster"] for _ in range(one["nodes"])]
    rows = []
    for place, domain in enumerate(domains):
        mine = number == place
        begins, ends, held_gpus = (values[mine].to_numpy("float64") for values in (start, end, gpus))
        total = max(sum(sizes[one] for one in domain), 1)
        rows.append(integrals(begins, ends, held_gpus, edges) / np.diff(edges) / total)
    return np.array(rows)
