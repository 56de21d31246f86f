"""What each GPU type of a cluster did under each policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simsched.report.figures.bars import bar_data, metric_bars
from simsched.report.figures.style import Drawn, Look
from simsched.results import Row

_SHOWN = ("gpu_utilisation", "jct_mean_s")


def cluster_types(rows: Sequence[Row]) -> tuple[str, ...]:
    """Return the GPU types of a run's clusters, sorted; () where each cluster has one."""
    found: set[str] = set()
    for cell in (cell for row in rows for cell in row.cells):
        kinds = {str(group.get("gpu_type")) for group in cell.manifest.get("cluster") or ()}
        found |= kinds if len(kinds) > 1 else set()
    return tuple(sorted(found))


def type_metrics(rows: Sequence[Row], names: Sequence[str] = _SHOWN) -> tuple[str, ...]:
    """Return the keys of what is known by GPU type, the types of one metric beside each other."""
    keys = [f"{name}[{kind}]" for name in names for kind in cluster_types(rows)]
    return tuple(key for key in keys if any(key in row.values for row in rows))


def type_bars(rows: Sequence[Row], *, title: str, styles: Mapping[str, Look]) -> Drawn:
    """Draw how busy each GPU type was and how long its jobs took, a panel for each and a bar for each policy."""
    return metric_bars(bar_data(rows, type_metrics(rows)), title=title, styles=styles)
