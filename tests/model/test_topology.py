"""Racks and islands: levels above the nodes, where jobs are, and how long they synchronise there."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
import yaml

from simsched.applications.file_format import document_of, read_document, template
from simsched.errors import InputError
from simsched.experiment.grid import make_grid
from simsched.experiment.validation import read_experiment
from simsched.model import Capacity, Node, NodeShape
from simsched.model.application import BatchChoice
from simsched.model.cluster import Cluster, Level, NodeGroup
from simsched.model.job import JobSpec
from simsched.model.placement import GPU_MILLI, Amount, Site
from simsched.model.step_model import PlacementClass, PlacementModel, Placements, SevenParameters, SyncPair
from simsched.model.throughput import ThroughputParams
from simsched.model.topology import consecutive, levels_crossed, site_of, tightest_site, with_levels
from simsched.policy import Decision, Policy
from simsched.testing.builders import Applications, run, toy_application
from simsched.toolkit.placers import CONSOLIDATED

#: Two blocks of two racks of two nodes of four GPUs; a block is twice as slow to cross as a rack.
RACKS = Level("rack", ((0, 1), (2, 3), (4, 5), (6, 7)), 2.0)
BLOCKS = Level("block", ((0, 1, 2, 3), (4, 5, 6, 7)), 4.0)
CLUSTER = with_levels(Cluster.uniform(8, 4), [RACKS, BLOCKS])


def test_nodes_know_their_domains():
    assert [node.domains for node in CLUSTER.nodes] == [(0, 0), (0, 0), (1, 0), (1, 0), (2, 1), (2, 1), (3, 1), (3, 1)]
    assert consecutive(3, 8) == ((0, 1, 2), (3, 4, 5), (6, 7))


@pytest.mark.parametrize(
    ("allocation", "crossed", "factor"),
    [
        (((5, 4),), 0, 1.0),
        (((1, 4), (0, 2)), 0, 1.0),
        (((1, 4), (2, 2)), 1, 2.0),
        (((3, 1), (4, 1)), 2, 4.0),
    ],
)
def test_a_site_tells_how_far_its_nodes_are_apart(allocation, crossed, factor):
    assert levels_crossed(CLUSTER.nodes, allocation) == crossed
    site = site_of(CLUSTER, allocation)
    assert (site.levels_crossed, site.sync_factor) == (crossed, factor)
    assert site_of(Cluster.uniform(8, 4), allocation) == Site(site.shape, "t4")


def test_islands_of_a_server_synchronise_by_the_factor_of_its_level():
    servers = Level("server", ((0, 1), (2, 3)), 1.5, 0.25)
    cluster = with_levels(Cluster.uniform(4, 4), [servers])
    sites = [site_of(cluster, allocation) for allocation in (((0, 4),), ((0, 4), (1, 4)), ((1, 4), (2, 4)))]
    assert [(site.levels_crossed, site.sync_factor) for site in sites] == [(0, 1.0), (0, 0.25), (1, 1.5)]
    assert tightest_site(cluster, 8, "t4") == sites[1]
    model = SevenParameters(ThroughputParams(0.1, 0.0, 0.4, 0.0, 0.01, 0.0, 1.0))
    steps = [float(model.times_s(Placements.at(site), 64)[1].item()) for site in sites]
    assert steps == pytest.approx([0.1 + 0.01, 0.1 + 0.4 * 0.25, 0.1 + 0.4 * 1.5], rel=1e-3)


def test_the_tightest_site_of_an_empty_cluster():
    found = [tightest_site(CLUSTER, gpus, "t4").levels_crossed for gpus in (4, 8, 9, 16, 17, 32)]
    assert found == [0, 0, 1, 1, 2, 2]
    two = with_levels(Cluster.of(NodeGroup(4, 2, "a"), NodeGroup(4, 4, "b")), [RACKS])
    assert [tightest_site(two, 8, kind).levels_crossed for kind in "ab"] == [1, 0]
    apart = with_levels(Cluster.uniform(2, 4), [Level("rack", ((0,), (1,)))])
    assert [tightest_site(apart, gpus, "t4").levels_crossed for gpus in (4, 5)] == [0, 1], "two nodes may cross a level"


@pytest.mark.parametrize(
    ("levels", "said"),
    [
        ([Level("rack", ((0, 1), (1, 2)))], "node 1 is twice in the domains of level 'rack'"),
        ([Level("rack", ((0, 1),))], "node 2 is in no domain of level 'rack'"),
        ([Level("rack", ((0, 1), (2, 3)))], "there is no node 3; the nodes are 0 to 2"),
        (
            [Level("rack", ((0, 1), (2,))), Level("block", ((0,), (1, 2)))],
            "domain 0 of level 'rack' lies in several domains of level 'block'",
        ),
        ([Level("rack", ((0, 1), (2,))), Level("row", ((0, 1), (2,)))], "have the same domains"),
    ],
)
def test_levels_that_fit_neither_the_nodes_nor_each_other_are_refused(levels, said):
    with pytest.raises(ValueError, match=said):
        with_levels(Cluster.uniform(3), levels)


PARAMS = ThroughputParams(0.1, 0.01, 0.2, 0.02, 0.05, 0.01, 1.0)


@pytest.mark.parametrize(
    ("crossed", "factor", "pairs", "sync_s"),
    [
        (0, 1.0, (), 0.2 + 0.02 * 4),
        (1, 1.0, (), 0.2 + 0.02 * 4),  # without more knowledge, as across nodes
        (1, 3.0, (), 3 * (0.2 + 0.02 * 4)),
        (1, 3.0, ((0.5, 0.1),), 0.5 + 0.1 * 4),  # the application's own pair goes before the factor
        (2, 3.0, ((0.5, 0.1),), 0.5 + 0.1 * 4),  # the last pair holds for all levels above
        (2, 3.0, ((0.5, 0.1), (2.0, 0.0)), 2.0),
    ],
)
def test_synchronisation_by_level(crossed, factor, pairs, sync_s):
    model = SevenParameters(PARAMS, tuple(SyncPair(*pair) for pair in pairs))
    compute, step = model.times_s(Placements.at(Site((4, 2), "t4", crossed, factor)), [10])
    assert (compute, step) == (pytest.approx(0.2), pytest.approx(0.2 + sync_s))  # gamma 1: one after the other


def test_synchronisation_by_level_of_a_placement_model():
    kind = PlacementClass((0.3, 0.4), 1.0)
    model = PlacementModel((1, 9), (0.1, 0.9), kind, kind, kind)
    _, within = model.times_s(Placements.at(Site((2, 1), "t4")), [5])
    _, across = model.times_s(Placements.at(Site((2, 1), "t4", 1, 2.5)), [5])
    assert (within, across) == (pytest.approx(0.5 + 0.4), pytest.approx(0.5 + 1.0))
    _, own = replace(model, across=(SyncPair(0.7, 0.1),)).times_s(Placements.at(Site((2, 1), "t4", 1, 2.5)), [5])
    assert own == pytest.approx(0.5 + 0.7 + 0.1)


def test_measured_steps_take_the_factor_on_their_synchronisation():
    app = toy_application()
    assert app.step_time(Site((4, 4), "t4"), 8) == pytest.approx((0.38, 0.2))
    assert app.step_time(Site((4, 4), "t4", 1, 3.0), 8) == pytest.approx((0.78, 0.6))
    near, far = (app.run(Site((4, 4), "t4", *more), BatchChoice(8, 0), 0) for more in ((), (1, 3.0)))
    assert near.rate / far.rate == pytest.approx(0.78 / 0.38)


class OnNodes(Policy):
    """Places every job on GPUs of its own, by its id."""

    name = "on-nodes"

    def __init__(self, where):
        self.where = where

    def decide(self, view, rng):
        return Decision({job_id: self.where[job_id] for job_id in view.jobs})


def test_a_job_across_racks_takes_longer_and_says_so():
    jobs = [JobSpec(job_id, 0, 8, "toy", 64) for job_id in "ab"]
    where = {"a": ((0, 4), (1, 4)), "b": ((3, 4), (4, 4))}
    applications = Applications(toy_application(iterations_per_epoch=10_000))
    flat = run(OnNodes(where), jobs, cluster=Cluster.uniform(8, 4), applications=applications)
    found = run(OnNodes(where), jobs, cluster=CLUSTER, applications=applications)
    held = {job.job_id: job.held_s - 30 for job in found.jobs}
    assert [job.held_s for job in flat.jobs] == [held["a"] + 30] * 2
    assert held["b"] / held["a"] == pytest.approx((0.18 + 4 * 0.2) / (0.18 + 0.2), rel=1e-3)  # 8 examples a GPU
    assert {one.job_id: one.levels_crossed for one in found.allocations} == {"a": 0, "b": 2}


def test_an_application_file_may_say_what_crossing_levels_costs(tmp_path):
    file = tmp_path / "net.yaml"
    text = template("net").replace("    # across_levels:            #", "    across_levels:              #")
    text = text.replace("    #   - {alpha", "      - {alpha")
    file.write_text(text, encoding="utf-8")
    app = read_document(file).application()
    assert app.step_models["t4"].across == (SyncPair(0.3, 0.01),)
    written = document_of(app, {})
    assert written.application().step_models == app.step_models
    file.write_text(text.replace("alpha: 0.3", "alpha: -0.3"), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        read_document(file)
    (problem,) = caught.value.problems
    assert "across_levels.0.alpha: must be at least 0" in problem.message
    assert problem.line == 1 + text[: text.index("- {alpha")].count("\n")


def test_a_type_that_is_relative_to_another_has_its_levels(tmp_path):
    file = tmp_path / "net.yaml"
    more = "  - {gpu_type: a100, relative_to: t4, factor: 2, across_levels: [{alpha: 1, beta: 0}]}\n"
    file.write_text(template("net") + more, encoding="utf-8")
    with pytest.raises(InputError, match="with the type"):
        read_document(file)


def experiment(tmp_path, **more):
    (tmp_path / "jobs.csv").write_text("submit_time,num_gpus,duration\n0,1,300\n", encoding="utf-8")
    data = {
        "name": "e", "policies": [{"name": "fifo"}], "workload": {"path": "jobs.csv", "recipe": "as-is"},
        "cluster": {"nodes": 4, "gpus_per_node": 1, "topology": [{"level": "rack", "nodes": 2}]},
    }  # fmt: skip
    path = tmp_path / "e.yaml"
    path.write_text(yaml.safe_dump(data | more, sort_keys=False), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("levels", "said"),
    [
        ([{"level": "rack"}], "cluster.topology.0: level 'rack' needs either 'nodes' or 'domains'"),
        ([{"level": "rack", "nodes": 2, "domains": [[0]]}], "either 'nodes' or 'domains'"),
        ([{"level": "rack", "nodes": 0}], "cluster.topology.0.nodes: must be at least 1, not 0"),
        ([{"level": "rack", "nodes": 2, "sync_factor": 0}], "must be more than 0"),
        (
            [{"level": "rack", "nodes": 2}, {"level": "block", "nodes": 4, "inside_factor": 2}],
            "'inside_factor' is for the lowest level, 'rack', not for 'block'",
        ),
        ([{"level": "rack", "nodse": 2}], "there is no such key"),
        ([{"level": "rack", "domains": [[0, 1], [2]]}], "cluster: node 3 is in no domain of level 'rack'"),
        ([{"level": "rack", "nodes": 2}, {"level": "rack", "nodes": 4}], "there are two levels 'rack'"),
        ([{"level": "rack", "nodes": 2}, {"level": "row", "nodes": 3}], "lies in several domains of level 'row'"),
    ],
)
def test_wrong_topologies_are_refused_with_their_line(tmp_path, levels, said):
    path = experiment(tmp_path, cluster={"nodes": 4, "gpus_per_node": 1, "topology": levels})
    with pytest.raises(InputError) as caught:
        read_experiment(path)
    assert any(said in problem.message for problem in caught.value.problems), caught.value.problems
    assert all(problem.line for problem in caught.value.problems)


def test_racks_that_fail_together_are_those_of_the_topology(tmp_path):
    failures = {"rack_mtbf_h": 10, "rack_level": "rack"}
    (task,) = make_grid(read_experiment(experiment(tmp_path, failures=failures))).tasks
    assert task.failures.racks == ((0, 1), (2, 3)) == task.cluster.levels[0].domains
    with pytest.raises(InputError, match="has no level 'row', it has rack"):
        read_experiment(experiment(tmp_path, failures=failures | {"rack_level": "row"}))
    with pytest.raises(InputError, match="give either 'rack_nodes' or 'rack_level', not both"):
        read_experiment(experiment(tmp_path, failures=failures | {"rack_nodes": 2}))


def test_a_topology_is_part_of_what_determines_a_cell_and_none_leaves_it_alone(tmp_path):
    (racks,) = make_grid(read_experiment(experiment(tmp_path))).tasks
    (flat,) = make_grid(read_experiment(experiment(tmp_path, cluster={"nodes": 4, "gpus_per_node": 1}))).tasks
    assert "topology" not in flat.about
    assert flat.cluster == replace(Cluster.uniform(4, 1), memory_mb=flat.cluster.memory_mb)
    assert racks.about["topology"] == [{"name": "rack", "domains": ((0, 1), (2, 3)), "sync_factor": 1.0}]
    assert {name: value for name, value in racks.about.items() if name != "topology"} == flat.about
    assert racks.key != flat.key


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
