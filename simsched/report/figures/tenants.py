"""Mean waits by policy and by tenant, queue, user and size, for experiments with tenants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from simsched.report.figures.style import Drawn, Look, legend_above, new_figure, row_looks, styled
from simsched.report.units import HOUR_S, Shown, time_unit
from simsched.results import By, Row, Run, by_group

#: The most policies and the most groups that fit a figure.
_MOST_ROWS, _MOST_GROUPS = 8, 16
_COLUMNS = ["job_id", "tenant", "user", "num_gpus", "queueing_s", "jct_s", "held_s", "attained_gpu_s", "queue"]
_KINDS: Sequence[By] = ("tenant", "queue", "user", "size")


def tenant_figures(run: Run, rows: Sequence[Row]) -> Iterator[tuple[str, Drawn]]:
    """Draw `tenants` if the experiment has tenants and sweeps nothing."""
    if run.experiment.get("tenants") and not run.swept and len(rows) <= _MOST_ROWS:
        data = tenant_waits(
            {row.shown_name: pd.concat(cell.table("jobs", _COLUMNS) for cell in row.cells) for row in rows}
        )
        yield ("tenants", draw_tenant_waits(data, title=f"{run.name}: who waits", styles=row_looks(run, rows)))


def tenant_waits(jobs: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Return the mean wait in hours of each group of jobs under each policy: `by, group, policy, jobs, mean_wait_h`.

    A single queue or user is left out. Only the groups with the most GPU time are kept.
    """
    lines = []
    for policy, table in jobs.items():
        for by in _KINDS:
            if by in ("queue", "user") and (by not in table or table[by].nunique() < 2):
                continue
            groups = [row for row in by_group(table, by).rows if row.group != "all"]
            kept = {row.group for row in sorted(groups, key=lambda row: -row.gpu_hours)[:_MOST_GROUPS]}
            lines += [(by, row.group, policy, row.jobs, row.mean_wait_s / 3600) for row in groups if row.group in kept]
    return pd.DataFrame(lines, columns=["by", "group", "policy", "jobs", "mean_wait_h"])


def draw_tenant_waits(data: pd.DataFrame, *, title: str, styles: Mapping[str, Look]) -> Drawn:
    """Draw a panel for each way to group jobs, with a line for each group and a point on it for each policy."""
    kinds = list(dict.fromkeys(data["by"]))
    most = max(data[data["by"] == by]["group"].nunique() for by in kinds)
    with styled():
        caption = "Points: mean wait of the group's jobs under a policy."
        figure = new_figure(1.0 + 4.0 * len(kinds), 1.6 + 0.3 * most, title, caption)
        unit = time_unit(float(data["mean_wait_h"].max()) * HOUR_S, days=False)
        for axes, by in zip(figure.subplots(1, len(kinds), squeeze=False)[0], kinds, strict=True):
            _panel(axes, data[data["by"] == by], styles, unit)
            axes.set_title(f"by {by}")
        legend_above(figure, axes)
    return figure, data


def _panel(axes: Axes, part: pd.DataFrame, styles: Mapping[str, Look], unit: Shown) -> None:
    names = list(dict.fromkeys(part["group"]))
    for policy, points in part.groupby("policy", sort=False):
        look = styles[str(policy)]
        places = [names.index(name) for name in points["group"]]
        waits = HOUR_S * unit.factor * points["mean_wait_h"]
        axes.plot(waits, places, look.marker, color=look.colour, label=str(policy), clip_on=False)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlim(left=0)
    axes.margins(x=0.05)
    axes.set_xlabel(unit.title("mean wait"))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6))
