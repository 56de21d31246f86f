"""Reads the folders that a run leaves behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simsched.errors import InputError, Problem, input_error
from simsched.knowledge import marked
from simsched.outlets import csv_cell, one_line, visible
from simsched.results.arrow import ROWS_FOR_THREADS, arrow_schema, columns_of, read_arrow
from simsched.results.fairness import read_fairness, summarise_rho, summarise_rho_without
from simsched.results.integrity import MANIFEST_FILE, SUMMARY_FILE, check, is_sealed
from simsched.results.metric import Columns
from simsched.results.metrics import range_of
from simsched.results.rows import TABLES
from simsched.results.sheets import CurvePoint
from simsched.results.stored import (
    RUN_AGAIN,
    WORKLOAD_FILE,
    CellEntry,
    Manifest,
    RunIndex,
    Summary,
    read_json as read_json,
)
from simsched.words import counted

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

RUN_FILE = "run.json"


#: Sections of an experiment whose change invalidates published values.
_COMPARED = ("workload", "cluster", "engine", "policies", "applications", "tuning")
_EXTENT = ("available_gpus", "provisioned_nodes")


@dataclass(frozen=True)
class Cell:
    """The results of one policy under one seed at one point of the sweep.

    `policy` is the label under which the policy is shown, `policy_name` the policy itself; `point` maps swept keys to
    their values, and `own` the conditions specific to this policy. The tables are read on first use and kept; `table`
    reads without keeping.
    """

    folder: Path
    manifest: Mapping[str, Any]
    summary: Mapping[str, float]
    policy: str = ""
    policy_name: str = ""
    seed: int = 0
    point: Mapping[str, Any] = field(default_factory=dict)
    fairness_file: Path | None = None
    own: Mapping[str, Any] = field(default_factory=dict)

    @property
    def workload_name(self) -> str:
        """Name of the workload (for a CSV file its stem), from the manifest; empty if it has none."""
        workload = self.manifest.get("workload")
        name = workload.get("name", "") if isinstance(workload, Mapping) else workload
        return str(name or "")

    @property
    def knows(self) -> Mapping[str, str]:
        """How a real scheduler would obtain each signal that the policy reads, from the manifest."""
        found = self.manifest.get("policy_knows")
        return {str(signal): str(known) for signal, known in found.items()} if isinstance(found, Mapping) else {}

    @property
    def shown_policy(self) -> str:
        """The label with the mark of the policy's knowledge: `srtf †`."""
        return marked(self.policy, self.knows)

    def has(self, table: str) -> bool:
        """Return whether the table was recorded."""
        return (self.folder / TABLES[table].file).is_file()

    def table(self, name: str, columns: Sequence[str] | None = None) -> pd.DataFrame:
        """Read a table, or only some of its columns; a missing occasional one is empty."""
        if TABLES[name].occasional and not self.has(name):
            empty = arrow_schema(TABLES[name]).empty_table()
            return frame_of(empty if columns is None else empty.select(list(columns)))
        return read_table(self.folder, name, columns)

    def columns(self, name: str, columns: Sequence[str]) -> Columns:
        """Read some columns of a table as arrays, faster than a DataFrame for runs with many cells."""
        return columns_of(read_arrow(self.folder, name, columns))

    @cached_property
    def extent(self) -> Mapping[str, tuple[int, int]]:
        """The minimum and maximum of available GPUs and of provisioned nodes; empty without decisions."""
        found = self.columns("rounds", _EXTENT)
        return {name: (int(found[name].min()), int(found[name].max())) for name in _EXTENT if len(found[name])}

    @cached_property
    def jobs(self) -> pd.DataFrame:
        """The finished jobs."""
        return self.table("jobs")

    @cached_property
    def allocations(self) -> pd.DataFrame:
        """The intervals during which nothing about a job changed."""
        return self.table("allocations")

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """The decisions, `diagnostics` being a dict in each row."""
        return self.table("rounds")

    @cached_property
    def outages(self) -> pd.DataFrame:
        """The intervals during which a node was out of use; empty if none ever was."""
        return self.table("outages")

    @cached_property
    def waits(self) -> Mapping[str, str]:
        """Why each job waited, and at how many decisions; empty if reasons were not kept."""
        said = self.table("reasons", ["job_id", "gpus", "why", "rank"])
        told: dict[str, list[str]] = {}
        for (job_id, why), rows in said[said["gpus"] == 0].groupby(["job_id", "why"], sort=True):
            ranks = sorted(set(rows["rank"]) - {0})
            place = f", place {ranks[0]}{f' to {ranks[-1]}' if len(ranks) > 1 else ''} in line" if ranks else ""
            told.setdefault(str(job_id), []).append(f"{why} at {counted(len(rows), 'decision')}{place}")
        return {job_id: "; ".join(parts) for job_id, parts in told.items()}


@dataclass(frozen=True)
class Run:
    """All cells of an experiment, in the order of its grid.

    `published` maps the label of a row to metrics and their published values, from `published_source`; `experiment` is
    the resolved specification. `fairness` defines the ratios of finish-time fairness and where they are stored; empty
    without any. `changed` are the settings that differ from the experiment's file, as `key=value`. `failed` gives by
    cell the reason why it has no results, and `missing` names all cells without any; `published_left_out` marks that
    published values were dropped because a change invalidates them.
    """

    folder: Path
    name: str
    cells: tuple[Cell, ...]
    published: Mapping[str, Mapping[str, float]]
    experiment: Mapping[str, Any]
    published_source: str = ""
    published_curves: tuple[CurvePoint, ...] = ()
    fairness: Mapping[str, Any] = field(default_factory=dict)
    changed: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    published_left_out: bool = False
    missing: tuple[str, ...] = ()

    @property
    def policies(self) -> tuple[str, ...]:
        """Labels of the policies, in the order of the grid."""
        return tuple(dict.fromkeys(cell.policy for cell in self.cells))

    @property
    def shown_policies(self) -> tuple[str, ...]:
        """The labels of the policies with marks, as in tables and figures, in the order of the grid."""
        return tuple(dict.fromkeys(cell.shown_policy for cell in self.cells))

    @property
    def lost(self) -> tuple[str, ...]:
        """Labels of the policies that failed without a result in any cell."""
        labels = dict.fromkeys(name.rpartition(", seed ")[0] for name in self.failed)
        return tuple(label for label in labels if label not in self.policies)

    @property
    def reference(self) -> str | None:
        """Label of the policy with which the experiment compares the others, None if it names none."""
        report = self.experiment.get("report")
        label = report.get("reference") if isinstance(report, Mapping) else None
        return None if label is None else str(label)

    @property
    def swept(self) -> tuple[str, ...]:
        """Swept keys, in the order of the cells."""
        return tuple(dict.fromkeys(key for cell in self.cells for key in cell.point))

    @property
    def replicated_over(self) -> tuple[str, ...]:
        """Swept keys that count as replications: the files of a folder of workloads."""
        return tuple(key for key in self.swept if key == WORKLOAD_FILE)


def read_table(folder: Path, name: str, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """Read a result table (`jobs`, `allocations`, `rounds` or `outages`) of a cell folder.

    Raises `InputError` for a file that is missing, damaged, of another version, or lacks a column.
    """
    return frame_of(read_arrow(folder, name, columns))


def frame_of(table: pa.Table) -> pd.DataFrame:
    """Return a result table as a DataFrame."""
    threads = table.num_rows > ROWS_FOR_THREADS
    frame: pd.DataFrame = table.to_pandas(maps_as_pydicts="strict", use_threads=threads)
    return frame


def read_cell(folder: Path) -> Cell:
    """Read the folder of one cell; its tables are read on first use. `InputError` if there is none.

    Policy, seed and point come from the manifest if it names them (`policy`, `policy_name`, `seed`, `point`).
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise input_error(
            folder, "there is no such folder of results", "name the folder of a run, or of one of its cells"
        )
    manifest = read_json(folder / MANIFEST_FILE, Manifest)
    if is_sealed(manifest):
        check(folder)
    summary = _read_summary(folder / SUMMARY_FILE)
    policy = manifest.get("policy") or ""
    label = policy.get("label") or policy.get("name", "") if isinstance(policy, Mapping) else policy
    name = policy.get("name", "") if isinstance(policy, Mapping) else manifest.get("policy_name") or policy
    return Cell(
        folder=folder,
        manifest=manifest,
        summary=summary,
        policy=str(label),
        policy_name=str(name),
        seed=manifest.get("seed") or 0,
        point=manifest.get("point") or {},
    )


#: Tolerance on a metric's range: in a replay a job may hold its GPUs a little beyond its recorded end.
_SLACK = 1e-2


def _read_summary(path: Path) -> dict[str, float]:
    """Read the metrics of a cell, each checked against its range."""
    summary = read_json(path, Summary)
    for name, value in summary.items():
        low, high = range_of(name)
        slack = _SLACK * max(1.0, abs(value))
        if not low - slack <= value <= high + slack:
            raise input_error(f"{path}: {one_line(name)}", f"is {value:g}, which it cannot be", RUN_AGAIN)
    return summary


def read_run(folder: Path) -> Run:
    """Read the folder of a run: `run.json` and every cell that it lists.

    Raises `InputError` naming every missing or damaged cell.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise input_error(folder, "there is no such folder of results", "run an experiment first, with `simsched run`")
    path = folder / RUN_FILE
    if not path.is_file():
        begun = (folder / "cells").is_dir()
        remedy = (
            "if the run was killed, finish it by the same command" if begun else "name one that `simsched run` made"
        )
        raise input_error(folder, f"is not the folder of a run: it has no {RUN_FILE}", remedy)
    content = read_json(path, RunIndex)
    entries = content["cells"]
    if not entries:
        raise input_error(path, "lists no cells", RUN_AGAIN)
    fairness = content.get("fairness") or {}
    ratios = folder / fairness["folder"] if fairness else None
    cells: list[Cell] = []
    problems: list[Problem] = []
    for entry in entries:
        try:
            cells.append(_listed_cell(folder, entry, ratios))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(*problems)
    changed = tuple(content.get("changed") or ())
    holds = published_values_hold(changed)
    published = content.get("published") or {}
    return Run(
        folder=folder,
        name=content["name"],
        cells=tuple(cells),
        published=published if holds else {},
        experiment=content.get("experiment") or {},
        published_source=(content.get("published_source") or "") if holds else "",
        published_curves=tuple(CurvePoint(*point) for point in content.get("published_curves") or () if holds),
        fairness=fairness,
        changed=changed,
        failed={name: visible(str(reason)) for name, reason in (content.get("failed") or {}).items()},
        published_left_out=bool(published) and not holds,
        missing=tuple(content.get("missing") or ()),
    )


def published_values_hold(changed: Iterable[str]) -> bool:
    """Return whether published values apply to a run with these `key=value` changes.

    They do not if workload, cluster, engine, applications or policies differ from the published ones.
    """
    keys = [change.partition("=")[0].strip() for change in changed]
    return not any(key.split(".")[0] in _COMPARED for key in keys)


def _listed_cell(folder: Path, entry: CellEntry, ratios: Path | None) -> Cell:
    cell = read_cell(folder / entry["folder"])
    file = None if ratios is None else ratios / f"{entry['cell']}.csv"
    file = file if file is not None and file.is_file() else None
    return Cell(
        folder=cell.folder,
        manifest=cell.manifest,
        summary=cell.summary if file is None else {**cell.summary, **_rho_of(cell, file)},
        fairness_file=file,
        policy=entry["policy"],
        policy_name=entry.get("policy_name") or cell.policy_name,
        seed=entry["seed"],
        point=entry["point"],
        own=entry.get("own") or {},
    )


def _rho_of(cell: Cell, file: Path) -> dict[str, float]:
    rho = read_fairness(file)
    if not cell.has("jobs"):
        return summarise_rho(rho["rho"])
    jobs = cell.table("jobs", ["job_id", "application"])
    jobs["job_id"] = jobs["job_id"].map(csv_cell)  # as the file has it
    return {**summarise_rho(rho["rho"]), **summarise_rho_without(rho.merge(jobs, on="job_id"))}
