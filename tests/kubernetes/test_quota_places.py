"""Places of a cycle on hand-worked racks: leaders beside their workers, and why a workload has no place."""

from __future__ import annotations

import pytest
from simsched_policies.kubernetes.kueue.cycle import Outcome, Rules, admit, run_cycle
from simsched_policies.kubernetes.kueue.cycle_places import domains_by_flavour
from simsched_policies.kubernetes.kueue.model import (
    Asking,
    ClusterQueue,
    PodSet,
    Quota,
    ResourceFlavor,
    Topology,
    TopologyRequest,
)
from simsched_policies.kubernetes.kueue.topology import HOSTNAME, Node
from simsched_policies.kubernetes.kueue.tree import QuotaTree

IN_A_RACK = TopologyRequest("required", "rack")
RULES = Rules(
    flavours={"new": ResourceFlavor("new", topology="racks")},
    topologies={"racks": Topology("racks", ("rack", HOSTNAME))},
)


def decided(*pod_sets: PodSet) -> Outcome:
    """Run a cycle for one workload on two racks of two hosts of 8 GPUs."""
    tree = QuotaTree([ClusterQueue("q", quotas={("new", "gpu"): Quota(32)})])
    hosts = [Node(f"{rack}{i}", {"rack": rack, HOSTNAME: f"{rack}{i}"}, {"gpu": 8}) for rack in "ab" for i in "01"]
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
