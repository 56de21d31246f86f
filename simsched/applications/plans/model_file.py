"""The file of a large model, `simsched-model/1`, and the shipped models."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from pydantic import Field, model_validator

from simsched.applications.file_sections import Count, Positive
from simsched.applications.plans.hardware_file import find_hardware
from simsched.applications.plans.plan_tables import read_plan_table
from simsched.documents import Section, read_section
from simsched.model.plans import LargeModel, ModelShape, PlannedModel
from simsched.paths import data_folder

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
