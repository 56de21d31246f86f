"""Whether a plan can run: divisibility rules and memory, with the reason if it cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simsched.model.plans.hardware import Hardware
from simsched.model.plans.memory_parts import memory
from simsched.model.plans.plan import ModelShape, Plan, PlanTable

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
