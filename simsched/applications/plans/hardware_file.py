"""The file of a hardware profile, `simsched-hardware/1`, and the shipped profiles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, asdict, fields
from functools import lru_cache
from math import inf
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from pydantic import Field, model_validator

from simsched.documents import Section, read_section, yaml_text
from simsched.errors import input_error, nearest
from simsched.model.plans import Hardware, ModelShape, Plan
from simsched.paths import data_folder

FORMAT = "simsched-hardware/1"
_UNFITTED = (
    "gpu_type",
    "memory_bytes",
    "node_gpus",
    "fused",
    "sequence_parallel",
    "ends_count",
    "gradient_bytes",
    "space",
    "layers",
)


def extent(shape: ModelShape, plan: Plan | None = None) -> dict[str, int]:
    """Return the properties of a model, and of a plan, that may lie outside a profile's measurements, by column."""
    model = {"hidden": shape.hidden, "seq": shape.sequence}
    if plan is None:
        return model
    return {
        **model, "gpus": plan.gpus, "tp": plan.tensor, "pp": plan.pipeline, "cp": plan.context,
        "interleave": plan.interleave, "micro_batch": plan.micro_batch,
    }  # fmt: skip


class FitErrors(Section):
    """Mean and worst relative errors of the fitted steps, and of each model when left out.

    `least` and `most` bound the fitted steps by column.
    """

    rows: int = Field(ge=1)
    models: int = Field(ge=1)
    mean: float
    worst: float
    left_out_mean: float | None = Field(default=None, description="none if there is only one model")
    left_out_worst: float | None = None
    least: dict[str, int] = Field(default={}, description="of the fitted steps, by column")
    most: dict[str, int] = Field(default={}, description="the same")

    def beyond(self, asked: Iterable[tuple[ModelShape, Plan | None]]) -> str:
        """Return one line on which properties of models and plans lie outside the measured range; empty if none do."""
        found, extents = [], [extent(*one) for one in asked]
        for name, least in self.least.items():
            most = self.most.get(name, inf)
            outside = sorted({one[name] for one in extents if name in one and not least <= one[name] <= most})
            if outside:
                span = str(least) if least == most else f"{least} to {most}"
                found.append(f"{name} {', '.join(map(str, outside))} (measured: {span})")
        return (
            f"outside the range of the profile's fit, where its errors say little: {'; '.join(found)}" if found else ""
        )

    def __str__(self) -> str:
        """Return the errors in one line."""
        text = f"{self.mean:.1%} mean, {self.worst:.1%} worst of {self.rows} steps"
        if self.left_out_mean is None or self.left_out_worst is None:
            return f"{text} of one model"
        return f"{text}; of models left out {self.left_out_mean:.1%} and {self.left_out_worst:.1%}"


class HardwareDocument(Section):
    """A hardware profile with the source of its parameters, the fitted ones, and the errors of the fit."""

    format: Literal["simsched-hardware/1"]
    title: str = ""
    source: str = ""
    dtype: str = Field(default="", description="measured precision; rows of a table with another one do not count")
    fitted: dict[str, float] | list[str] = Field(
        default=["efficiency", "pointwise_s", "fixed_s"],
        description="parameters to fit with their prior expectations; a list takes these from the profile",
    )
    fit_layers: bool = Field(default=False, description="whether to fit separate factors for each measured layer")
    errors: FitErrors | None = Field(default=None, description="of the fit; none if nothing was fitted")
    profile: Hardware

    @model_validator(mode="after")
    def _fits_numbers(self) -> HardwareDocument:
        known = sorted({one.name for one in fields(Hardware)} - set(_UNFITTED))
        wrong = [name for name in self.fitted if name not in known]
        if wrong or not self.fitted:
            raise ValueError(f"'fitted' names {wrong or 'nothing'}; it may name {', '.join(known)}")
        zero = [name for name, number in self.expected.items() if not 0 < number < inf]
        if zero:
            raise ValueError(f"a fit must start above 0, but '{zero[0]}' does not")
        return self

    @property
    def expected(self) -> dict[str, float]:
        """Return the parameters to fit with their prior expectations."""
        return (
            self.fitted if isinstance(self.fitted, dict) else {one: getattr(self.profile, one) for one in self.fitted}
        )


def hardware_text(document: HardwareDocument) -> str:
    """Write a document without default values."""
    data = document.model_dump(exclude_none=True, exclude_defaults=True)
    usual = {one.name: one.default for one in fields(Hardware) if one.default is not MISSING}
    profile = {name: value for name, value in asdict(document.profile).items() if usual.get(name, MISSING) != value}
    if document.profile.space == usual["space"]:
        profile.pop("space", None)
    return yaml_text({"format": FORMAT, **data, "profile": _listed(profile)})


def _listed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _listed(part) for key, part in value.items()}
    return [_listed(part) for part in value] if isinstance(value, tuple) else value


@lru_cache(maxsize=1)
def shipped_hardware() -> Mapping[str, HardwareDocument]:
    """Return the shipped profiles by name."""
    files = sorted((data_folder("workloads") / "hardware").glob("*.yaml"))
    return MappingProxyType({file.stem: read_section(file, HardwareDocument) for file in files})


def find_hardware(name: str, folder: Path | None = None) -> HardwareDocument:
    """Return a shipped profile, or that of a file (`*.yaml`, from the current folder or `folder`).

    Raises `InputError` with every problem, or if there is no such profile.
    """
    if name.endswith((".yaml", ".yml")):
        return read_section((folder or Path()) / name, HardwareDocument)
    if name not in shipped_hardware():
        raise input_error(f"hardware '{name}'", "no such profile is shipped", nearest(name, shipped_hardware()))
    return shipped_hardware()[name]
