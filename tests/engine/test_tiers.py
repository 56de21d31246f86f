"""Uplinks of the tiers of a cluster, and how a job lies on them."""

import pytest

from simsched.engine.options import EngineOptions
from simsched.experiment.cluster import ClusterSpec
from simsched.model import Capacity, Cluster, JobSpec, Site
from simsched.model.cluster import Uplink, Within
from simsched.model.placement import Tier
from simsched.model.topology import site_of, tightest_site
from simsched.policy import registry
from simsched.testing.builders import run
from simsched.toolkit.placers import PLACERS

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
