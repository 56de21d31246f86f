"""The time of a step of a plan, by part.

Sources: Megatron (Narayanan et al., SC'21, sections 2 and 3), sequence parallelism (Korthikanti et al., MLSys'23,
section 4), ZeRO (Rajbhandari et al., SC'20). Ranks lie on the tiers in the order t, c, d, p from the innermost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simsched.arithmetic import log
from simsched.model.placement import Tier
from simsched.model.plans.hardware import Hardware
from simsched.model.plans.memory_parts import linear_bytes, score_bytes
from simsched.model.plans.plan import Floats, ModelShape, Plan, PlanTable

_REDUCED = 2  # bytes per gradient on the network
_HALF_PRECISION = 2  # bytes per activation


class StepParts(NamedTuple):
    """Seconds of a step by part: numbers for one plan, or arrays of shape (n,) for many.

    Parts are exposed times: `pipeline` is the bubble and messages between stages, `data` the part of summing gradients
    that no computation hides. `across` holds the seconds bound by each tier's uplink, shape (tiers,) or (n, tiers),
    which are also in the parts.
    """

    compute: Any
    tensor: Any
    context: Any
    pipeline: Any
    data: Any
    optimiser: Any
    across: Any

    @property
    def total(self) -> Any:
        """Return the seconds of a step."""
        return self.compute + self.tensor + self.context + self.pipeline + self.data + self.optimiser


def step_time(
    shape: ModelShape, hardware: Hardware, plan: Plan, global_batch: int, tiers: Sequence[Tier] = ()
) -> StepParts:
    """Return the seconds of a step of one plan, as numbers."""
    parts = step_times(shape, hardware, PlanTable.of([plan]), global_batch, tiers)
    return StepParts(*(column[0].tolist() for column in parts))


def step_times(
    shape: ModelShape, hardware: Hardware, plans: PlanTable, global_batch: ArrayLike, tiers: Sequence[Tier] = ()
) -> StepParts:
    """Return the seconds of a step of each plan at a global batch (sequences) on a site that crosses `tiers`.

    The slowest stage sets the pace: M (tau + T_out) + (p - 1) tau / v, tau = L/p layers (Megatron, section 2.2).
    """
    step = _Step(shape, hardware, plans, np.asarray(global_batch, dtype=np.float64), tiers)
    return step.parts()


class _Collective(NamedTuple):
    seconds: Floats
    tier: NDArray[np.int64]  # with the binding uplink; -1 within the innermost units


def _exposed(share: float, moved_s: Floats, beside_s: Floats) -> Floats:
    """Return the seconds of communication that are exposed: a share, and the excess over the work that hides it."""
    return np.maximum(share * moved_s, moved_s - beside_s)


class _Step:
    """A step of each plan."""

    def __init__(
        self, shape: ModelShape, hardware: Hardware, plans: PlanTable, batch: Floats, tiers: Sequence[Tier]
    ) -> None:
        self.shape, self.hardware, self.plans, self.tiers = shape, hardware, plans, tiers
        self.micro_batches = batch / (plans.data * plans.micro_batch)
        self.tokens = shape.sequence / plans.context * plans.micro_batch
        self.full = plans.keeps("full")
        self.stage_layers = shape.layers / plans.pipeline
        self.held = shape.layers * shape.layer_parameters / (plans.tensor * plans.pipeline)
        self.across = np.zeros((len(plans.tensor), len(tiers)))
        self.layer_factor, self.output_factor = hardware.factors(shape, plans)

    def parts(self) -> StepParts:
        """Return the seconds by part."""
        plans, hardware = self.plans, self.hardware
        layer, often = self.layer_factor * self._layer_s(), self.micro_batches * self.stage_layers
        bubble = (plans.pipeline - 1) / plans.interleave
        tensor, context = self._tensor(), self._context()
        moved = self.layer_factor * (tensor.seconds + context.seconds)
        waited = _exposed(hardware.exposed, moved, layer)
        stage = self.stage_layers * (layer + waited)
        messages = self._messages(stage)
        data = self._data(self.stage_layers * layer)
        slower = 1 + hardware.spread * log(np.maximum(plans.gpus / hardware.node_gpus, 1.0)) / log(2.0)
        within = slower * often * waited * self.layer_factor / np.where(moved > 0, moved, 1.0)
        for group, weight in ((tensor, within), (context, within), (messages, slower), (data, slower)):
            for place in range(len(self.tiers)):
                self.across[:, place] += np.where(group.tier == place, weight * group.seconds, 0.0)
        return StepParts(
            slower * (often * layer + self.micro_batches * self._output_s()),
            within * tensor.seconds,
            within * context.seconds,
            slower * (bubble * stage + messages.seconds),
            slower * data.seconds,
            slower * self._optimiser_s(),
            self.across,
        )

    def _layer_s(self) -> Floats:
        """Return the seconds that a layer computes for a micro-batch, forward and backward, without collectives.

        The host launches a pass while the GPU runs; the two times combine by a norm of power 4.
        """
        shape, hardware, plans = self.shape, self.hardware, self.plans
        passes = 3.0 + self.full
        core_passes = passes if hardware.fused else 4.0 - plans.keeps("none")
        products = 2 * self.tokens * shape.layer_parameters / plans.tensor
        core = (2 if hardware.fused else 4) * self.tokens * shape.sequence * shape.hidden / plans.tensor
        work = passes * products / hardware.peak_flops + core_passes * core / hardware.other_flops
        work = work / hardware.efficiency + hardware.pointwise_s * self._pointwise(passes, core_passes)
        taken = np.asarray(work + hardware.fixed_s * passes)
        if hardware.host_s == 0:
            return taken
        squared, host = taken * taken, (hardware.host_s * passes) ** 2
        return np.sqrt(np.sqrt(squared * squared + host * host))

    def _pointwise(self, passes: Floats, core_passes: Floats) -> Floats:
        """Return the bytes that a layer moves between matrix products, in units of one pass."""
        shape, plans = self.shape, self.plans
        if self.hardware.fused:
            return passes * self.tokens * (10 * shape.hidden + 2 * shape.mlp) / plans.tensor
        whole, divided = linear_bytes(shape)
        undivided = np.where(plans.sequence_parallel > 0, plans.tensor, 1.0)
        linear = self.tokens * (whole / undivided + divided / plans.tensor)
        return passes * linear + core_passes * self.tokens * score_bytes(shape) / plans.tensor

    def _output_s(self) -> Floats:
        """Return the seconds that the last stage's output layer takes for a micro-batch, forward and backward."""
        shape, hardware = self.shape, self.hardware
        flop = 6 * self.tokens * shape.hidden * shape.vocabulary / self.plans.tensor
        return np.asarray(self.output_factor * flop / (hardware.other_flops * hardware.efficiency))

    def _tensor(self) -> _Collective:
        """Return the collectives of the tensor ranks in a layer and micro-batch.

        Two all-reduces forward, two backward, and two more with full recomputation; selective recomputation with
        sequence parallelism adds a gather for each of two blocks, half an all-reduce each.
        """
        plans = self.plans
        count = 4 + 2 * self.full + np.where(plans.sequence_parallel > 0, plans.keeps("selective"), 0.0)
        bytes_each = _HALF_PRECISION * self.tokens * self.shape.hidden
        return self._all_reduce(bytes_each, plans.tensor, np.ones_like(plans.tensor), count)

    def _context(self) -> _Collective:
        """Return the gathers of keys and values: forward, backward, and the sum of their gradients (half each)."""
        shape, plans = self.shape, self.plans
        width = 2 * shape.hidden * shape.kv_heads / shape.heads / plans.tensor
        gathered = _HALF_PRECISION * shape.sequence * plans.micro_batch * width
        return self._all_reduce(gathered, plans.context, plans.tensor, (3.0 + self.full) / 2)

    def _messages(self, stage_s: Floats) -> _Collective:
        """Return the exposed messages between stages in a step, both ways, with each GPU sending its share."""
        plans, hardware = self.plans, self.hardware
        stride = plans.tensor * plans.context * plans.data
        bytes_each = _HALF_PRECISION * self.tokens * self.shape.hidden / plans.tensor
        seconds = np.where(plans.pipeline > 1, bytes_each / hardware.link_bandwidth + hardware.link_latency_s, 0.0)
        one = self._widest(seconds, bytes_each, np.where(plans.pipeline > 1, plans.gpus, 1.0), stride)
        count = self.micro_batches * plans.interleave + plans.pipeline - 1
        waited = _exposed(hardware.exposed_messages, 2 * one.seconds, stage_s / plans.interleave)
        return one._replace(seconds=count * waited)

    def _data(self, stage_s: Floats) -> _Collective:
        """Return the exposed part of summing gradients over the replicas.

        With ZeRO 1 and 2 the bytes are the same; with 3, weights are gathered forward and backward of every
        micro-batch, and gradients summed each time: one and a half times the bytes (ZeRO, section 7).
        """
        plans = self.plans
        often = np.where(plans.zero == 3, 1.5 * self.micro_batches, 1.0)
        found = self._all_reduce(_REDUCED * self.held, plans.replicas, plans.tensor, often)
        backward = stage_s * 2 / (3.0 + self.full)
        hidden = self.hardware.overlap * np.minimum(plans.pipeline, self.micro_batches) * backward
        hidden = np.where(plans.zero == 3, self.hardware.overlap * self.micro_batches * stage_s, hidden)
        return found._replace(seconds=np.maximum(found.seconds - hidden, 0.0))

    def _optimiser_s(self) -> Floats:
        """Return the seconds of the optimiser; offloaded, gradients go to the host and weights come back."""
        plans, hardware = self.plans, self.hardware
        own = self.held / np.where(plans.zero > 0, plans.replicas, 1.0)
        return own * (
            hardware.optimiser_s + np.where(plans.offload > 0, 2 * _HALF_PRECISION, 0) / hardware.host_bandwidth
        )

    def _all_reduce(self, size: Floats, ranks: Floats, stride: Floats, count: Floats | float) -> _Collective:
        """Return `count` ring all-reduces of `size` bytes, over ranks that lie `stride` GPUs apart."""
        moved = 2 * (ranks - 1) / ranks * size
        hardware = self.hardware
        inside = np.where(ranks > 1, moved / hardware.link_bandwidth + hardware.link_latency_s, 0.0)
        one = self._widest(inside, moved, ranks * stride, stride)
        return one._replace(seconds=count * one.seconds)

    def _widest(self, inside_s: Floats, moved: Floats, span: Floats, stride: Floats) -> _Collective:
        """Return the time of the tier that takes longest.

        Groups of `span` consecutive GPUs in one unit do not cross it; others, at most `stride` of them, share its
        uplink.
        """
        seconds, binding = inside_s, np.full(len(inside_s), -1)
        for place, tier in enumerate(self.tiers):
            share = 1.0 if tier.inside else self.hardware.network_share
            over = np.minimum(stride, tier.largest) * moved / (share * tier.bytes_per_s) + tier.latency_s
            slower = (tier.common % span != 0) & (over > seconds)
            seconds, binding = np.where(slower, over, seconds), np.where(slower, place, binding)
        return _Collective(seconds, binding)
