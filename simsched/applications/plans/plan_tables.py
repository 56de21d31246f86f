"""Reads tables of measured plans, `placements_NAME.csv`: plan, GPUs on each node, seconds of a step."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from simsched.errors import InputError, Problem, input_error, tell
from simsched.model.placement import Shape
from simsched.model.plans import Plan, PlannedModel, TabledModel, morphling_plan
from simsched.reading import number, read_records
from simsched.words import counted

PREFIX, SUFFIX = "placements_", ".csv"
_COLUMNS = ("exec_plan", "placement", "iter_time")
_UNUSED = ("forward", "overlap_sync", "optimize", "cpu_threads")  # parts in units that differ between files


def plan_tables(folder: Path) -> list[Path]:
    """List the tables of a folder, sorted."""
    return sorted(folder.glob(f"{PREFIX}*{SUFFIX}"))


def read_plan_tables(folder: Path, gpu_type: str) -> Mapping[str, TabledModel]:
    """Read the tables of a folder, measured on GPUs of one type, by the model in the file name.

    Raises `InputError` naming the line of every wrong value.
    """
    names = {file.name.removeprefix(PREFIX).removesuffix(SUFFIX): file for file in plan_tables(folder)}
    return MappingProxyType({name: read_plan_table(file, name, gpu_type) for name, file in names.items()})


def read_plan_table(path: Path, name: str, gpu_type: str, model: PlannedModel | None = None) -> TabledModel:
    """Read a table of plans in Morphling's notation or as `t4 p2 d4 b2`; placements have a digit per node.

    Rows of 0 seconds, i.e. plans that could not run, are left out with a warning; if a plan was measured twice, the
    faster row counts. Raises `InputError` naming every bad row.
    """
    rows: dict[tuple[Plan, Shape], float] = {}
    problems: list[Problem] = []
    failed = 0
    for line, cells in read_records(path, _COLUMNS, _UNUSED):
        try:
            key, seconds = _row(cells)
        except ValueError as error:
            problems.append(Problem(str(path), str(error), "correct the line, or leave it out", line))
            continue
        failed += seconds == 0
        if seconds:
            rows[key] = min(seconds, rows.get(key, seconds))
    if problems:
        raise InputError(*problems)
    if not rows:
        raise input_error(path, "holds no plan that ran")
    if failed:
        tell(path, f"{counted(failed, 'row')} of 0 seconds left out", "")
    return TabledModel(name, gpu_type, MappingProxyType(rows), model, 0.0 if model is None else model.replan_s)


def _row(cells: Mapping[str, str]) -> tuple[tuple[Plan, Shape], float]:
    placement = cells["placement"].strip()
    if not placement.isdecimal() or "0" in placement:
        raise ValueError(f"column 'placement': '{placement:.40}' is not a digit above 0 for each node")
    shape = tuple(sorted(map(int, placement), reverse=True))
    text = cells["exec_plan"].strip()
    plan = Plan.parse(text) if " " in text else morphling_plan(text, sum(shape))
    if plan.gpus != sum(shape):
        raise ValueError(f"plan '{plan}' takes {plan.gpus} GPUs, but the placement has {sum(shape)}")
    return (plan, shape), number(cells["iter_time"], "column 'iter_time'", least=0)
