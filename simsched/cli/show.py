"""`simsched show`, and `simsched list`: the available policies, agents, metrics and more."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import click

from simsched.cli.compare import show_comparison
from simsched.cli.options import JSON, LAYOUT, METRICS, arg, command, opt
from simsched.cli.output import hours, print_json, print_table, table
from simsched.errors import input_error
from simsched.files import write_text
from simsched.outlets import json_text

if TYPE_CHECKING:
    from simsched.experiment import PolicyCard
    from simsched.report import TextTable
    from simsched.results import Cell
    from simsched.results.analyses import By, Groups


@command()
def show(
    folder: Path = arg("RUN_OR_CELL|policy"),
    name: str | None = arg("[POLICY]"),
    *,
    metrics: tuple[str, ...] = METRICS,
    by: Literal["tenant", "queue", "user", "size"] | None = opt("Show waits and usage by group instead."),
    layout: str | None = LAYOUT,
    as_json: bool = JSON,
) -> None:
    """Show the results of a run or of one of its cells; `simsched show policy NAME` describes a policy."""
    if name is not None:
        _show_policy(folder, name, as_json=as_json)
        return
    if by is not None:
        _show_groups(folder, by, as_json=as_json)
        return
    from simsched.results import RUN_FILE, read_cell, read_run

    if (folder / RUN_FILE).is_file() or not (folder / "manifest.json").is_file():
        show_comparison(read_run(folder), None, metrics, layout, differences=False, as_json=as_json)
        return
    cell = read_cell(folder)
    if as_json:
        print_json({"manifest": cell.manifest, "summary": cell.summary})
    else:
        _print_cell(cell, metrics)


def _show_policy(what: Path, name: str, *, as_json: bool) -> None:
    from simsched.experiment import policy_card

    if str(what) != "policy":
        raise input_error(str(what), "is followed by another word", "name one run, or `policy` and a policy's name")
    card = policy_card(name)
    if as_json:
        print_json({**asdict(card), "group": card.group, "answers": sorted(card.answers)})
        return
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    if console.is_terminal:
        console.print(Markdown(card.markdown()))
    else:
        click.echo(card.markdown())


def _print_cell(cell: Cell, metrics: tuple[str, ...]) -> None:
    from simsched.knowledge import legend
    from simsched.results import METRICS, find_metric

    click.echo(f"{cell.shown_policy}, seed {cell.seed}, workload {cell.workload_name or '-'}")
    readings = [find_metric(name) for name in metrics or METRICS]
    rows = [
        (reading.title, f"{cell.summary[reading.key] * reading.factor:.6g}", reading.unit)
        for reading in readings
        if reading.key in cell.summary
    ]
    click.echo(table(("metric", "value", "unit"), rows))
    for note in legend({cell.policy: cell.knows}):
        click.echo(note)


def _show_groups(folder: Path, by: str, *, as_json: bool) -> None:
    """Print a table for each policy of a run (first seed), or for a cell."""
    from simsched.knowledge import legend
    from simsched.results import RUN_FILE, read_cell, read_run
    from simsched.results.analyses import by_group
    from simsched.results.compare import row_name

    cells = read_run(folder).cells if (folder / RUN_FILE).is_file() else (read_cell(folder),)
    chosen = {row_name(cell.policy, cell.point): cell for cell in reversed(cells)}  # those of the first seed
    found: dict[str, Groups] = {}
    for name, cell in reversed(chosen.items()):
        if by == "queue" and "queue" not in cell.jobs:
            raise input_error(folder, "its jobs name no queue", "group by tenant, user or size")
        if cell.jobs.empty:
            raise input_error(cell.folder, "it has no finished jobs", "run the experiment with more jobs or more time")
        found[name] = by_group(cell.jobs, cast("By", by))
    if as_json:
        print_json({name: asdict(groups) for name, groups in found.items()})
        return
    for number, (name, groups) in enumerate(found.items()):
        if number:
            click.echo()
        cell = chosen[name]
        shown = groups_table(groups, title=row_name(cell.shown_policy, cell.point))
        print_table(replace(shown, notes=(*shown.notes, *legend({cell.policy: cell.knows}))))


def groups_table(groups: Groups, *, title: str) -> TextTable:
    """Tabulate groups, times in hours."""
    from simsched.report import TextTable

    headers = (
        groups.by, "jobs", "users", "mean wait (h)", "median wait (h)", "p90 wait (h)", "slow-down", "GPU hours",
        "share of GPU time (%)",
    )  # fmt: skip
    rows = tuple(
        (
            row.group, f"{row.jobs}", f"{row.users}", hours(row.mean_wait_s), hours(row.median_wait_s),
            hours(row.p90_wait_s), f"{row.slowdown:.2f}", f"{row.gpu_hours:.1f}", f"{100 * row.share:.1f}",
        )
        for row in groups.rows
    )  # fmt: skip
    note = f"Fairness of mean slow-downs (Jain's index, 1 is even): {groups.fairness:.3f}."
    return TextTable(title, headers, rows, (note,))


_Rows = Sequence[Sequence[str]]
#: The least width of the last column on a terminal.
_NARROWEST = 40


@command(name="list")
def list_(
    kind: Literal["policies", "agents", "applications", "traces", "experiments", "metrics", "figures"] = arg("KIND"),
    *,
    as_json: bool = JSON,
) -> None:
    """List policies, agents, applications, traces, experiments, metrics or figures.

    KIND is one of these words. Nothing is cut: on a terminal long lines wrap, elsewhere each entry is a line.
    """
    headers, rows_of = _KINDS[kind]
    rows = rows_of()
    if as_json:
        print_json([dict(zip(headers, row, strict=True)) for row in rows])
        return
    *names, last = map(list, zip(*rows, strict=True))
    if sys.stdout.isatty():  # elsewhere a line is an entry, and nothing is cut
        taken = sum(max(map(len, (header, *column))) + 2 for header, column in zip(headers, names, strict=False))
        room = max(shutil.get_terminal_size().columns - taken, _NARROWEST)
        last = ["\n".join(textwrap.wrap(text, room)) for text in last]
    click.echo(table(headers, list(zip(*names, last, strict=True)), left=len(headers), folded=True))


def _policies() -> _Rows:
    """Return the policies; as it takes a second to load them all, they are kept until their code changes."""
    from simsched.policy import POLICIES, registry

    key, place = _key_of_code(POLICIES.group, registry.names()), Path()
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError, RuntimeError):  # without a home, nothing is kept
        place = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "simsched" / "policies.json"
        kept = json.loads(place.read_text(encoding="utf-8"))
        rows = [tuple(map(str, row)) for row in kept["rows"]]
        if kept["key"] == key and all(len(row) == 3 for row in rows):
            return rows
    from simsched.experiment import policy_card

    rows = [(card.name, card.group, _title(card)) for card in map(policy_card, registry.names())]
    with contextlib.suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        write_text(place, json_text({"key": key, "rows": rows}))
    return rows


def _key_of_code(group: str, names: Sequence[str]) -> str:
    """Return a hash of names, times and sizes of all files of the packages that register plugins of a group."""
    from importlib.metadata import entry_points
    from importlib.util import find_spec

    points = sorted(point.value for point in entry_points(group=group))
    specs = [find_spec(name) for name in sorted({"simsched", *(point.partition(".")[0] for point in points)})]
    folders = [Path(folder) for spec in specs if spec for folder in spec.submodule_search_locations or ()]
    files = [(str(file), file.stat()) for folder in folders for file in sorted(folder.rglob("*.py"))]
    listed = [names, points, sys.version, [(name, stat.st_mtime_ns, stat.st_size) for name, stat in files]]
    return hashlib.sha256(repr(listed).encode("utf-8", "surrogateescape")).hexdigest()


def _title(card: PolicyCard) -> str:
    """Return the summary of a policy, with the release of the scheduler that it follows, if any."""
    release = f" ({card.follows.partition(' (')[0]})" if card.follows else ""
    return _after_name(card.title) + release


def _after_name(title: str) -> str:
    """Remove the name at the start of a title."""
    name, colon, rest = title.partition(": ")
    text = rest if colon and len(name) < 30 else title
    return text[:1].upper() + text[1:]


def _agents() -> _Rows:
    from simsched.agent import registry

    return [(name, (inspect.getdoc(registry.load(name)) or "").split("\n")[0]) for name in registry.names()]


def _applications() -> _Rows:
    from simsched.applications import catalogue
    from simsched.applications.plans import shipped_llms

    rows = []
    for name, application in sorted(catalogue().applications.items()):
        limits = application.limits
        batches = f"{limits.init_batch_size} to {limits.max_batch_size}" if limits else "-"
        rows.append((name, batches, str(application.max_gpus or "-"), str(application.epochs)))
    return rows + [(name, f"{model.global_batch} sequences", "-", "1") for name, model in shipped_llms().items()]


def _traces() -> _Rows:
    from simsched.paths import data_folder
    from simsched.workload import GENERATED

    files = sorted(path for path in data_folder("traces").iterdir() if ".csv" in path.suffixes)
    rows = [(path.name.split(".")[0], "shipped", str(path)) for path in files]
    return [*rows, (GENERATED, "generated", "generated for each seed")]


def _experiments() -> _Rows:
    from simsched.documents import yaml_lines
    from simsched.experiment import shipped_experiments

    found = {name: yaml_lines.load(path).data for name, path in shipped_experiments().items()}
    return [(name, " ".join(str(data.get("description", "")).split())) for name, data in found.items()]


def _metrics() -> _Rows:
    from simsched.results import METRICS

    return [(metric.name, metric.unit or "-", " ".join(metric.meaning.split())) for metric in METRICS.values()]


def _figures() -> _Rows:
    from simsched.report.figures import FIGURES

    return list(FIGURES.items())


#: What can be listed: the headers, and the function that returns the rows.
_KINDS: Mapping[str, tuple[Sequence[str], Callable[[], _Rows]]] = {
    "policies": (("policy", "class", "what it does (more: simsched show policy NAME)"), _policies),
    "agents": (("agent", "what it does (agent: {name: ...} of a policy)"), _agents),
    "applications": (("application", "batch size", "max GPUs", "epochs"), _applications),
    "traces": (("trace", "kind", "where"), _traces),
    "experiments": (("experiment", "what it shows"), _experiments),
    "metrics": (("metric", "unit", "meaning"), _metrics),
    "figures": (("figure", "what it shows"), _figures),
}
