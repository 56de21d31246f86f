"""The files of large models, `simsched-model/1`, with their tables of measured plans, `placements_NAME.csv`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from pydantic import Field, model_validator

from simsched.applications.file_sections import Count, Positive
from simsched.applications.plans.hardware_file import find_hardware
from simsched.documents import Section, read_section
from simsched.errors import InputError, Problem, input_error, tell
from simsched.model.placement import Shape
from simsched.model.plans import LargeModel, ModelShape, Plan, PlannedModel, TabledModel, morphling_plan
from simsched.paths import data_folder
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


MODEL_FORMAT = "simsched-model/1"


class ShapeSection(Section):
    """The architecture of a decoder."""

    layers: Count
    hidden: Count
    mlp: Count = Field(description="units of the MLP; 4 x hidden in GPT")
    heads: Count
    kv_heads: Count = Field(description="heads of keys and values; as many as 'heads' unless some share them")
    vocabulary: Count
    sequence: Count = Field(description="tokens of a sequence")
    gated: bool = Field(default=False, description="whether the MLP has three matrices")
    untied: bool = Field(default=False, description="whether the output has a separate matrix")

    @model_validator(mode="after")
    def _fits(self) -> ShapeSection:
        self.shape()
        return self

    def shape(self) -> ModelShape:
        """Build the shape."""
        return ModelShape(**self.model_dump())


class ModelDocument(Section):
    """A model that trains by plans."""

    format: Literal["simsched-model/1"]
    name: str = Field(min_length=1)
    title: str = ""
    source: str = ""
    shape: ShapeSection
    global_batch: Count = Field(description="sequences of a step")
    hardware: dict[str, str] = Field(
        min_length=1, description="profile by GPU type: a shipped one, or a file next to this one"
    )
    measured: dict[str, str] = Field(
        default={}, max_length=1, description="table of measured plans by GPU type, next to this file"
    )
    storage_bandwidth: Positive = Field(
        default=40e9, description="bytes/s of checkpoints; the default is an assumption"
    )

    def model(self, folder: Path | None = None) -> LargeModel:
        """Build the model; `folder` has the files of profiles. Raises `InputError` if a profile is wrong."""
        fits = {kind: find_hardware(name, folder) for kind, name in sorted(self.hardware.items())}
        profiles, shape = {kind: fit.profile for kind, fit in fits.items()}, self.shape.shape()
        beyond = {kind: fit.errors.beyond([(shape, None)]) for kind, fit in fits.items() if fit.errors}
        model = PlannedModel(self.name, shape, profiles, self.global_batch, self.storage_bandwidth, beyond)
        for gpu_type, table in self.measured.items():
            return read_plan_table((folder or Path()) / table, self.name, gpu_type, model)
        return model

    @model_validator(mode="after")
    def _measured_are_modelled(self) -> ModelDocument:
        missing = [gpu_type for gpu_type in self.measured if gpu_type not in self.hardware]
        if missing:
            raise ValueError(f"'measured' needs a profile under 'hardware' of '{missing[0]}' too")
        return self


def read_model(path: Path) -> LargeModel:
    """Read a model; raises `InputError` with every problem by line and key."""
    return read_section(path, ModelDocument).model(path.parent)


@lru_cache(maxsize=1)
def shipped_llms() -> Mapping[str, LargeModel]:
    """Return the shipped models by name."""
    files = sorted((data_folder("workloads") / "llm").glob("*.yaml"))
    return MappingProxyType({model.name: model for model in map(read_model, files)})
