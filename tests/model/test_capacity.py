"""What is free of a cluster after drawn takings and givings back, against books that are kept GPU by GPU."""

from __future__ import annotations

from random import Random

import pytest

from simsched.model import Capacity, Node, NodeShape
from simsched.model.placement import GPU_MILLI, Amount
from simsched.toolkit.placers import CONSOLIDATED

PLENTY = 10**12


class Books:
    """Thousandths of each GPU, cores and memory of each node, and the shapes that fit, found by trying all nodes."""

    def __init__(self, nodes, up):
        self.nodes, self.up = nodes, up
        self.gpus = [[GPU_MILLI] * node.gpus if is_up else [] for node, is_up in zip(nodes, up, strict=True)]
        self.cores = [PLENTY if node.cpu_milli is None else node.cpu_milli for node in nodes]
        self.memory = [PLENTY if node.memory_mib is None else node.memory_mib for node in nodes]

    def free(self, node):
        return self.gpus[node].count(GPU_MILLI)

    def has_room(self, node, shape):
        each = shape.each
        if not self.up[node] or self.cores[node] < each.cpu_milli or self.memory[node] < each.memory_mib:
            return False
        if shape.exclusive and not self.is_idle(node):
            return False
        return sum(one >= each.gpu_milli for one in self.gpus[node]) >= each.gpus

    def is_idle(self, node):
        one = self.nodes[node]
        whole = PLENTY if one.cpu_milli is None else one.cpu_milli, PLENTY if one.memory_mib is None else one.memory_mib
        return self.free(node) == one.gpus and (self.cores[node], self.memory[node]) == whole

    def fit(self, shape):
        """Return the nodes of the first type with room, in its least free domain, the least free first."""
        for kind in dict.fromkeys(node.gpu_type for node in self.nodes):
            if shape.gpu_types is not None and kind not in shape.gpu_types:
                continue
            mine = [node.index for node in self.nodes if node.gpu_type == kind and self.up[node.index]]
            domains = {None: mine}
            if shape.within is not None:
                domains = {}
                for node in mine:
                    domains.setdefault(self.nodes[node].domains[shape.within], []).append(node)
            for those in sorted(domains.values(), key=lambda nodes: sum(map(self.free, nodes))):
                able = sorted((node for node in those if self.has_room(node, shape)), key=lambda n: (self.free(n), n))
                if len(able) >= shape.nodes:
                    return able[: shape.nodes]
        return None

    def places(self, node, each):
        able = [gpu for gpu, free in enumerate(self.gpus[node]) if free >= each.gpu_milli]
        return sorted(able, key=lambda gpu: (self.gpus[node][gpu], gpu))[: each.gpus]

    def settle(self, claim, sign):
        for node, places in zip(claim.nodes, claim.gpus, strict=True):
            for gpu in places:
                self.gpus[node][gpu] += sign * claim.each.gpu_milli
            one = self.nodes[node]
            whole = PLENTY if one.cpu_milli is None else one.cpu_milli
            self.cores[node] += sign * (whole + 1 if claim.alone else claim.each.cpu_milli)
            self.memory[node] += sign * claim.each.memory_mib


def drawn_shape(rng):
    each = Amount(
        rng.randrange(1, 4), rng.choice([250, 500, 1000, 1000]), rng.choice([0, 1000, 3000]), rng.choice([0, 100, 300])
    )
    types = rng.choice([None, None, ("a100",), ("t4",), ("t4", "a100")])
    return NodeShape(rng.randrange(1, 4), each, types, rng.choice([None, None, 0, 1]), rng.random() < 0.15)


@pytest.mark.parametrize("seed", range(6))
def test_shapes_are_fitted_as_by_trying_all_nodes(seed):
    rng = Random(seed)
    beside = {"cpu_milli": 8000, "memory_mib": 600} if seed % 2 else {}
    nodes = [Node(i, rng.choice([2, 4]), rng.choice(["a100", "t4"]), (i // 2, i // 4), **beside) for i in range(8)]
    up = [rng.random() < 0.85 for _ in nodes]
    books = Books(nodes, up)
    capacity = Capacity(
        nodes, up, [node.gpus if is_up else 0 for node, is_up in zip(nodes, up, strict=True)], parts=True
    )
    held = []
    for _ in range(60):
        shape = drawn_shape(rng)
        claim, expected = capacity.fit(shape), books.fit(shape)
        assert (None if claim is None else list(claim.nodes)) == expected, shape
        if claim is not None and rng.random() < 0.7:
            assert [list(places) for places in claim.gpus] == [books.places(node, shape.each) for node in claim.nodes]
            capacity.hold(claim)
            books.settle(claim, -1)
            held.append(claim)
        elif held:
            claim = held.pop(rng.randrange(len(held)))
            capacity.let_go(claim)
            books.settle(claim, 1)
        assert capacity.free == [books.free(node.index) for node in nodes]
        assert capacity.total == sum(capacity.free)
        for kind, name in enumerate(capacity.types):
            mine = [node.index for node in nodes if node.gpu_type == name and up[node.index]]
            assert capacity.total_of(kind) == sum(capacity.free[node] for node in mine)
        twin = capacity.copy()
        assert twin.free == capacity.free
        assert (twin.room.gpu_milli == capacity.room.gpu_milli).all()


def test_capacity_by_hand():
    nodes = [Node(0, 4, "t4"), Node(1, 8, "a100"), Node(2, 4, "t4")]
    capacity = Capacity(nodes, [True, True, False], [4, 8, 0])
    assert repr(capacity) == "<Capacity 4 t4, 8 a100 free>"
    assert (capacity.room, capacity.changes, capacity.type_of(((1, 2),))) == (None, 0, 1)
    assert capacity.choose(CONSOLIDATED, 8) == ((1, 8),)
    assert capacity.choose(CONSOLIDATED, 4) == ((0, 4),)
    assert capacity.choose(CONSOLIDATED, 9) is None
    assert capacity.choose(CONSOLIDATED, 2, (1,)) == capacity.choose_of(1, CONSOLIDATED, 2) == ((1, 2),)
    assert capacity.choose_of(0, CONSOLIDATED, 5) is None
    assert capacity.place(CONSOLIDATED, 4) == ((0, 4),)
    assert (capacity.free, capacity.total, capacity.changes) == ([0, 8, 0], 8, 1)
    assert capacity.place(CONSOLIDATED, 9) is None
    assert (capacity.holds(((1, 8),)), capacity.holds(((1, 9),)), capacity.holds(((1, 1), (0, 1)))) == (
        True, False, False,
    )  # fmt: skip
    twin = capacity.copy()
    capacity.give_back(((0, 4),))
    assert (capacity.free, twin.free, capacity.changes) == ([4, 8, 0], [0, 8, 0], 2)
    assert capacity.holds(((0, 4),), NodeShape(1, Amount(4), exclusive=True))
    capacity.take(((1, 1),))
    assert not capacity.holds(((1, 4),), NodeShape(1, Amount(4), exclusive=True))


@pytest.mark.parametrize(
    ("gpus", "among", "place"),
    [
        (3, -1, ((0, 2), (1, 1))),  # the least free node that has any, then the next
        (6, -1, ((0, 2), (1, 3), (2, 1))),
        (3, 0b110, ((1, 3),)),
        (4, 0b001, None),
        (9, -1, ((0, 2), (1, 3), (2, 4))),
        (10, -1, None),
    ],
)
def test_a_shape_without_nodes_takes_the_least_free(gpus, among, place):
    capacity = Capacity([Node(i, 4) for i in range(3)], [True] * 3, [2, 3, 4])
    assert capacity.place_of(NodeShape(0, Amount(gpus)), among) == place


def test_a_shape_without_nodes_takes_as_many_gpus_of_a_node_as_their_cores_allow():
    nodes = [Node(0, 4, cpu_milli=3000), Node(1, 4, cpu_milli=8000)]
    capacity = Capacity(nodes, [True] * 2, [4, 4])
    asked = NodeShape(0, Amount(4, cpu_milli=8000))
    assert capacity.place_of(asked) == ((0, 1), (1, 3))
    capacity.take(((0, 1), (1, 3)), asked)
    assert (capacity.room.cpu_milli.tolist(), capacity.free) == ([1000, 2000], [3, 1])
    assert capacity.place_of(NodeShape(0, Amount(2, cpu_milli=2000))) == ((1, 1), (0, 1))
    # The node with fewer GPUs has no cores at all.
    without = Capacity([Node(0, 2, cpu_milli=0), Node(1, 4, cpu_milli=2000)], [True] * 2, [2, 4])
    assert without.place_of(asked._replace(each=Amount(2, cpu_milli=2000))) == ((1, 2),)
    assert without.place_of(asked._replace(each=Amount(3, cpu_milli=3000))) is None


def test_when_a_shape_will_fit():
    capacity = Capacity([Node(0, 4), Node(1, 4)], [True, True], [0, 1])
    ends = [(30.0, ((1, 3),)), (20.0, ((0, 2),)), (5.0, ((0, 1),)), (40.0, ((0, 1),))]
    times = [capacity.when(NodeShape(1, Amount(gpus)), ends, 10.0) for gpus in (1, 2, 3, 4, 5)]
    assert times == [10.0, 20.0, 20.0, 30.0, None]
    assert capacity.when(NodeShape(0, Amount(8)), ends, 10.0) == 40.0
    assert capacity.when(NodeShape(2, Amount(4)), ends, 10.0) == 40.0
    assert capacity.when(NodeShape(2, Amount(4)), ends[:3], 10.0) is None
    assert capacity.free == [0, 1], "looking ahead changes nothing"


def test_the_idle_cluster_has_all_but_what_is_held():
    class Shown:
        nodes, up, free, beside = [Node(0, 4), Node(1, 4), Node(2, 4)], [True, False, True], [0, 0, 1], None

    assert Capacity.idle(Shown).free == [4, 0, 4]
    assert Capacity.idle(Shown, [((0, 1), (2, 2)), ((2, 1),)]).free == [3, 0, 1]
    assert Capacity.of(Shown).free == [0, 0, 1]
