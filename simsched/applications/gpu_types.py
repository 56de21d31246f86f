"""The shipped catalogue of GPU types: memory, price, power, and measured speeds."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import Field, model_validator

from simsched.documents import Section, read_section
from simsched.paths import data_folder


class GpuType(Section):
    """A GPU type: memory, price, power, and measured speed relative to a V100 by application."""

    title: str = ""
    memory_mb: float = Field(gt=0, description="memory of one GPU, in MB")
    price_per_h: float | None = Field(default=None, ge=0, description="dollars an hour")
    idle_w: float | None = Field(default=None, ge=0, description="watts of an idle GPU")
    busy_w: float | None = Field(default=None, ge=0, description="watts of a GPU under full load")
    speed: dict[str, Annotated[float, Field(gt=0)]] = Field(default={}, description="speed relative to a V100")

    @model_validator(mode="after")
    def _both_powers(self) -> GpuType:
        if (self.idle_w is None) != (self.busy_w is None):
            raise ValueError("give both 'idle_w' and 'busy_w', or neither")
        return self


class GpuTypesDocument(Section):
    """The file of GPU types."""

    format: Literal["simsched-gpu-types/1"]
    types: dict[str, GpuType] = Field(min_length=1)


def read_gpu_types(path: Path) -> Mapping[str, GpuType]:
    """Read a file of GPU types; raises `InputError` with every problem."""
    return MappingProxyType(read_section(path, GpuTypesDocument).types)


@lru_cache(maxsize=1)
def gpu_types() -> Mapping[str, GpuType]:
    """Return the shipped types by name."""
    return read_gpu_types(data_folder("workloads") / "gpu-types.yaml")
