"""What a step's time depends on besides model and plan: GPUs, the software that drives them, and the network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import gcd
from typing import Any, ClassVar

import numpy as np

from simsched.model.placement import Shape, Tier
from simsched.model.plans.plan import RECOMPUTATIONS, Floats, ModelShape, Plan, PlanTable, Recomputation


@dataclass(frozen=True)
class PlanSpace:
    """The plans to consider: the ways to save memory, the usual one first, and the most ranks of each kind."""

    __pydantic_config__: ClassVar[Mapping[str, Any]] = {"extra": "forbid"}

    recomputation: tuple[Recomputation, ...] = RECOMPUTATIONS
    zero: tuple[int, ...] = (0, 1, 2, 3)
    offload: tuple[bool, ...] = (False, True)
    most_tensor: int = 64
    most_context: int = 8
    most_interleave: int = 64


#: All plans, many of them never measured.
EVERYTHING = PlanSpace()


def of_a_layer(plan: Plan) -> Plan:
    """Return the part of a plan on which a layer's time depends: no stages, no replicas, nothing that these divide."""
    return replace(plan, pipeline=1, data=1, interleave=1, zero=0, offload=False)


@dataclass(frozen=True)
class MeasuredLayers:
    """Measured over modelled time of a layer of a shape and of the output: `plans` holds (plan, layer, output).

    They apply to models with any number of such layers, and to plans that differ only in stages and replicas.
    """

    __pydantic_config__: ClassVar[Mapping[str, Any]] = {"extra": "forbid"}

    shape: ModelShape
    plans: tuple[tuple[str, float, float], ...]

    def __post_init__(self) -> None:
        """Reject plans of more than a layer, and factors that are not above 0."""
        for text, *factors in self.plans:
            if of_a_layer(Plan.parse(text)) != Plan.parse(text) or min(factors) <= 0:
                raise ValueError(f"'{text}': a measured layer has t, c, b and recomputation, and factors above 0")


@dataclass(frozen=True)
class Hardware:
    """A GPU with the software measured on it: numbers from data sheets, and a few fitted ones.

    Rates are FLOP/s and bytes/s of one GPU, `node_bandwidth` the bytes/s of all network cards of a node. Matrix
    products reach `efficiency` of the peak, those of attention and output that of `other_flops`. A pass over a layer
    takes `pointwise_s` seconds per byte; launches and gaps add `fixed_s`, and the host needs at least `host_s`.
    Collectives reach `network_share` of a network; `exposed` is the share of a layer's collectives that nothing hides,
    `exposed_messages` that of messages between stages, `overlap` the number of backward passes behind which the sum of
    gradients hides. A step takes `spread` longer for each doubling of the nodes. `optimiser_s` is in seconds per
    parameter. A `fused` attention keeps no scores and skips masked positions. With `ends_count`, embedding and output
    may each take the place of a layer in a pipeline. `space` holds the measured plans, `layers` the layers measured one
    by one, each with its factors.
    """

    __pydantic_config__: ClassVar[Mapping[str, Any]] = {"extra": "forbid"}

    gpu_type: str
    memory_bytes: float
    peak_flops: float
    other_flops: float
    efficiency: float
    pointwise_s: float
    fixed_s: float
    link_bandwidth: float
    link_latency_s: float
    node_gpus: int
    node_bandwidth: float
    network_latency_s: float = 0.0
    network_share: float = 1.0
    exposed: float = 1.0
    exposed_messages: float = 1.0
    overlap: float = 0.0
    spread: float = 0.0
    host_s: float = 0.0
    optimiser_s: float = 3e-11
    fused: bool = False
    sequence_parallel: bool = False
    ends_count: bool = False
    gradient_bytes: int = 4
    buffers: float = 0.075
    host_bandwidth: float = 25e9
    space: PlanSpace = EVERYTHING
    layers: tuple[MeasuredLayers, ...] = ()

    def __post_init__(self) -> None:
        """Reject rates and sizes that are not above 0, and negative times."""
        for name, value in vars(self).items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                may_be_zero = name not in {*_RATES, "efficiency", "network_share"}
                if value < 0 or (value == 0 and not may_be_zero):
                    raise ValueError(f"'{name}' of a hardware profile must be above 0, not {value}")

    def tiers(self, shape: Shape) -> tuple[Tier, ...]:
        """Return how a site is spread over the network of its nodes; () on a single node."""
        if len(shape) < 2:
            return ()
        return (Tier(gcd(*shape), max(shape), self.node_bandwidth, self.network_latency_s),)

    def factors(self, shape: ModelShape, plans: PlanTable) -> tuple[Floats, Floats]:
        """Return the factors of a layer and of the output for each plan; 1 if no such layer was measured."""
        layer, output = np.ones((2, len(plans.tensor)))
        for one in self.layers:
            if replace(one.shape, layers=shape.layers) == shape:
                for text, *factors in one.plans:
                    same = plans.same_layer(Plan.parse(text))
                    layer[same], output[same] = factors
        return layer, output


_RATES = (
    "memory_bytes",
    "peak_flops",
    "other_flops",
    "link_bandwidth",
    "node_gpus",
    "node_bandwidth",
    "host_bandwidth",
)
