"""Figures of runs with deadlines, agents that adapt batches, shared GPUs, racks, or several GPU types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from simsched.report.figures.agents import agents_data, agents_panels, compares_agents
from simsched.report.figures.bars import bar_data, metric_bars
from simsched.report.figures.style import Drawn, Look, looks, row_looks
from simsched.report.figures.sweep import axis_title, sweep_data, sweep_lines
from simsched.results import Row, Run

_DEADLINES = ("deadlines_met", "promises_kept", "deadlines_declined")
_SHARED = ("speed_per_gpu", "jct_mean_s", "gpu_utilisation")
_BY_TYPE = ("gpu_utilisation", "jct_mean_s")
_PLACED = ("crossing_share", "fragmentation_by_node", "room_in_domain")
#: More bars than these are indistinguishable.
_MOST_ROWS = 8


def purpose_figures(run: Run, rows: Sequence[Row], most_rows: int) -> Iterator[tuple[str, Drawn]]:
    """Draw deadlines and agents over each swept key, and the benefit of sharing by row."""
    swept = [key for key in run.swept if len({str(row.point.get(key)) for row in rows}) > 1]
    styles = looks(run.shown_policies)
    if any(_DEADLINES[0] in row.values for row in rows):
        for key in swept:
            title = f"{run.name}: deadlines over {axis_title(key)}"
            data = sweep_data(rows, key, _DEADLINES)
            yield f"deadlines-{key.rsplit('.', 1)[-1]}", sweep_lines(data, key, title=title, styles=styles)
        if len(rows) <= most_rows:
            title = f"{run.name}: deadlines"
            yield ("deadlines", metric_bars(bar_data(rows, _DEADLINES), title=title, styles=row_looks(run, rows)))
    if len(swept) == 1 and compares_agents(rows):
        title = f"{run.name}: agents under schedulers over {axis_title(swept[0])}"
        reference = run.reference or ""
        data = agents_data(rows, swept[0], reference)
        yield "agents", agents_panels(data, swept[0], title=title, reference=reference)
    if len(rows) <= most_rows and any(_SHARED[0] in row.values for row in rows):
        title = f"{run.name}: what sharing GPUs is worth"
        yield "sharing", metric_bars(bar_data(rows, _SHARED), title=title, styles=row_looks(run, rows))


def placement_figures(run: Run, rows: Sequence[Row]) -> Iterator[tuple[str, Drawn]]:
    """Draw mean JCT, time across domains, fragmentation and room, as far as they are recorded: bars, or lines."""
    found = [name for name in _PLACED if any(name in row.values for row in rows)]
    if not found:
        return
    metrics, styles = ("jct_mean_s", *found), looks(run.shown_policies)
    if not run.swept and len(rows) <= _MOST_ROWS:
        title = f"{run.name}: where jobs are placed"
        yield "placement", metric_bars(bar_data(rows, metrics), title=title, styles=styles)
    for key in run.swept:
        title = f"{run.name}: where jobs are placed, over {axis_title(key)}"
        drawn = sweep_lines(sweep_data(rows, key, metrics), key, title=title, styles=styles)
        yield f"placement-{key.rsplit('.', 1)[-1]}", drawn


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
