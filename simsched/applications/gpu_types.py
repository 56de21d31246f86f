"""The catalogue of GPU types that is shipped: memory, price, and measured speeds."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from simsched.documents import yaml_lines
from simsched.documents.overrides import Draft
from simsched.documents.section import Section
from simsched.documents.validation_messages import problems_of
from simsched.errors import InputError
from simsched.paths import data_folder


class GpuType(Section):
    """A GPU type: its memory, its price, and its speed relative to a V100 by application, where it was measured."""

    title: str = ""
    memory_mb: float = Field(gt=0, description="memory of one GPU, in MB")
    price_per_h: float | None = Field(default=None, ge=0, description="dollars an hour")
    speed: dict[str, Annotated[float, Field(gt=0)]] = Field(default={}, description="speed relative to a V100")


class GpuTypesDocument(Section):
    """The file of GPU types."""

    format: Literal["simsched-gpu-types/1"]
    types: dict[str, GpuType] = Field(min_length=1)


def read_gpu_types(path: Path) -> Mapping[str, GpuType]:
    """Read a file of GPU types; raises `InputError` with everything that is wrong in it."""
    document = yaml_lines.load(path)
    try:
        found = GpuTypesDocument.model_validate(document.data)
    except ValidationError as error:
        raise InputError(*problems_of(error, Draft(document, document.data), GpuTypesDocument)) from None
    return MappingProxyType(found.types)


@lru_cache(maxsize=1)
def gpu_types() -> Mapping[str, GpuType]:
    """Return the shipped types by name."""
    return read_gpu_types(data_folder("workloads") / "gpu-types.yaml")
