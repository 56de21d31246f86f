"""The interactive occupancy of a run: data embedded in the page, drawn by the page's script."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from importlib.resources import files
from typing import Any

from simsched.outlets import html_data, html_text
from simsched.report.figures.draw import placements
from simsched.report.figures.style import REST, area_colours
from simsched.results import HELD_COLUMNS, OCCUPANCY_COLUMNS, OFF, Cell, Row, colour_groups, node_sizes, stays

#: More than these make a page slow.
_MOST_POLICIES = 8
_MOST_NODES = 64
_MOST_STAYS = 12_000
_JOB_FACTS = ("application", "tenant", "num_gpus", "submit_time_s", "start_time_s", "end_time_s", "restarts", "status")


def occupancy_script() -> str:
    """Return the script that draws every occupancy of a page."""
    text = files("simsched.report.page").joinpath("occupancy.js").read_text(encoding="utf-8")
    return f"<script>\n{text}</script>"


def interactive_occupancy(rows: Sequence[Row], anchor: str) -> str:
    """Write the occupancy of the first seed of each row, two panels side by side with linked time.

    Returns an empty string without intervals, or with too many for a page. Without scripts the page keeps the picture
    of the same name.
    """
    cells = {row.shown_name: row.cells[0] for row in rows[:_MOST_POLICIES]}
    if not cells or not all(cell.has("allocations") for cell in cells.values()):
        return ""
    first = next(iter(cells.values()))
    tables = (cell.table("allocations", HELD_COLUMNS) for cell in cells.values())
    nodes = node_sizes(first.manifest.get("cluster"), tables)
    if len(nodes) <= _MOST_NODES and sum(map(placements, cells.values())) > _MOST_STAYS:
        return ""
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
            return ""
    until = max((stay[6] for panel in panels.values() for stay in panel["stays"]), default=1)
    data = {"nodes": _heights(nodes, panels), "until": until, "colours": [*colours.values(), REST], "panels": panels}
    asking = " Hovering a node that is out of use tells why." if any(p["outages"] for p in panels.values()) else ""
    text = html_data(data)
    return f"""<div class="block occupancy" id="{anchor}-occupancy">
<h3>Who held which GPUs (seed {first.seed})</h3>
<p class="hint">Nodes down, time across: a bar is a job on its GPUs. Wheel or buttons zoom, dragging moves, hovering or
tapping a bar tells its job's story; a tap also pales the other jobs.{asking} Keys: arrows move, + and - zoom,
0 shows all, n and p go from job to job.</p>
{_legend(by, colours, {outage[3] for panel in panels.values() for outage in panel["outages"]})}
<div class="tools"><button type="button" class="in">Zoom in</button> <button type="button" class="out">Zoom out</button>
<button type="button" class="all">All</button> {_choices(list(panels))}</div>
<p class="story" role="status" aria-live="polite"></p>
<div class="panels">{"".join(f'<div data-panel="{i}"></div>' for i in range(min(2, len(panels))))}</div>
<script type="application/json">{text}</script>
</div>"""


def _legend(by: str, colours: Mapping[str, str], kinds: Collection[str]) -> str:
    """Explain colours and marks, including those of `kinds` of outages."""
    marks = "Notch above: started again or moved; pale: it restores its state; &times;: it failed or was killed."
    broken = ", ".join(sorted(set(kinds) - {OFF}))
    marks += f" Hatched, from the red line on: the node is out of order ({html_text(broken)})." if broken else ""
    marks += " Grey: the policy has let the node go." if OFF in kinds else ""
    if by == "job":
        return f'<p class="hint">Colours only tell jobs apart. {marks}</p>'
    keys = " ".join(
        f'<span class="key"><span style="background: {colour}"></span>{html_text(name)}</span>'
        for name, colour in colours.items()
    )
    return f'<p class="hint keys">{keys} {marks}</p>'


def _choices(names: Sequence[str]) -> str:
    """Return menus for the two policies shown side by side, if there are more."""
    if len(names) <= 2:
        return ""
    made = []
    for chosen, side in enumerate(("left", "right")):
        options = "".join(
            f'<option value="{i}"{" selected" if i == chosen else ""}>{html_text(name)}</option>'
            for i, name in enumerate(names)
        )
        made.append(f'<select aria-label="policy on the {side}">{options}</select>')
    return " ".join(made)


def _panel(cell: Cell, nodes: int, places: dict[str, int], last: int) -> dict[str, Any]:
    jobs = cell.table("jobs", ["job_id", *_JOB_FACTS])
    found = stays(cell.table("allocations", HELD_COLUMNS), jobs, nodes)
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
