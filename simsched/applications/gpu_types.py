"""Types of GPUs, and jobs of fixed duration that run at a speed by type."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import Field, model_validator

from simsched.documents import Section, read_section
from simsched.errors import input_error
from simsched.model import (
    FIXED_DURATION,
    Application,
    ApplicationSource,
    BatchChoice,
    Cluster,
    JobRequest,
    Site,
)
from simsched.model.application import Running
from simsched.model.job import JobTruth, Speedup
from simsched.model.tabulated import FixedDuration
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


class DurationByType(FixedDuration):
    """A job that completes `speed[type]` seconds of its duration per second; its duration is at speed 1."""

    __slots__ = ("_speed", "gpu_types")

    def __init__(
        self, duration_s: float, speed: Mapping[str, float], num_gpus: int | None = None, speedup: Speedup | None = None
    ) -> None:
        """Take the duration, a factor above 0 for each GPU type, and the other arguments of `FixedDuration`."""
        super().__init__(duration_s, num_gpus, speedup)
        self._speed = speed
        self.gpu_types: tuple[str, ...] | None = tuple(sorted(speed))

    def run(self, site: Site, batch: BatchChoice, epoch: int) -> Running:
        """Run at the speed of the site's type; raises `ValueError` if it is unknown."""
        if site.gpu_type not in self._speed:
            raise ValueError(f"the speed of jobs of {FIXED_DURATION} on GPUs of type '{site.gpu_type}' is not known")
        running = super().run(site, batch, epoch)
        return running._replace(rate=running.rate * self._speed[site.gpu_type])


class DurationsByType:
    """A source of applications in which the speed of jobs of fixed duration depends on the GPU type."""

    def __init__(self, inner: ApplicationSource, speed: Mapping[str, float]) -> None:
        """Take all other applications from `inner`."""
        self._inner = inner
        self._speed = speed

    def for_job(self, request: JobRequest, truth: JobTruth) -> Application:
        """Return the application of a job."""
        found = self._inner.for_job(request, truth)
        if not isinstance(found, FixedDuration):
            return found
        return DurationByType(found.duration_s, self._speed, request.num_gpus, truth.speedup)


def with_speeds(source: ApplicationSource, speed: Mapping[str, float], cluster: Cluster) -> ApplicationSource:
    """Return a source with speeds by GPU type, or `source` itself if none are given.

    Raises `InputError` if a type of the cluster has no speed.
    """
    if not speed:
        return source
    missing = [kind for kind in cluster.gpu_types if kind not in speed]
    if missing:
        known = ", ".join(sorted(speed))
        message = f"gives no speed for the GPU type '{missing[0]}' of the cluster (only for {known})"
        raise input_error("workload.gpu_speed", message, "name every type of the cluster")
    return DurationsByType(source, speed)
