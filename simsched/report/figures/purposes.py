"""Figures of runs in which jobs have deadlines, adapt their batches by themselves, or share GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simsched.report.figures.agents import agents_data, agents_panels, compares_agents
from simsched.report.figures.bars import bar_data, metric_bars
from simsched.report.figures.style import Drawn, looks
from simsched.report.figures.sweep import axis_title, sweep_data, sweep_lines
from simsched.results import Row, Run

_DEADLINES = ("deadlines_met", "promises_kept", "deadlines_declined")
_SHARED = ("speed_per_gpu", "jct_mean_s", "gpu_utilisation")


def purpose_figures(run: Run, rows: Sequence[Row], most_rows: int) -> Iterator[tuple[str, Drawn]]:
    """Draw what becomes of deadlines and of agents over each swept key, and what sharing is worth row by row."""
    swept = [key for key in run.swept if len({str(row.point.get(key)) for row in rows}) > 1]
    styles = looks(run.shown_policies)
    if any(_DEADLINES[0] in row.values for row in rows):
        for key in swept:
            title = f"{run.name}: deadlines over {axis_title(key)}"
            data = sweep_data(rows, key, _DEADLINES)
            yield f"deadlines-{key.rsplit('.', 1)[-1]}", sweep_lines(data, key, title=title, styles=styles)
        if len(rows) <= most_rows:
            title = f"{run.name}: deadlines"
            yield (
                "deadlines",
                metric_bars(bar_data(rows, _DEADLINES), title=title, styles=looks(r.shown_name for r in rows)),
            )
    if len(swept) == 1 and compares_agents(rows):
        title = f"{run.name}: agents under schedulers over {axis_title(swept[0])}"
        reference = run.reference or ""
        data = agents_data(rows, swept[0], reference)
        yield "agents", agents_panels(data, swept[0], title=title, reference=reference)
    if len(rows) <= most_rows and any(_SHARED[0] in row.values for row in rows):
        title = f"{run.name}: what sharing GPUs is worth"
        yield "sharing", metric_bars(bar_data(rows, _SHARED), title=title, styles=looks(r.shown_name for r in rows))
