"""Nodes and pods of manifests: what a node offers, what a pod asks for and where it may go; worked by hand."""

from __future__ import annotations

import pytest

from simsched.manifests import (
    HOSTNAME,
    Account,
    Expression,
    NodeFacts,
    Taint,
    Toleration,
    in_service,
    is_gpu,
    label_selector,
    levels_of,
    node_groups,
    read_nodes,
    read_workloads,
    refuse_idle,
    taints,
    tolerations,
)
from simsched.manifests.fields import Fields
from simsched.manifests.objects import Object


def account_of(kind, data, read):
    account = Account()
    return read([Object(kind, "", "x", "a", data, "x.yaml", 1)], account), account


def node_of(status=None, spec=None, **metadata):
    data = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec or {},
            "status": {"allocatable": {"nvidia.com/gpu": 4}, **(status or {})}}  # fmt: skip
    return account_of("Node", data, read_nodes)


def ready(status):
    pressure = {"type": "DiskPressure", "status": "False", "reason": "KubeletHasNoDiskPressure"}
    return {"conditions": [pressure, {"type": "Ready", "status": status, "lastHeartbeatTime": "x"}, pressure]}


@pytest.mark.parametrize(
    ("status", "spec", "is_ready", "cordoned"),
    [
        ({}, {}, True, False),
        (ready("True"), {"unschedulable": False}, True, False),
        (ready("Unknown"), {}, False, False),
        (ready("True"), {"unschedulable": True}, True, True),
    ],
)
def test_a_node_takes_pods_where_it_is_ready_and_not_cordoned(status, spec, is_ready, cordoned):
    (node,), account = node_of(status, spec)
    assert (node.ready, node.cordoned, node.takes_pods) == (is_ready, cordoned, is_ready and not cordoned)
    assert in_service([node]) == ([node] if is_ready and not cordoned else [])
    assert (account.problems, account.unread) == ([], {})


def test_what_does_not_matter_of_a_node_is_passed_over_and_the_rest_is_noted():
    (node,), account = node_of(
        {"capacity": {}, "nodeInfo": {}}, {"podCIDR": "x", "podCIDRs": [], "providerID": "x", "externalID": "y"},
        name="x", uid="1", resourceVersion="2", creationTimestamp=None, managedFields=[], generation=3, finalizers=[],
    )  # fmt: skip
    assert (account.problems, account.unread) == ([], {})
    assert (node.name, node.gpus, in_service([NodeFacts("cpus")])) == ("x", 4, [])
    _, account = node_of({}, {"configSource": {}})
    assert list(account.unread) == [("Node", "spec.configSource")]
    _, account = account_of("Node", {"metadata": {}}, read_nodes)
    assert [problem.message.rpartition(", ")[2] for problem in account.problems] == [
        "status: is missing", "status.allocatable: is missing",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("count", "names"),
    [("1", ["x-0"]), ("2", ["x-0", "x-1"]), ("0", None), ("-1", None), ("two", None), ("100001", None)],
)
def test_a_node_may_stand_for_several(count, names):
    found, account = node_of(annotations={"simsched/count": count}, labels={"rack": "r"})
    if names is None:
        assert "is not a number from 1 to 100000" in account.problems[0].message
        names = ["x-0"]
    assert [node.name for node in found] == names
    assert [dict(node.labels) for node in found] == [{"rack": "r", HOSTNAME: name} for name in names]


@pytest.mark.parametrize(
    ("labels", "gpu_type"),
    [
        ({}, "gpu"),
        ({"gpu-type": "a"}, "a"),
        ({"gpu-type": "a", "nvidia.com/gpu.product": "b"}, "b"),
        ({"amd.com/gpu.product-name": "c", "cloud.google.com/gke-accelerator": "d"}, "d"),
    ],
)
def test_types_of_gpus_are_those_of_the_first_label_that_is_known(labels, gpu_type):
    assert NodeFacts("x", labels).gpu_type == gpu_type


def test_gpus_are_counted_whoever_makes_them():
    assert [is_gpu(name) for name in ("nvidia.com/gpu", "amd.com/gpu", "gpu", "nvidia.com/gpu.shared", "cpu")] == [
        True, True, True, False, False,
    ]  # fmt: skip
    assert NodeFacts("x", {}, (), {"nvidia.com/gpu": 2, "amd.com/gpu": 3, "cpu": 8}).gpus == 5


@pytest.mark.parametrize(
    ("cpu", "memory", "cores", "memory_gb"),
    [(1000, 1 << 30, 1, 1.0), (1001, (1 << 30) + (1 << 20), 2, 1025 / 1024), (1, 1, 1, 1 / 1024)],
)
def test_groups_of_nodes_have_whole_cores_and_mebibytes(cpu, memory, cores, memory_gb):
    node = NodeFacts("x", {}, (), {"cpu": cpu, "memory": memory, "gpu": 8})
    group = {"gpus_per_node": 8, "gpu_type": "any", "cores_per_node": cores, "memory_gb_per_node": memory_gb}
    other = NodeFacts("y", {"gpu-type": "h"}, (), node.allocatable)
    assert node_groups([node, other, node], "any") == [{"nodes": 3, **group}]
    assert [(one["nodes"], one["gpu_type"]) for one in node_groups([node, other, node, node])] == [
        (1, "gpu"), (1, "h"), (2, "gpu"),
    ]  # fmt: skip


def topology(name, *labels):
    data = {"spec": {"levels": [{"nodeLabel": label} for label in labels]}}
    return Object("Topology", "", name, "", data, "t.yaml", 1)


def test_levels_are_those_of_the_first_topology_whose_labels_all_nodes_have():
    nodes = [NodeFacts(f"n{place}", {"x.com/block": block, "rack": rack, HOSTNAME: f"n{place}"})
             for place, (block, rack) in enumerate([("a", "1"), ("a", "2"), ("b", "1"), ("a", "1")])]  # fmt: skip
    own = topology("own", "x.com/block", "rack", HOSTNAME)
    found = levels_of(
        [topology("other", "zone", "rack"), topology("hosts", HOSTNAME), own, topology("x", "rack")], nodes
    )
    # Racks of one name in two blocks are two racks.
    assert found == [{"level": "rack", "domains": [[0, 3], [1], [2]]}, {"level": "block", "domains": [[0, 1, 3], [2]]}]
    assert levels_of([topology("own", "rack")], [*nodes, NodeFacts("bare")]) == []
    assert levels_of([topology("own", "rack")], []) == []


def read_pod(spec, **metadata):
    (one,), account = account_of("Pod", {"metadata": metadata, "spec": spec}, read_workloads)
    return one.pod_sets[0].template, account


def container(**resources):
    return {"resources": {"requests": resources}}


@pytest.mark.parametrize(
    ("spec", "requests"),
    [
        ({"containers": [container(cpu=1), container(cpu=2, gpu=1)]}, {"cpu": 3000, "gpu": 1}),
        ({"containers": [{"resources": {"requests": {"cpu": 1}, "limits": {"cpu": 1, "gpu": 2}}}]},
         {"cpu": 1000, "gpu": 2}),
        # Init containers run one by one before the others, sidecars beside all that come later.
        ({"containers": [container(cpu=1)], "initContainers": [container(cpu=3)]}, {"cpu": 3000}),
        ({"containers": [container(cpu=4)], "initContainers": [container(cpu=3)]}, {"cpu": 4000}),
        ({"containers": [container(cpu=1)], "initContainers": [container(cpu=1) | {"restartPolicy": "Always"},
                                                               container(cpu=3)]}, {"cpu": 4000}),
        ({"containers": [container(cpu=1)], "initContainers": [container(cpu=3),
                                                               container(cpu=1) | {"restartPolicy": "Always"}]},
         {"cpu": 3000}),
        ({"containers": [container(cpu=1)], "initContainers": [container(cpu=2) | {"restartPolicy": "Always"},
                                                               container(cpu=2) | {"restartPolicy": "Always"}]},
         {"cpu": 5000}),
        # Requests of the pod itself count before its containers', and overhead comes on top.
        ({"containers": [container(cpu=1, gpu=1)], "resources": {"requests": {"cpu": 6}}, "overhead": {"cpu": 1}},
         {"cpu": 7000, "gpu": 1}),
    ],
)  # fmt: skip
def test_requests_of_pods(spec, requests):
    template, account = read_pod(spec)
    assert (template.requests, account.problems) == (requests, [])


def test_a_pod_that_asks_for_more_than_its_limit_is_told():
    _, account = read_pod({"containers": [{"resources": {"requests": {"cpu": 3}, "limits": {"cpu": "2999m"}}}]})
    assert [str(problem) for problem in account.problems] == [
        "x.yaml: document 1, Pod a/x, spec.containers[0].resources.requests: asks for more of cpu than its limit; "
        "raise the limit, or ask for less"
    ]


def test_where_a_pod_may_go():
    required = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "NotIn", "values": ["a", "b"]}]},
                                      {"matchExpressions": [{"key": "l", "operator": "Exists"}]}]}  # fmt: skip
    preferred = [{"weight": 7, "preference": {"matchExpressions": [{"key": "m", "operator": "Gt", "values": ["1"]}]}},
                 {"preference": {}}]  # fmt: skip
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required,
                                 "preferredDuringSchedulingIgnoredDuringExecution": preferred}}  # fmt: skip
    template, account = read_pod(
        {"containers": [{}], "affinity": affinity, "nodeSelector": {"n": "o"}, "priorityClassName": "p"},
        annotations={"q": "r"},
    )
    assert template.affinity == ((Expression("k", "NotIn", ("a", "b")),), (Expression("l", "Exists"),))
    assert template.preferred == ((7, (Expression("m", "Gt", ("1",)),)), (1, ()))
    assert (template.selector, template.priority_class, template.notes) == ({"n": "o"}, "p", {"q": "r"})
    assert account.problems == []
    plain, _ = read_pod({"containers": [{}]})
    assert (plain.affinity, plain.preferred, plain.tolerations, plain.requests) == (None, (), (), {})
    wrong, account = read_pod({"containers": [{}], "affinity": {"nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 0}]}}})  # fmt: skip
    assert wrong.preferred == ((1, ()),)
    assert [problem.message.rpartition("[0].")[2] for problem in account.problems] == [
        "weight: must be at least 1, not 0", "preference: is missing",
    ]  # fmt: skip


def spec_of(**data):
    account = Account()
    return Fields(Object("Node", "", "x", "", {"spec": data}, "x.yaml", 1), account).part("spec"), account


def test_taints_and_what_tolerates_them():
    spec, account = spec_of(taints=[{"key": "a", "effect": "NoExecute", "timeAdded": None}, {"value": "b"},
                                    {"key": "c", "value": "d", "effect": "Never"}])  # fmt: skip
    assert taints(spec, "taints") == (
        Taint("a", "", "NoExecute"), Taint("", "b", "NoSchedule"), Taint("c", "d", "NoSchedule"),
    )  # fmt: skip
    assert [problem.message.partition("spec.")[2] for problem in account.problems] == [
        "taints[1].effect: is missing", "taints[1].key: is missing",
        "taints[2].effect: must be one of NoSchedule, PreferNoSchedule, NoExecute, not 'Never'",
    ]  # fmt: skip
    assert list(spec.left()) == []
    spec, account = spec_of(tolerations=[{"key": "a", "tolerationSeconds": 3}, {"operator": "Exists", "effect": ""},
                                         {"key": "b", "value": "c", "effect": "NoExecute"}])  # fmt: skip
    assert tolerations(spec) == (
        Toleration("a", "Equal", "", ""), Toleration("", "Exists", "", ""), Toleration("b", "Equal", "c", "NoExecute"),
    )  # fmt: skip
    assert account.problems == []


def test_a_label_selector_has_labels_and_expressions():
    spec, account = spec_of(matchLabels={"a": "b"}, matchExpressions=[{"key": "c", "operator": "DoesNotExist"}])
    assert label_selector(spec) == (Expression("a", "In", ("b",)), Expression("c", "DoesNotExist"))
    empty, account = spec_of()
    assert (label_selector(empty), account.problems) == ((), [])


def noted(*fields):
    """An account of fields of jobs that nobody read, each given as the name of its job and its path."""
    account = Account()
    owners = {name: Object("Job", "batch", name, "a", {}, "j.yaml", number)
              for number, name in enumerate(dict.fromkeys(name for name, _ in fields), 1)}  # fmt: skip
    for name, path in fields:
        account.note(owners[name], path)
    return account


def test_fields_that_would_change_the_outcome_are_problems_unless_they_are_let_pass(recwarn):
    fields = (("p", ("spec", "parts", 0, "x")), ("p", ("spec", "parts", 1, "x")), ("q", ("spec", "parts", 2, "x")),
              ("q", ("spec", "y")), ("q", ("spec", "z")))  # fmt: skip

    def decides(kind, path):
        return "changes it" if path != "spec.z" else ""

    account = noted(*fields)
    assert account.judge(decides, ["Job.spec.y", "spec.other"]) == {"Job.spec.y"}
    assert [str(problem) for problem in account.problems] == [
        "j.yaml: document 1, Job a/p, spec.parts[0].x: changes it (and in 1 more); "
        "take it out, or let it pass with --allow Job.spec.parts[].x"
    ]
    assert [str(one.message) for one in recwarn] == ["1 Job: fields that are not modelled: spec.y, spec.z"]
    account = noted(*fields[:1], *fields[3:])
    assert account.judge(decides, ["spec.parts[].x", "spec.y"]) == {"spec.parts[].x", "spec.y"}
    assert account.problems == []
    account = noted(fields[0])
    assert account.judge(decides) == set()
    assert [problem.message.endswith("spec.parts[0].x: changes it") for problem in account.problems] == [True]


def test_names_that_let_nothing_pass_are_problems():
    account = noted(("p", ("spec", "parallel")))
    refuse_idle(["spec.parallel", "Job.spec.parallel", "spec.paralel"], [account, noted(("q", ("spec", "other")))])
    assert [str(problem) for problem in account.problems] == [
        "--allow spec.paralel: names no field of these objects that is not modelled; did you mean 'spec.parallel'?"
    ]
    bare = Account()
    refuse_idle(["x"], [bare])
    assert [problem.remedy for problem in bare.problems] == ["leave it out"]


def test_of_levels_with_the_same_domains_only_the_lowest_counts():
    levels = {"levels": [{"nodeLabel": "block"}, {"nodeLabel": "rack"}, {"nodeLabel": HOSTNAME}]}
    one = Object("Topology", "kueue.x-k8s.io", "t", "", {"kind": "Topology", "spec": levels}, "f", 1)
    nodes = [NodeFacts(f"n{i}", {"block": f"b{i // 2}", "rack": f"r{i // 2}"}) for i in range(4)]
    assert levels_of([one], nodes) == [{"level": "rack", "domains": [[0, 1], [2, 3]]}]
