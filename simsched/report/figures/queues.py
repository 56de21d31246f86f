"""The quota use of queues over time, and the utilisation of racks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from simsched.artifacts import QUOTAS_FILE, QuotaRow
from simsched.reading import read_records
from simsched.report.figures.style import Drawn, legend_above, new_figure, styled
from simsched.report.units import time_unit
from simsched.results import Cell, Row, Run, integrals

#: More queues or domains than these are indistinguishable.
_MOST_QUEUES, _MOST_DOMAINS, _MOST_ROWS = 16, 64, 4
_BINS = 120
_OWN, _BORROWED, _QUOTA, _RECLAIMED = "#0072B2", "#E69F00", "#000000", "#C00020"


def queue_figures(run: Run, rows: Sequence[Row]) -> Iterator[tuple[str, Drawn]]:
    """Draw `quotas` if a policy recorded them, and a figure for each level of racks or islands, of the first seed."""
    if run.swept or len(rows) > _MOST_ROWS:
        return
    kept = next((row.cells[0] for row in rows if (row.cells[0].folder / QUOTAS_FILE).is_file()), None)
    if kept is not None:
        last_s = float(kept.summary.get("makespan_s", 0.0))
        title = f"{run.name}: quota and its use (seed {kept.seed})"
        yield "quotas", quotas_over_time(_quotas(kept), last_s, title=title)
    for level in (run.experiment.get("cluster") or {}).get("topology") or ():
        domains = level.get("domains")
        if domains and len(domains) <= _MOST_DOMAINS and all(row.cells[0].has("allocations") for row in rows):
            cells = {row.shown_name: row.cells[0] for row in rows}
            title = f"{run.name}: GPUs in use by {level['level']} (seed {rows[0].cells[0].seed})"
            yield f"by-{level['level']}", domains_over_time(cells, level["level"], domains, title=title)


def _quotas(cell: Cell) -> pd.DataFrame:
    table = pd.DataFrame([cells for _, cells in read_records(cell.folder / QUOTAS_FILE, QuotaRow._fields)])
    return table.astype({name: "float64" for name in QuotaRow._fields if name != "queue"})


def quotas_over_time(data: pd.DataFrame, last_s: float = 0.0, *, title: str) -> Drawn:
    """Draw a panel for each queue: its use of its own quota, its borrowing, its quota, and its reclaimed GPUs.

    `data` has the columns of `QuotaRow`; the last row of each queue holds until `last_s`. Only the queues that used
    most are drawn.
    """
    used = data.groupby("queue")["used"].max().sort_values(ascending=False, kind="stable")
    names = sorted(used.index[:_MOST_QUEUES])
    last_s = max(last_s, float(data["time_s"].max()))
    unit = time_unit(last_s)
    with styled():
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
            axes.stackplot(
                x, own, borrowed, colors=[_OWN, _BORROWED], labels=["own quota in use", "borrowed"], step="post"
            )
            axes.step(x, quota, where="post", color=_QUOTA, linestyle="--", linewidth=1, label="quota")
            axes.step(x, back, where="post", color=_RECLAIMED, linewidth=1, label="reclaimed so far")
            axes.set(title=name, ylabel="GPUs", ylim=(0, None))
        panels[-1].set(xlim=(0, last_s * unit.factor), xlabel=unit.title("time since the start of the workload"))
        legend_above(figure, panels[0])
    return figure, data


def domains_over_time(cells: Mapping[str, Cell], level: str, domains: Sequence[Sequence[int]], *, title: str) -> Drawn:
    """Draw a panel for each policy: a row for each domain of a level, darker with more of its GPUs in use.

    Data: `policy, domain, time_s` (start of the bin) and the mean `share` of the GPUs in use.
    """
    last_s = max(float(cell.summary.get("makespan_s", 1.0)) for cell in cells.values())
    edges = np.linspace(0.0, last_s, _BINS + 1)
    unit = time_unit(last_s)
    frames = []
    with styled():
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
        panels[-1].set_xlabel(unit.title("time since the start of the workload"))
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
