"""Steps and memory of drawn plans against the formulas of the papers, written for one plan and in plain numbers.

Megatron (Narayanan et al., SC'21, sections 2 and 3), Korthikanti et al. (MLSys'23, sections 4 and 5), ZeRO (Rajbhandari
et al., SC'20, sections 3 and 7); what is exposed and what bounds it, as `Hardware` and `Tier` say.
"""

from dataclasses import replace
from math import log2
from random import Random

import numpy as np
import pytest

from simsched.model.placement import Tier
from simsched.model.plans import Hardware, ModelShape, Plan, PlanTable, memory, step_time

#: No two numbers alike, and none that makes a term vanish.
HARDWARE = Hardware(
    "x", 7e9, 3e12, 2e12, 0.6, 3e-12, 2e-5, 5e9, 3e-5, 4, 2e9, 4e-5, 0.7, 0.3, 0.4, 0.6, 0.05, 4e-5, 3e-11,
    gradient_bytes=3, buffers=0.11, host_bandwidth=3e9,
)  # fmt: skip
SHAPE = ModelShape(8, 128, 384, 8, 4, 1000, 64)


def all_reduce_s(hardware, tiers, size, ranks, stride, count):
    """Return the seconds of ring all-reduces, and the place of the tier that bounds them."""
    moved = 2 * (ranks - 1) / ranks * size
    seconds, binds = (moved / hardware.link_bandwidth + hardware.link_latency_s if ranks > 1 else 0.0), None
    return bound(hardware, tiers, seconds, binds, moved, ranks * stride, stride, count)


def bound(hardware, tiers, seconds, binds, moved, span, stride, count):
    for place, tier in enumerate(tiers):
        rate = tier.bytes_per_s * (1 if tier.inside else hardware.network_share)
        there = min(stride, tier.largest) * moved / rate + tier.latency_s
        if tier.common % span and there > seconds:
            seconds, binds = there, place
    return count * seconds, binds


def exposed(share, moved_s, beside_s):
    return max(share * moved_s, moved_s - beside_s)


def layer_s(shape, hardware, plan, words):
    """Return the seconds of a layer of a micro-batch, forward and backward, without collectives."""
    h, s, t, full = shape.hidden, shape.sequence, plan.tensor, plan.recomputation == "full"
    passes = 4 if full else 3
    scored = passes if hardware.fused else 3 if plan.recomputation == "none" else 4
    matrices = 2 * h * h * (1 + shape.kv_heads / shape.heads) + (3 if shape.gated else 2) * h * shape.mlp
    scores = words * s * h * (2 if hardware.fused else 4)
    work = passes * 2 * words * matrices / t / hardware.peak_flops + scored * scores / t / hardware.other_flops
    whole, divided, score = linear(shape)
    if hardware.fused:
        between = passes * words * (10 * h + 2 * shape.mlp) / t
    else:
        undivided = t if plan.sequence_parallel else 1
        between = passes * words * (whole / undivided + divided / t) + scored * words * score / t
    taken = work / hardware.efficiency + hardware.pointwise_s * between + hardware.fixed_s * passes
    return (taken**4 + (hardware.host_s * passes) ** 4) ** 0.25


def linear(shape):
    """Return bytes of a word's activations: left whole by tensor ranks, divided by them, and of its scores."""
    mlp = (6 if shape.gated else 4) * shape.mlp
    grouped = 2 * shape.hidden * (1 + shape.kv_heads / shape.heads)  # query and output, keys and values, 2 bytes each
    return 10 * shape.hidden, 2 * grouped + mlp, 5 * shape.heads * shape.sequence


def step_of(shape, hardware, plan, batch, tiers):
    """Return the seconds of a step by part, and those that each tier binds."""
    t, p, d, c, b, v = (plan.tensor, plan.pipeline, plan.data, plan.context, plan.micro_batch, plan.interleave)
    h, full, often, words = shape.hidden, plan.recomputation == "full", batch / d / b, shape.sequence / c * b
    depth, layer = shape.layers / p, layer_s(shape, hardware, plan, words)
    held = depth * shape.layer_parameters / t
    selective = plan.recomputation == "selective" and plan.sequence_parallel
    tensor, tensor_at = all_reduce_s(hardware, tiers, 2 * words * h, t, 1, 4 + 2 * full + selective)
    gathered = 2 * shape.sequence * b * 2 * h * shape.kv_heads / shape.heads / t
    context, context_at = all_reduce_s(hardware, tiers, gathered, c, t, (4 if full else 3) / 2)
    waited = exposed(hardware.exposed, tensor + context, layer)
    stage = depth * (layer + waited)

    message = 2 * words * h / t
    one = message / hardware.link_bandwidth + hardware.link_latency_s if p > 1 else 0.0
    one, sent_at = bound(hardware, tiers, one, None, message, t * c * d * p if p > 1 else 1, t * c * d, 1)
    sent = (often * v + p - 1) * exposed(hardware.exposed_messages, 2 * one, stage / v)

    data, data_at = all_reduce_s(hardware, tiers, 2 * held, d * c, t, 1.5 * often if plan.zero == 3 else 1)
    backward = depth * layer * 2 / (4 if full else 3)
    hides = often * depth * layer if plan.zero == 3 else min(p, often) * backward
    data = max(data - hardware.overlap * hides, 0)

    slower = 1 + hardware.spread * log2(max(plan.gpus / hardware.node_gpus, 1))
    share = waited / (tensor + context) if tensor + context else 0.0
    output = 6 * words * h * shape.vocabulary / t / hardware.other_flops / hardware.efficiency
    moved_s = 4 / hardware.host_bandwidth if plan.offload else 0.0
    own = held / (d * c if plan.zero else 1) * (hardware.optimiser_s + moved_s)
    parts = [
        often * (depth * layer + output), often * depth * share * tensor, often * depth * share * context,
        (p - 1) / v * stage + sent, data, own,
    ]  # fmt: skip
    across = [0.0] * len(tiers)
    for seconds, at in ((parts[1], tensor_at), (parts[2], context_at), (sent, sent_at), (data, data_at)):
        if at is not None:
            across[at] += slower * seconds
    return [slower * part for part in parts], across


def memory_of(shape, hardware, plan, batch):
    """Return the bytes of layers, embedding, activations, logits, buffers, and those in the host's memory."""
    t, p, v, replicas = plan.tensor, plan.pipeline, plan.interleave, plan.data * plan.context
    words = shape.sequence / plan.context * plan.micro_batch
    on_gpu = 2 / (replicas if plan.zero == 3 else 1)
    rest = hardware.gradient_bytes / (replicas if plan.zero >= 2 else 1) + 12 / (replicas if plan.zero >= 1 else 1)
    layers = shape.layers * shape.layer_parameters / t / p
    embedding = shape.vocabulary * shape.hidden / t * (2 if shape.untied and p == 1 else 1)
    whole, divided, score = linear(shape)
    undivided = t if plan.sequence_parallel else 1
    if plan.recomputation == "full":
        kept = 2 * words * shape.hidden / undivided
    else:
        scores = score / t if plan.recomputation == "none" and not hardware.fused else 0
        kept = words * (whole / undivided + divided / t + scores)
    flying = min(p, batch / plan.data / plan.micro_batch) * (1 + (p - 1) / (p * v) if v > 1 else 1)
    state = on_gpu + (0 if plan.offload else rest)
    return [
        layers * state, embedding * state, kept * shape.layers / p * flying, 4 * words * shape.vocabulary / t,
        hardware.buffers * hardware.memory_bytes, (layers + embedding) * rest * plan.offload,
    ]  # fmt: skip


def drawn(rng):
    """Draw a plan, its shape and hardware, a batch that it divides, and how it lies on tiers."""
    shape = replace(SHAPE, gated=rng.random() < 0.5, untied=rng.random() < 0.5)
    hardware = replace(HARDWARE, fused=rng.random() < 0.5, host_s=rng.choice([0.0, 4e-5]))
    for name in ("exposed", "exposed_messages", "overlap"):
        hardware = replace(hardware, **{name: rng.choice([0.01, getattr(hardware, name)])})
    ranks = [rng.choice([1, 1, 2, 4]) for _ in range(4)]
    b, v = rng.choice([1, 2]), rng.choice([1, 2])
    kept, zero = rng.choice(["none", "selective", "full"]), rng.randrange(4)
    plan = Plan(*ranks, b, v, kept, rng.random() < 0.5, zero, rng.random() < 0.5)
    tiers = [
        Tier(rng.choice([1, 2, 4, 8]), rng.choice([4, 8]), rng.choice([3e8, 2e9]), rng.choice([0.0, 1e-4]), inside)
        for inside in (True, False)[: rng.randrange(3)]
    ]
    return shape, hardware, plan, plan.data * plan.micro_batch * rng.choice([1, 2, 4, 8]), tiers


@pytest.mark.parametrize("seed", range(8))
def test_steps_and_memory_of_drawn_plans_are_those_of_the_formulas(seed):
    rng = Random(seed)
    for _ in range(40):
        shape, hardware, plan, batch, tiers = drawn(rng)
        found, (parts, across) = (
            step_time(shape, hardware, plan, batch, tiers),
            step_of(shape, hardware, plan, batch, tiers),
        )
        assert list(found[:6]) == pytest.approx(parts, rel=1e-9, abs=1e-15), plan
        assert found.across == pytest.approx(across, rel=1e-9, abs=1e-15), plan
        assert found.total == pytest.approx(sum(parts))
        held = memory(shape, hardware, PlanTable.of([plan]), batch)
        assert np.array(held)[:, 0].tolist() == pytest.approx(memory_of(shape, hardware, plan, batch)), plan
        assert held.total[0] == pytest.approx(sum(memory_of(shape, hardware, plan, batch)[:5]))
