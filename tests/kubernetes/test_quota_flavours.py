"""Assignment of flavours on hand-worked queues: taints, labels, levels of borrowing, preferences, sets of pods."""

from __future__ import annotations

from dataclasses import replace

import pytest
from simsched_policies.kubernetes.kueue.assign import Assignment, Grade, Oracle, assign
from simsched_policies.kubernetes.kueue.cycle import run_cycle
from simsched_policies.kubernetes.kueue.gates import VERSION, gates
from simsched_policies.kubernetes.kueue.matching import Constraints
from simsched_policies.kubernetes.kueue.model import (
    Asking,
    ClusterQueue,
    Cohort,
    FlavourResource,
    PodSet,
    Preference,
    Quota,
    Reclaim,
    ResourceFlavor,
    Rules,
    Within,
    Workload,
)
from simsched_policies.kubernetes.kueue.reasons import Unfit, Why
from simsched_policies.kubernetes.kueue.tree import QuotaTree, level_of

from simsched.errors import InputError
from simsched.manifests import Expression, Taint, Toleration, written

SPOT = Taint("pool", "spot")
FLAVOURS = {
    "old": ResourceFlavor("old", {"gpu": "v100"}),
    "new": ResourceFlavor("new", {"gpu": "h100"}),
    "spot": ResourceFlavor("spot", taints=(SPOT,)),
}


def nobody(_: FlavourResource, __: int) -> tuple[Grade, int]:
    return Grade.NO_CANDIDATES, 0


def queue(*flavours: str, of: int = 4, **rules: object) -> ClusterQueue:
    return ClusterQueue("q", "all", {(name, "gpu"): Quota(of) for name in flavours}, **rules)  # type: ignore[arg-type]


def found(
    spec: ClusterQueue, *pod_sets: PodSet, oracle: Oracle = nobody, after: Assignment | None = None, used: int = 0
) -> Assignment:
    tree = QuotaTree([spec, ClusterQueue("other", "all", {key: Quota(2) for key in spec.quotas})])
    tree.add("q", dict.fromkeys(list(spec.quotas)[:1], used))
    return assign(tree.queues["q"], Asking("w", "q", pod_sets), Rules(flavours=FLAVOURS), oracle, after=after)


def flavours(one: Assignment) -> list[str]:
    return [chosen.flavour for pods in one.found for chosen in pods.flavours.values()]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (Constraints(), ["old"]),
        (Constraints(tolerations=(Toleration("pool", value="spot"),)), ["spot"]),
        (Constraints(tolerations=(Toleration(operator="Exists"),)), ["spot"]),
        (Constraints(tolerations=(Toleration("pool", value="spot", effect="NoExecute"),)), ["old"]),
        (Constraints((("gpu", "h100"),)), ["new"]),
        (Constraints((("zone", "a"), ("gpu", "h100"))), ["new"]),  # no flavour has the label zone
        (Constraints(affinity=((Expression("gpu", "NotIn", ("v100",)),),)), ["new"]),
        (Constraints(affinity=((Expression("zone", "In", ("a",)),), (Expression("gpu", "In", ("t4",)),))), ["old"]),
        (Constraints((("gpu", "t4"),)), []),
    ],
)
def test_a_flavour_whose_nodes_do_not_suit_is_passed_over(where: Constraints, expected: list[str]) -> None:
    assert flavours(found(queue("spot", "old", "new"), PodSet(requests={"gpu": 1}, where=where))) == expected


def test_sets_of_pods_add_up_and_those_of_a_group_take_one_flavour() -> None:
    workers, leader = PodSet("workers", 3, {"gpu": 1}), PodSet("leader", 1, {"gpu": 2})
    apart = found(queue("old", "new", borrow_before_next_flavour=False), workers, leader)
    assert flavours(apart) == ["old", "new"]  # 3 + 2 is beyond the 4 of old
    grouped = [replace(one, group="g") for one in (workers, leader)]
    assert flavours(found(queue("old", "new", of=5), *grouped)) == ["old", "old"]
    short = found(queue("old", "new", of=2), *(replace(one, count=9) for one in grouped))
    assert (short.grade, flavours(short)) == (Grade.NO_FIT, [])


def test_zero_of_what_no_group_covers_is_nothing_and_one_fits_nowhere() -> None:
    assert dict(found(queue("old"), PodSet(requests={"gpu": 1, "disk": 0})).usage) == {("old", "gpu"): 1}
    assert dict(found(queue("old"), PodSet(requests={"gpu": 0})).usage) == {("old", "gpu"): 0}
    assert found(queue("old"), PodSet(requests={"disk": 1})).grade is Grade.NO_FIT


def test_a_search_stops_at_a_fit_that_borrows_unless_told_to_go_on_and_goes_on_where_it_stopped() -> None:
    pods = PodSet(requests={"gpu": 5})
    stopped = found(queue("old", "new"), pods)
    assert ([c.tried for p in stopped.found for c in p.flavours.values()], stopped.level) == ([0], 1)
    assert stopped.left_to_try()
    resumed = found(queue("old", "new"), pods, after=stopped)
    assert (flavours(resumed), resumed.left_to_try()) == (["new"], False)
    eager = queue("old", "new", borrow_before_next_flavour=False)
    assert flavours(found(eager, PodSet(requests={"gpu": 3}), used=2)) == ["new"]


@pytest.mark.parametrize(("preference", "expected"), [(Preference.BORROWING, "new"), (Preference.PREEMPTION, "old")])
def test_the_preference_decides_between_borrowing_and_preemption(preference: Preference, expected: str) -> None:
    # old: all 4 used, 3 asked: victims of its own, no borrowing afterwards. new: fits with 3 of 2, borrowing.
    quotas = {("old", "gpu"): Quota(4, 0), ("new", "gpu"): Quota(2)}
    spec = ClusterQueue("q", "all", quotas, preference=preference, borrow_before_next_flavour=False)
    one = found(spec, PodSet(requests={"gpu": 3}), oracle=lambda *_: (Grade.OWN, 0), used=4)
    assert flavours(one) == [expected]


def test_the_level_is_the_height_of_the_lowest_cohort_with_room() -> None:
    cohorts = [Cohort("low", "mid", {("old", "gpu"): Quota(2)}), Cohort("mid", "top", {("old", "gpu"): Quota(4)})]
    tree = QuotaTree([ClusterQueue("q", "low", {("old", "gpu"): Quota(1)})], [*cohorts, Cohort("top")])
    levels = [level_of(tree.queues["q"], ("old", "gpu"), amount) for amount in (1, 3, 7, 8)]
    assert levels == [(0, True), (1, True), (2, True), (3, False)]


def test_reasons_are_kueues() -> None:
    few = found(queue("spot", "old", of=2), PodSet(requests={"gpu": 9}))
    told = [why.text(one.flavour) for one in few.found[0].attempts for why in one.why]
    assert told[0] == "untolerated taint {pool spot NoSchedule <nil>} in flavor spot"
    assert told[1].endswith(
        "previously considered podsets requests (0) + current podset request (9) > maximum capacity (4)"
    )
    unfit = found(queue("old"), PodSet(requests={"gpu": 1}, where=Constraints((("gpu", "x"),)))).found[0].attempts
    assert [why.unfit for one in unfit for why in one.why] == [Unfit.AFFINITY]
    assert Why(Unfit.WAITS, "memory", (3 << 20,)).text("a") == (
        "insufficient unused quota for memory in flavor a, 3Mi more needed"
    )
    assert [written("cpu", n) for n in (1500, 2000)] == ["1500m", "2"]


def asks(name: str, queue: str, gpus: int, priority: int = 0, **more: object) -> Asking:
    return Asking(name, queue, (PodSet(requests={"gpu": gpus}),), priority, **more)  # type: ignore[arg-type]


def test_fewer_pods_are_admitted_where_a_set_allows_it() -> None:
    tree = QuotaTree([ClusterQueue("q", quotas={("old", "gpu"): Quota(10)})])
    sets = (PodSet("fixed", 4, {"gpu": 1}), PodSet("free", 8, {"gpu": 1}, min_count=2))
    (entry,) = run_cycle(tree, [Asking("w", "q", sets)], Rules()).admitted
    assert [one.pods.count for one in entry.assignment.found] == [4, 6]
    off = Rules(gates=gates({"PartialAdmission": False}))
    assert not run_cycle(tree, [Asking("w", "q", sets)], off).admitted


def test_who_fits_once_victims_of_another_are_gone_waits_for_them_unless_switched_off() -> None:
    spec = ClusterQueue("a", "all", {("old", "gpu"): Quota(2)}, reclaim=Reclaim.ANY)
    tree = QuotaTree([spec, replace(spec, name="b"), ClusterQueue("c", "all", {("old", "gpu"): Quota(0)})])
    tree.admit(Workload("guest", "c", {("old", "gpu"): 4}))
    both = [asks("one", "a", 2), asks("two", "b", 2, created_s=1.0)]
    assert [e.asking.id for e in run_cycle(tree, both, Rules()).deferred] == ["two"]
    off = Rules(gates=gates({"RecomputeAssignmentUponPreemptionTargetsOverlap": False}))
    assert [e.asking.id for e in run_cycle(tree, both, off).skipped] == ["two"]


def test_a_namespace_that_a_queue_does_not_take_and_a_closed_gate_keep_out() -> None:
    term = (Expression("team", "In", ("ml",)),)
    tree = QuotaTree(
        [ClusterQueue("q", quotas={("old", "gpu"): Quota(4)}, namespaces=term, within=Within.LOWER_PRIORITY)]
    )
    rules = Rules(namespaces={"a": {"team": "ml"}, "b": {}}, gates=gates({"MultiKueueOrchestratedPreemption": True}))
    assert run_cycle(tree, [asks("in", "q", 1, namespace="a")], rules).admitted
    (entry,) = run_cycle(tree, [asks("out", "q", 1, namespace="b")], rules).refused
    assert "namespace selector" in entry.why
    tree.admit(Workload("low", "q", {("old", "gpu"): 4}, -1))
    assert run_cycle(tree, [asks("open", "q", 4, namespace="a")], rules).preempting
    assert not run_cycle(tree, [asks("closed", "q", 4, namespace="a", gated=True)], rules).preempting


def test_gates_are_named_and_only_those_modelled_are_switched() -> None:
    assert gates({"PartialAdmission": False})["PartialAdmission"] is False
    with pytest.raises(InputError, match="did you mean PartialAdmission"):
        gates({"PartialAdmision": True})
    with pytest.raises(InputError, match="modelled only on"):
        gates({"AdmissionGatedBy": False})
    assert VERSION.startswith("v0.20.0")
