"""The table of models described by their tensors, `workloads/models/tiresias-models.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

from pydantic import Field

from simsched.applications.file_sections import Count, NotNegative, Positive
from simsched.documents import Section, read_section
from simsched.model.tensors import TensorModel
from simsched.paths import data_folder


class ModelSection(Section):
    """A model: megabytes of all tensors and of the largest, costs in seconds, and its slow-down when spread."""

    name: str = Field(min_length=1)
    size_mb: Positive
    largest_mb: Positive
    checkpoint_s: NotNegative
    resume_s: NotNegative
    spread_penalty: NotNegative


class ModelsDocument(Section):
    """The file of the table."""

    source: str = ""
    gpus_per_node: Count = Field(description="GPUs per node when the durations were measured")
    models: Annotated[list[ModelSection], Field(min_length=1)]


def models_file() -> Path:
    """Return the path of the shipped table."""
    return data_folder("workloads") / "models" / "tiresias-models.yaml"


@lru_cache(maxsize=1)
def shipped_models() -> Mapping[str, TensorModel]:
    """Read the shipped table, by name of the model."""
    return read_models(models_file())


def read_models(path: Path) -> Mapping[str, TensorModel]:
    """Read a table of models; raises `InputError` with every problem by line."""
    table = read_section(path, ModelsDocument)
    return MappingProxyType(
        {one.name: TensorModel(**one.model_dump(), gpus_per_node=table.gpus_per_node) for one in table.models}
    )
