"""Figures of runs that know racks or islands, or record which free GPUs are of no use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simsched.report.figures.bars import bar_data, metric_bars
from simsched.report.figures.style import Drawn, looks
from simsched.report.figures.sweep import axis_title, sweep_data, sweep_lines
from simsched.results import Row, Run

_CROSSING, _FRAGMENTED = "crossing_share", "fragmentation_by_node"
#: More bars than these are not told apart.
_MOST_ROWS = 8


def placement_figures(run: Run, rows: Sequence[Row]) -> Iterator[tuple[str, Drawn]]:
    """Draw mean JCT, time across domains and fragmentation, as far as they are there: bars, or over each swept key."""
    found = [name for name in (_CROSSING, _FRAGMENTED) if any(name in row.values for row in rows)]
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
