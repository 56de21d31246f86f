"""The sections of an application's file (`simsched.applications.file_format`), each checked separately."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Annotated, Literal

from pydantic import Field, model_validator

from simsched.documents import Section
from simsched.model.application import LossCurve
from simsched.model.batch import ScalingCurve
from simsched.model.fitted import RelativeSteps
from simsched.model.step_model import PlacementClass, PlacementModel, SevenParameters, StepModel, SyncPair
from simsched.model.throughput import TINY, ThroughputParams

_NO_FORM = "needs 'seven_parameters' or 'step_times'"

Count = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Overlap = Annotated[float, Field(ge=1, le=10)]
Size = Literal["S", "M", "L", "XL"]
Rule = Literal["adascale", "square-root", "linear"]


class TunedSection(Section):
    """A number of GPUs with a total batch size."""

    gpus: Count
    batch: Count


class BatchSection(Section):
    """Batch sizes in examples: in total, and on one GPU in one micro-batch."""

    initial: Count
    max: Count
    min_per_gpu: Count
    max_per_gpu: Count
    validated: list[Count] = Field(min_length=1, description="total batch sizes known to reach the target")
    fixed: Count | None = Field(default=None, description="the only total batch size, if it is fixed")
    tuned: list[TunedSection] = Field(
        default=[], description="requests of users who tuned their jobs; computed from the model by default"
    )

    @model_validator(mode="after")
    def _in_order(self) -> BatchSection:
        if self.initial > self.max:
            raise ValueError(f"'initial' {self.initial} exceeds 'max' {self.max}")
        if self.min_per_gpu > min(self.max_per_gpu, self.initial):
            raise ValueError(f"'min_per_gpu' {self.min_per_gpu} exceeds 'max_per_gpu' or 'initial'")
        ascending("validated", self.validated)
        if not self.initial <= self.validated[0] <= self.validated[-1] <= self.max:
            raise ValueError("'validated' must lie between 'initial' and 'max'")
        if self.fixed is not None and not self.initial <= self.fixed <= self.max:
            raise ValueError(f"'fixed' {self.fixed} must lie between 'initial' and 'max'")
        for request in self.tuned:
            if not self.initial <= request.batch <= self.max:
                raise ValueError(f"'tuned' batch {request.batch} must lie between 'initial' and 'max'")
        return self


class NoiseSection(Section):
    """The gradient noise scale in examples: a row for each of `epochs`, with a value for each of `batch_sizes`."""

    epochs: list[Annotated[int, Field(ge=0)]] = Field(min_length=1)
    batch_sizes: list[Count] = Field(min_length=1)
    noise_scale: list[list[Positive]]

    @model_validator(mode="after")
    def _table(self) -> NoiseSection:
        ascending("epochs", self.epochs)
        ascending("batch_sizes", self.batch_sizes)
        if len(self.noise_scale) != len(self.epochs):
            raise ValueError(f"'noise_scale' has {len(self.noise_scale)} rows, 'epochs' has {len(self.epochs)}")
        for number, row in enumerate(self.noise_scale, start=1):
            if len(row) != len(self.batch_sizes):
                raise ValueError(f"row {number} of 'noise_scale' has {len(row)} values, not {len(self.batch_sizes)}")
        return self


class LossSection(Section):
    """The loss after each number of epochs, from 0; see `simsched.model.application.LossCurve`."""

    measure: str = Field(default="", description="definition of the loss, for instance 1 - top-1 accuracy")
    epochs: list[NotNegative] = Field(min_length=2)
    loss: list[Positive]
    noise: NotNegative = Field(default=0.0, description="standard deviation of an evaluation, relative to the loss")

    @model_validator(mode="after")
    def _curve(self) -> LossSection:
        self.build()
        return self

    def build(self) -> LossCurve:
        """Return the curve."""
        return LossCurve(tuple(self.epochs), tuple(self.loss), self.noise)


class TrainingSection(Section):
    """The training needed to reach the target."""

    epochs: Count
    iterations_per_epoch: Positive = Field(description="at the initial batch size")
    iterations_ratio: list[Positive] | None = Field(
        default=None,
        description="by validated batch size, the ratio of iterations of real runs to those that the gain implies",
    )
    noise: NoiseSection
    loss: LossSection | None = Field(default=None, description="loss curve, for policies that predict it")


class SevenSection(Section):
    """The seven parameters of Pollux's throughput model."""

    alpha_c: NotNegative
    beta_c: Positive
    alpha_n: NotNegative
    beta_n: NotNegative
    alpha_r: NotNegative
    beta_r: NotNegative
    gamma: Overlap

    def build(self) -> SevenParameters:
        """Build the model, with zeros raised to the smallest valid value."""
        values = {name: max(value, TINY) for name, value in self.model_dump().items()}
        return SevenParameters(ThroughputParams(**values))


class SyncPairSection(Section):
    """Seconds to synchronise n GPUs: alpha + beta x (n - 2)."""

    alpha: NotNegative
    beta: NotNegative


class ClassSection(Section):
    """A class of placements; see `simsched.model.step_model.PlacementClass`."""

    sync_s: list[NotNegative] = Field(min_length=1)
    overlap: Overlap
    contention: list[Annotated[float, Field(gt=-1)]] = Field(default=[])
    contention_s: list[float] = Field(default=[])
    fill_exponent: float = 0.0
    nodes_exponent: float = 0.0

    def build(self) -> PlacementClass:
        """Make the class."""
        lists = {"sync_s": tuple(self.sync_s), "contention": tuple(self.contention)}
        lists["contention_s"] = tuple(self.contention_s)
        return PlacementClass(**(self.model_dump() | lists))

    @model_validator(mode="after")
    def _same_counts(self) -> ClassSection:
        for name in ("contention", "contention_s"):
            count = len(getattr(self, name))
            if count not in (0, len(self.sync_s)):
                raise ValueError(f"'{name}' has {count} values, 'sync_s' has {len(self.sync_s)}")
        return self


class ScalingSection(Section):
    """The scaling of a total batch over GPUs; see `simsched.model.batch.ScalingCurve`."""

    batch: Count
    gpus_per_node: Count
    gpus: list[Count] = Field(min_length=1)
    factor: list[Positive]

    @model_validator(mode="after")
    def _table(self) -> ScalingSection:
        ascending("gpus", self.gpus)
        if len(self.factor) != len(self.gpus):
            raise ValueError(f"'factor' has {len(self.factor)} values, 'gpus' has {len(self.gpus)}")
        return self

    def build(self) -> ScalingCurve:
        """Return the curve."""
        return ScalingCurve(self.batch, self.gpus_per_node, tuple(self.gpus), tuple(self.factor))


class StepTimesSection(Section):
    """Step times by class of placement; see `simsched.model.step_model.PlacementModel`."""

    local_bsz: list[Count] = Field(min_length=2)
    grad_s: list[Positive]
    one_node: ClassSection
    two_nodes: ClassSection
    more_nodes: ClassSection
    scaling: list[ScalingSection] = Field(default=[], description="corrections for the batches of tuned jobs")

    @model_validator(mode="after")
    def _table(self) -> StepTimesSection:
        ascending("local_bsz", self.local_bsz)
        if len(self.grad_s) != len(self.local_bsz):
            raise ValueError(f"'grad_s' has {len(self.grad_s)} values, 'local_bsz' has {len(self.local_bsz)}")
        return self

    def build(self) -> PlacementModel:
        """Make the model."""
        one, two, more = (kind.build() for kind in (self.one_node, self.two_nodes, self.more_nodes))
        curves = tuple(curve.build() for curve in self.scaling)
        return PlacementModel(tuple(self.local_bsz), tuple(self.grad_s), one, two, more, curves)


class SpeedSection(Section):
    """The speed of the application on GPUs of one type: `step_times` if given, else the seven parameters.

    Alternatively `factor` times the speed on the type that it is `relative_to`; a mapping gives factors by per-GPU
    batch size.
    """

    gpu_type: str = Field(min_length=1)
    seven_parameters: SevenSection | None = None
    step_times: StepTimesSection | None = None
    relative_to: str | None = Field(default=None, min_length=1)
    factor: Positive | dict[Count, Positive] | None = None
    across_levels: list[SyncPairSection] | None = Field(
        default=None,
        min_length=1,
        description="synchronisation across levels above the nodes (racks, islands), the lowest level first",
    )

    @model_validator(mode="after")
    def _some_form(self) -> SpeedSection:
        if (self.relative_to is None) != (self.factor is None) or self.factor == {}:
            raise ValueError("'relative_to' and 'factor' belong together")
        own = self.seven_parameters is not None or self.step_times is not None
        if own and self.relative_to is not None:
            raise ValueError("give step times or 'relative_to', not both")
        if self.across_levels is not None and self.relative_to is not None:
            raise ValueError("give 'across_levels' with the type that this one is relative to")
        if not own and self.relative_to is None:
            raise ValueError(_NO_FORM)
        return self

    def relative(self, base: StepModel) -> StepModel:
        """Build the model of step times from that of the type that this one is relative to."""
        factor = self.factor
        pairs = sorted(factor.items()) if isinstance(factor, dict) else [(1, factor or 1.0)]
        return RelativeSteps(base, tuple(pairs))

    def model(self) -> StepModel:
        """Make the model of step times."""
        across = tuple(SyncPair(pair.alpha, pair.beta) for pair in self.across_levels or ())
        if self.step_times is not None:
            return replace(self.step_times.build(), across=across)
        if self.seven_parameters is not None:
            return replace(self.seven_parameters.build(), across=across)
        raise ValueError(_NO_FORM)


def ascending(name: str, values: list[int]) -> None:
    """Reject values that are not strictly ascending."""
    if any(after <= before for before, after in pairwise(values)):
        raise ValueError(f"'{name}' must ascend")
