"""The interactive occupancy of a run: data embedded in the page, drawn by the page's script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from simsched.outlets import html_data
from simsched.report.figures.draw import placements
from simsched.report.figures.style import REST, area_colours
from simsched.results import Cell, Row
from simsched.results.stays import HELD_COLUMNS, OCCUPANCY_COLUMNS, OFF, colour_groups, node_sizes, stays_of

#: More than these make a page slow.
_MOST_POLICIES = 8
_MOST_NODES = 64
_MOST_STAYS = 12_000
_JOB_FACTS = ("application", "tenant", "num_gpus", "submit_time_s", "start_time_s", "end_time_s", "restarts", "status")


@dataclass(frozen=True)
class Occupancy:
    """What the page shows of an occupancy: the policies, the colours, and the data for its script."""

    seed: int
    names: tuple[str, ...]
    keys: tuple[tuple[str, str], ...]
    kinds: frozenset[str]
    data: Markup

    @property
    def broken(self) -> str:
        """The kinds of failures of nodes."""
        return ", ".join(sorted(self.kinds - {OFF}))

    @property
    def off(self) -> bool:
        """Whether the policy let nodes go."""
        return OFF in self.kinds


def occupancy_of(rows: Sequence[Row]) -> Occupancy | None:
    """Gather the occupancy of the first seed of each row, two panels side by side with linked time.

    None without intervals, or with too many for a page. Without scripts the page keeps the picture of the same name.
    """
    cells = {row.shown_name: row.cells[0] for row in rows[:_MOST_POLICIES]}
    if not cells or not all(cell.has("allocations") for cell in cells.values()):
        return None
    first = next(iter(cells.values()))
    tables = (cell.table("allocations", HELD_COLUMNS) for cell in cells.values())
    nodes = node_sizes(first.manifest.get("cluster"), tables)
    if len(nodes) <= _MOST_NODES and sum(map(placements, cells.values())) > _MOST_STAYS:
        return None
    nodes = nodes[:_MOST_NODES]
    by, groups = colour_groups(first.table("jobs", OCCUPANCY_COLUMNS))
    names = sorted(set(groups.values()))
    colours = area_colours(names)
    places = {job: names.index(group) for job, group in groups.items()}
    panels: dict[str, dict[str, Any]] = {}
    drawn = 0
    for name, cell in cells.items():
        panels[name] = _panel(cell, len(nodes), places, len(names))
        drawn += len(panels[name]["stays"]) + len(panels[name]["outages"])
        if drawn > _MOST_STAYS:
            return None
    until = max((stay[6] for panel in panels.values() for stay in panel["stays"]), default=1)
    data = {"nodes": _heights(nodes, panels), "until": until, "colours": [*colours.values(), REST], "panels": panels}
    kinds = frozenset(outage[3] for panel in panels.values() for outage in panel["outages"])
    keys = () if by == "job" else tuple(colours.items())
    return Occupancy(first.seed, tuple(panels), keys, kinds, Markup(html_data(data)))


def _panel(cell: Cell, nodes: int, places: dict[str, int], last: int) -> dict[str, Any]:
    jobs = cell.table("jobs", ["job_id", *_JOB_FACTS])
    found = stays_of(cell.table("allocations", HELD_COLUMNS), jobs, nodes)
    waits = cell.waits
    return {
        "jobs": {row[0]: [*row[1:], waits.get(row[0], "")] for row in jobs.astype(object).itertuples(index=False)},
        "stays": [
            [s.job_id, s.node, s.first_gpu, s.gpus, _short(s.start_s), _short(s.ready_s), _short(s.end_s), s.number,
             places.get(s.job_id, last)]
            for s in found
        ],
        "outages": _outages(cell, nodes),
    }  # fmt: skip


def _outages(cell: Cell, nodes: int) -> list[list[Any]]:
    """Return when each node was out of use, first those that are off: others are drawn over them."""
    rows = [
        [int(node), _short(start), _short(end), str(kind), bool(ended)]
        for node, start, end, kind, ended in cell.outages.itertuples(index=False)
        if node < nodes
    ]
    return sorted(rows, key=lambda row: row[3] != OFF)


def _short(seconds: float) -> float | int:
    return int(seconds) if float(seconds).is_integer() else round(float(seconds), 3)


def _heights(nodes: Sequence[int], panels: dict[str, Any]) -> list[int]:
    """Return the rows of each node: its GPUs, or more if jobs share them."""
    heights = list(nodes)
    for panel in panels.values():
        for _, node, first, gpus, *_ in panel["stays"]:
            heights[node] = max(heights[node], first + gpus)
    return heights
