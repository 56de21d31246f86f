"""Uplinks of the tiers of a cluster, and how a job lies on them."""

import pytest

from simsched.experiment.cluster import ClusterSpec
from simsched.model import Cluster, Site, Tier, Uplink, Within, site_of, tightest_site

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
