"""What waits for quota: heads, parking, those of one shape, strict queues; and that short cuts change no decision."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from simsched_policies.kubernetes.kueue import classical
from simsched_policies.kubernetes.kueue.cycle import admit, run_cycle
from simsched_policies.kubernetes.kueue.gates import gates
from simsched_policies.kubernetes.kueue.model import (
    Asking,
    Assigned,
    ClusterQueue,
    Cohort,
    PodSet,
    Quota,
    Reclaim,
    Rules,
    Within,
    Workload,
)
from simsched_policies.kubernetes.kueue.policy import Kueue
from simsched_policies.kubernetes.kueue.prospects import Prospects
from simsched_policies.kubernetes.kueue.queues import Waiting
from simsched_policies.kubernetes.kueue.topology import Domains
from simsched_policies.kubernetes.kueue.tree import QuotaTree

from simsched.engine.options import EngineOptions
from simsched.manifests import HOSTNAME, NodeFacts
from simsched.model import Cluster, JobSpec
from simsched.model.cluster import Level, Tenant
from simsched.model.topology import with_levels
from simsched.testing.builders import run
from tests.campaigns import played

GPU = ("a100", "gpu")


def asks(name: str, queue: str, gpus: int, priority: int = 0, created_s: float = 0.0) -> Asking:
    return Asking(name, queue, (PodSet(requests={"gpu": gpus}),), priority, created_s)


def heads(waiting: Waiting) -> list[str]:
    return [one.asking.id for one in waiting.heads()]


def of_one_queue(**rules: object) -> tuple[QuotaTree, Waiting]:
    tree = QuotaTree([ClusterQueue("q", "all", {GPU: Quota(4)}, **rules), ClusterQueue("r", "all", {GPU: Quota(0)})])  # type: ignore[arg-type]
    return tree, Waiting(tree, Rules())


def cycle(tree: QuotaTree, waiting: Waiting) -> list[str]:
    outcome = run_cycle(tree, waiting.heads(), Rules())
    waiting.settle(outcome)
    for entry in outcome.admitted:
        tree.admit(admit(entry, 0.0))
    return [entry.asking.id for entry in outcome.admitted]


def test_who_fits_nowhere_is_parked_with_all_of_its_shape_until_something_leaves() -> None:
    tree, waiting = of_one_queue()
    for one in (asks("big", "q", 3), asks("held", "q", 2), asks("alike", "q", 3), asks("small", "q", 1, -1)):
        waiting.push(one)
    assert heads(waiting) == ["alike"]  # by name, where all are of one age
    assert [cycle(tree, waiting) for _ in range(4)] == [["alike"], [], [], ["small"]]
    assert heads(waiting) == []
    waiting.push(asks("late", "q", 3, 0, -5.0))
    assert heads(waiting) == []  # parked at once: its like was refused
    gone = tree.queues["q"].held["alike"]
    tree.release(gone)
    waiting.wake("q")
    assert heads(waiting) == ["late"]


def test_without_equivalence_each_is_asked_for_itself() -> None:
    tree, _ = of_one_queue()
    waiting = Waiting(tree, Rules(gates=gates({"SchedulingEquivalenceHashing": False})))
    for name in ("a", "b"):
        waiting.push(asks(name, "q", 5))
    assert [(heads(waiting), cycle(tree, waiting)) for _ in range(3)] == [(["a"], []), (["b"], []), ([], [])]


def test_a_strict_queue_waits_for_its_head_and_for_one_before_it() -> None:
    tree, waiting = of_one_queue(strict_fifo=True)
    waiting.push(asks("big", "q", 6, 0, 1.0))
    waiting.push(asks("small", "q", 1, 0, 2.0))
    assert (cycle(tree, waiting), heads(waiting)) == ([], [])
    waiting.push(asks("first", "q", 4, 0, 0.0))
    assert (cycle(tree, waiting), heads(waiting)) == (["first"], [])  # big still fits nowhere


def test_who_waits_for_its_victims_comes_first_and_the_victims_keep_their_place() -> None:
    tree, waiting = of_one_queue(within=Within.LOWER_PRIORITY)
    waiting.push(asks("low", "q", 4, 0, 7.0))
    cycle(tree, waiting)
    waiting.push(asks("urgent", "q", 4, 1, 8.0))
    outcome = run_cycle(tree, waiting.heads(), Rules())
    waiting.settle(outcome)
    waiting.push(asks("more-urgent", "q", 4, 2, 9.0))
    assert [(one.asking.id, one.preempting) for one in waiting.heads()] == [("urgent", True)]
    (victim,) = outcome.preempting[0].victims
    assert victim.workload.created_s == 7.0


def test_a_queue_that_is_stopped_or_lacks_a_flavour_has_no_head() -> None:
    assert heads_of(ClusterQueue("q", quotas={GPU: Quota(4)}), Rules()) == ["a"]
    assert heads_of(ClusterQueue("q", quotas={GPU: Quota(4)}), Rules(flavours={})) == []


def heads_of(spec: ClusterQueue, rules: Rules) -> list[str]:
    waiting = Waiting(QuotaTree([spec]), rules)
    waiting.push(asks("a", "q", 1))
    return heads(waiting)


TREE = {
    "upper": Tenant(gpus=1, lends=2),
    "north": Tenant(gpus=2, parent="upper"),
    "south": Tenant(max_gpus=10, lends=3),
    **{f"q{i}": Tenant(gpus=i % 4, parent=("north", "south")[i % 2], reclaims=i != 3) for i in range(6)},
}


@pytest.mark.parametrize("seed", played(range(4), range(2)))
@pytest.mark.parametrize(
    "rules",
    [
        {},
        {"reclaim": "lower-priority", "within": "lower-or-newer-equal-priority"},
        {"borrowing_preempts": True},
        {"fair_sharing": True, "within": "never"},
        {"strict_fifo": True},
        {"topology": "required rack"},
        {"topology": "preferred rack", "reclaim": "lower-priority"},
        {"topology": "unconstrained"},
    ],
)
def test_short_cuts_change_no_decision(rules: dict[str, object], seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dice, jobs = random.Random(seed), []
    for i in range(60):
        spec = JobSpec(f"j{i}", 5 * i, dice.choice((1, 1, 2, 4, 6)), duration_s=dice.randint(5, 120))
        jobs.append(replace(spec, tenant=f"q{dice.randrange(7)}", user="u", priority=dice.randint(0, 2)))

    def times() -> list[tuple[str, float, float, int]]:
        records = run(
            Kueue(TREE, **rules),
            jobs,
            cluster=with_levels(Cluster.uniform(4, 4), [Level("rack", ((0, 1), (2, 3)))]),
            options=EngineOptions(restart_delay_s=0),  # type: ignore[arg-type]
        )
        return [(one.job_id, one.start_time_s, one.end_time_s, one.restarts) for one in records.jobs]

    short = times()
    monkeypatch.setattr(Prospects, "needs", lambda *_: None)
    monkeypatch.setattr(classical, "_may_reclaim", lambda *_: True)
    monkeypatch.setattr("simsched_policies.kubernetes.kueue.cycle.may_fit", lambda *_: True)
    assert times() == short


def test_who_waits_for_a_place_is_asked_when_its_pods_may_fit() -> None:
    """Hosts of 4 with 3, 2 and 2 in use: a pod of 3 fits once the own workload of lower priority has left the third."""
    hosts = [NodeFacts(name, {HOSTNAME: name}, (), {"gpu": 4}) for name in ("x1", "x2", "x3")]
    domains = Domains((HOSTNAME,), hosts)
    tree = QuotaTree([ClusterQueue("q", "all", {GPU: Quota(9)}, within=Within.LOWER_PRIORITY, reclaim=Reclaim.ANY)])
    tree.use({"a100": domains})
    for name, host, gpus, priority in (("high", "x1", 3, 2), ("mine", "x2", 2, 2), ("low", "x3", 2, 0)):
        one = Assigned("main", 1, {"gpu": gpus}, {"gpu": "a100"}, (((host,), 1),), {"gpu": gpus})
        tree.admit(Workload(name, "q", {GPU: gpus}, priority, assigned=(one,)))
    prospects = Prospects(tree, fair_sharing=False)

    def asked(gpus: int, priority: int, count: int = 1) -> bool:
        asking = Asking("new", "q", (PodSet("main", count, {"gpu": gpus}),), priority)
        needs, homes = prospects.needs(asking), prospects.homes(asking)
        prospects.look()
        return needs is None or homes is None or prospects.may_be_placed(asking, needs, homes)

    tree.add("q", {GPU: 2})  # the quota is in use, so that nobody else gives any back
    assert [asked(2, 0), asked(2, 0, 2), asked(2, 0, 3), asked(3, 0), asked(3, 1), asked(4, 1)] == [
        *(True, True, False, False, True, True),
    ]
    assert [asked(3, 1, 2), asked(2, 1, 3), asked(2, 1, 4)] == [False, True, False]


def test_what_a_queue_could_get_follows_from_the_cohorts_above_it() -> None:
    queues = [ClusterQueue("q", "low", {GPU: Quota(4, lending_limit=1)}), ClusterQueue("r", "high", {GPU: Quota(6)})]
    tree = QuotaTree(queues, [Cohort("low", "high", {GPU: Quota(2)}), Cohort("high", "root", {GPU: Quota(1)})])
    prospects = Prospects(tree, fair_sharing=False)
    needs = {gpus: prospects.needs(asks("a", "q", gpus)) for gpus in (4, 5, 6, 7)}

    def most() -> int:
        prospects.look()
        return max((gpus for gpus, one in needs.items() if one is not None and prospects.allow(one)), default=0)

    tree.admit(Workload("own", "q", {GPU: 2}))  # stays in the three that q lends to nobody
    tree.admit(Workload("other", "r", {GPU: 5}))
    assert most() == 1 + 5  # low has 2 and the 1 that q lends, high 6 and 1 more, of which r uses 5; the root adds none
    tree.admit(Workload("more", "r", {GPU: 5}))
    assert most() == 1 + 3  # what low owns may still be reclaimed
    prospects.wait("q", [needs[5]])  # type: ignore[list-item]
    assert prospects.hopeful() == set()
    tree.release(tree.queues["r"].held["more"])
    prospects.look()
    assert prospects.hopeful() == {"q"}


def test_a_bound_counts_limits_of_borrowing_and_what_may_be_preempted() -> None:
    spec = ClusterQueue("q", "all", {GPU: Quota(2, borrowing_limit=3)}, within=Within.LOWER_PRIORITY)
    alone = ClusterQueue("alone", quotas={("h100", "gpu"): Quota(3), ("h100", "cpu"): Quota(9)})
    tree = QuotaTree([spec, ClusterQueue("r", "all", {GPU: Quota(9)}), alone])
    prospects = Prospects(tree, fair_sharing=False)
    tree.admit(Workload("low", "q", {GPU: 4}, priority=0))

    def allowed(gpus: int, priority: int, queue: str = "q") -> bool:
        needs = prospects.needs(asks("a", queue, gpus, priority))
        prospects.look()
        return needs is not None and prospects.allow(needs)

    assert [allowed(1, 0), allowed(2, 0), allowed(5, 1), allowed(6, 1)] == [True, False, True, False]
    assert [allowed(3, 0, "alone"), allowed(4, 0, "alone")] == [True, False]


def test_candidates_of_a_queue_keep_their_order_while_some_are_taken_off() -> None:
    tree = QuotaTree([ClusterQueue("q", quotas={GPU: Quota(9)})])
    high = Workload("high", "q", {GPU: 1}, 1, 0.0, 9.0)
    old, new = (Workload(name, "q", {GPU: 1}, 0, 0.0, at) for name, at in (("old", 1.0), ("new", 2.0)))
    for workload in (high, old, new):
        tree.admit(workload)
    node = tree.queues["q"]
    with tree.without_all([old]):
        assert [one.id for one in node.in_order()] == ["new", "high"]
    assert [one.id for one in node.in_order()] == ["new", "old", "high"]
    tree.release(new)
    assert ([one.id for one in node.in_order()], node.held_by) == (["old", "high"], {0: {GPU: 1}, 1: {GPU: 1}})


def test_a_queue_may_reclaim_from_whoever_borrows_of_its_own() -> None:
    spec = ClusterQueue("q", "all", {GPU: Quota(4)}, reclaim=Reclaim.ANY)
    tree = QuotaTree([spec, ClusterQueue("lodger", "all", {GPU: Quota(0)})])
    waiting = Waiting(tree, Rules())
    waiting.push(asks("guest", "lodger", 4))
    assert cycle(tree, waiting) == ["guest"]
    waiting.push(asks("owner", "q", 2))
    (entry,) = run_cycle(tree, waiting.heads(), Rules()).preempting
    assert [victim.workload.id for victim in entry.victims] == ["guest"]
