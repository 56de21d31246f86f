"""Topology assignments worked by hand from Kueue's rules, Kueue's own table, and what must always hold."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st
from simsched_policies.kubernetes.kueue.gates import gates
from simsched_policies.kubernetes.kueue.matching import Constraints
from simsched_policies.kubernetes.kueue.model import PodSet, Slice, TopologyRequest
from simsched_policies.kubernetes.kueue.topology import Domains, Usage
from simsched_policies.kubernetes.kueue.topology_assignment import Earlier, assign

from simsched.manifests import HOSTNAME, Expression, NodeFacts, Taint, Toleration
from tests.conformance.kueue import check

LEVELS = ("block", "rack", HOSTNAME)
BALANCED = gates({"TASBalancedPlacement": True})


def tree(hosts: dict[str, int], levels: tuple[str, ...] = LEVELS, **node: Any) -> Domains:
    """Return a topology of hosts named by their path (`b1/r1/x1`), each with so many GPUs."""
    made = [
        NodeFacts(path, dict(zip(levels, path.split("/"), strict=True)), (), {"gpu": gpus, "pods": 100}, **node)
        for path, gpus in hosts.items()
    ]
    return Domains(levels, made)


def pods(count: int, kind: Any = "required", level: str = "", *slices: tuple[str, int], **more: Any) -> PodSet:
    """Return a set of pods of one GPU each."""
    request = TopologyRequest(kind, level, tuple(Slice(*one) for one in slices))
    return PodSet(**{"count": count, "requests": {"gpu": 1}, "topology": request, **more})


def placed(domains: Domains, *pod_sets: PodSet, **how: Any) -> Any:
    """Return the pods by domain of the last set, or the reason why it has no place."""
    found = assign(domains, pod_sets, **how)
    name = pod_sets[-1].name
    return found.reasons.get(name) or {"/".join(v): n for v, n in found.assigned[name]}


#: Two blocks of two racks: 4 and 2, 2; 3, 3 and 8 GPUs.
HOSTS = {"b1/r1/x1": 4, "b1/r2/x2": 2, "b1/r2/x3": 2, "b2/r3/x4": 3, "b2/r3/x5": 3, "b2/r4/x6": 8}


@pytest.mark.parametrize(
    ("asked", "where"),
    [
        # The tightest host that holds all: x4 has 3, x1 has 4.
        (pods(3, "required", HOSTNAME), {"x4": 3}),
        # The tightest rack: r1 and r2 have 4, r1 comes first; r3 has 6.
        (pods(4, "required", "rack"), {"x1": 4}),
        # r3 is the tightest rack for 5: its fuller hosts first, the last one as tight as possible.
        (pods(5, "required", "rack"), {"x4": 3, "x5": 2}),
        # Both blocks: b1 has 8, b2 14; in b1 rack r1 holds 4, the rest fits in r2.
        (pods(7, "required", "block"), {"x1": 4, "x2": 2, "x3": 1}),
        (pods(9, "required", "rack"), 'topology "default" allows to fit only 8 out of 9 pod(s)'),
        # Preferred goes up: no rack has 9, block b2 has; its largest rack first, then the tightest that holds one.
        (pods(9, "preferred", "rack"), {"x4": 1, "x6": 8}),
        # Not even a block has 16: blocks b2 and b1, of them racks r4, r3 and r1, of them the fuller hosts first.
        (pods(16, "preferred", "rack"), {"x1": 4, "x4": 3, "x5": 1, "x6": 8}),
        (pods(23, "preferred", "rack"), 'topology "default" allows to fit only 22 out of 23 pod(s)'),
        # Unconstrained: the least free host that holds all; else hosts from the least free up.
        (pods(3, "unconstrained"), {"x4": 3}),
        (pods(9, "unconstrained"), {"x2": 2, "x3": 2, "x4": 3, "x5": 2}),
        # Slices of 2 on hosts, alone: as if unconstrained, from the highest level: b1 has 4 slices, b2 1+1+4.
        (pods(8, "unconstrained", "", (HOSTNAME, 2)), {"x1": 4, "x2": 2, "x3": 2}),
        # Slices of 3 on racks: r1 and r2 hold one each, r3 two, r4 two; b2 is the block that holds four.
        (pods(12, "required", "block", ("rack", 3)), {"x4": 3, "x5": 3, "x6": 6}),
        (pods(15, "required", "block", ("rack", 3)), 'topology "default" allows to fit only 4 out of 5 slice(s)'),
        # Within r3 slices of 6 are dealt below: hosts hold 3 whole slices of 3.
        (pods(6, "required", "rack", ("rack", 6), (HOSTNAME, 3)), {"x4": 3, "x5": 3}),
        (pods(2, "required", "zone"), "no requested topology level: zone"),
        (
            pods(2, "required", HOSTNAME, ("rack", 2)),
            "podset slice topology rack is above the podset topology " + HOSTNAME,
        ),
        (pods(3, "required", "rack", (HOSTNAME, 2)), "3 pod(s) make no whole number of slices of 2"),
    ],
)
def test_one_set_of_pods(asked: PodSet, where: object) -> None:
    """Pods go where the rules send them, worked out by hand."""
    assert placed(tree(HOSTS), asked) == where


def test_sets_of_pods_see_what_the_former_took() -> None:
    """The second set finds the tightest rack taken, and the same domain can be shared."""
    first, second = pods(4, "required", "rack", name="one"), pods(4, "required", "rack", name="two")
    assert placed(tree(HOSTS), first, second) == {"x2": 2, "x3": 2}


def test_a_leader_goes_where_workers_lose_least() -> None:
    """Workers of 2 need all of x1 (4), x2 (2) and x3 (3, one to spare): the leader takes the spare one."""
    domains = tree({"b/r/x1": 4, "b/r/x2": 2, "b/r/x3": 3})
    leader = pods(1, "required", "rack", name="leader", group="g")
    workers = pods(4, "required", "rack", name="workers", group="g", requests={"gpu": 2})
    assert placed(domains, workers, leader) == {"x3": 1}
    assert placed(domains, leader, workers) == {"x1": 2, "x2": 1, "x3": 1}


def test_balanced_placement_evens_out() -> None:
    """11 pods on two hosts of 8 and 7: 5 each and one more on the larger; without the gate the first is filled."""
    domains, asked = tree({"b/r/x1": 8, "b/r/x2": 7, "b/r/x3": 2}), pods(11, "preferred", "rack")
    assert placed(domains, asked, gates=BALANCED) == {"x1": 6, "x2": 5}
    assert placed(domains, asked) == {"x1": 8, "x2": 3}


def test_nodes_that_do_not_suit_take_no_pods() -> None:
    """A taint, a label and a node that is not usable keep pods away, each told by its reason."""
    label = {"disk": "ssd"}
    nodes = [
        NodeFacts("x1", {HOSTNAME: "x1", **label}, (Taint("gpu", "yes"),), {"gpu": 4, "pods": 9}),
        NodeFacts("x2", {HOSTNAME: "x2"}, (), {"gpu": 4, "pods": 9}),
        NodeFacts("x3", {HOSTNAME: "x3", **label}, (), {"gpu": 1, "pods": 9}),
        NodeFacts("x4", {HOSTNAME: "x4", **label}, (), {"gpu": 4, "pods": 9}, ready=False),
    ]
    on_ssd = Constraints(selector=(("disk", "ssd"),))
    asked = pods(2, "required", HOSTNAME, where=on_ssd)
    why = 'nodeSelector: 1, resource "gpu": 1, taint "gpu=yes:NoSchedule": 1'
    wide = pods(1, "required", HOSTNAME, where=on_ssd, requests={"gpu": 2})
    assert placed(Domains((HOSTNAME,), nodes), wide) == (
        f'topology "default" doesn\'t allow to fit any of 1 pod(s). Total nodes: 3; excluded: {why}'
    )
    tolerant = Constraints(selector=on_ssd.selector, tolerations=(Toleration("gpu", "Exists"),))
    assert placed(Domains((HOSTNAME,), nodes), pods(2, "required", HOSTNAME, where=tolerant)) == {"x1": 2}
    assert placed(Domains((HOSTNAME,), nodes, tolerations=(Toleration("gpu", "Exists"),)), asked) == {"x1": 2}
    assert placed(Domains((HOSTNAME,), nodes, labels={"disk": "hdd"}), asked).startswith("no topology domains at level")


def test_preferred_nodes_come_before_a_tighter_fit() -> None:
    """With the gate a preferred node is taken although another fits as tightly or better."""
    nodes = [NodeFacts(n, {HOSTNAME: n, "zone": n[0]}, (), {"gpu": g, "pods": 9}) for n, g in (("a1", 2), ("b1", 4))]
    liking = Constraints(preferred=((10, (Expression("zone", "In", ("b",)),)),))
    asked = pods(2, "preferred", HOSTNAME, where=liking)
    domains = Domains((HOSTNAME,), nodes)
    assert placed(domains, asked) == {"a1": 2}
    assert placed(domains, asked, gates=gates({"TASRespectNodeAffinityPreferred": True})) == {"b1": 2}


def test_usage_counts_unless_the_cluster_is_looked_at_empty() -> None:
    domains = tree({"b/r/x1": 4, "b/r/x2": 3})
    domains.change(Usage(("x1",), {"gpu": 2}, 2))
    asked = pods(4, "required", HOSTNAME)
    assert placed(domains, asked) == 'topology "default" allows to fit only 3 out of 4 pod(s). ' + (
        'Total nodes: 2; excluded: resource "gpu": 1'
    )
    assert placed(domains, asked, empty=True) == {"x1": 4}


@pytest.mark.parametrize(
    ("asked", "where"),
    [
        # The lost pod must stay in rack r1, where x2 has room for one more.
        (pods(2, "required", "rack"), {"x2": 2}),
        # Anywhere: x2 has 1 free, x3 has 3; the tightest.
        (pods(2, "preferred", "rack"), {"x2": 2}),
        # Slices of 2 on racks: the slice of r1 lacks one, which must go there.
        (pods(2, "required", "block", ("rack", 2)), {"x2": 2}),
    ],
)
def test_a_failed_node_is_replaced_for_its_pods_only(asked: PodSet, where: object) -> None:
    """x1 of rack r1 failed: its one pod moves, the one on x2 stays."""
    domains = tree({"b/r1/x2": 2, "b/r2/x3": 3})
    domains.change(Usage(("x2",), {"gpu": 1}, 1))
    had = Earlier({"main": ((("x1",), 1), (("x2",), 1))}, ("x1",))
    assert placed(domains, asked, earlier=had) == where


def test_a_failed_node_without_room_in_its_domain_is_not_replaced() -> None:
    """Rack r1 is full: a required rack is not left, and another host that is gone forbids a replacement."""
    domains = tree({"b/r1/x2": 1, "b/r2/x3": 3})
    domains.change(Usage(("x2",), {"gpu": 1}, 1))
    had = Earlier({"main": ((("x1",), 1), (("x2",), 1))}, ("x1",))
    why = 'excluded: resource "gpu": 1, topologyDomain: 1'
    assert placed(domains, pods(2, "required", "rack"), earlier=had).endswith(why)
    gone = Earlier({"main": ((("x0",), 1), (("x1",), 1))}, ("x1",))
    assert "stale domain x0" in placed(domains, pods(2, "required", "rack"), earlier=gone)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[dict[str, int], PodSet]:
    """Draw a small topology and a request."""
    hosts = {
        f"b{b}/r{r}/x{b}{r}{x}": draw(st.integers(0, 5))
        for b in range(draw(st.integers(1, 2)))
        for r in range(draw(st.integers(1, 3)))
        for x in range(draw(st.integers(1, 3)))
    }
    size = draw(st.integers(1, 3))
    kind = draw(st.sampled_from(["required", "preferred", "unconstrained"]))
    level = draw(st.sampled_from(["block", "rack"]))
    slices = ((draw(st.sampled_from(["rack", HOSTNAME])), size),) if size > 1 else ()
    return hosts, pods(size * draw(st.integers(1, 6)), kind, "" if kind == "unconstrained" else level, *slices)


@given(clusters(), st.booleans())
def test_a_placement_holds_and_is_found_where_there_is_one(drawn: tuple[dict[str, int], PodSet], even: bool) -> None:
    """All pods are placed, within what is free, slices and required domains whole; refused only where none can be."""
    hosts, asked = drawn
    found = placed(tree(hosts), asked, gates=BALANCED if even else gates())
    assert asked.topology is not None
    (slice_level, size) = next(((one.level, one.size) for one in asked.topology.slices), (HOSTNAME, 1))
    depth = LEVELS.index(slice_level) + 1
    room: dict[str, int] = {}
    for path, gpus in hosts.items():
        part = "/".join(path.split("/")[:depth])
        room[part] = room.get(part, 0) + gpus
    by_block: dict[str, int] = {}
    for part, gpus in room.items():
        within = "/".join(part.split("/")[: LEVELS.index(asked.topology.level) + 1]) if asked.topology.level else ""
        key = within if asked.topology.kind == "required" else ""
        by_block[key] = by_block.get(key, 0) + gpus // size
    possible = max(by_block.values()) >= asked.count // size
    assert isinstance(found, dict) == possible
    if possible:
        path_of = {path.rpartition("/")[2]: path for path in hosts}
        assert sum(found.values()) == asked.count
        held: dict[str, int] = {}
        for host, count in found.items():
            assert 0 < count <= hosts[path_of[host]]
            part = "/".join(path_of[host].split("/")[:depth])
            held[part] = held.get(part, 0) + count
        assert all(count % size == 0 for count in held.values())
        if asked.topology.kind == "required":
            assert len({"/".join(p.split("/")[: LEVELS.index(asked.topology.level) + 1]) for p in held}) == 1


def test_a_case_in_json() -> None:
    """A word that is not known leaves the case out."""
    case: dict[str, Any] = {
        "name": "one host",
        "levels": [HOSTNAME],
        "nodes": [{"name": "x1", "labels": {HOSTNAME: "x1"}, "allocatable": {"gpu": 2}}],
        "pod_sets": [{"name": "main", "count": 2, "request": {"gpu": 1}, "topology": {"required": HOSTNAME}}],
        "placement": {"main": {"levels": [HOSTNAME], "domains": [{"values": ["x1"], "count": 2}]}},
    }
    assert check(case).result == "equal"
    odd = check({**case, "pod_sets": [{**case["pod_sets"][0], "colour": "red"}]})
    assert (odd.result, odd.detail) == ("left out", "the model has no 'colour' of a pod set")
