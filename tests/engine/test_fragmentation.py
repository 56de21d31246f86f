"""Free GPUs that no waiting job can use."""

from itertools import combinations
from types import SimpleNamespace

import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from simsched.engine.options import EngineOptions
from simsched.engine.records import StrandedGpus
from simsched.experiment.cluster import ClusterSpec
from simsched.model import Capacity, Site
from simsched.model.cluster import Cluster, Level, NodeGroup, Uplink, Within
from simsched.model.job import JobSpec
from simsched.model.placement import Tier
from simsched.model.topology import site_of, tightest_site, with_levels
from simsched.policy import registry
from simsched.results.metric import Tables
from simsched.results.metrics import METRICS
from simsched.testing.builders import run
from simsched.toolkit.placers import PLACERS

#: Two racks of two nodes of four GPUs.
CLUSTER = with_levels(Cluster.uniform(4, 4), [Level("rack", ((0, 1), (2, 3)))])
NAMES = ("fragmentation", "fragmentation_by_node", "fragmentation_by_domain")


def waiting(*sizes, types=None, allocation=()):
    job = SimpleNamespace(allocation=allocation, facts=SimpleNamespace(gpu_types=types))
    return {
        f"{gpus}-{i}": SimpleNamespace(**vars(job), request=SimpleNamespace(num_gpus=gpus))
        for i, gpus in enumerate(sizes)
    }


@pytest.mark.parametrize(
    ("free", "jobs", "stranded"),
    [
        ((2, 1, 2, 0), waiting(), (0, 0, 0)),  # nobody waits
        ((0, 0, 0, 0), waiting(4), (0, 0, 0)),
        ((2, 1, 2, 0), waiting(1), (0, 0, 0)),
        ((2, 1, 2, 0), waiting(2), (0, 1, 0)),  # the one that is free on node 1
        ((2, 1, 2, 0), waiting(4), (0, 5, 5)),  # no node and no rack has four
        ((2, 1, 2, 0), waiting(3, 4), (0, 5, 2)),  # the first rack has three
        ((2, 1, 2, 0), waiting(8), (5, 5, 5)),
        ((4, 0, 3, 1), waiting(7), (0, 1, 8)),  # two nodes with four and three; no rack has seven
        ((4, 0, 4, 3), waiting(7), (0, 0, 4)),
        ((4, 2, 4, 4), waiting(12), (0, 2, 0)),  # three whole nodes; a rack with eight and four of the other one
        ((2, 1, 2, 0), waiting(2, types=("v100",)), (5, 5, 5)),
        ((2, 1, 2, 0), waiting(20), (5, 5, 5)),
    ],
)
def test_stranded_gpus_worked_by_hand(free, jobs, stranded):
    assert StrandedGpus(CLUSTER, rigid=True).stranded(free, jobs) == stranded


def test_a_job_that_takes_any_number_of_gpus_strands_none():
    assert StrandedGpus(CLUSTER, rigid=False).stranded((1, 0, 0, 0), waiting(8)) == (0, 0, 0)


def test_what_fits_in_a_rack_is_counted_where_racks_have_uplinks():
    joined = with_levels(
        Cluster.of(NodeGroup(3, 4, "t4"), NodeGroup(1, 4, "v100")),
        [Level("rack", ((0, 1), (2, 3)), uplink=Uplink(1e9))],
    )
    for free, most in (((2, 1, 2, 1), 3), ((0, 1, 2, 1), 2), ((0, 0, 1, 4), 4), ((0, 0, 0, 0), 0)):
        assert StrandedGpus(joined, rigid=True).fits_in_domain(free) == most
        assert StrandedGpus(CLUSTER, rigid=True).fits_in_domain(free) == 0


def test_types_are_counted_apart():
    cluster = Cluster.of(NodeGroup(1, 4, "t4"), NodeGroup(1, 4, "v100"))
    both = waiting(4, types=("t4",)) | waiting(2, types=("v100",))
    assert StrandedGpus(cluster, rigid=True).stranded((3, 3), both) == (3, 3, 3)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 4), min_size=4, max_size=4), st.lists(st.integers(1, 16), min_size=1, max_size=3))
def test_the_nodes_of_use_are_those_found_by_trying_all(free, sizes):
    used = set()
    for gpus in sizes:
        needed = -(-gpus // 4)
        for nodes in combinations(range(4), needed):
            if sum(free[node] for node in nodes) >= gpus:
                used |= set(nodes)
    expected = sum(free[node] for node in range(4) if node not in used)
    assert StrandedGpus(CLUSTER, rigid=True).stranded(free, waiting(*sizes)).by_node == expected


def test_fragmentation_over_time_worked_by_hand():
    # Jobs a (3 GPUs, node 0) and b (2, node 1) leave 1 + 2 GPUs to c, which comes at second 1, wants three on one node
    # and gets them when a ends at second 100. From 41 to 51 job d takes the two: then c would find too few anywhere.
    policy = registry.load("sjf")(placement="consolidated")
    options = EngineOptions(0, fragmentation=True)
    first = JobSpec("a", 0, 3, duration_s=100), JobSpec("b", 0, 2, duration_s=200)
    jobs = [*first, JobSpec("c", 1, 3, duration_s=10), JobSpec("d", 41, 2, duration_s=10)]
    recorder = run(policy, jobs, cluster=Cluster.uniform(2, 4), options=options)
    rounds, done = pd.DataFrame(recorder.decisions), pd.DataFrame(recorder.jobs)
    tables = Tables(done, None, rounds, 8)
    found = [METRICS[name].compute(tables) for name in NAMES]
    free_gpu_s = 40 * 3 + 10 * 1 + 49 * 3
    assert found == [pytest.approx(10 / free_gpu_s), 1.0, pytest.approx(10 / free_gpu_s)]
    unrecorded = Tables(done, None, rounds.drop(columns="stranded_gpus"), 8)
    assert METRICS["fragmentation"].compute(unrecorded) is None


def test_nothing_is_counted_unless_asked_for():
    jobs = [JobSpec(str(i), 0, 3, duration_s=10) for i in range(3)]
    recorder = run(registry.load("fifo")(), jobs, cluster=Cluster.uniform(1, 4), options=EngineOptions(0))
    assert {one.stranded_gpus for one in recorder.decisions} == {0}
    counted = run(
        registry.load("fifo")(), jobs, cluster=Cluster.uniform(1, 4), options=EngineOptions(0, fragmentation=True)
    )
    assert [one.stranded_gpus for one in counted.decisions] == [1, 1, 0]


def test_time_across_domains_worked_by_hand():
    intervals = pd.DataFrame(
        [(0, 10, 4, 0), (10, 20, 4, 1), (0, 5, 8, 2)], columns=["start_s", "end_s", "gpus", "levels_crossed"]
    )
    tables = Tables(pd.DataFrame(), intervals, None, 16)
    assert METRICS["crossing_share"].compute(tables) == (40 + 40) / (40 + 40 + 40)
    assert METRICS["crossing_share"].compute(Tables(pd.DataFrame(), intervals[["start_s"]], None, 16)) is None


#: Two spines of two leaves of two nodes of eight GPUs, in two islands each.
TIERS = [
    {"level": "gpu", "gpus": 1, "uplink_gb_s": 450, "latency_us": 10},
    {"level": "island", "gpus": 4, "oversubscription": 3},
    {"level": "node", "nodes": 1, "uplink_gb_s": 400, "latency_us": 20},
    {"level": "leaf", "nodes": 2, "oversubscription": 1},
    {"level": "spine", "nodes": 4, "oversubscription": 4},
]


def cluster(levels, nodes=8) -> Cluster:
    return ClusterSpec.model_validate({"nodes": nodes, "gpus_per_node": 8, "topology": tuple(levels)}).build()


def test_uplinks_follow_from_those_below():
    built = cluster(TIERS)
    assert [(one.name, one.gpus) for one in built.within] == [("gpu", 1), ("island", 4), ("node", 0)]
    assert built.within[1].uplink.bytes_per_s == 4 * 450e9 / 3
    assert [level.name for level in built.levels] == ["leaf", "spine"]
    assert [level.uplink for level in built.levels] == [Uplink(2 * 400e9), Uplink(2 * 2 * 400e9 / 4)]


@pytest.mark.parametrize(
    ("allocation", "lies"),
    [
        (((0, 8),), [(1, 1), (4, 4), (8, 8), (8, 8), (8, 8)]),
        (((0, 8), (1, 8)), [(1, 1), (4, 4), (8, 8), (16, 16), (16, 16)]),
        (((0, 8), (1, 8), (2, 8)), [(1, 1), (4, 4), (8, 8), (8, 16), (24, 24)]),
        (((0, 8), (5, 4)), [(1, 1), (4, 4), (4, 8), (4, 8), (4, 8)]),
        (((0, 3), (4, 3)), [(1, 1), (3, 3), (3, 3), (3, 3), (3, 3)]),
    ],
)
def test_a_site_tells_how_it_lies_on_each_tier(allocation, lies):
    site = site_of(cluster(TIERS), allocation)
    assert [(tier.common, tier.largest) for tier in site.tiers] == lies
    assert [tier.inside for tier in site.tiers] == [True, True, False, False, False]


def test_the_tightest_site_is_that_of_an_empty_cluster():
    built = cluster(TIERS)
    assert tightest_site(built, 32, "t4") == site_of(built, tuple((node, 8) for node in range(4)))


def test_without_uplinks_sites_are_as_before():
    built = cluster([{"level": "leaf", "nodes": 2, "sync_factor": 2.0}])
    assert site_of(built, ((0, 8), (2, 8))) == Site((8, 8), "t4", 1, 2.0)
    assert built.levels[0].described().keys() == {"name", "domains", "sync_factor"}


def test_a_tier_alone_needs_no_levels():
    built = cluster([{"level": "node", "nodes": 1, "uplink_gb_s": 100}])
    assert built.within == (Within("node", 0, Uplink(100e9)),)
    assert site_of(built, ((0, 8), (3, 8))) == Site((8, 8), "t4", tiers=(Tier(8, 8, 100e9),))


@pytest.mark.parametrize(
    ("levels", "said"),
    [
        ([{"level": "leaf", "nodes": 2, "oversubscription": 2}], "needs the uplinks of the tier below it"),
        ([{"level": "leaf", "nodes": 2, "latency_us": 2}], "counts only with 'uplink_gb_s' or 'oversubscription'"),
        ([{"level": "gpu", "gpus": 1}], "tier 'gpu' within a node needs an uplink"),
        (
            [{"level": "node", "nodes": 1, "uplink_gb_s": 9, "paths": 2}],
            "'paths' of 'node' apply only to uplinks of",
        ),
        ([{"level": "node", "nodes": 1, "uplink_gb_s": 9, "sync_factor": 2}], "no .sync_factor."),
        ([{"level": "leaf", "nodes": 2, "uplink_gb_s": 9, "oversubscription": 2}], "not both"),
        ([{"level": "island", "gpus": 16, "uplink_gb_s": 9}], "does not lie between the tier before it and nodes of 8"),
        (
            [{"level": "leaf", "nodes": 2}, {"level": "node", "nodes": 1, "uplink_gb_s": 9}],
            "'node' does not lie between the tier before it",
        ),
        ([{"level": "gpu", "gpus": 1, "uplink_gb_s": 9}], "uplinks count with those of nodes"),
        ([{"level": "leaf", "nodes": 2, "uplink_gb_s": 9}], "uplinks count with those of nodes"),
        ([{"level": "leaf", "gpus": 2, "nodes": 2}], "needs either 'nodes' or 'domains', or 'gpus' within a node"),
    ],
)
def test_tiers_that_make_no_sense_are_refused(levels, said):
    with pytest.raises(ValueError, match=said):
        cluster(levels)


def place(placer, gpus, *taken):
    """Return where 8 nodes in leaves of two and spines of four, less those taken, hold a job."""
    built = cluster(TIERS)
    room = Capacity(built.nodes, [True] * 8, [node.gpus for node in built.nodes])
    for node, count in taken:
        room.take(((node, count),))
    return room.choose(PLACERS[placer], gpus)


@pytest.mark.parametrize(
    ("gpus", "taken", "nodes"),
    [
        (16, [], (0, 1)),
        (16, [(0, 1), (2, 8)], (4, 5)),  # leaves 0 and 1 have a whole node each: the next that has two
        (32, [], (0, 1, 2, 3)),
        (32, [(1, 8)], (4, 5, 6, 7)),  # the spine without room for two even parts is passed over
        (16, [(1, 1), (3, 1), (5, 1), (7, 1)], (0, 2)),  # a node of each of two leaves, within one spine
        (16, [(1, 1), (2, 1), (3, 1), (5, 1), (7, 1)], (4, 6)),  # spine 1 has both, spine 0 only one
        (16, [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1), (5, 1)], (6, 7)),
    ],
)
def test_aligned_jobs_have_equal_parts_of_few_leaves(gpus, taken, nodes):
    assert place("aligned", gpus, *taken) == tuple((node, 8) for node in nodes)


def test_what_is_no_whole_nodes_is_placed_on_few_domains():
    for gpus in (4, 8, 12, 20):
        assert place("aligned", gpus, (0, 4)) == place("fewest-domains", gpus, (0, 4))
    assert place("aligned", 64) == tuple((node, 8) for node in range(8))
    assert place("aligned", 64, (0, 1)) is None


def test_the_largest_job_that_fits_in_a_leaf_is_recorded():
    options = EngineOptions(restart_delay_s=0, fragmentation=True)
    jobs = [JobSpec("a", 0, 12, duration_s=100), JobSpec("b", 0, 28, duration_s=50)]
    recorder = run(registry.load("fifo")(placement="fewest-domains"), jobs, cluster=cluster(TIERS), options=options)
    assert [one.fits_in_domain_gpus for one in recorder.decisions] == [16, 16]
    spread = [JobSpec(str(node), 0, 8, duration_s=50 + node) for node in range(7)]
    recorder = run(registry.load("fifo")(), spread, cluster=cluster(TIERS), options=options)
    assert [one.fits_in_domain_gpus for one in recorder.decisions] == [8, 8, 16, 16, 16, 16, 16]
