"""Writes runs as one self-contained HTML page, without external scripts, fonts or pictures."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup

from simsched.files import write_text
from simsched.outlets import html_data, json_text
from simsched.report.figures.draw import MOST_ROWS, placements, run_figures
from simsched.report.figures.output import inline_svg
from simsched.report.figures.purposes import type_metrics
from simsched.report.figures.style import REST, area_colours
from simsched.report.page.template import filled, page_of
from simsched.report.table import TextTable
from simsched.report.tables import comparison_table, difference_table, runs_tables, seeds_table
from simsched.results import Cell, Reproduction, Row, Run, comparison, paired_differences
from simsched.results.compare import row_name
from simsched.results.stays import (
    HELD_COLUMNS,
    OCCUPANCY_COLUMNS,
    OFF,
    Stay,
    colour_groups,
    node_sizes,
    rows_of_nodes,
    stays_of,
)
from simsched.words import counted

#: The number of jobs listed in the details of a policy.
_MOST_JOBS = 20
_JOB_COLUMNS = ("job_id", "application", "num_gpus", "submit_time_s", "jct_s", "queueing_s", "restarts")
_SHORT_HASH = 12
#: A heading that the contents of a page list.
_ENTRY = re.compile(r'<h3 id="([^"]+)" class="entry">(.*?)</h3>')


@dataclass(frozen=True)
class Part:
    """A run on the page; swept keys in `replicate_over` count as replications, as in `comparison`."""

    run: Run
    reproduction: Reproduction
    replicate_over: Collection[str] = ()

    @cached_property
    def rows(self) -> Sequence[Row]:
        """The run's policies compared."""
        return comparison(self.run, self.replicate_over)


#: A section to compose: its run, its anchor and its heading.
Wanted = tuple[Part, str, str]
Composed = Callable[[Sequence[Wanted]], list[str]]


def write_report(parts: Sequence[Part], title: str, path: Path, composed: Composed | None = None) -> None:
    """Write the page of these runs atomically; the same results give the same bytes.

    `composed` replaces `compose`, for instance to use several processes.
    """
    write_text(Path(path), report_page(parts, title, composed))


def report_page(parts: Sequence[Part], title: str, composed: Composed | None = None) -> str:
    """Compose the page: a section for each run and, if there are several, a list of them."""
    alone = len(parts) == 1
    wanted = [(part, f"run{number}", "" if alone else part.run.name) for number, part in enumerate(parts, start=1)]
    sections = Markup("\n".join((composed or compose)(wanted)))
    main = sections if alone else _side_by_side(parts) + sections
    kind = f"Results of simulated GPU clusters, written by simsched {_version(parts)}"
    contents = [(anchor, part.run.name, _first_sentence(part.run)) for part, anchor, _ in wanted]
    contents = _entries(sections) if alone else [("beside", "Runs side by side", ""), *contents]
    script = "occupancy.js" if 'class="block occupancy"' in sections else ""
    return page_of(title, kind, main, contents=contents, script=script)


def _entries(section: str) -> list[tuple[str, str, str]]:
    """List the parts of a section for the contents of its page."""
    return [(anchor, unescape(title), "") for anchor, title in _ENTRY.findall(section)]


def compose(wanted: Sequence[Wanted]) -> list[str]:
    """Compose sections, one after the other."""
    return [_section(*section) for section in wanted]


def _side_by_side(parts: Sequence[Part]) -> Markup:
    """Show each metric of all runs in one table, whose numbers link to the underlying cells and jobs."""
    runs = {f"{number}. {part.run.name}": part.rows for number, part in enumerate(parts, start=1)}
    places = [{row.shown_name: f"run{number}-behind{place}" for place, row in enumerate(rows)}
              for number, rows in enumerate(runs.values(), start=1)]  # fmt: skip
    tables = [
        (table, [[of_run.get(name, "") for of_run in places] for name, *_ in table.rows]) for table in runs_tables(runs)
    ]
    return filled("beside.html", tables=tables)


def _version(parts: Sequence[Part]) -> str:
    """Name the versions of simsched that made the results."""
    versions = {
        str(_mapping(cell.manifest, "environment").get("simsched") or "") for part in parts for cell in part.run.cells
    }
    return ", ".join(sorted(versions - {""}))


def _description(run: Run) -> str:
    return str(run.experiment.get("description") or "").strip()


def _first_sentence(run: Run) -> str:
    return re.split(r"(?<=[.!?:])\s", _description(run), maxsplit=1)[0]


def _section(part: Part, anchor: str, heading: str) -> str:
    run, rows = part.run, part.rows
    differences = paired_differences(rows, run.reference or rows[0].policy)
    by_type = type_metrics(rows, ("gpu_utilisation", "gpu_hours", "jct_mean_s"))
    title = "Policies compared"
    return filled(
        "report.html",
        anchor=anchor,
        heading=heading,
        run_name=run.name,
        folder=run.folder.name,
        description="" if run.changed else _description(run),
        missing=_missing(run),
        compared=comparison_table(rows, title=title, published_source=run.published_source, run=run),
        links=[[f"{anchor}-behind{place}"] for place in range(len(rows))],
        behind=[_behind(row, rows, f"{anchor}-behind{place}") for place, row in enumerate(rows)],
        differences=difference_table(differences) if differences else None,
        types=comparison_table(rows, by_type, title="By GPU type") if by_type else None,
        occupancy=occupancy_of(rows),
        pictures=[
            (name, inline_svg(figure, f"{anchor}-{name}-"))
            for name, (figure, _) in run_figures(run, part.replicate_over)
        ],
        recipe=part.reproduction,
        facts=_facts(run.cells),
        policies=_policies(run),
        cells=_cells(run),
        specification=json_text(run.experiment, indent=2, sort_keys=True, default=str),
    )


def _missing(run: Run) -> str:
    """Name the cells without results, "" if there are none."""
    names = ", ".join(run.missing[:MOST_ROWS]) + (", ..." if len(run.missing) > MOST_ROWS else "")
    count = len(run.missing)
    return f"{count} of {count + len(run.cells)} cells are missing: {names}." if count else ""


def _behind(row: Row, rows: Sequence[Row], anchor: str) -> tuple[str, str, TextTable, TextTable | None]:
    """Return the details of a row: title, anchor, each cell, and the longest jobs of the first."""
    cell = row.cells[0]
    title = f"Behind the numbers of {row.shown_name}: {counted(len(row.cells), 'cell')} and the longest jobs"
    return title, anchor, seeds_table(row, rows), jobs_table(cell) if cell.has("jobs") else None


def jobs_table(cell: Cell) -> TextTable:
    """Show the longest jobs of a cell, and why they waited if that is recorded."""
    jobs, waits = cell.columns("jobs", _JOB_COLUMNS), cell.waits
    longest = np.argsort(-jobs["jct_s"], kind="stable")[:_MOST_JOBS]
    lines = tuple(
        (str(job), str(application), waits.get(str(job), ""), f"{gpus:,}", *(f"{value:,.10g}" for value in numbers))
        for job, application, gpus, *numbers in zip(
            *(jobs[name][longest].tolist() for name in _JOB_COLUMNS), strict=True
        )
    )
    units = ("GPUs", "submitted (s)", "JCT (s)", "waited (s)", "restarts")
    told = f"All {len(jobs):,} are in {cell.folder.parent.name}/{cell.folder.name}/jobs.parquet of the run."
    title = f"Jobs of seed {cell.seed} that took longest"
    return TextTable(title, ("job", "application", "waited for", *units), lines, (told,), 3)


def _facts(cells: Sequence[Cell]) -> list[tuple[str, str]]:
    def written(key: str, write: Callable[[Any], object] = str, section: str = "") -> str:
        """Write the common values of a key of the manifests, or all values if they differ."""
        manifests = [_mapping(cell.manifest, section) if section else cell.manifest for cell in cells]
        values = [write(value) for one in manifests if (value := one.get(key)) not in (None, "")]
        return "; ".join(dict.fromkeys(str(value) for value in values if value != ""))

    return [
        ("simsched", written("simsched", section="environment")),
        ("git commit", written("git_commit", _commit, "environment")),
        ("engine semantics", written("engine_semantics")),
        ("schema of the tables", written("results_schema")),
        ("Python", written("python", section="environment")),
        ("packages", written("packages", _pairs, "environment")),
        ("platform", written("platform", section="environment")),
        ("seeds", ", ".join(map(str, sorted({cell.seed for cell in cells})))),
        ("cluster", written("cluster", _cluster)),
        ("engine", written("engine", _pairs)),
        ("hash of the code", written("code_hash")),
        ("hash of the applications", written("applications_hash")),
    ]


def _mapping(manifest: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = manifest.get(key)
    return value if isinstance(value, Mapping) else {}


def _commit(commit: object) -> str:
    text = str(commit or "")
    return f"{text[:-1]}, with changes" if text.endswith("+") else text


def _pairs(mapping: object) -> str:
    pairs = sorted(mapping.items()) if isinstance(mapping, Mapping) else ()
    return ", ".join(
        f"{key} {value if isinstance(value, str) else json_text(value, default=str)}" for key, value in pairs
    )


def _cluster(groups: object) -> str:
    if not isinstance(groups, list):
        return ""
    known = [group for group in groups if isinstance(group, Mapping)]
    return " + ".join(
        f"{group.get('nodes')} nodes of {group.get('gpus_per_node')} GPUs ({group.get('gpu_type')})" for group in known
    )


def _policies(run: Run) -> TextTable:
    headers = ("policy", "code", "parameters", "told about", "agents beside its jobs", "hash of its source")
    first = {cell.policy: cell.manifest for cell in reversed(run.cells)}
    rows = []
    for label in run.policies:
        manifest = first[label]
        policy = _mapping(manifest, "policy")
        told = [f"{signal} ({known})" for signal, known in sorted(_mapping(manifest, "policy_knows").items())]
        rows.append(
            (
                label,
                str(policy.get("class", policy.get("name", ""))),
                _pairs(_mapping(policy, "params")),
                ", ".join(told) if told else "no signal beyond the jobs' requests",
                _agents(_mapping(manifest, "agents")),
                _source(manifest.get("policy_source", "")),
            )
        )
    return TextTable("Policies, and what each was told", headers, tuple(rows))


def _source(source: object) -> str:
    """Shorten the hash of a policy's source; for several files, hash their hashes."""
    if isinstance(source, Mapping):
        source = sha256(json.dumps(source, sort_keys=True).encode()).hexdigest()
    return str(source)[:_SHORT_HASH]


def _agents(agents: Mapping[str, Any]) -> str:
    kinds: dict[str, list[str]] = {}
    for application, kind in agents.items():
        kinds.setdefault(str(kind), []).append(application)
    if len(kinds) == 1:
        return next(iter(kinds))
    return "; ".join(f"{kind}: {', '.join(names)}" for kind, names in sorted(kinds.items()))


def _cells(run: Run) -> TextTable:
    headers = ("cell", "seed", "jobs", "workload", "hash of its jobs", "folder")
    rows = [
        (
            row_name(cell.policy, cell.point),
            str(cell.seed),
            str(cell.manifest.get("jobs", "")),
            cell.workload_name,
            str(cell.manifest.get("jobs_hash", ""))[:_SHORT_HASH],
            cell.folder.name,
        )
        for cell in run.cells
    ]
    return TextTable("Cells", headers, tuple(rows))


#: More than these make a page slow.
_MOST_POLICIES = 8
_MOST_NODES = 64
_MOST_STAYS = 12_000
_FACTS = (
    "application",
    "tenant",
    "num_gpus",
    "submit_time_s",
    "start_time_s",
    "end_time_s",
    "restarts",
    "status",
)


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
    drawn, heights = 0, nodes
    for name, cell in cells.items():
        jobs = cell.table("jobs", ["job_id", *_FACTS])
        stays = stays_of(cell.table("allocations", HELD_COLUMNS), jobs, len(nodes))
        heights = rows_of_nodes(heights, stays)
        panels[name] = {"jobs": _told(jobs, cell.waits), "stays": _bars(stays, places, len(names)),
                        "outages": _outages(cell, len(nodes))}  # fmt: skip
        drawn += len(panels[name]["stays"]) + len(panels[name]["outages"])
        if drawn > _MOST_STAYS:
            return None
    until = max((stay[6] for panel in panels.values() for stay in panel["stays"]), default=1)
    data = {"nodes": heights, "until": until, "colours": [*colours.values(), REST], "panels": panels}
    kinds = frozenset(outage[3] for panel in panels.values() for outage in panel["outages"])
    keys = () if by == "job" else tuple(colours.items())
    return Occupancy(first.seed, tuple(panels), keys, kinds, Markup(html_data(data)))


def _told(jobs: pd.DataFrame, waits: Mapping[str, str]) -> dict[str, list[Any]]:
    return {row[0]: [*row[1:], waits.get(row[0], "")] for row in jobs.astype(object).itertuples(index=False)}


def _bars(stays: Sequence[Stay], places: Mapping[str, int], last: int) -> list[list[Any]]:
    return [
        [s.job_id, s.node, s.first_gpu, s.gpus, *map(_short, (s.start_s, s.ready_s, s.end_s)), s.number,
         places.get(s.job_id, last)]
        for s in stays
    ]  # fmt: skip


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
