"""Places of a cycle on hand-worked racks: leaders beside their workers, and why a workload has no place."""

from __future__ import annotations

from dataclasses import replace

import pytest
from simsched_policies.kubernetes.kueue.cycle import Outcome, Pending, admit, run_cycle
from simsched_policies.kubernetes.kueue.cycle_places import domains_by_flavour
from simsched_policies.kubernetes.kueue.model import (
    Asking,
    ClusterQueue,
    PodSet,
    Quota,
    ResourceFlavor,
    Rules,
    Topology,
    TopologyRequest,
    Within,
)
from simsched_policies.kubernetes.kueue.tree import QuotaTree

from simsched.manifests import HOSTNAME, NodeFacts

IN_A_RACK = TopologyRequest("required", "rack")

RULES = Rules(
    flavours={"new": ResourceFlavor("new", topology="racks")},
    topologies={"racks": Topology("racks", ("rack", HOSTNAME))},
)


def decided(*pod_sets: PodSet) -> Outcome:
    """Run a cycle for one workload on two racks of two hosts of 8 GPUs."""
    tree = QuotaTree([ClusterQueue("q", quotas={("new", "gpu"): Quota(32)})])
    hosts = [
        NodeFacts(f"{rack}{i}", {"rack": rack, HOSTNAME: f"{rack}{i}"}, (), {"gpu": 8}) for rack in "ab" for i in "01"
    ]
    tree.use(domains_by_flavour(RULES.flavours or {}, RULES.topologies, hosts))
    return run_cycle(tree, [Asking("w", "q", pod_sets)], RULES)


@pytest.mark.parametrize("wish", [IN_A_RACK, None])
def test_a_leader_without_requests_lies_beside_its_workers_and_uses_no_quota(wish: TopologyRequest | None) -> None:
    leader = PodSet("leader", 1, {}, topology=wish, group="g")
    workers = PodSet("workers", 2, {"gpu": 8}, topology=wish, group="g")
    (entry,) = decided(leader, workers).admitted
    lies = {one.pods.name: one.places for one in entry.assignment.found}
    assert lies["workers"] == ((("a0",), 1), (("a1",), 1))
    assert lies["leader"] is not None
    assert lies["leader"][0][0][0] in ("a0", "a1")
    assert admit(entry, 0.0).usage == {("new", "gpu"): 16}


def test_a_leader_outside_a_group_has_no_flavour_to_lie_in() -> None:
    alone = PodSet("leader", 1, {}, topology=IN_A_RACK)
    outcome = decided(alone, PodSet("workers", 2, {"gpu": 8}, topology=IN_A_RACK))
    assert not outcome.admitted
    (entry,) = outcome.parked
    (why,) = [why.text("") for attempt in entry.assignment.found[0].attempts for why in attempt.why]
    assert why == "workload requires Topology, but there is no TAS flavor assigned"


def test_what_no_rack_holds_waits_for_no_victim() -> None:
    (entry,) = decided(PodSet("main", 3, {"gpu": 8}, topology=IN_A_RACK)).parked
    assert entry.mode.value == "no-fit"
    assert "allows to fit only 2 out of 3" in entry.why


def test_a_resource_that_is_only_fragmented_is_contested_too_if_another_lacks_quota() -> None:
    # Two nodes of 8 CPUs and 8 GPUs. `cpu` has 4.5 CPUs on each, `gpu` all GPUs of one: `high` needs both to leave,
    # as no node has 5 CPUs free, although only the quota of GPUs is short of it.
    flavours = {"new": ResourceFlavor("new", topology="hosts")}
    rules = Rules(flavours=flavours, topologies={"hosts": Topology("hosts", (HOSTNAME,))})
    quotas = {("new", "cpu"): Quota(16_000), ("new", "gpu"): Quota(12)}
    tree = QuotaTree([ClusterQueue("q", quotas=quotas, within=Within.LOWER_PRIORITY)])
    hosts = [NodeFacts(name, {HOSTNAME: name}, (), {"cpu": 8000, "gpu": 8}) for name in "ab"]
    tree.use(domains_by_flavour(flavours, rules.topologies, hosts))
    wish = TopologyRequest("required", HOSTNAME)
    spread = PodSet("main", 2, {"cpu": 4500}, topology=TopologyRequest("unconstrained"))
    for name, pods in (("cpu", spread), ("gpu", PodSet("main", 2, {"cpu": 500, "gpu": 4}, topology=wish))):
        (entry,) = run_cycle(tree, [Asking(name, "q", (pods,))], rules).admitted
        tree.admit(admit(entry, 0.0))
    high = Asking("high", "q", (PodSet("main", 1, {"cpu": 5000, "gpu": 8}, topology=wish),), priority=1)
    (entry,) = run_cycle(tree, [high], rules).preempting
    assert {victim.workload.id for victim in entry.victims} == {"cpu", "gpu"}


def _two_flavours() -> tuple[QuotaTree, Rules]:
    """Two flavours of the same two hosts of 4 CPUs, each with the quota of one resource."""
    flavours = {name: ResourceFlavor(name, topology="hosts") for name in ("one", "two")}
    rules = Rules(flavours=flavours, topologies={"hosts": Topology("hosts", (HOSTNAME,))})
    tree = QuotaTree([ClusterQueue("q", quotas={("one", "cpu"): Quota(3), ("two", "cpu"): Quota(3)})])
    hosts = [NodeFacts(name, {HOSTNAME: name}, (), {"cpu": 4}) for name in "ab"]
    tree.use(domains_by_flavour(flavours, rules.topologies, hosts))
    return tree, rules


def test_pod_sets_with_two_flavours_of_the_same_hosts_do_not_overlap() -> None:
    tree, rules = _two_flavours()
    wish = TopologyRequest("required", HOSTNAME)
    sets = tuple(PodSet(name, 1, {"cpu": 3}, topology=wish) for name in ("first", "second"))
    (entry,) = run_cycle(tree, [Asking("w", "q", sets)], rules).admitted
    assert [one.places for one in entry.assignment.found] == [((("a",), 1),), ((("b",), 1),)]


def test_in_a_second_pass_placed_pods_stay_and_only_missing_places_are_found() -> None:
    tree, rules = _two_flavours()
    sets = tuple(PodSet(name, 1, {"cpu": 3}, topology=TopologyRequest("required", HOSTNAME)) for name in ("x", "y"))
    (entry,) = run_cycle(tree, [Asking("w", "q", sets)], rules).admitted
    held = admit(entry, 0.0)
    late = replace(held, assigned=(held.assigned[0], replace(held.assigned[1], places=None)))
    tree.admit(late)
    (entry,) = run_cycle(tree, [Pending(Asking("w", "q", sets), holds=late)], rules).admitted
    assert [one.places for one in entry.assignment.found] == [((("a",), 1),), ((("b",), 1),)]


def test_the_old_node_of_a_pod_that_moves_is_not_free_within_the_cycle() -> None:
    tree, rules = _two_flavours()
    wish = TopologyRequest("required", HOSTNAME)
    (entry,) = run_cycle(tree, [Asking("w", "q", (PodSet("x", 1, {"cpu": 3}, topology=wish),))], rules).admitted
    held = admit(entry, 0.0)
    tree.admit(held)
    moves = Pending(Asking("w", "q", (PodSet("x", 1, {"cpu": 3}, topology=wish),)), holds=held, failed=("a",))
    other = Asking("o", "q", (PodSet("x", 1, {"cpu": 2}, topology=wish),))
    outcome = run_cycle(tree, [moves, Pending(other)], rules)
    assert [entry.asking.id for entry in outcome.admitted] == ["w"]
    assert outcome.admitted[0].assignment.found[0].places == ((("b",), 1),)
