"""Step times, splits of batches and sites against their definitions in plain numbers, on drawn cases and at edges."""

from __future__ import annotations

from math import ceil, gcd
from random import Random

import numpy as np
import pytest

from simsched.model import BatchChoice, BatchLimits, Cluster, NodeGroup, Site
from simsched.model.batch import batch_for_target, candidate_batches, clip_to_max, split_batch
from simsched.model.cluster import Level, Uplink, Within
from simsched.model.placement import Tier, canonical_rotation, consolidated_shape, describe
from simsched.model.step_model import (
    PlacementClass,
    PlacementModel,
    Placements,
    SevenParameters,
    SyncPair,
    interpolate,
)
from simsched.model.throughput import ThroughputParams
from simsched.model.topology import check_nodes, consecutive, levels_crossed, site_of, tightest_site, with_levels


def line(at, knots, values):
    """Follow straight lines between knots, and the outermost beyond."""
    if len(knots) == 1:
        return values[0]
    piece = next((i for i in range(1, len(knots) - 1) if at <= knots[i]), len(knots) - 1)
    rise = (values[piece] - values[piece - 1]) / (knots[piece] - knots[piece - 1])
    return values[piece - 1] + rise * (at - knots[piece - 1])


def level_at(at, knots, values):
    """Follow straight lines between knots, and stay beyond."""
    return line(min(max(at, knots[0]), knots[-1]), knots, values)


CLASSES = (
    PlacementClass((0.3, 0.5, 0.6), 1.5, (0.1, 0.2, 0.15), (0.01, 0.02, 0.03)),
    PlacementClass((0.4, 0.5, 0.9, 1.2), 2.0, (0.3, 0.35, 0.2, 0.1), fill_exponent=0.5),
    PlacementClass((0.7, 0.6), 1.0, contention_s=(0.05, 0.02), fill_exponent=1.5, nodes_exponent=0.4),
)
ACROSS = (SyncPair(0.8, 0.1), SyncPair(1.5, 0.2))


def physics(model, shape, local, crossed, factor):
    """Return (computation, step) as the pages of `PlacementClass` and `PlacementModel` say."""
    nodes, gpus, fullest = len(shape), sum(shape), max(shape)
    kind, first = ((model.one_node, 2), (model.two_nodes, 1), (model.more_nodes, 1))[min(nodes, 3) - 1]
    compute = grad = line(local, model.local_bsz, model.grad_s)
    sync = 0.0
    if gpus > 1:
        if kind.contention:
            compute += grad * level_at(fullest, range(first, first + len(kind.contention)), kind.contention)
        if kind.contention_s:
            compute += level_at(fullest, range(first, first + len(kind.contention_s)), kind.contention_s)
        sync = line(fullest, range(first, first + len(kind.sync_s)), kind.sync_s)
        sync *= (gpus / (nodes * fullest)) ** kind.fill_exponent * max(nodes / 3, 1) ** kind.nodes_exponent
        if crossed:
            sync *= factor
        if crossed and model.across:
            pair = model.across[min(crossed, len(model.across)) - 1]
            sync = pair.alpha_s + pair.beta_s * (gpus - 2)
    return compute, (compute**kind.overlap + sync**kind.overlap) ** (1 / kind.overlap)


@pytest.mark.parametrize("across", [(), ACROSS])
def test_classes_of_placements_take_the_time_that_they_say(across):
    rng, model = Random(4), PlacementModel((8, 16, 64), (0.2, 0.3, 1.1), *CLASSES, across=across)
    for _ in range(60):
        shape = tuple(rng.randrange(1, 6) for _ in range(rng.randrange(1, 6)))
        local, crossed = rng.choice([4, 8, 12, 16, 40, 64, 100]), rng.randrange(4) if len(shape) > 1 else 0
        site = Site(shape, "x", crossed, 1.7 if crossed else 1.0)
        compute, step = model.times_s(Placements.at(site), local)
        expected = physics(model, shape, local, crossed, 1.7)
        assert (compute.item(), step.item()) == pytest.approx(expected, rel=1e-6), site


def test_sevens_synchronise_across_levels_by_pairs_or_by_the_factor():
    params = ThroughputParams(0.1, 0.01, 0.5, 0.05, 0.2, 0.02, 1.0)
    for across, crossed, sync in (
        ((), 0, 3 * (0.5 + 0.05 * 4)), ((), 1, 3 * (0.5 + 0.05 * 4)), (ACROSS, 1, 0.8 + 0.1 * 4),
        (ACROSS, 2, 1.5 + 0.2 * 4), (ACROSS, 3, 1.5 + 0.2 * 4), ((SyncPair(0.8, 0.1),), 2, 0.8 + 0.1 * 4),
    ):  # fmt: skip
        compute, step = SevenParameters(params, across).times_s(Placements.at(Site((2, 2, 2), "x", crossed, 3.0)), 10)
        assert (compute.item(), step.item()) == pytest.approx((0.2, 0.2 + sync))
    inside = Placements.at(Site((3, 3), "x", 0, 2.0))
    assert SevenParameters(params).times_s(inside, 10)[1].item() == pytest.approx(0.2 + 2 * (0.5 + 0.05 * 4))
    assert SevenParameters(params, ACROSS).times_s(Placements.of((3, 3)), 10)[1].item() == pytest.approx(0.2 + 0.7)
    many = Placements.of((4,), (3, 1), (2, 2, 2))
    assert [many.nodes.tolist(), many.gpus.tolist(), many.fullest.tolist()] == [[1, 2, 3], [4, 4, 6], [4, 3, 2]]
    assert params.scaled(2.0) == ThroughputParams(0.2, 0.02, 1.0, 0.1, 0.4, 0.04, 1.0)


@pytest.mark.parametrize(
    ("at", "value"), [(0, -1), (1, 0), (2, 1), (3, 2), (4, 2.5), (5, 3), (6, 3.5), (9, 5), (10, 6), (12, 8)]
)
def test_lines_go_on_beyond_their_knots(at, value):
    assert interpolate(np.array([float(at)]), (1, 3, 9, 10), (0.0, 2.0, 5.0, 6.0)).tolist() == [pytest.approx(value)]
    assert interpolate(np.array([float(at)]), (4,), (7.0,)).tolist() == [7]


def limits(init=32, most=512, least_local=4, most_local=64):
    return BatchLimits(init_batch_size=init, max_batch_size=most, min_local_bsz=least_local, max_local_bsz=most_local)


@pytest.mark.parametrize(
    ("target", "gpus", "least", "local", "accum"),
    [(64, 1, 1, 64, 0), (65, 1, 1, 33, 1), (128, 1, 1, 64, 1), (129, 1, 1, 43, 2), (129, 2, 1, 33, 1),
     (128, 2, 1, 64, 0), (32, 1, 2, 16, 1), (33, 2, 1, 17, 0), (300, 3, 3, 34, 2)],
)  # fmt: skip
def test_a_batch_is_split_into_the_fewest_micro_batches_that_fit(target, gpus, least, local, accum):
    assert split_batch(limits(), target, gpus, least_micro_batches=least) == BatchChoice(local, accum)
    assert least > 1 or split_batch(limits(), target, gpus) == BatchChoice(local, accum)


@pytest.mark.parametrize(
    ("target", "gpus", "local", "accum"),
    [(32, 1, 32, 0), (33, 1, 17, 1), (64, 1, 32, 1), (33, 2, 17, 0), (600, 4, 42, 2), (512, 4, 64, 1), (513, 4, 42, 2)],
)
def test_a_target_above_the_initial_batch_is_accumulated_on_one_gpu_and_never_above_the_most(
    target, gpus, local, accum
):
    assert batch_for_target(limits(), target, gpus) == BatchChoice(local, accum)
    assert clip_to_max(limits(), BatchChoice(64, 1), gpus).local_bsz == min(64, 512 // gpus // 2)


@pytest.mark.parametrize("gpus", [1, 2, 3, 8, 16])
def test_candidates_are_spaced_evenly_in_logarithms(gpus):
    known = limits()
    local, accum = candidate_batches(known, gpus)
    smallest = max(32, 4 * gpus)
    totals = smallest * (512 / smallest) ** (np.arange(50) / 49)
    for total, one, more in zip(totals, local.tolist(), accum.tolist(), strict=True):
        share = total / gpus
        parts = max(ceil(share / 64 - 1e-8), 2 if gpus == 1 and share > 32 + 1e-8 else 1)
        whole = ceil(share / parts - 1e-8)
        assert (one, more) == (whole if 4 <= whole <= 64 else 0, parts - 1)


UPLINKS = Uplink(2e9, 1e-5), Uplink(1e9, 2e-5)


def tiered():
    """Make eight nodes of four GPUs in racks of two and rows of four, with pairs of GPUs within nodes."""
    cluster = Cluster.of(NodeGroup(8, 4, "x"))
    racks = Level("rack", consecutive(2, 8), uplink=UPLINKS[0], sync_factor=1.5, inside_factor=1.2)
    rows = Level("row", consecutive(4, 8), uplink=UPLINKS[1], sync_factor=2.5)
    return with_levels(
        cluster, [racks, rows], [Within("pair", 2, Uplink(9e9, 0.0)), Within("node", 0, Uplink(5e9, 0.0))]
    )


@pytest.mark.parametrize(
    ("allocation", "crossed", "factor", "racks", "rows"),
    [
        (((0, 4),), 0, 1.0, [4], [4]), (((0, 4), (1, 2)), 0, 1.2, [6], [6]), (((1, 2), (2, 4)), 1, 1.5, [2, 4], [6]),
        (((3, 1), (4, 3)), 2, 2.5, [1, 3], [1, 3]), (((0, 2), (1, 2), (6, 4)), 2, 2.5, [4, 4], [4, 4]),
    ],
)  # fmt: skip
def test_a_site_lies_on_its_tiers_as_its_gpus_do(allocation, crossed, factor, racks, rows):
    cluster, shape = tiered(), tuple(gpus for _, gpus in allocation)
    site = site_of(cluster, allocation)
    assert (site.shape, site.levels_crossed, site.sync_factor) == (shape, crossed, factor)
    pair = min(2, max(shape))
    assert site.tiers == (
        Tier(gcd(*shape, pair), pair, 9e9, 0.0, True), Tier(gcd(*shape), max(shape), 5e9, 0.0),
        Tier(gcd(*racks), max(racks), 2e9, 1e-5), Tier(gcd(*rows), max(rows), 1e9, 2e-5),
    )  # fmt: skip
    assert levels_crossed(cluster.nodes, allocation) == crossed


@pytest.mark.parametrize(
    ("gpus", "shape", "crossed", "racks", "rows"),
    [(3, (3,), 0, [3], [3]), (8, (4, 4), 0, [8], [8]), (9, (4, 4, 1), 1, [8, 1], [9]), (16, (4,) * 4, 1, [8, 8], [16]),
     (18, (4, 4, 4, 4, 2), 2, [8, 8, 2], [16, 2])],
)  # fmt: skip
def test_the_tightest_site_fills_domain_after_domain(gpus, shape, crossed, racks, rows):
    site = tightest_site(tiered(), gpus, "x")
    assert (site.shape, site.levels_crossed) == (shape, crossed)
    assert [(tier.common, tier.largest) for tier in site.tiers[2:]] == [
        (gcd(*held), max(held)) for held in (racks, rows)
    ]


def test_levels_hold_every_node_once():
    cluster = Cluster.of(NodeGroup(4, 4, "x"))
    for domains, said in ((((0, 1), (2,)), "node 3 is in no domain"), (((0, 1), (1, 2, 3)), "node 1 is twice"),
                          (((0, 1), (2, 3, 4)), "there is no node 4; the nodes are 0 to 3"),
                          (((-1, 0, 1), (2, 3)), "there is no node -1")):  # fmt: skip
        with pytest.raises(ValueError, match=said):
            with_levels(cluster, [Level("rack", domains)])
    check_nodes(((0, 3),), 4)
    pairs, halves = Level("rack", ((0, 1), (2, 3))), Level("row", ((0, 2), (1, 3)))
    with pytest.raises(ValueError, match="domain 0 of level 'rack' lies in several domains of level 'row'"):
        with_levels(cluster, [pairs, halves])
    with pytest.raises(ValueError, match="have the same domains"):
        with_levels(cluster, [pairs, Level("row", ((0, 1), (2, 3)))])
    assert consecutive(3, 8) == ((0, 1, 2), (3, 4, 5), (6, 7))


def test_shapes_and_allocations_are_written_and_turned():
    assert [consolidated_shape(gpus, 4) for gpus in (1, 4, 5, 8, 11)] == [(1,), (4,), (4, 1), (4, 4), (4, 4, 3)]
    assert [canonical_rotation(shape) for shape in ((2, 1, 3), (1, 3, 2), (3, 1, 2), (4,))] == [
        (1, 3, 2), (1, 3, 2), (1, 2, 3), (4,),
    ]  # fmt: skip
    for text, allocation in (("", ()), ("5:4", ((5, 4),)), ("5:4 2:1", ((5, 4), (2, 1)))):
        assert describe(allocation) == text
    assert (Site((4, 2), "x").nodes, Site((4, 2), "x").gpus) == (2, 6)
