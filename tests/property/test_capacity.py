"""What is free, what fits and when, against counting and enumeration on tiny clusters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import pytest
from hypothesis import given, settings, strategies as st

from simsched.model.capacity import Amount, Capacity, Claim, NodeShape
from simsched.model.cluster import Cluster, Level, Node, NodeGroup
from simsched.model.topology import with_levels

FEW = settings(max_examples=100, deadline=None, derandomize=True)
#: Two racks of three nodes; the last node of each has another type of GPU.
NODES = with_levels(
    Cluster(tuple(Node(i, (4, 2, 4)[i % 3], ("a", "a", "b")[i % 3]) for i in range(6))),
    [Level("rack", ((0, 1, 2), (3, 4, 5)))],
).nodes
DECLARED = tuple(replace(node, cpu_milli=8000, memory_mib=64) for node in NODES)
ALLOCATIONS = st.lists(
    st.sampled_from(NODES).flatmap(lambda node: st.tuples(st.just(node.index), st.integers(1, node.gpus))),
    max_size=4,
    unique_by=lambda pair: pair[0],
).map(tuple)
SHAPES = st.builds(
    NodeShape,
    st.integers(1, 4),
    st.integers(1, 4).map(Amount),
    st.sampled_from([None, ("a",), ("b",), ("b", "a")]),
    st.sampled_from([None, 0]),
    st.booleans(),
)
SHARING = SHAPES.map(lambda shape: shape._replace(exclusive=False))
RICH = st.builds(
    lambda shape, milli, cpu, memory: shape._replace(
        each=Amount(shape.each.gpus if milli == 1000 else min(shape.each.gpus, 2), milli, cpu, memory),
        exclusive=False,
    ),
    SHAPES,
    st.sampled_from([1000, 1000, 700, 500, 250]),
    st.sampled_from([0, 3000, 5000]),
    st.sampled_from([0, 16, 40]),
)


def fits_by_enumeration(nodes: Sequence[Node], shape: NodeShape, able: Iterable[int]) -> bool:
    """Try every set of nodes that have room each."""
    for chosen in combinations(sorted(able), shape.nodes):
        types = {nodes[node].gpu_type for node in chosen}
        racks = {nodes[node].domains for node in chosen}
        allowed = shape.gpu_types is None or types <= set(shape.gpu_types)
        if len(types) == 1 and allowed and (shape.within is None or len(racks) == 1):
            return True
    return False


def is_of(shape: NodeShape, claim: Claim) -> bool:
    """Say whether nodes are those that a shape may have."""
    return len(set(claim.nodes)) == shape.nodes and fits_by_enumeration(NODES, shape, claim.nodes)


@FEW
@given(st.lists(ALLOCATIONS, max_size=6), st.booleans())
def test_what_is_taken_and_given_back_is_counted_by_node_and_type(wanted: list[tuple], parts: bool) -> None:
    capacity = Capacity(NODES, [True] * 6, [node.gpus for node in NODES], parts=parts)
    free = [node.gpus for node in NODES]
    held = []
    for allocation in wanted:
        fits = all(free[node] >= gpus for node, gpus in allocation)
        assert capacity.holds(allocation) == fits
        changed, sign = allocation, -1
        if fits:
            capacity.take(allocation)
            held.append(allocation)
        elif held:
            changed, sign = held.pop(0), 1
            capacity.give_back(changed)
        else:
            continue
        for node, gpus in changed:
            free[node] += sign * gpus
        assert capacity.free == free
        assert capacity.total == sum(free)
        assert [capacity.total_of(kind) for kind in (0, 1)] == [
            free[0] + free[1] + free[3] + free[4],
            free[2] + free[5],
        ]


@FEW
@given(st.lists(st.integers(0, 4), min_size=6, max_size=6), st.lists(st.booleans(), min_size=6, max_size=6), SHAPES)
def test_a_shape_fits_where_some_nodes_of_one_type_and_rack_have_room(
    held: list[int], up: list[bool], shape: NodeShape
) -> None:
    free = [max(node.gpus - some, 0) if works else 0 for node, some, works in zip(NODES, held, up, strict=True)]
    found = Capacity(NODES, up, free).fit(shape)
    least = [node.gpus if shape.exclusive else shape.each.gpus for node in NODES]
    able = [n for n in range(6) if up[n] and free[n] >= max(least[n], shape.each.gpus)]
    assert (found is not None) == fits_by_enumeration(NODES, shape, able)
    place = Capacity(NODES, up, free).place_of(shape)
    assert (place is None) == (found is None)
    assert place is None or shape.is_like(tuple(gpus for _, gpus in place))
    assert found is None or (is_of(shape, found) and all(free[node] >= gpus for node, gpus in found.allocation))


@dataclass
class Bin:
    """A node, counted by hand: cores, memory, and what is left of each GPU."""

    cpu: int
    memory: int
    gpus: list[int]

    def has(self, each: Amount) -> bool:
        able = sum(left >= each.gpu_milli for left in self.gpus) >= each.gpus
        return self.cpu >= each.cpu_milli and self.memory >= each.memory_mib and able

    def change(self, each: Amount, gpus: Iterable[int], sign: int) -> None:
        self.cpu += sign * each.cpu_milli
        self.memory += sign * each.memory_mib
        for gpu in gpus:
            self.gpus[gpu] += sign * each.gpu_milli


@FEW
@given(st.lists(st.tuples(RICH, st.booleans()), min_size=1, max_size=14))
def test_cores_memory_and_parts_of_gpus_are_counted_where_they_are_declared(asked: list) -> None:
    capacity = Capacity(DECLARED, [True] * 6, [node.gpus for node in NODES])
    bins = [Bin(8000, 64, [1000] * node.gpus) for node in NODES]
    held: list[Claim] = []
    for shape, leaves in asked:
        claim = capacity.fit(shape)
        assert (claim is not None) == fits_by_enumeration(
            NODES, shape, (n for n in range(6) if bins[n].has(shape.each))
        )
        changes = [] if claim is None else [(claim, -1)]
        if leaves and held:
            changes.append((held.pop(0), 1))
        for one, sign in changes:
            (capacity.hold if sign < 0 else capacity.let_go)(one)
            for node, gpus in zip(one.nodes, one.gpus, strict=True):
                assert len(set(gpus)) == one.each.gpus
                bins[node].change(one.each, gpus, sign)
        held += [] if claim is None else [claim]
        assert all(min(one.cpu, one.memory, *one.gpus) >= 0 and max(one.gpus) <= 1000 for one in bins)
        assert capacity.free == [sum(left == 1000 for left in one.gpus) for one in bins]


@FEW
@given(st.lists(st.tuples(st.integers(0, 9), SHARING), max_size=5), SHARING)
def test_a_shape_fits_as_soon_as_enough_has_ended(runs: list[tuple[int, NodeShape]], shape: NodeShape) -> None:
    capacity = Capacity(NODES, [True] * 6, [node.gpus for node in NODES])
    ends: list[tuple[float, tuple[tuple[int, int], ...]]] = []
    for end_s, other in runs:
        claim = capacity.fit(other)
        if claim is not None:
            capacity.hold(claim)
            ends.append((end_s, claim.allocation))
    before = list(capacity.free)
    times = []
    for time_s in [4, *sorted(end_s for end_s, _ in ends if end_s > 4)]:
        free = list(before)
        for end_s, allocation in ends:
            for node, gpus in allocation if end_s <= time_s else ():
                free[node] += gpus
        if fits_by_enumeration(NODES, shape, (n for n in range(6) if free[n] >= shape.each.gpus)):
            times.append(time_s)
    assert capacity.when(shape, ends, 4) == min(times, default=None)
    assert capacity.free == before


def test_a_part_goes_to_the_gpu_with_the_least_left_and_a_shape_waits_for_a_whole_node() -> None:
    nodes = Cluster.of(NodeGroup(1, 2)).nodes
    capacity = Capacity(nodes, [True], [2], parts=True)
    claims = []
    for milli in (300, 600, 500, 300):
        claim = capacity.fit(NodeShape(1, Amount(1, milli)))
        assert claim is not None
        capacity.hold(claim)
        claims.append(claim)
    # 300 and 600 on the first GPU leave 100, so 500 opens the second, and 300 goes there too.
    assert [claim.gpus for claim in claims] == [((0,),), ((0,),), ((1,),), ((1,),)]
    assert capacity.fit(NodeShape(1, Amount(1, 250))) is None
    assert capacity.free == [0]
    ends = list(zip([10.0, 20.0, 30.0, 40.0], claims, strict=True))
    assert capacity.when(NodeShape(1, Amount(1)), ends, 5) == 20
    assert capacity.when(NodeShape(1, Amount(2)), ends, 5) == 40
    assert capacity.when(NodeShape(1, Amount(3)), ends, 5) is None


def test_cores_may_run_out_before_gpus_and_jobs_without_gpus_hold_cores() -> None:
    nodes = (Node(0, 4, cpu_milli=4000, memory_mib=8), Node(1, 4, cpu_milli=8000, memory_mib=8))
    capacity = Capacity(nodes, [True, True], [4, 4])
    first = capacity.fit(NodeShape(2, Amount(0, cpu_milli=3000)))
    assert first is not None
    assert first.allocation == ()
    capacity.hold(first)
    second = capacity.fit(NodeShape(1, Amount(4, cpu_milli=2000)))
    assert second is not None
    assert second.nodes == (1,)
    assert capacity.fit(NodeShape(1, Amount(1, cpu_milli=1000, memory_mib=9))) is None
    assert repr(capacity) == "<Capacity 8 t4 free>"


@pytest.mark.parametrize("parts", [False, True])
def test_whole_gpus_held_by_count_stay_apart_from_claims(parts: bool) -> None:
    capacity = Capacity(Cluster.uniform(1, 4).nodes, [True], [3], parts=parts)
    capacity.take(((0, 1),))
    claim = capacity.fit(NodeShape(1, Amount(2)))
    assert claim is not None
    capacity.hold(claim)
    capacity.give_back(((0, 2),))  # the one taken, and the one that was held from the start
    assert capacity.free == [2]
    capacity.let_go(claim)
    assert capacity.free == [4]
