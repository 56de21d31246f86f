"""Plans of parallel training: memory against published sizes, step times by hand, what cannot run, and the search."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from simsched.agent import fixed_agent
from simsched.model import BatchChoice, Cluster, JobRequest, Node, Site
from simsched.model.application import facts_of
from simsched.model.placement import Tier
from simsched.model.plans import (
    EVERYTHING,
    Hardware,
    MeasuredLayers,
    ModelShape,
    Plan,
    PlannedJob,
    PlannedModel,
    PlanSpace,
    PlanTable,
    TabledModel,
    best_plan,
    legal,
    memory,
    plans,
    step_time,
    step_times,
)
from simsched.model.plans.memory_parts import allowed
from simsched.operators.relaxed import planned_speeds

GIB = 2.0**30
A100 = Hardware("a100", 80 * GIB, 312e12, 312e12, 0.8, 1e-12, 1e-3, 220e9, 6e-5, 8, 100e9)
#: A GPU of round numbers: matrix products only, 1 TFLOP/s, links of 1 GB/s, the optimiser takes no time.
PLAIN = Hardware("x", 1e15, 1e12, 1e12, 1.0, 0.0, 0.0, 1e9, 0.0, 2, 1e9, optimiser_s=0.0, buffers=0.0)
#: 4 layers of 12 h^2 = 49,152 parameters.
TINY = ModelShape(layers=4, hidden=64, mlp=256, heads=4, kv_heads=4, vocabulary=100, sequence=32)

# Korthikanti et al. (MLSys'23), figures 1 and 7, as kept in Calculon: weights and optimiser, activations with neither
# recomputation nor sequence parallelism, and with both selective recomputation and it; GiB of the first stage.
PUBLISHED = {
    "22B": ((6144, 64, 48), Plan(8, 1, 1, 1, 4), 4, 45.5625, 59.25, 9.5625),
    "175B": ((12288, 96, 96), Plan(8, 8, 1, 1, 1, 3), 64, 45.5625, 66.84375, 12.3515625),
    "530B": ((20480, 128, 105), Plan(8, 35, 1, 1, 1, 3), 280, 31.640625, 114.0234375, 23.076171875),
    "1T": ((25600, 160, 128), Plan(8, 64), 512, 32.958984375, 131.25, 26.5625),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_memory_is_the_published_to_the_last_digit(name):
    (hidden, heads, layers), plan, batch, state, whole, selective = PUBLISHED[name]
    shape = ModelShape(layers, hidden, 4 * hidden, heads, heads, 51200, 2048)
    saving = Plan(*[getattr(plan, one) for one in ("tensor", "pipeline", "data", "context", "micro_batch")],
                  plan.interleave, "selective", sequence_parallel=True)  # fmt: skip
    found = memory(shape, A100, PlanTable.of([plan, saving]), batch)
    assert found.layers[0] / GIB == state
    assert (found.activations / GIB).tolist() == [whole, selective]


def test_parameters_are_those_of_the_published_models():
    llama = ModelShape(80, 8192, 28672, 64, 8, 32000, 4096, gated=True, untied=True)
    assert llama.parameters / 1e9 == pytest.approx(68.97, abs=0.02)  # 69 billion, norms left out
    gpt = ModelShape(96, 12288, 49152, 96, 96, 51200, 2048)
    assert gpt.parameters / 1e9 == pytest.approx(174.6, abs=0.1)  # Megatron (SC'21), table 2


def test_checkpoints_have_the_published_sizes():
    """Nemotron-4 15B writes about 204 GB, 340B about 4.4 TB (NVIDIA's benchmarking recipes)."""
    small = ModelShape(32, 6144, 24576, 48, 8, 256000, 4096, untied=True)
    large = ModelShape(96, 18432, 73728, 96, 8, 256000, 4096, untied=True)
    sizes = [PlannedModel("", shape, {}, 1, 1.0).checkpoint_bytes for shape in (small, large)]
    assert [round(sizes[0] / 1e9), round(sizes[1] / 1e12, 1)] == [203, 4.4]


def test_zero_divides_the_state_over_the_replicas():
    held = TINY.layers * TINY.layer_parameters
    table = PlanTable.of([Plan(data=4, zero=stage) for stage in range(4)])
    per_parameter = memory(TINY, A100, table, 4).layers / held  # 2 weight, 4 gradient, 12 optimiser (ZeRO, section 3)
    assert per_parameter.tolist() == [18, 2 + 4 + 3, 2 + (4 + 12) / 4, 18 / 4]
    away = memory(TINY, A100, PlanTable.of([Plan(data=4, zero=1, offload=True)]), 4)
    assert away.layers[0] == 2 * held
    assert away.host[0] == (4 + 3) * (held + 100 * 64)


@pytest.mark.parametrize(
    ("plan", "gpus", "batch", "reason"),
    [
        (Plan(2), 4, 8, "takes 2 GPUs, not 4"),
        (Plan(data=3), 3, 8, "the global batch of 8 is not divisible by d x b = 3 x 1"),
        (Plan(pipeline=3), 3, 6, "4 layers are not divisible by p x v = 3 x 1"),
        (Plan(pipeline=4, interleave=2), 4, 8, "4 layers are not divisible by p x v = 4 x 2"),
        (Plan(8), 8, 8, "4 heads are not divisible by t = 8"),
        (Plan(data=2, micro_batch=3), 2, 8, "the global batch of 8 is not divisible by d x b = 2 x 3"),
        (Plan(context=3), 3, 8, "sequences of 32 are not divisible by c = 3"),
        (Plan(interleave=2), 1, 8, "virtual stages (v = 2) need a pipeline"),
        (Plan(pipeline=2, interleave=2), 2, 3, "the micro-batches of a step (3) must be divisible by p = 2"),
        (Plan(pipeline=2, zero=3), 2, 8, "ZeRO 3 divides the gradients that a pipeline (p = 2) accumulates"),
    ],
)
def test_what_cannot_run_is_refused_with_its_reason(plan, gpus, batch, reason):
    assert reason in legal(TINY, A100, plan, gpus, batch)


@pytest.mark.parametrize(
    ("plan", "batch"),
    [
        (Plan(4, 4, 2, 32, 4, zero=1), 8), (Plan(pipeline=2, interleave=2), 4), (Plan(data=8, zero=3), 8),
        (Plan(pipeline=2, zero=1, offload=True), 3), (Plan(data=2, pipeline=2, micro_batch=2, interleave=2), 8),
    ],
)  # fmt: skip
def test_what_divides_evenly_can_run(plan, batch):
    assert legal(TINY, A100, plan, plan.gpus, batch) is None


@pytest.mark.parametrize("ends", [False, True])
def test_plans_are_allowed_that_divide_evenly_and_no_others(ends):
    shape = replace(TINY, layers=6, heads=8, sequence=24)
    counts = product((1, 2, 8), (1, 2, 4), (1, 2, 3), (1, 5), (1, 2), (1, 2, 3), (0, 1, 2))
    tried = [Plan(t, p, d, c, b, v, zero=zero) for t, p, d, c, b, v, zero in counts]
    for batch in (12, 18):
        even = [
            not (batch % (one.data * one.micro_batch) or shape.kv_heads % one.tensor or shape.sequence % one.context)
            # Embedding and output count as layers where there are stages for them.
            and 0
            in [layers % (one.pipeline * one.interleave) for layers in ((6, 8) if ends * (one.pipeline > 1) else (6,))]
            and (one.interleave == 1 or (one.pipeline > 1 and batch // one.data // one.micro_batch % one.pipeline == 0))
            and (one.pipeline == 1 or one.zero < 2)
            for one in tried
        ]
        assert allowed(shape, replace(A100, ends_count=ends), PlanTable.of(tried), batch).tolist() == even


def test_heads_that_share_keys_and_values_bound_the_tensor_ranks():
    shared = replace(TINY, kv_heads=2)
    assert legal(shared, A100, Plan(2), 2, 8) is None
    assert legal(shared, A100, Plan(4), 4, 8) == "2 key-value heads are not divisible by t = 4"


def test_missing_memory_is_counted():
    shape = ModelShape(48, 6144, 24576, 64, 64, 51200, 2048)
    plan = Plan(8, 1, 1, 1, 4)  # 45.5625 state, 59.25 activations, 18 x 51200 x 6144 / 8 embedding, 4 s b V / 8 logits
    needed = 45.5625 + 59.25 + (18 * 51200 * 6144 + 4 * 2048 * 4 * 51200) / 8 / GIB + 0.075 * 80
    assert legal(shape, A100, plan, 8, 4) == (
        f"a GPU needs {needed:.1f} GiB, {needed - 80:.1f} GiB more than the 80.0 GiB of a100"
    )


def test_computation_counts_the_published_flop():
    # Megatron (SC'21), equation 3, with recomputation: 96 B s L h^2 (1 + s / 6h + V / 16 L h), of which the last term
    # stands for an output layer that is not recomputed: 6 B s h V.
    batch, s, h, layers, words = 8, 32, 64, 4, 100
    flop = 96 * batch * s * layers * h * h * (1 + s / (6 * h)) + 6 * batch * s * h * words
    found = step_time(TINY, PLAIN, Plan(recomputation="full"), batch)
    assert found.compute == pytest.approx(flop / 1e12, rel=1e-12)
    without = 72 * batch * s * layers * h * h * (1 + s / (6 * h)) + 6 * batch * s * h * words
    assert step_time(TINY, PLAIN, Plan(), batch).compute == pytest.approx(without / 1e12, rel=1e-12)
    assert (found.tensor, found.context, found.pipeline, found.data, found.optimiser) == (0, 0, 0, 0, 0)


def test_a_layer_that_was_measured_counts_as_it_was():
    """A layer twice and an output three times as long as modelled; only as far as the plan of a layer is the same."""
    layer, output = 72 * 32 * 64 * 64 * (1 + 32 / (6 * 64)) / 1e12, 6 * 32 * 64 * 100 / 1e12  # of a sequence
    one = MeasuredLayers(replace(TINY, layers=1), (("t1 p1 d1", 2.0, 3.0), ("t2 p1 d1", 4.0, 1.0)))
    known = replace(PLAIN, layers=(one,), exposed_messages=0.0)
    assert step_time(TINY, known, Plan(), 8).compute == pytest.approx(8 * (4 * 2 * layer + 3 * output))
    piped = step_time(TINY, known, Plan(pipeline=2), 8)
    assert piped.total == pytest.approx(8 * (2 * 2 * layer + 3 * output) + 2 * 2 * layer)
    pair = step_time(TINY, known, Plan(2), 8)
    assert pair.tensor == pytest.approx(8 * 4 * 4 * 4 * (2 * 32 * 64) / 1e9)  # its all-reduces count with it
    for other in (Plan(micro_batch=2), Plan(recomputation="full")):
        assert step_time(TINY, known, other, 8) == step_time(TINY, replace(known, layers=()), other, 8)
    assert step_time(replace(TINY, mlp=128), known, Plan(), 8).compute < 8 * (4 * layer + output)
    with pytest.raises(ValueError, match="a measured layer has t, c, b and recomputation"):
        MeasuredLayers(TINY, (("t1 p2 d1", 1.0, 1.0),))


#: Seconds that a layer of TINY computes in a pass over a sequence: 24 s h^2 (1 + s / 6h) of 1 TFLOP/s.
PASS_S = 24 * 32 * 64 * 64 * (1 + 32 / (6 * 64)) / 1e12


@pytest.mark.parametrize(
    ("plan", "fused", "expected"),
    [
        # Three passes over 8 sequences of 32 words in 4 layers. A fused layer moves 10 h + 2 x 4h = 18 h bytes a word.
        (Plan(), True, 3 * 18 * 64),
        (Plan(2), True, 3 * 18 * 64 / 2),
        (Plan(recomputation="full"), True, 4 * 18 * 64),
        # Another moves the 34 h + 5 a s of Korthikanti et al., of which tensor ranks divide all but 10 h.
        (Plan(), False, 3 * (34 * 64 + 5 * 4 * 32)),
        (Plan(2), False, 3 * (10 * 64 + (24 * 64 + 5 * 4 * 32) / 2)),
        (Plan(2, sequence_parallel=True), False, 3 * (34 * 64 + 5 * 4 * 32) / 2),
        (Plan(recomputation="full"), False, 4 * (34 * 64 + 5 * 4 * 32)),
        (Plan(recomputation="selective"), False, 3 * 34 * 64 + 4 * 5 * 4 * 32),
    ],
)
def test_what_lies_between_products_takes_its_bytes(plan, fused, expected):
    slow = replace(PLAIN, pointwise_s=1e-6, fused=fused)
    without = step_time(TINY, replace(PLAIN, fused=fused), plan, 8).compute
    assert step_time(TINY, slow, plan, 8).compute - without == pytest.approx(8 * 32 * 4 * expected * 1e-6)


def test_a_pass_takes_its_launches_and_no_less_than_the_host():
    bare = step_time(TINY, PLAIN, Plan(), 8).compute
    assert step_time(TINY, replace(PLAIN, fixed_s=1e-3), Plan(), 8).compute - bare == pytest.approx(8 * 4 * 3 * 1e-3)
    # A host as slow as the GPU makes a layer 2^(1/4) as long, one a tenth as slow (1 + 10^-4)^(1/4).
    output = bare - 8 * 4 * 3 * PASS_S
    for slowness in (1.0, 0.1):
        longer = (1 + slowness**4) ** 0.25
        found = step_time(TINY, replace(PLAIN, host_s=slowness * PASS_S), Plan(), 8).compute
        assert found - output == pytest.approx(8 * 4 * 3 * PASS_S * longer)


def test_products_reach_their_efficiency_and_attention_its_own_rate():
    core = 3 * 4 * 32 * 32 * 64 / 1e12  # 4 s^2 h of each pass, a third of a twelfth ... beside 24 s h^2
    products, output = 3 * 24 * 32 * 64 * 64 / 1e12, 6 * 32 * 64 * 100 / 1e12
    half = replace(PLAIN, efficiency=0.5)
    assert step_time(TINY, half, Plan(), 8).compute == pytest.approx(8 * 2 * (4 * (products + core) + output))
    quick = replace(PLAIN, peak_flops=4e12)
    assert step_time(TINY, quick, Plan(), 8).compute == pytest.approx(8 * (4 * (products / 4 + core) + output))
    # A fused attention skips the half that is masked.
    fused = replace(PLAIN, fused=True)
    assert step_time(TINY, fused, Plan(), 8).compute == pytest.approx(8 * (4 * (products + core / 2) + output))


def test_a_step_is_longer_by_the_doublings_of_its_nodes():
    eight = Plan(data=8)  # on four nodes of two GPUs: two doublings
    spread = step_time(TINY, replace(PLAIN, spread=0.25), eight, 8)
    assert spread.total == pytest.approx(1.5 * step_time(TINY, PLAIN, eight, 8).total)
    one = step_time(TINY, replace(PLAIN, spread=0.25), Plan(2), 8)
    assert one.total == pytest.approx(step_time(TINY, PLAIN, Plan(2), 8).total)


def test_the_optimiser_takes_its_part_of_the_parameters_and_their_way_to_the_host():
    held = 4 * 12 * 64 * 64
    known = replace(PLAIN, optimiser_s=1e-9, host_bandwidth=1e9)
    assert step_time(TINY, known, Plan(2), 8).optimiser == pytest.approx(held / 2 * 1e-9)
    assert step_time(TINY, known, Plan(data=4), 8).optimiser == pytest.approx(held * 1e-9)
    assert step_time(TINY, known, Plan(data=4, zero=1), 8).optimiser == pytest.approx(held / 4 * 1e-9)
    # Gradients of two bytes go to the host and weights of two bytes come back.
    assert step_time(TINY, known, Plan(data=4, zero=1, offload=True), 8).optimiser == pytest.approx(held / 4 * 5e-9)


def test_zero_3_moves_half_as_much_again_for_every_micro_batch():
    moved = 2 * 3 / 4 * 4 * 12 * 64 * 64 * 2 / 1e9
    assert step_time(TINY, PLAIN, Plan(data=4), 8).data == pytest.approx(moved)
    assert step_time(TINY, PLAIN, Plan(data=4, zero=2), 8).data == pytest.approx(moved)
    assert step_time(TINY, PLAIN, Plan(data=4, zero=3), 8).data == pytest.approx(1.5 * 2 * moved)


def test_keys_and_values_are_gathered_by_context_ranks():
    # Keys and values of 32 words, 2 x 64 numbers of 2 bytes, half an all-reduce each: forward, backward, gradients.
    gathered = 2 * 32 * 2 * 64 * 2 * (2 - 1) / 2
    assert step_time(TINY, PLAIN, Plan(context=2), 8).context == pytest.approx(8 * 4 * 1.5 * gathered / 1e9)
    full = step_time(TINY, PLAIN, Plan(context=2, recomputation="full"), 8)
    assert full.context == pytest.approx(8 * 4 * 2 * gathered / 1e9)
    few = replace(TINY, kv_heads=1)
    assert step_time(few, PLAIN, Plan(context=2), 8).context == pytest.approx(8 * 4 * 1.5 * gathered / 4 / 1e9)


def test_a_stage_more_or_less_stands_for_embedding_and_output():
    ends = replace(A100, ends_count=True)
    assert legal(TINY, ends, Plan(pipeline=3), 3, 6) is None
    assert "p x v = 5 x 1" in legal(TINY, ends, Plan(pipeline=5), 5, 5)
    assert legal(TINY, ends, Plan(pipeline=2), 2, 6) is None
    assert legal(TINY, ends, Plan(pipeline=2, interleave=3), 2, 6) is None
    assert "p x v = 1 x 3" in legal(TINY, ends, Plan(interleave=3), 1, 6), "one stage holds both ends"


def test_tensor_ranks_reduce_four_times_a_layer_and_six_times_with_recomputation():
    bytes_each = 2 * 32 * 64  # 2 b s h at b = 1, ring over two ranks: 2 (n - 1) / n = 1 time these
    for recomputation, count in (("none", 4), ("full", 6)):
        found = step_time(TINY, PLAIN, Plan(2, recomputation=recomputation), 8)
        assert found.tensor == pytest.approx(8 * 4 * count * bytes_each / 1e9)


def test_the_bubble_is_p_minus_one_stages_over_v():
    free = Hardware(**{**vars(PLAIN), "exposed_messages": 0.0})
    one = step_time(TINY, free, Plan(), 8)
    output = 6 * 8 * 32 * 64 * 100 / 1e12
    stage = (one.compute - output) / 8 / 2  # of two, for one of 8 micro-batches
    assert step_time(TINY, free, Plan(pipeline=2), 8).pipeline == pytest.approx(stage)
    assert step_time(TINY, free, Plan(pipeline=2, interleave=2), 8).pipeline == pytest.approx(stage / 2)


def test_gradients_pass_the_uplinks_that_their_groups_cross():
    held = TINY.layers * TINY.layer_parameters / 2  # t = 2
    moved = 2 * 3 / 4 * held * 2  # ring over d = 4, two bytes each
    node = Tier(2, 2, 1e9)  # two GPUs of the job a node: both tensor ranks' groups share its uplink
    found = step_time(TINY, PLAIN, Plan(2, data=4), 8, (node,))
    assert found.data == pytest.approx(2 * moved / 1e9)
    assert found.across == [pytest.approx(found.data)]
    leaf = Tier(4, 4, 0.5e9, 1.0)  # half as fast, and a latency of a second
    slower = step_time(TINY, PLAIN, Plan(2, data=4), 8, (node, leaf))
    assert slower.data == pytest.approx(2 * moved / 0.5e9 + 1)
    assert slower.across == [0, pytest.approx(slower.data)]
    inside = step_time(TINY, PLAIN, Plan(2, data=4), 8, (Tier(8, 8, 1e3),))  # all in one unit
    assert inside.data == pytest.approx(moved / 1e9)
    assert inside.across == [0]


def test_tensor_ranks_beyond_a_node_pass_its_uplink():
    narrow = step_time(TINY, PLAIN, Plan(4), 8, (Tier(2, 2, 1e8),))
    wide = step_time(TINY, PLAIN, Plan(4), 8, (Tier(4, 4, 1e8),))
    assert narrow.tensor == pytest.approx(10 * wide.tensor)


def test_overlap_hides_the_sum_of_gradients_behind_backward_passes():
    found = step_time(TINY, PLAIN, Plan(data=2), 8)
    hidden = Hardware(**{**vars(PLAIN), "overlap": 1.0})
    backward = 48 * 32 * 4 * 64**2 * (1 + 32 / (6 * 64)) / 1e12  # two thirds of 72 s L h^2 ..., one sequence
    assert step_time(TINY, hidden, Plan(data=2), 8).data == pytest.approx(found.data - backward)


def test_plans_are_written_and_read():
    for text in ("t8 p4 d16 c2 b2 v3 full sp zero1 offload", "t1 p1 d1", "t2 p1 d4 b2 selective zero3"):
        assert str(Plan.parse(text)) == text
    assert Plan.parse("zero1 b2") == Plan(micro_batch=2, zero=1)
    for wrong in ("t8 x3", "t", "t2 t4", "zero9", "zero4", "d0"):
        with pytest.raises(ValueError, match=r"plan|twice"):
            Plan.parse(wrong)


def test_the_search_finds_what_trying_all_plans_finds():
    small = Hardware(**{**vars(A100), "memory_bytes": 4e6, "buffers": 0.0})
    space = PlanSpace(zero=(0, 1), offload=(False,))
    tiers = (Tier(4, 4, 1e9, 1e-4),)
    every = []
    counts = product(*[(1, 2, 4, 8)] * 5, (1, 2, 4, 8, 16))
    for t, p, d, c, v, b in (one for one in counts if np.prod(one[:4]) == 8):
        for kept, zero in product(("none", "selective", "full"), (0, 1)):
            plan = Plan(t, p, d, c, b, v, kept, zero=zero)
            if legal(TINY, small, plan, 8, 16) is None:
                every.append(plan)
    table, taken = plans(TINY, small, 8, 16, space)
    assert {table.plan(at) for at in range(len(table.tensor))} == set(every)
    assert (taken.total <= 4e6).all()
    assert 0 < len(every) < len(plans(TINY, A100, 8, 16, space)[0].tensor)  # memory counts
    best = best_plan(TINY, small, 8, 16, tiers, space)
    times = [step_time(TINY, small, plan, 16, tiers).total for plan in every]
    assert best.parts.total == min(times)
    assert step_time(TINY, small, best.plan, 16, tiers).total == min(times)


@pytest.mark.parametrize("least", [None, 2])
def test_the_search_keeps_within_its_space_and_uses_the_ends_of_a_pipeline(least):
    known = replace(A100, ends_count=True, sequence_parallel=True, buffers=0.0)
    space = PlanSpace(("none",), (0,), (False,), most_tensor=2, most_context=2, most_interleave=2)
    every = set()
    for t, p, d, c, v, b in product(
        (1, 2, 4), (1, 2, 3, 4, 6), (1, 2, 3, 4), (1, 2, 4), (1, 2, 3), (1, 2, 3, 4, 6, 12)
    ):
        plan = Plan(t, p, d, c, b, v, sequence_parallel=t > 1)
        if (
            t <= 2
            and c <= 2
            and v <= 2
            and (least or 4) <= plan.gpus <= 4
            and not legal(TINY, known, plan, plan.gpus, 12)
        ):
            every.add(plan)
    table, taken = plans(TINY, known, 4, 12, space, least)
    assert {table.plan(at) for at in range(len(table.tensor))} == every
    assert {plan.pipeline for plan in every} == ({1, 2, 4} if least is None else {1, 2, 3, 4})
    # A plan fits that takes the very last byte.
    tight = replace(known, memory_bytes=float(taken.total.min()))
    few, _ = plans(TINY, tight, 4, 12, space, least)
    assert 0 < len(few.tensor) < len(table.tensor)
    assert legal(TINY, tight, few.plan(0), few.plan(0).gpus, 12) is None
    assert best_plan(TINY, replace(tight, memory_bytes=1.0), 4, 12) is None


def test_shapes_hardware_and_measured_layers_are_checked():
    for wrong in ({"layers": 0}, {"kv_heads": 3}, {"sequence": 0}):
        with pytest.raises(ValueError, match="counts of at least 1, and as many heads"):
            replace(TINY, **wrong)
    for wrong in ({"memory_bytes": 0.0}, {"efficiency": 0.0}, {"network_share": 0.0}, {"overlap": -1.0}):
        with pytest.raises(ValueError, match=f"'{next(iter(wrong))}' of a hardware profile must be above 0"):
            replace(A100, **wrong)
    with pytest.raises(ValueError, match="factors above 0"):
        MeasuredLayers(TINY, (("t1 p1 d1", 1.0, 0.0),))
    assert [A100.tiers(shape) for shape in ((), (4,), (4, 6))] == [(), (), (Tier(2, 6, 100e9, 0.0),)]


MODEL = PlannedModel("tiny", TINY, {"x": PLAIN}, 16, 1e6)


def test_a_job_runs_its_fastest_plan_or_the_one_chosen():
    job, site = PlannedJob(MODEL, 100), Site((2,), "x")
    best = MODEL.best(site)
    assert job.run(site, BatchChoice(0, 0), 0).rate == 1 / best.parts.total
    chosen = BatchChoice.of_plan(Plan(data=2, micro_batch=4), 16)
    assert (chosen.local_bsz, chosen.accum_steps, chosen.total(2)) == (4, 1, 16)
    running = job.run(site, chosen, 0)
    assert running.rate == 1 / step_time(TINY, PLAIN, Plan(data=2, micro_batch=4), 16).total
    assert running.throughput == pytest.approx(16 * running.rate)
    with pytest.raises(ValueError, match="takes 4 GPUs, not 2"):
        job.run(site, BatchChoice.of_plan(Plan(data=4), 16), 0)
    with pytest.raises(ValueError, match="'y' is not known"):
        job.run(Site((2,), "y"), BatchChoice(0, 0), 0)
    assert job.restart_delay_s == 2 * 13 * TINY.parameters / 1e6


def test_a_plan_need_not_take_all_gpus():
    assert MODEL.best(Site((3,), "x")).plan.gpus == 2  # 16 sequences, 4 layers and 4 heads divide by no 3


def test_a_plan_on_more_than_half_of_a_site_goes_before_those_on_less():
    """Between nodes a step takes ages, but a job is not to leave most of its GPUs idle while a plan takes them."""
    thin = PlannedModel("thin", TINY, {"x": replace(PLAIN, node_bandwidth=1e3)}, 16, 1e6)
    shapes = ((1, 1), (1, 1, 1), (1, 1, 1, 1), (1,) * 5)
    assert [thin.best(Site(shape, "x")).plan.gpus for shape in shapes] == [2, 2, 4, 4]
    assert best_plan(TINY, PLAIN, 4, 16, (Tier(1, 1, 1e3),), at_least=1).plan.gpus == 1
    single = PlannedModel("single", ModelShape(1, 64, 256, 1, 1, 100, 1), {"x": PLAIN}, 1, 1e6)
    assert single.best(Site((5,), "x")).plan == Plan()
    with pytest.raises(ValueError, match="no plan of tiny fits 1 GPUs of x at a batch of 16"):
        replace(MODEL, hardware={"x": replace(PLAIN, memory_bytes=1.0)}).best(Site((1,), "x"))


def test_another_global_batch_counts_where_it_is_given():
    site, plan = Site((2,), "x"), Plan(data=2)
    assert (MODEL.gpu_types, MODEL.node_gpus("x")) == (("x",), 2)
    assert MODEL.parts(plan, site, 8) == MODEL.modelled(plan, site, 8) == step_time(TINY, PLAIN, plan, 8)
    assert MODEL.parts(plan, site) == MODEL.modelled(plan, site) == step_time(TINY, PLAIN, plan, 16)
    assert MODEL.best(site, 1).plan.data == 1
    assert MODEL.refusal(plan, "x", 2) is None
    assert "global batch of 7" in MODEL.refusal(plan, "x", 2, 7)
    assert MODEL.refusal(plan, "x", 1) == "it takes 2 GPUs, not 1"
    assert MODEL.refusal(plan, "x", 3) is None


def test_a_job_of_plans_counts_its_steps():
    job, other, site = PlannedJob(MODEL, 1), PlannedJob(MODEL, 100, 8), Site((2,), "x")
    assert (job.global_batch, job.epoch_end(0), other.global_batch) == (16, 1, 8)
    assert (other.iterations(8, 0), other.iterations(16, 0)) == (100, 50)
    assert job.checkpoint_s == job.restart_delay_s / 2
    best = MODEL.best(site, 8).parts
    assert other.step_time(site, 0) == (best.total, best.data)
    assert other.run(site, BatchChoice(0, 0), 0)[:3] == (1 / best.total, 1.0, 8 / best.total)
    with pytest.raises(ValueError, match="needs its number of steps"):
        PlannedJob(MODEL, 0.9)


def test_the_agent_keeps_the_plan_asked_for_on_its_gpus_only():
    facts = facts_of(PlannedJob(MODEL, 100))
    asked = Plan(data=2, micro_batch=2)
    agent = fixed_agent(JobRequest("a", 0, 2, "tiny", plan=asked), facts)
    assert agent.choose(Site((2,), "x"), 0).plan == asked
    assert agent.choose(Site((4,), "x"), 0).plan == MODEL.best(Site((4,), "x")).plan


def test_4096_gpus_are_searched_within_a_few_thousand_plans():
    shape = ModelShape(80, 8192, 28672, 64, 8, 128256, 8192, gated=True, untied=True)
    table, _ = plans(shape, A100, 4096, 2048)
    assert 100 < len(table.tensor) < 20000
    assert np.all(table.gpus == 4096)


BOUND_A100 = Hardware(
    "a100", 80e9, 312e12, 312e12, 0.5, 0.0, 1e-5, 250e9, 1e-5, 4, 25e9, network_latency_s=1e-5, spread=0.05
)
SMALL = PlannedModel("small", ModelShape(8, 1024, 4096, 16, 16, 51200, 1024), {"a100": BOUND_A100}, 16, 1e9)
CLUSTER = Cluster.uniform(4, 4, "a100")
SHAPES = ((1,), (2,), (1, 1), (4,), (2, 2), (1, 1, 1, 1), (4, 4), (2, 2, 2, 2), (3, 3, 2), (4, 4, 4, 4))
EACH = [(count, count) for count in range(1, 17)]


def test_no_plan_is_faster_anywhere_than_the_bound_for_so_many_gpus() -> None:
    bound = planned_speeds(PlannedJob(SMALL, 100), None, EACH, CLUSTER)
    for shape in SHAPES:
        table, _ = plans(SMALL.shape, BOUND_A100, sum(shape), 16, EVERYTHING, at_least=1)
        seconds = step_times(SMALL.shape, BOUND_A100, table, 16, BOUND_A100.tiers(shape)).total
        assert 1 / seconds.min() <= bound["a100", sum(shape)] * (1 + 1e-12), shape
    assert bound["a100", 1] == pytest.approx(
        1 / SMALL.best(Site((1,), "a100")).parts.total
    )  # on one GPU there is no network
    assert [bound["a100", count] for count, _ in EACH] == sorted(bound["a100", count] for count, _ in EACH)


def test_measured_plans_bound_by_their_fastest_row_on_at_most_so_many_gpus() -> None:
    rows = {(Plan(), (1,)): 4.0, (Plan(data=2), (2,)): 2.5, (Plan(data=2), (1, 1)): 3.0, (Plan(data=4), (2, 2)): 1.0}
    job = PlannedJob(TabledModel("net", "a100", rows), 100)
    bound = planned_speeds(job, None, [(1, 1), (2, 2), (3, 3), (4, 4)], CLUSTER)
    assert bound == {("a100", 1): 0.25, ("a100", 2): 0.4, ("a100", 3): 0.4, ("a100", 4): 1.0}


def test_a_model_measured_here_and_there_is_nowhere_faster_than_its_bound() -> None:
    rows = {(Plan(), (1,)): 2.0, (Plan(data=2), (2,)): 0.7, (Plan(data=4), (2, 2)): 0.9}
    model = TabledModel("net", "a100", rows, SMALL)
    bound = planned_speeds(PlannedJob(model, 100), None, EACH, CLUSTER)
    for shape in SHAPES:
        assert 1 / model.best(Site(shape, "a100")).parts.total <= bound["a100", sum(shape)] * (1 + 1e-12), shape


def test_a_range_has_the_speed_of_its_most_gpus_and_other_types_have_none() -> None:
    cluster = Cluster((Node(0, 4, gpu_type="a100"), Node(1, 4, gpu_type="t4")))
    job = PlannedJob(SMALL, 100)
    wide, each = planned_speeds(job, Plan(data=16), [(5, 8)], cluster), planned_speeds(job, None, EACH, CLUSTER)
    assert wide == {("a100", 5): each["a100", 8]}
