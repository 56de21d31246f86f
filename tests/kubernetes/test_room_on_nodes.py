"""What fits on the nodes of manifests as pods come and go, held against counting it anew."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st
from simsched_policies.kubernetes.kueue.machines import Machines, Pods
from simsched_policies.kubernetes.kueue.matching import Constraints
from simsched_policies.kubernetes.kueue.model import Asking, ClusterQueue, PodSet, Quota, ResourceFlavor, Rules, Setup
from simsched_policies.kubernetes.kueue.queues import Waiting
from simsched_policies.kubernetes.kueue.tree import QuotaTree

from simsched.manifests import HOSTNAME, NodeFacts, Taint

OFFERED = {"gpu": ("f",), "cpu": ("f",)}


def nodes(*gpus: int) -> list[NodeFacts]:
    """Nodes of 8 cores, each with a label of its own kind; the last repels pods."""
    return [
        NodeFacts(
            f"n{i}",
            {HOSTNAME: f"n{i}", "kind": "odd" if i % 2 else "even"},
            (Taint("full", "yes", "NoSchedule"),) if i == len(gpus) - 1 else (),
            {"gpu": count, "cpu": 8000, "pods": 5},
        )
        for i, count in enumerate(gpus)
    ]


def shape(count: int, gpus: int, cpu: int, kind: str) -> PodSet:
    selector = (("kind", kind),) if kind else ()
    return PodSet("main", count, {"gpu": gpus, "cpu": cpu}, where=Constraints(selector))


shapes = st.builds(
    shape, st.integers(1, 12), st.integers(0, 4), st.sampled_from((0, 1000, 3500)), st.sampled_from(("", "even", "odd"))
)
moves = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3000)), max_size=12)


def fitting(pods: PodSet, free: list[dict[str, int]]) -> int:
    """Count by hand how many pods fit on the nodes that suit them."""
    found = 0
    for number, amounts in enumerate(free[:-1]):  # the last repels them
        kind = "odd" if number % 2 else "even"
        if not pods.where.selector or pods.where.selector == (("kind", kind),):
            asked = {**pods.requests, "pods": 1}
            found += max(0, min(amounts[name] // amount for name, amount in asked.items() if amount))
    return found


@settings(max_examples=60)
@given(st.lists(shapes, min_size=1, max_size=6), moves, moves)
def test_whether_pods_may_fit_is_known_as_if_counted_anew(wanted: list[PodSet], before: list, after: list) -> None:
    gpus = (4, 2, 8, 8)
    machines = Machines(nodes(*gpus), Setup(flavours={"f": ResourceFlavor("f")}))
    free = [{"gpu": count, "cpu": 8000, "pods": 5} for count in gpus]
    there: list[Pods] = []

    def move(steps: list) -> None:
        for node, count, cpu in steps:
            pods, sign = Pods(node, 1, {"gpu": count, "cpu": cpu}), -1
            if there and count == 3:
                pods, sign = there.pop(), 1
                machines.count([pods], -1)
            else:
                machines.count([pods], 1)
                there.append(pods)
            for name, amount in {**pods.requests, "pods": 1}.items():
                free[pods.node][name] += sign * amount

    move(before)
    watched = [(pods, machines.lacks([pods], OFFERED)) for pods in wanted]
    for pods, lacks in watched:
        assert (lacks is None) == (fitting(pods, free) >= pods.count)
    move(after)
    for pods, lacks in watched:
        if lacks is not None:
            assert machines.chances.hope(lacks) == (fitting(pods, free) >= pods.count)
            assert set(lacks) <= set(machines.chances.hopeful()) or not machines.chances.hope(lacks)


@pytest.mark.parametrize(("freed", "again"), [(1, []), (2, ["big"])])
def test_who_has_quota_and_no_room_is_tried_again_when_enough_pods_fit(freed: int, again: list[str]) -> None:
    setup = Setup(flavours={"f": ResourceFlavor("f")})
    queue = ClusterQueue("q", quotas={("f", "gpu"): Quota(100), ("f", "cpu"): Quota(100_000)})
    tree, machines = QuotaTree([queue]), Machines(nodes(4, 4, 8), setup)
    waiting = Waiting(tree, Rules())
    pods = [Pods(node, 1, {"gpu": 4, "cpu": 0}) for node in (0, 1)]
    machines.count(pods, 1)
    big, small = shape(2, 4, 0, ""), shape(1, 8, 0, "")
    for asking in (Asking("big", "q", (big,)), Asking("one", "q", (small,), created_s=1)):
        waiting.push(asking)
        waiting.hold(asking.id, (machines.chances, machines.lacks(asking.pod_sets, OFFERED) or []))
    assert waiting.heads() == []
    machines.count(pods[:freed], -1)
    waiting.wake("q")
    assert [one.asking.id for one in waiting.heads()] == again
    waiting.wake_all()  # nodes came or went: all are tried
    assert [one.asking.id for one in waiting.heads()] == ["big"]
