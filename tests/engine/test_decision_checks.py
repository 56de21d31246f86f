"""What a decision changes, and every reason for which it is refused, on a cluster set up by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import pytest

from simsched.engine.clock import Clock
from simsched.engine.state import ClusterState, JobState
from simsched.engine.validate import change_faults, changes_of, plain_changes, wish_faults
from simsched.model import Cluster, JobSpec, Node, NodeShape
from simsched.model.application import facts_of
from simsched.model.cluster import Level
from simsched.model.placement import Amount
from simsched.model.plans import Plan
from simsched.model.tabulated import FixedDuration
from simsched.model.topology import Route
from simsched.policy import CANCEL, Decision, Decline, Onto, Place, Stop

#: Two nodes of four t4 with eight cores and 100 MiB each, one of two a100, and one that is down.
CLUSTER = Cluster((
    Node(0, 4, "t4", cpu_milli=8000, memory_mib=100), Node(1, 4, "t4", cpu_milli=8000, memory_mib=100),
    Node(2, 2, "a100"), Node(3, 4, "t4"),
))  # fmt: skip
PLAIN = Cluster((Node(0, 4, "t4"), Node(1, 4, "t4"), Node(2, 2, "a100"), Node(3, 4, "t4")))


def world(held, *, cluster=PLAIN, sharing=1, shapes=None, asked=None):
    """Return active jobs that hold what is given, and the cluster without them and without its last node."""
    state, clock, active = ClusterState(cluster, 3, sharing), Clock(), {}
    for name, at in held.items():
        shape = (shapes or {}).get(name)
        gpus = (asked or {}).get(name, sum(count for _, count in at) or 2)
        spec = JobSpec(name, 0, gpus, duration_s=100, shape=shape)
        app = FixedDuration(100)
        job = active[name] = JobState(spec.request, spec.truth, app, facts_of(app, shape), clock, cluster)
        job.allocation, job.gpus = at, sum(count for _, count in at)
        if at:
            state.take(name, at)
            if shape is not None:
                state.count_beside(shape, at, 1)
    return active, state


def reasons(decision, active, state, *, rigid=False):
    """Return why a decision is refused, nothing where it is not; none that is counts as evidently possible."""
    evident = plain_changes(decision, active, state)
    wrong = list(wish_faults(decision, active, 4, 7))
    changes = None if wrong else changes_of(decision, active)
    wrong = wrong or change_faults(changes, active, state, rigid=rigid)
    assert evident is None or (evident.gpus, evident.actions, wrong) == (changes.gpus, changes.actions, [])
    return wrong


@pytest.mark.parametrize(
    ("decision", "changed"),
    [
        (Decision({"a": ((0, 2),), "b": ((0, 2),)}), {"b": ((0, 2),), "c": ()}),
        (Decision({}), {"a": (), "c": ()}),
        (Decision.change({"b": ((0, 2),)}), {"b": ((0, 2),)}),
        (Decision.change({"a": ((0, 2),)}), {}),
        (Decision.change({"a": Place(((0, 2),))}), {}),
        (Decision.change({"a": Place(((0, 2),), restart=True)}), {"a": ((0, 2),)}),
        (Decision.change({"b": Place((), restart=True)}), {}),
        (Decision.change({"a": Stop(saved=False), "b": Decline(((0, 1),))}), {"a": (), "b": ((0, 1),)}),
        (Decision.change({"a": CANCEL, "b": CANCEL}), {"a": ()}),
        (Decision.change({"b": Place(((1, 2),), more=(Onto("c"),)), "a": ((0, 1),)}), {"b": ((1, 2),), "a": ((0, 1),)}),
    ],
)
def test_what_a_decision_changes(decision, changed):
    active, _ = world({"a": ((0, 2),), "b": (), "c": ((1, 2),)})
    found = changes_of(decision, active)
    assert found.gpus == changed
    assert found.cancelled == [name for name, one in decision.jobs.items() if one is CANCEL]
    assert found.saves("a") is (decision.jobs.get("a") != Stop(saved=False))


def test_takeovers_come_last_and_share():
    active, _ = world({"a": ((0, 2),), "b": (), "c": ()})
    places = {"b": Place(((0, 2),), more=(Onto("a"),)), "c": ((1, 2),)}
    found = changes_of(Decision.change(places), active)
    assert list(found.gpus) == ["c", "b"]
    beside = {"b": Place(((0, 2),), more=(Onto("a"),)), "c": Place(((1, 2),), beside=("a",)), "a": Place(((0, 2),))}
    found = changes_of(Decision.change(beside), active)
    assert list(found.shared) == ["b", "c"]


@pytest.mark.parametrize(
    ("gpus", "said"),
    [
        (((0, 3),), []),
        (((0, 1), (1, 4)), []),
        (((0, 5),), ["node 0 (4 GPUs) is 2 GPUs short for jobs b"]),
        (
            ((1, 5), (0, 4)),
            ["node 0 (4 GPUs) is 1 GPUs short for jobs b", "node 1 (4 GPUs) is 1 GPUs short for jobs b"],
        ),
        (((4, 1),), ["job 'b': there is no node 4"]),
        (((-1, 1),), ["job 'b': there is no node -1"]),
        (((3, 1),), ["job 'b': node 3 is down"]),
        (((0, 0),), ["job 'b': 0 GPUs on node 0"]),
        (((0, 1), (1, 0)), ["job 'b': 0 GPUs on node 1"]),
        (((0, 1), (0, 1)), ["job 'b': a node is named twice in ((0, 1), (0, 1))"]),
        (((0, 1), (2, 1)), ["job 'b': GPU types are mixed in ((0, 1), (2, 1))"]),
        (((0, 1.0),), ["job 'b': 1.0 is not a whole number, as nodes and their GPUs are, in ((0, 1.0),)"]),
        (((0, True),), ["job 'b': True is not a whole number, as nodes and their GPUs are, in ((0, True),)"]),
    ],
)
def test_gpus_that_a_cluster_has_not_got(gpus, said):
    """a holds one GPU of the first node; b asks for as many as it is given."""
    active, state = world({"a": ((0, 1),), "b": ()}, asked={"b": sum(int(count) for _, count in gpus) or 1})
    assert reasons(Decision.change({"b": gpus}), active, state) == said


def test_what_jobs_give_back_can_be_given_to_others():
    active, state = world({"a": ((0, 4),), "b": ((1, 4),)})
    assert reasons(Decision.change({"a": ((1, 4),), "b": ((0, 4),)}), active, state) == []
    assert reasons(Decision({"a": ((1, 4),)}), active, state) == []
    assert reasons(Decision.change({"a": ((1, 4),)}), active, state) == ["node 1 (4 GPUs) is 4 GPUs short for jobs a"]


def test_a_rigid_policy_grants_what_is_asked_for_and_others_what_is_known():
    active, state = world({"a": ()}, asked={"a": 2})
    said = "job 'a' asked for 2 GPUs and is given 1"
    one = Decision.change({"a": ((0, 1),)})
    assert reasons(one, active, state, rigid=True) == [
        f"{said}, but the policy is rigid; declare Traits(rigid=False) if it may do so"
    ]
    assert reasons(one, active, state) == []
    active["a"].facts = SimpleNamespace(other_counts=False, plans=None)
    assert reasons(one, active, state) == [
        f"{said}, where its duration is not known; declare workload.speedup, or use a rigid policy"
    ]
    assert reasons(Decision.change({"a": ((0, 2),)}), active, state, rigid=True) == []


def two(cpu_milli, memory_mib):
    return NodeShape(1, Amount(2, cpu_milli=cpu_milli, memory_mib=memory_mib))


NOT_ALONE = "node 0 is to be one job's alone, and others hold some of it"
WITH_CORES = {
    "a": two(6000, 60),
    "b": two(2000, 40),
}


@pytest.mark.parametrize(
    ("shape", "at", "said"),
    [
        (two(2000, 40), ((0, 2),), []),
        (two(2500, 40), ((0, 2),), ["node 0 is 0.5 cores short, or another job's alone"]),
        (two(2000, 41), ((0, 2),), ["node 0 is 1 MiB of memory short"]),
        (two(8000, 100), ((1, 2),), []),
        (two(9000, 900), ((2, 2),), []),  # that node declares neither
        (NodeShape(1, Amount(2), exclusive=True), ((1, 2),), []),
        (NodeShape(1, Amount(2), exclusive=True), ((0, 2),), [NOT_ALONE]),
        (NodeShape(1, Amount(2), ("a100",)), ((2, 2),), []),
        (NodeShape(1, Amount(2), ("a100",)), ((0, 2),),
         ["job 'b' asked for 2 GPUs on each of 1 node of type a100 and is given 0:2 (node:GPUs) of type t4"]),
    ],
)  # fmt: skip
def test_cores_and_memory_that_nodes_have_not_got(shape, at, said):
    """a holds two GPUs of the first node with six of its eight cores and 60 of its 100 MiB."""
    active, state = world({"a": ((0, 2),), "b": ()}, cluster=CLUSTER, shapes={"a": WITH_CORES["a"], "b": shape})
    assert reasons(Decision.change({"b": at}), active, state, rigid=True) == said
    assert reasons(Decision({"b": at}), active, state, rigid=True) == [one for one in said if "asked" in one]


def test_an_exclusive_job_keeps_others_off_its_node():
    for cluster, b in product((CLUSTER, PLAIN), (WITH_CORES["b"], None)):
        shapes = {"a": NodeShape(1, Amount(2), exclusive=True), "b": b}
        active, state = world({"a": ((0, 2),), "b": ()}, cluster=cluster, shapes=shapes)
        said = reasons(Decision.change({"b": ((0, 2),)}), active, state)
        assert len(said) == 1
        assert said[0].endswith("cores short, or another job's alone")
        assert reasons(Decision.change({"b": ((1, 2),)}), active, state) == []


@pytest.mark.parametrize(
    ("shape", "at"),
    [
        (None, ((0, 1),)),  # takes no cores
        (NodeShape(1, Amount(0, cpu_milli=1)), ((0, 0),)),  # takes no GPUs
    ],
)
def test_a_node_of_which_others_hold_anything_is_not_to_be_had_alone(shape, at):
    shapes = {"b": NodeShape(1, Amount(2), exclusive=True)} | ({"a": shape} if shape else {})
    active, state = world({"a": at, "b": ()}, cluster=CLUSTER, shapes=shapes, asked={"a": at[0][1], "b": 2})
    assert reasons(Decision.change({"b": ((0, 2),)}), active, state) == [NOT_ALONE]
    assert reasons(Decision.change({"b": ((1, 2),)}), active, state) == []
    assert reasons(Decision.change({"a": (), "b": ((0, 2),)}), active, state) == []


@pytest.mark.parametrize(
    ("paths", "there"),
    [((0, 0), True), ((1, 2), True), ((2, 0), False), ((0, 3), False), ((-1, 0), False), ((0,), False), ((), False),
     ((0, 0, 0), False)],
)  # fmt: skip
def test_paths_that_uplinks_have_not(paths, there):
    """Two of each leaf, three of each spine."""
    levels = (Level("leaf", ((0, 1), (2, 3)), paths=2), Level("spine", ((0, 1, 2, 3),), paths=3))
    active, state = world({"a": ()}, cluster=replace(PLAIN, levels=levels))
    said = f"job 'a' is to take the paths {paths}, and the levels of the cluster have (2, 3)"
    assert reasons(Decision.change({"a": Place(((0, 2),), more=(Route(paths=paths),))}), active, state) == (
        [] if there else [said]
    )


def test_terms_that_no_physics_understands():
    active, state = world({"a": ()})
    said = ["job 'a' is placed with 'fast', and a term is an Onto, a Guarantee or a Route"]
    assert reasons(Decision.change({"a": Place(((0, 2),), more=("fast",))}), active, state) == said


WITH = "job 'b' is to share GPUs with job"


@pytest.mark.parametrize(
    ("jobs", "said"),
    [
        ({"b": Place(((0, 2),), beside=("a",))}, []),
        ({"b": Place(((0, 2),), more=(Onto("a"),))}, []),
        ({"b": Place(((0, 1),), more=(Onto("a"),))}, ["job 'b': it is to get the GPUs of job 'a', which are others"]),
        ({"b": ((0, 3),)}, ["job 'b': node 0 has 2 free GPUs and 0 to share, 3 are wanted"]),
        ({"b": Place(((0, 2),), beside=("c",))}, [f"{WITH} 'c', which does not run"]),
        ({"b": Place(((0, 2),), beside=("ghost",))}, [f"{WITH} 'ghost', which does not run"]),
        ({"b": Place(((0, 2),), more=(Onto("c"),))}, [f"{WITH} 'c', which does not run"]),
        ({"a": Stop(), "b": Place(((0, 2),), beside=("a",))}, [f"{WITH} 'a', which does not run"]),
        ({"b": Place(((0, 2),), more=(Onto("a"),)), "c": Place(((0, 2),), more=(Onto("b"),))},
         ["job 'c' is to get the GPUs of job 'b', which is to get those of a third"]),
    ],
)  # fmt: skip
def test_gpus_that_cannot_be_shared(jobs, said):
    active, state = world({"a": ((0, 2),), "b": (), "c": ()}, sharing=2, asked={"b": 2, "c": 2})
    assert reasons(Decision.change(jobs), active, state) == said


def test_gpus_are_not_shared_where_that_is_off():
    active, state = world({"a": ((0, 2),), "b": ()})
    said = ["job 'b' is to share GPUs, which engine.sharing.max_jobs does not allow"]
    assert reasons(Decision.change({"b": Place(((0, 2),), more=(Onto("a"),))}), active, state)[:1] == said


def test_plans_that_a_job_does_not_know():
    active, state = world({"a": (), "b": ()})
    plan = Plan(data=2)
    said = "job 'a' is to run the plan 't1 p1 d2', and fixed-duration knows no plans"
    assert reasons(Decision.change({"a": Place(((0, 2),), plan=plan)}), active, state) == [said]
    refusal = SimpleNamespace(
        refusal=lambda plan, kind, gpus, batch: f"no {plan} on {gpus} {kind}" if kind == "t4" else None
    )
    active["a"].facts = SimpleNamespace(plans=refusal, other_counts=True)
    found = reasons(Decision.change({"a": Place(((0, 1), (1, 1)), plan=plan)}), active, state)
    assert found == ["job 'a' cannot run the plan 't1 p1 d2': no t1 p1 d2 on 2 t4"]
    assert reasons(Decision.change({"a": Place(((2, 2),), plan=plan)}), active, state) == []
    assert reasons(Decision.change({"a": Place(((4, 2),), plan=plan)}), active, state) == [
        "job 'a': there is no node 4"
    ]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"wake_at_s": 8}, None),
        ({"wake_at_s": 7}, "wake_at_s=7 is no time in the future"),
        ({"wake_at_s": float("inf")}, "wake_at_s=inf is no time in the future"),
        ({"nodes": (0, 3)}, None),
        ({"nodes": (4,)}, "there are no other nodes to provision than 0 to 3"),
        ({"nodes": (-1,)}, "there are no other nodes to provision than 0 to 3"),
        ({"nodes": (True,)}, "there are no other nodes to provision than 0 to 3"),
        ({"watch": {"a": 15}}, None),
        ({"watch": {"a": 14}}, "job 'a' is watched for 14 GPU-s, but has attained 14 already"),
        ({"watch": {"ghost": 1}}, "job 'ghost' is not active"),
    ],
)
def test_wishes_that_cannot_be_met(more, said):
    """a has held two GPUs for seven seconds."""
    active, _ = world({"a": ((0, 2),)})
    active["a"].clock.now = 7
    decision = Decision.change({}, **more)
    assert list(wish_faults(decision, active, 4, 7)) == ([] if said is None else [said])
