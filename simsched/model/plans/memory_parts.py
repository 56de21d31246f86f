"""The GPU memory that a plan takes.

Sources: Megatron (Narayanan et al., SC'21, section 2 and equation 2), sequence parallelism (Korthikanti et al.,
MLSys'23, sections 4 and 5), ZeRO (Rajbhandari et al., SC'20, section 3).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simsched.model.plans.hardware import Hardware
from simsched.model.plans.plan import Floats, ModelShape, Plan, PlanTable

_WEIGHT, _OPTIMISER = 2, 12  # bytes per parameter: 16-bit weight; 32-bit master and the two moments of Adam
_SCORES = 5  # bytes of a score: softmax, its dropout, and that dropout's mask


class MemoryParts(NamedTuple):
    """Bytes on the fullest GPU of a plan, by part, each of shape (n,); `host` lies outside the GPU.

    State is that of weights, gradients and the optimiser, for the layers and the embedding. `buffers` is an assumption.
    """

    layers: Floats
    embedding: Floats
    activations: Floats
    logits: Floats
    buffers: Floats
    host: Floats

    @property
    def total(self) -> Floats:
        """Return the bytes on the GPU."""
        return self.layers + self.embedding + self.activations + self.logits + self.buffers


def memory(shape: ModelShape, hardware: Hardware, plans: PlanTable, global_batch: ArrayLike) -> MemoryParts:
    """Return the bytes that plans take at a global batch (sequences)."""
    ranks = plans.tensor * plans.pipeline
    layers = shape.layers * shape.layer_parameters / ranks
    # The first stage embeds and the last computes the output; a GPU that does both holds two matrices if they are
    # untied.
    both = np.where((plans.pipeline == 1) & shape.untied, 2.0, 1.0)
    embedding = both * shape.vocabulary * shape.hidden / plans.tensor
    on_gpu, on_host = _state_bytes(hardware, plans)
    logits = 4.0 * shape.sequence / plans.context * plans.micro_batch * shape.vocabulary / plans.tensor
    return MemoryParts(
        layers * on_gpu,
        embedding * on_gpu,
        layer_activations(shape, hardware, plans) * _kept_layers(shape, plans, global_batch),
        logits,
        np.full(len(ranks), hardware.buffers * hardware.memory_bytes),
        (layers + embedding) * on_host,
    )


def _state_bytes(hardware: Hardware, plans: PlanTable) -> tuple[Floats, Floats]:
    """Return the bytes of a parameter on the GPU and on the host."""
    weight = _WEIGHT / np.where(plans.zero >= 3, plans.replicas, 1.0)
    gradient = hardware.gradient_bytes / np.where(plans.zero >= 2, plans.replicas, 1.0)
    optimiser = _OPTIMISER / np.where(plans.zero >= 1, plans.replicas, 1.0)
    host = np.where(plans.offload > 0, gradient + optimiser, 0.0)
    return weight + gradient + optimiser - host, host


def layer_activations(shape: ModelShape, hardware: Hardware, plans: PlanTable) -> Floats:
    """Return the bytes of activations that a layer keeps per micro-batch.

    The 24 of the published 10 + 24/t are query, key, value and the attention's output (2 each) and twice 4h + 4h of the
    MLP; here they follow the shape, with one more product for a gated MLP.
    """
    tokens = shape.sequence / plans.context * plans.micro_batch
    whole, shared = linear_bytes(shape)
    undivided = np.where(plans.sequence_parallel > 0, plans.tensor, 1.0)
    kept = tokens * (whole / undivided + shared / plans.tensor)
    if not hardware.fused:
        kept = kept + np.where(plans.keeps("none"), score_bytes(shape) * tokens / plans.tensor, 0.0)
    return np.where(plans.keeps("full"), 2.0 * tokens * shape.hidden / undivided, kept)


def linear_bytes(shape: ModelShape) -> tuple[float, float]:
    """Return the bytes of a token's activations that tensor parallelism replicates, and those that it divides."""
    mlp = (6 if shape.gated else 4) * shape.mlp
    return 10.0 * shape.hidden, 4.0 * shape.hidden * (1 + shape.kv_heads / shape.heads) + mlp


def score_bytes(shape: ModelShape) -> float:
    """Return the bytes of a token's scores."""
    return float(_SCORES * shape.heads * shape.sequence)


def _kept_layers(shape: ModelShape, plans: PlanTable, global_batch: ArrayLike) -> Floats:
    """Return the most layers times micro-batches whose activations the first stage holds."""
    micro_batches = np.asarray(global_batch) / (plans.data * plans.micro_batch)
    in_flight = np.minimum(plans.pipeline, micro_batches)
    more = 1 + np.where(plans.interleave > 1, (plans.pipeline - 1) / (plans.pipeline * plans.interleave), 0.0)
    return np.asarray(shape.layers / plans.pipeline * in_flight * more)


Truths = NDArray[np.bool_]
_GIB = 2.0**30


class _Rule(NamedTuple):
    """A condition that no plan may meet, and its message: `s` is the shape, `p` the plan, `batch` the global batch."""

    broken: Callable[[ModelShape, Hardware, PlanTable, int], Truths]
    text: str


def _uneven_stages(s: ModelShape, h: Hardware, p: PlanTable, batch: int) -> Truths:
    stages = p.pipeline * p.interleave
    uneven: Truths = s.layers % stages != 0
    if h.ends_count:
        uneven &= (p.pipeline == 1) | ((s.layers + 2) % stages != 0)
    return uneven


_RULES = (
    _Rule(
        lambda s, h, p, batch: batch % (p.data * p.micro_batch) != 0,
        "the global batch of {batch} is not divisible by d x b = {p.data} x {p.micro_batch}",
    ),
    _Rule(_uneven_stages, "{s.layers} layers are not divisible by p x v = {p.pipeline} x {p.interleave}"),
    _Rule(lambda s, h, p, batch: s.heads % p.tensor != 0, "{s.heads} heads are not divisible by t = {p.tensor}"),
    _Rule(
        lambda s, h, p, batch: s.kv_heads % p.tensor != 0,
        "{s.kv_heads} key-value heads are not divisible by t = {p.tensor}",
    ),
    _Rule(
        lambda s, h, p, batch: s.sequence % p.context != 0,
        "sequences of {s.sequence} are not divisible by c = {p.context}",
    ),
    _Rule(
        lambda s, h, p, batch: (p.interleave > 1) & (p.pipeline == 1),
        "virtual stages (v = {p.interleave}) need a pipeline, and p = 1",
    ),
    _Rule(
        lambda s, h, p, batch: (p.interleave > 1) & (batch % (p.data * p.micro_batch * p.pipeline) != 0),
        "with v = {p.interleave} the micro-batches of a step ({count}) must be divisible by p = {p.pipeline}",
    ),
    _Rule(
        lambda s, h, p, batch: (p.zero > 1) & (p.pipeline > 1),
        "ZeRO {p.zero} divides the gradients that a pipeline (p = {p.pipeline}) accumulates; use ZeRO 1",
    ),
)


def allowed(shape: ModelShape, hardware: Hardware, plans: PlanTable, global_batch: int) -> Truths:
    """Return which plans break no divisibility rule."""
    fine = np.ones(len(plans.tensor), dtype=np.bool_)
    for rule in _RULES:
        fine &= ~rule.broken(shape, hardware, plans, global_batch)
    return fine


def legal(shape: ModelShape, hardware: Hardware, plan: Plan, gpus: int, global_batch: int) -> str | None:
    """Return why a plan cannot run on `gpus` GPUs at a global batch (sequences); None if it can."""
    if plan.gpus != gpus:
        ranks = f"{plan.tensor} x {plan.pipeline} x {plan.data} x {plan.context}"
        return f"t x p x d x c = {ranks} takes {plan.gpus} GPUs, not {gpus}"
    table = PlanTable.of([plan])
    for rule in _RULES:
        if rule.broken(shape, hardware, table, global_batch)[0]:
            return rule.text.format(s=shape, p=plan, batch=global_batch, count=plan.micro_batches(global_batch))
    needed = float(memory(shape, hardware, table, global_batch).total[0])
    if needed > hardware.memory_bytes:
        missing = (needed - hardware.memory_bytes) / _GIB
        return (
            f"a GPU needs {needed / _GIB:.1f} GiB, {missing:.1f} GiB more than the {hardware.memory_bytes / _GIB:.1f} "
            f"GiB of {hardware.gpu_type}"
        )
    return None
