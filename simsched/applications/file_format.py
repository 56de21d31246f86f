"""The file format of applications, `simsched-application/1`: reading, strict checking, writing, and a template."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal, get_args

import yaml
from pydantic import Field, model_validator

from simsched.applications.file_sections import BatchSection, Count, Rule, Size, SpeedSection, TrainingSection
from simsched.applications.published import SOURCE, PublishedApplication
from simsched.documents import Section, read_section
from simsched.model import BatchLimits
from simsched.model.application import MemoryNeed
from simsched.model.fitted import FittedApplication, NoiseCurve, Training
from simsched.model.step_model import PlacementModel, SevenParameters, StepModel
from simsched.model.throughput import ThroughputParams

FORMAT = "simsched-application/1"
_DIGITS = 5  # significant digits of fitted numbers, which are uncertain by some per cent


class MemorySection(Section):
    """GPU memory in MB: for the model, and for each example of a micro-batch."""

    model_mb: float = Field(ge=0)
    example_mb: float = Field(ge=0)


class ApplicationDocument(Section):
    """The file of a fitted application."""

    format: Literal["simsched-application/1"]
    name: str = Field(min_length=1)
    title: str = ""
    dataset: str = ""
    model: str = ""
    optimizer: str = ""
    learning_rate_rule: Rule | None = None
    target: str = ""
    size: Size | None = Field(default=None, description="class of GPU-time: S < 1 h, M < 10 h, L < 100 h, XL")
    source: str = ""
    max_gpus: Count | None = None
    restart_delay_s: Annotated[int, Field(ge=0)] | None = None
    memory: MemorySection | None = Field(default=None, description="GPU memory that it takes")
    stages_s: list[Annotated[float, Field(ge=0)]] | None = Field(
        default=None, min_length=2, description="busy seconds of each resource per iteration, in their order"
    )
    batch: BatchSection
    training: TrainingSection
    speed: list[SpeedSection] = Field(min_length=1)

    @model_validator(mode="after")
    def _consistent(self) -> ApplicationDocument:
        ratios = self.training.iterations_ratio
        if ratios is not None and len(ratios) != len(self.batch.validated):
            raise ValueError("'training.iterations_ratio' needs one value for each of 'batch.validated'")
        types = [speed.gpu_type for speed in self.speed]
        if len(set(types)) < len(types):
            raise ValueError("'speed' gives a GPU type twice")
        own = {speed.gpu_type for speed in self.speed if speed.relative_to is None}
        for speed in self.speed:
            if speed.relative_to is not None and speed.relative_to not in own:
                raise ValueError(f"'speed' of {speed.gpu_type} is relative to {speed.relative_to}, which has no times")
        return self

    def application(self) -> FittedApplication:
        """Build the application."""
        batch, training, noise = self.batch, self.training, self.training.noise
        curve = NoiseCurve(tuple(noise.epochs), tuple(noise.batch_sizes), tuple(map(tuple, noise.noise_scale)))
        validated = tuple(batch.validated)
        ratios = tuple(training.iterations_ratio or [1.0] * len(validated))
        return FittedApplication(
            self.name,
            BatchLimits(batch.initial, batch.max, batch.min_per_gpu, batch.max_per_gpu),
            Training(training.epochs, training.iterations_per_epoch, curve, validated, ratios),
            self._step_models(),
            tuned=tuple((request.gpus, request.batch) for request in batch.tuned),
            fixed_batch_size=batch.fixed,
            max_gpus=self.max_gpus,
            restart_delay_s=self.restart_delay_s,
            memory=None if self.memory is None else MemoryNeed(self.memory.model_mb, self.memory.example_mb),
            stages_s=tuple(self.stages_s or ()),
            loss_curve=None if training.loss is None else training.loss.build(),
        )

    def _step_models(self) -> dict[str, StepModel]:
        own = {speed.gpu_type: speed.model() for speed in self.speed if speed.relative_to is None}
        others = {one.gpu_type: one.relative(own[one.relative_to]) for one in self.speed if one.relative_to is not None}
        return own | others

    def text(self) -> str:
        """Write the document as YAML."""
        data = self.model_dump(exclude_none=True, exclude_defaults=True)
        return yaml.safe_dump(data, sort_keys=False, default_flow_style=None, width=110, allow_unicode=True)


def read_document(path: Path) -> ApplicationDocument:
    """Read an application's file; raises `InputError` with every problem by line and key."""
    return read_section(path, ApplicationDocument)


def document_of(
    application: FittedApplication, seven: Mapping[str, ThroughputParams], published: PublishedApplication | None = None
) -> ApplicationDocument:
    """Describe a fitted application, including the seven parameters by GPU type.

    Rounds numbers to five digits and adds what is `published` about it.
    """
    limits, training, noise = application.limits, application.training, application.training.noise
    data = {
        "format": FORMAT,
        "name": application.name,
        **(published.described() | {"source": SOURCE} if published else {}),
        "max_gpus": application.max_gpus,
        "restart_delay_s": application.restart_delay_s,
        "batch": {
            "initial": limits.init_batch_size,
            "max": limits.max_batch_size,
            "min_per_gpu": limits.min_local_bsz,
            "max_per_gpu": limits.max_local_bsz,
            "validated": list(training.batch_sizes),
            "fixed": application.fixed_batch_size,
            "tuned": [{"gpus": gpus, "batch": batch} for gpus, batch in application.tuned],
        },
        "training": {
            "epochs": training.epochs,
            "iterations_per_epoch": training.iterations_per_epoch,
            "iterations_ratio": list(training.iterations_ratio),
            "noise": {
                "epochs": list(noise.epochs),
                "batch_sizes": list(noise.batch_sizes),
                "noise_scale": [list(row) for row in noise.noise],
            },
            "loss": _loss_of(application, published),
        },
        "speed": [_speed_of(gpu_type, application, seven) for gpu_type in application.gpu_types],
    }
    return ApplicationDocument.model_validate(_rounded(data))


def _speed_of(
    gpu_type: str, application: FittedApplication, seven: Mapping[str, ThroughputParams]
) -> dict[str, object]:
    model = application.step_models[gpu_type]
    params = model.params if isinstance(model, SevenParameters) else seven.get(gpu_type)
    own = model if isinstance(model, PlacementModel | SevenParameters) else None
    times = asdict(model) if isinstance(model, PlacementModel) else None
    if times is not None:
        del times["across"]
    return {
        "gpu_type": gpu_type,
        "seven_parameters": None if params is None else asdict(params),
        "step_times": times,
        "across_levels": [{"alpha": a, "beta": b} for a, b in own.across] if own is not None and own.across else None,
    }


def _loss_of(application: FittedApplication, published: PublishedApplication | None) -> dict[str, object] | None:
    curve = application.loss_curve
    if curve is None:
        return None
    measure = published.metric.loss if published and published.metric else ""
    return {"measure": measure, "epochs": list(curve.epochs), "loss": list(curve.losses), "noise": curve.noise}


def _rounded(value: object) -> object:
    """Round all floats in plain data, and convert tuples to lists."""
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return value


def template(name: str) -> str:
    """Return the text of a small, complete application file to start from."""
    return _TEMPLATE.replace("NAME", name).replace("RULES", ", ".join(get_args(Rule)))


_TEMPLATE = """\
# An application for simsched. Times are in seconds, batch sizes in examples. Change every number to yours.
format: simsched-application/1
name: NAME
title: ''                     # what it does, for tables and figures
dataset: ''
model: ''
optimizer: SGD
learning_rate_rule: adascale  # one of RULES
size: S                       # class of GPU-time: S < 1 h, M < 10 h, L < 100 h, XL
# max_gpus: 64                # if it cannot use more
# restart_delay_s: 30         # if a change of placement costs other than the engine's default
# memory: {model_mb: 1500, example_mb: 10}   # of a GPU; a placement that does not fit is refused
# stages_s: [0.1, 0.05, 0.2, 0.1]   # loading, preprocessing, computing, synchronising an iteration, for GPU sharing

batch:
  initial: 128                # the total batch size that training was tuned for
  max: 4096                   # the largest total batch size that still reaches the target
  min_per_gpu: 32             # of one micro-batch on one GPU
  max_per_gpu: 1024
  validated: [128, 256, 512, 1024, 2048, 4096]
  # fixed: 128                # if it may not be changed tuned: [{gpus: 8, batch: 2048}]   # requests of users who tuned
  # their jobs; by default computed

training:
  epochs: 100
  iterations_per_epoch: 391   # at the initial batch size
  noise:                      # gradient noise scale: how large a batch still pays, growing as training goes on
    epochs: [0, 10, 99]       # 0-based; straight lines (of the logarithm) between
    batch_sizes: [128, 4096]  # one column for each
    noise_scale:
      - [100, 100]
      - [1500, 3500]
      - [40000, 160000]
  # loss: {measure: 1 - accuracy, epochs: [0, 1, 10, 100], loss: [0.9, 0.55, 0.15, 0.05], noise: 0.01}

speed:
  - gpu_type: t4
    seven_parameters:         # Pollux (OSDI'21), equations 8 to 11
      alpha_c: 0.025          # computing a micro-batch: alpha_c + beta_c x examples
      beta_c: 0.0006
      alpha_n: 0.1            # synchronising across nodes: alpha_n + beta_n x (GPUs - 2)
      beta_n: 0.005
      alpha_r: 0.01           # synchronising within one node
      beta_r: 0.001
      gamma: 1.5              # overlap of the two, from 1 (none) to 10
    # across_levels:            # synchronising across racks or islands, one pair for each level, the lowest first
    #   - {alpha: 0.3, beta: 0.01}
"""
