"""Placers that know racks: a job is in one where it fits, else in the fewest."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from simsched.model.capacity import Capacity
from simsched.model.cluster import Cluster, Level, Node, NodeGroup
from simsched.model.placement import Pod
from simsched.model.topology import levels_crossed, with_levels
from simsched.toolkit.packing.names import RULES
from simsched.toolkit.packing.packer import Packer
from simsched.toolkit.placers import CONSOLIDATED, FEWEST_DOMAINS, MOST_FREE, ONE_DOMAIN
from tests.validation.oracles.packing import placements

RACKS = Level("rack", ((0, 1), (2, 3), (4, 5), (6, 7)))
BLOCKS = Level("block", ((0, 1, 2, 3), (4, 5, 6, 7)))
FLAT = Cluster.uniform(8, 4)
RACKED = with_levels(FLAT, [RACKS])
TWO_LEVELS = with_levels(FLAT, [RACKS, BLOCKS])
FREE = st.lists(st.integers(0, 4), min_size=8, max_size=8)


def pool(free: list[int], cluster: Cluster = RACKED) -> Capacity:
    return Capacity(cluster.nodes, [True] * 8, free)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(FREE, st.integers(1, 32))
def test_a_job_is_in_the_fewest_racks_that_have_room(free: list[int], gpus: int) -> None:
    found = pool(free).choose(FEWEST_DOMAINS, gpus)
    assert (found is None) == (sum(free) < gpus)
    if found is None:
        return
    in_rack = [sum(free[node] for node in rack) for rack in RACKS.domains]
    fewest = next(n for n in range(1, 5) if any(sum(some) >= gpus for some in combinations(in_rack, n)))
    assert len({RACKED.nodes[node].domains for node, _ in found}) == fewest
    assert sum(taken for _, taken in found) == gpus
    assert len({node for node, _ in found}) == len(found)
    assert all(1 <= taken <= free[node] for node, taken in found)
    if max(free) >= gpus:
        assert len(found) == 1


@settings(max_examples=80, deadline=None, derandomize=True)
@given(FREE, st.integers(1, 32))
def test_a_job_waits_for_one_domain_of_the_lowest_level_that_could_hold_it(free: list[int], gpus: int) -> None:
    found = pool(free, TWO_LEVELS).choose(ONE_DOMAIN, gpus)
    level, domains = (0, RACKS) if gpus <= 8 else (1, BLOCKS) if gpus <= 16 else (2, Level("", (tuple(range(8)),)))
    assert (found is not None) == any(sum(free[node] for node in domain) >= gpus for domain in domains.domains)
    if found is not None:
        assert levels_crossed(TWO_LEVELS.nodes, found) <= level


def test_placers_with_racks_on_a_case_worked_by_hand() -> None:
    free = [3, 1, 2, 2, 4, 1, 0, 3]
    both = pool(free, TWO_LEVELS)
    assert both.choose(FEWEST_DOMAINS, 3) == ((0, 3),)  # one node, by best fit
    assert both.choose(FEWEST_DOMAINS, 4) == ((4, 4),)
    assert both.choose(FEWEST_DOMAINS, 5) == ((4, 4), (5, 1))  # the only rack with five
    assert both.choose(MOST_FREE, 5) == ((4, 4), (0, 1))
    # Six: no rack has them, both blocks have eight, so the first; in it the first of equal racks, then two on one node.
    assert both.choose(FEWEST_DOMAINS, 6) == ((0, 3), (1, 1), (2, 2))
    # Ten are nowhere but across blocks: all eight of the first, and two of the other one, on the node that fits best.
    assert both.choose(FEWEST_DOMAINS, 10) == ((0, 3), (2, 2), (3, 2), (1, 1), (7, 2))
    assert both.choose(ONE_DOMAIN, 6) is None  # an empty rack would hold them
    assert both.choose(ONE_DOMAIN, 10) is None
    assert both.choose(ONE_DOMAIN, 16) is None
    assert both.choose(ONE_DOMAIN, 17) is None  # not enough GPUs
    assert pool([4] * 8, TWO_LEVELS).choose(ONE_DOMAIN, 17) is not None


def test_without_levels_the_cluster_is_one_domain() -> None:
    flat = pool([3, 1, 2, 2, 4, 1, 0, 3], FLAT)
    for placer in (FEWEST_DOMAINS, ONE_DOMAIN):
        assert flat.choose(placer, 2) == ((2, 2),)
        assert flat.choose(placer, 6) == flat.choose(CONSOLIDATED, 6) == ((4, 4), (2, 2))
        assert flat.choose(placer, 9) == ((4, 4), (0, 3), (2, 2))


def test_domains_are_counted_by_type_and_without_nodes_that_are_down() -> None:
    cluster = with_levels(Cluster.of(NodeGroup(4, 4, "t4"), NodeGroup(4, 4, "v100")), [RACKS])
    up = [True, False, True, True, True, True, True, True]
    free = Capacity(cluster.nodes, up, [4, 0, 2, 3, 4, 4, 4, 4])
    assert free.choose(FEWEST_DOMAINS, 5) == ((3, 3), (2, 2))
    assert free.choose(ONE_DOMAIN, 8) == ((4, 4), (5, 4))  # none of the t4, whose whole rack is not free


NODES = st.builds(
    lambda cpu, memory, gpus, model: Node(0, gpus, model, name="n", cpu_milli=cpu, memory_mib=memory),
    st.sampled_from([4000, 8000, 32_000, 200_000]),
    st.sampled_from([8, 64]),
    st.sampled_from([0, 1, 2, 4, 8, 12]),
    st.sampled_from(["A", "B"]),
)
SIZES = st.one_of(
    st.just((0, 0)),
    st.tuples(st.just(1), st.sampled_from([50, 100, 330, 500, 900])),
    st.tuples(st.sampled_from([1, 2, 4]), st.just(1000)),
    st.just((2, 400)),
)
PODS = st.builds(
    lambda cpu, memory, size, spec: Pod("", cpu, memory, *size, spec),
    st.sampled_from([0, 500, 1000, 4000, 9000]),
    st.sampled_from([0, 1, 4]),
    SIZES,
    st.sampled_from(["", "", "A", "A|B", "B"]),
)


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    nodes=st.lists(NODES, min_size=1, max_size=5).filter(lambda nodes: any(node.gpus for node in nodes)),
    kinds=st.lists(PODS, min_size=1, max_size=8),
    seed=st.integers(0, 1000),
)
def test_every_pod_goes_where_the_rules_say(rule: str, nodes: list[Node], kinds: list[Pod], seed: int) -> None:
    rng = np.random.default_rng(seed)
    pods = [kinds[i] for i in rng.integers(len(kinds), size=40)]
    draws = rng.random((40, 2))
    packer = Packer(nodes, pods, rule)
    found = packer.place(range(40), draws).tolist()
    expected, free = placements(nodes, pods, rule, draws.tolist())
    assert found == expected
    assert packer.gpu_milli == free
