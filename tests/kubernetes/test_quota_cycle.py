"""A cycle of admission on hand-worked queues, and the decayed usage of admission fair sharing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from simsched_policies.kubernetes.kueue.cycle import admit, queue_order, run_cycle
from simsched_policies.kubernetes.kueue.model import (
    Asking,
    ClusterQueue,
    Cohort,
    PodSet,
    Quota,
    Reclaim,
    Rules,
    Within,
    Workload,
)
from simsched_policies.kubernetes.kueue.tree import QuotaTree
from simsched_policies.kubernetes.kueue.usage import DecayedUsage

from simsched.errors import InputError

A100, T4 = ("a100", "gpu"), ("t4", "gpu")


def gpus(n: int) -> dict[tuple[str, str], Quota]:
    return {A100: Quota(n)}


def asks(name: str, queue: str, requests: dict[str, int], priority: int = 0, created_s: float = 0.0) -> Asking:
    return Asking(name, queue, (PodSet(requests=requests),), priority, created_s)


def ids(entries: object) -> list[str]:
    return [entry.asking.id for entry in entries]  # type: ignore[attr-defined]


def test_who_borrows_comes_after_who_does_not_whatever_the_priority() -> None:
    tree = QuotaTree([ClusterQueue("a", "all", gpus(4)), ClusterQueue("b", "all", gpus(4))])
    asking = [asks("borrower", "a", {"gpu": 6}, priority=9), asks("owner", "b", {"gpu": 4})]
    outcome = run_cycle(tree, asking, Rules())
    assert ids(outcome.admitted) == ["owner"]
    assert ids(outcome.skipped) == ["borrower"]
    assert tree.available("a", A100) == 8


def test_a_queue_shows_its_highest_priority_then_its_oldest() -> None:
    pending = [
        asks("late", "a", {"gpu": 1}, 1, 20),
        asks("early", "a", {"gpu": 1}, 1, 10),
        asks("low", "a", {"gpu": 1}, 0, 0),
        asks("other", "b", {"gpu": 1}),
    ]
    assert [asking.id for asking in sorted(pending, key=queue_order(Rules()))] == ["early", "late", "low", "other"]


def test_the_local_queue_that_used_least_comes_first_under_admission_fair_sharing() -> None:
    used = {"greedy": 5.0, "modest": 1.0}
    pending = [asks("greedy", "a", {"gpu": 1}, 9), asks("modest", "a", {"gpu": 1})]
    assert min(pending, key=queue_order(Rules(queue_usage=lambda asking: used[asking.id]))).id == "modest"


def test_flavours_are_tried_in_order_and_preemption_comes_last() -> None:
    quotas = {A100: Quota(4), T4: Quota(4)}
    queue = ClusterQueue("a", quotas=quotas, within=Within.LOWER_PRIORITY)
    tree, holder = QuotaTree([queue]), Workload("low", "a", {A100: 4}, -1)
    tree.admit(holder)
    (entry,) = run_cycle(tree, [asks("new", "a", {"gpu": 2})], Rules()).admitted
    assert dict(entry.usage) == {T4: 2}
    eager = QuotaTree([replace(queue, preempt_before_next_flavour=True)])
    eager.admit(holder)
    (entry,) = run_cycle(eager, [asks("new", "a", {"gpu": 2})], Rules()).preempting
    assert [victim.workload.id for victim in entry.victims] == ["low"]


def test_every_group_of_resources_gets_its_own_flavour() -> None:
    cpu = {("spot", "cpu"): Quota(2), ("fast", "cpu"): Quota(8)}
    tree = QuotaTree([ClusterQueue("a", quotas={**cpu, A100: Quota(4)})])
    (entry,) = run_cycle(tree, [asks("new", "a", {"cpu": 4, "gpu": 2})], Rules()).admitted
    assert dict(entry.usage) == {("fast", "cpu"): 4, A100: 2}
    assert ids(run_cycle(tree, [asks("new", "a", {"cpu": 4, "gpu": 5})], Rules()).parked) == ["new"]
    assert ids(run_cycle(tree, [asks("new", "a", {"disk": 1})], Rules()).parked) == ["new"]


def test_the_flavour_where_borrowers_go_is_preferred_to_one_where_the_own_go() -> None:
    quotas = {A100: Quota(4), T4: Quota(4)}
    queue = ClusterQueue("a", "all", quotas, within=Within.LOWER_PRIORITY, reclaim=Reclaim.ANY)
    tree = QuotaTree([queue, ClusterQueue("b", "all", {A100: Quota(0), T4: Quota(0)})])
    admitted = [Workload("own", "a", {A100: 4}, -1), Workload("guest", "b", {T4: 4}, 5)]
    for one in admitted:
        tree.admit(one)
    (entry,) = run_cycle(tree, [asks("new", "a", {"gpu": 2})], Rules()).preempting
    assert [victim.workload.id for victim in entry.victims] == ["guest"]


@pytest.mark.parametrize(("reclaim", "started"), [(Reclaim.LOWER_PRIORITY, []), (Reclaim.ANY, ["behind"])])
def test_who_finds_no_victim_keeps_its_own_from_those_behind_unless_it_can_reclaim(reclaim, started) -> None:
    # a owns 4 and uses 2; b borrows nothing yet, 2 of a's are free: "first" needs 4, and nobody can be preempted.
    tree = QuotaTree([ClusterQueue("a", "all", gpus(4), reclaim=reclaim), ClusterQueue("b", "all", gpus(0))])
    held = Workload("old", "a", {A100: 2})
    tree.admit(held)
    asking = [asks("first", "a", {"gpu": 4}, created_s=0), asks("behind", "b", {"gpu": 2}, created_s=1)]
    outcome = run_cycle(tree, asking, Rules())
    assert ids(outcome.parked) == ["first"]
    assert ids(outcome.admitted) == started
    assert tree.available("b", A100) == 2


def test_who_fits_is_not_held_up_by_victims_that_go() -> None:
    queues = [ClusterQueue("a", "all", gpus(4), reclaim=Reclaim.ANY), ClusterQueue("b", "all", gpus(4))]
    tree = QuotaTree([*queues, ClusterQueue("lodger", "all", gpus(0))])
    guest = Workload("guest", "lodger", {A100: 6})
    tree.admit(guest)
    asking = [asks("owner", "a", {"gpu": 4}, 1), asks("fits", "b", {"gpu": 2})]
    outcome = run_cycle(tree, asking, Rules())
    assert (ids(outcome.preempting), ids(outcome.admitted)) == (["owner"], ["fits"])


def test_a_queue_that_may_not_preempt_parks_what_does_not_fit() -> None:
    tree = QuotaTree([ClusterQueue("a", quotas=gpus(2))])
    outcome = run_cycle(tree, [asks("big", "a", {"gpu": 3})], Rules())
    assert ids(outcome.parked) == ["big"]


def test_two_preemptors_do_not_take_the_same_victim() -> None:
    spec = ClusterQueue("a", "all", gpus(2), reclaim=Reclaim.ANY)
    tree = QuotaTree([spec, replace(spec, name="b"), ClusterQueue("lodger", "all")])
    holder = Workload("guest", "lodger", {A100: 4})
    tree.admit(holder)
    asking = [asks("one", "a", {"gpu": 2}), asks("two", "b", {"gpu": 2}, created_s=1)]
    outcome = run_cycle(tree, asking, Rules())
    assert (ids(outcome.preempting), ids(outcome.deferred)) == (["one"], ["two"])


def test_fair_sharing_admits_first_whose_share_stays_lowest() -> None:
    queues = [ClusterQueue(name, "all", gpus(0)) for name in ("a", "b")]
    tree = QuotaTree(queues, [Cohort("all", quotas=gpus(8))])
    tree.add("a", {A100: 4})
    asking = [asks("rich", "a", {"gpu": 2}, priority=5), asks("poor", "b", {"gpu": 3})]
    outcome = run_cycle(tree, asking, Rules(fair_sharing=True))
    assert (ids(outcome.admitted), ids(outcome.skipped)) == (["poor"], ["rich"])
    assert admit(outcome.admitted[0], 7.0).admitted_s == 7.0


def test_decayed_usage_halves_in_a_half_life_and_counts_an_admission_at_once() -> None:
    usage = DecayedUsage(half_life_s=600, sampling_s=300)
    usage.sample(600, {"ml": {"gpu": 8}})
    assert usage.of("ml") == pytest.approx(4, abs=1e-12)
    usage.sample(1200, {})
    assert usage.of("ml", weight=2) == pytest.approx(1, abs=1e-12)
    usage.charge("ml", {"gpu": 1})
    assert usage.of("ml") == pytest.approx(2 + 1 - 0.5**0.5, abs=1e-12)
    assert usage.due(1500)
    assert not usage.due(1499)
    with pytest.raises(ValueError, match="comes after"):
        usage.sample(0, {})


def test_mistakes_in_quotas_are_named() -> None:
    with pytest.raises(InputError, match="named twice"):
        QuotaTree([ClusterQueue("a"), ClusterQueue("a")])
    with pytest.raises(InputError, match="own ancestor"):
        QuotaTree([ClusterQueue("a", "x")], [Cohort("x", "y"), Cohort("y", "x")])
    with pytest.raises(InputError, match="negative"):
        QuotaTree([ClusterQueue("a", quotas={A100: Quota(-1)})])
