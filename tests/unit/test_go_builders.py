"""The builders of Kueue's tests: every method that is declared is read as declared, and no other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from simsched_policies.production.go_values import GoFile
from simsched_policies.production.kueue import go_objects, go_queues, go_schedule, go_topology, go_workloads
from simsched_policies.production.kueue.go_builders import BUILDERS

from simsched.errors import InputError

Read = Callable[[Any], Any]

_NODES = 'corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "k", Operator: "Exists"}}}'
_PREFERRED = f"corev1.PreferredSchedulingTerm{{Weight: 1, Preference: {_NODES}}}"
_PLACE = 'b.MakeTopologyAssignment([]string{"rack"}).Domain(b.MakeTopologyDomainAssignment([]string{"r1"}, 1).Obj())'
_HELD = f'b.MakePodSetAssignment("p").Assignment("cpu", "f", "2").Count(2).TopologyAssignment({_PLACE}.Obj()).Obj()'
_STATE = "kueue.AdmissionCheckState{State: kueue.CheckStateRetry}"
_EVICTION = "metav1.Condition{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue}"

#: How each builder starts, what reads it, and a call of each method that must change what is read; a call that is
#: written with its builder is another start.
EXAMPLES: Mapping[str, tuple[str, Read, Mapping[str, str]]] = {
    "workload": (
        'b.MakeWorkload("w", "ns").Queue("lq").Request("cpu", "1")',
        lambda value: go_workloads.workload(value, {"ns/lq": "cq", "ns/other": "cq2"}),
        {
            "MakeWorkloadWithGeneratedUID": 'b.MakeWorkloadWithGeneratedUID("w", "ns2")',
            "Name": '"other"',
            "Queue": '"other"',
            "Active": "false",
            "Priority": "3",
            "Creation": "now.Add(time.Second)",
            "PodSets": '*b.MakePodSet("one", 2).Obj()',
            "Request": '"cpu", "2"',
            "Limit": '"memory", "1"',
            "RequestAndLimit": '"cpu", "2"',
            "Toleration": 'corev1.Toleration{Key: "k"}',
            "NodeSelector": 'map[string]string{"k": "v"}',
            "PreemptionGate": '"g"',
            "PreemptionGates": '"g"',
            "ReclaimablePods": 'kueue.ReclaimablePod{Name: "main", Count: 1}',
            "ReserveQuota": 'b.MakeAdmission("cq").Assignment("cpu", "f", "1").Obj()',
            "ReserveQuotaAt": 'b.MakeAdmission("cq").Assignment("cpu", "f", "1").Obj(), now',
            "Admission": 'b.MakeAdmission("cq").Assignment("cpu", "f", "1").Obj()',
            "SimpleReserveQuota": '"cq", "f", now',
            "QuotaReservedTime": "now.Add(time.Second)",
            "Annotation": '"kueue.x-k8s.io/admission-gated-by", "me"',
            "Annotations": 'map[string]string{kueue.WorkloadSliceReplacementFor: "old"}',
            "UnhealthyNodes": 'b.MakeWorkload("w", "ns").Admission(b.MakeAdmission("cq").Obj()).UnhealthyNodes("x1")',
            "AdmissionCheck": _STATE,
            "AdmissionChecks": _STATE,
            "Condition": _EVICTION,
            "Conditions": _EVICTION,
            "SetOrReplaceCondition": _EVICTION,
            "Evicted": "",
            "EvictedAt": "now",
            "Finished": "",
            "FinishedAt": "now",
            "RequeueState": "1, metav1.NewTime(now.Add(time.Minute))",
            "OwnerReference": 'corev1.SchemeGroupVersion.WithKind("Pod"), "o", "u"',
            "ControllerReference": 'corev1.SchemeGroupVersion.WithKind("Pod"), "o", "u"',
        },
    ),
    "admission": (
        'b.MakeAdmission("cq", "p", "q").Assignment("cpu", "f", "1")',
        go_workloads.admission,
        {
            "PodSets": _HELD,
            "Assignment": '"cpu", "g", "1"',
            "AssignmentWithIndex": '1, "cpu", "g", "1"',
            "AssignmentPodCount": "2",
            "AssignmentPodCountWithIndex": "1, 2",
            "TopologyAssignment": f"{_PLACE}.Obj()",
            "DelayedTopologyRequest": "kueue.DelayedTopologyRequestStatePending",
        },
    ),
    "assignment of a pod set": (
        'b.MakeAdmission("cq").PodSets(b.MakePodSetAssignment("p").Assignment("cpu", "f", "2")',
        go_workloads.admission,
        {
            "Assignment": '"cpu", "g", "1"',
            "Flavor": '"cpu", "g"',
            "ResourceUsage": '"cpu", "1"',
            "Count": "2",
            "AssignmentPodCount": "2",
            "TopologyAssignment": f"{_PLACE}.Obj()",
            "DelayedTopologyRequest": "kueue.DelayedTopologyRequestStatePending",
        },
    ),
    "topology assignment": (
        _PLACE,
        go_objects.assignment,
        {
            "Levels": '"block", "rack"',
            "Domain": 'b.MakeTopologyDomainAssignment([]string{"r2"}, 1).Obj()',
            "Domains": 'b.MakeTopologyDomainAssignment([]string{"r2"}, 1).Obj()',
        },
    ),
    "domain": (
        'b.MakeTopologyDomainAssignment([]string{"r1"}, 1)',
        go_objects.domain,
        {"Count": "2", "Values": '"r2"'},
    ),
    "pod set": (
        'b.MakePodSet("p", 2).Request("cpu", "1")',
        go_queues.pod_set,
        {
            "Request": '"cpu", "2"',
            "Limit": '"memory", "1"',
            "RequestAndLimit": '"cpu", "2"',
            "SetMinimumCount": "1",
            "NodeSelector": 'map[string]string{"k": "v"}',
            "Toleration": 'corev1.Toleration{Key: "k"}',
            "PodSetGroup": '"g"',
            "Containers": '*b.MakeContainer().WithResourceReq("cpu", "1").Obj()',
            "Affinity": "&corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{"
            "RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{"
            f"NodeSelectorTerms: []corev1.NodeSelectorTerm{{{_NODES}}}}}}}}}",
            "RequiredDuringSchedulingIgnoredDuringExecution": f"[]corev1.NodeSelectorTerm{{{_NODES}}}",
            "PreferredDuringSchedulingIgnoredDuringExecution": f"[]corev1.PreferredSchedulingTerm{{{_PREFERRED}}}",
            "RequiredTopologyRequest": '"rack"',
            "PreferredTopologyRequest": '"rack"',
            "UnconstrainedTopologyRequest": "",
            "SliceRequiredTopologyRequest": '"rack"',
            "SliceSizeTopologyRequest": "2",
            "PodSetSliceRequiredTopology": '"rack"',
            "PodSetSliceSize": "2",
            "SliceRequiredTopologyConstraints": 'kueue.Constraint{Topology: "rack", Size: 2}',
            "PodsetSliceRequiredTopologyConstraints": 'kueue.Constraint{Topology: "rack", Size: 2}',
            "PodOverHead": 'corev1.ResourceList{"cpu": resource.MustParse("1")}',
        },
    ),
    "container": (
        'b.MakePodSet("p", 1).Containers(*b.MakeContainer().WithResourceReq("cpu", "1")',
        go_queues.pod_set,
        {
            "SingleContainerForRequest": 'b.MakePodSet("p", 1).'
            'Containers(b.SingleContainerForRequest(map[string]string{"cpu": "2"})...)',
            "WithResourceReq": '"cpu", "2"',
            "WithResourceLimit": '"memory", "2"',
        },
    ),
    "cluster queue": (
        'b.MakeClusterQueue("cq")',
        go_queues.cluster_queue,
        {
            "Name": '"other"',
            "Cohort": '"all"',
            "ResourceGroup": '*b.MakeFlavorQuotas("f").Resource("cpu", "1").Obj()',
            "Preemption": "kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}",
            "FlavorFungibility": "kueue.FlavorFungibility{WhenCanBorrow: kueue.TryNextFlavor}",
            "FairWeight": 'resource.MustParse("2")',
            "QueueingStrategy": "kueue.StrictFIFO",
            "NamespaceSelector": 'metav1.LabelSelector{MatchLabels: map[string]string{"k": "v"}}',
            "StopPolicy": "kueue.Hold",
            "AdmissionChecks": '"c"',
            "AdmissionCheckStrategy": '*b.MakeAdmissionCheckStrategyRule("c", "f").Obj()',
            "AdmissionChecksStrategy": 'kueue.AdmissionCheckStrategyRule{Name: "c"}',
        },
    ),
    "check rule": (
        'b.MakeClusterQueue("cq").AdmissionCheckStrategy(*b.MakeAdmissionCheckStrategyRule("c")',
        go_queues.cluster_queue,
        {"OnFlavors": '"f"'},
    ),
    "cohort": (
        'b.MakeCohort("c")',
        go_queues.cohort,
        {
            "Parent": '"p"',
            "ResourceGroup": '*b.MakeFlavorQuotas("f").Resource("cpu", "1").Obj()',
            "FairWeight": 'resource.MustParse("2")',
        },
    ),
    "flavor quotas": (
        'b.MakeFlavorQuotas("f").ResourceQuotaWrapper("cpu")',
        go_queues.flavour_quotas,
        {
            "Resource": '"memory", "1", "2", "3"',
            "ResourceQuotaWrapper": '"memory"',
            "NominalQuota": '"1"',
            "BorrowingLimit": '"1"',
            "LendingLimit": '"1"',
        },
    ),
    "resource flavor": (
        'b.MakeResourceFlavor("f")',
        go_queues.flavour,
        {
            "NodeLabel": '"k", "v"',
            "NodeLabels": 'map[string]string{"k": "v"}',
            "Taint": 'corev1.Taint{Key: "k", Effect: corev1.TaintEffectNoSchedule}',
            "Toleration": 'corev1.Toleration{Key: "k"}',
            "TopologyName": '"t"',
        },
    ),
    "topology": (
        'b.MakeTopology("t")',
        go_schedule.topology,
        {
            "Levels": '"block", "rack"',
            "MakeDefaultOneLevelTopology": 'b.MakeDefaultOneLevelTopology("t")',
            "MakeDefaultTwoLevelTopology": 'b.MakeDefaultTwoLevelTopology("t")',
            "MakeDefaultThreeLevelTopology": 'b.MakeDefaultThreeLevelTopology("t")',
        },
    ),
    "node": (
        'b.MakeNode("n").Ready()',
        go_objects.node,
        {
            "Name": '"m"',
            "Label": '"k", "v"',
            "Labels": 'map[string]string{"k": "v"}',
            "StatusAllocatable": 'corev1.ResourceList{"cpu": resource.MustParse("1")}',
            "StatusConditions": "corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse}",
            "NotReady": "",
            "Unschedulable": "",
            "Taints": 'corev1.Taint{Key: "k"}',
        },
    ),
    "pod": (
        'b.MakePod("p", "ns")',
        go_topology.pod,
        {
            "NodeName": '"n"',
            "Request": '"cpu", "1"',
            "Limit": '"cpu", "1"',
            "RequestAndLimit": '"cpu", "1"',
            "StatusPhase": "corev1.PodFailed",
            "Label": 'kueue.TASLabel, "true"',
            "Annotation": 'kueue.PodSetRequiredTopologyAnnotation, "rack"',
        },
    ),
    "local queue": (
        'b.MakeLocalQueue("lq", "ns").ClusterQueue("cq")',
        go_schedule.local_queue,
        {"ClusterQueue": '"other"', "StopPolicy": "kueue.Hold"},
    ),
    "namespace": (
        'b.MakeNamespace("ns")',
        go_schedule.namespace_of,
        {"MakeNamespaceWrapper": 'b.MakeNamespaceWrapper("other")', "Label": '"k", "v"'},
    ),
    "limit range": ('b.MakeLimitRange("l", "ns")', go_schedule.limit_range, {"WithValue": '"Max", "cpu", "1"'}),
    "admission check": (
        'b.MakeAdmissionCheck("c")',
        go_schedule.admission_check,
        {
            "ControllerName": "kueue.ProvisioningRequestControllerName",
            "Active": "metav1.ConditionFalse",
            "Condition": "metav1.Condition{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionFalse}",
        },
    ),
}
#: What only keeps the reader from refusing: a bound is one of containers, a node of the examples is ready.
_AS_BEFORE = {("limit range", "WithType"), ("node", "Ready")}


def read(of: str, text: str) -> Any:
    """Return what a builder's text is read as; the calls around it, if any, are closed."""
    ends = ")" * (text.count("(") - text.count(")"))
    file = GoFile(f"package p\nvar now = 0\nvar made = {text}{ends}\n", go_objects.KNOWN)
    return EXAMPLES[of][1](file.globals["made"])


def test_every_method_that_is_declared_as_read_has_an_example() -> None:
    for of, builder in BUILDERS.items():
        if of != "candidate":  # whose only words are those of the public table
            start, _, examples = EXAMPLES[of]
            assert set(examples) <= builder.read, of
            left = {name for name in builder.read - set(examples) if (of, name) not in _AS_BEFORE and name[0] != "."}
            assert all(f"{name}(" in start for name in left), (of, left)


@pytest.mark.parametrize("of", EXAMPLES)
def test_a_method_that_is_read_changes_what_is_read(of: str) -> None:
    start, _, examples = EXAMPLES[of]
    for method, given in examples.items():
        text = given if f".{method}(" in given else f"{start}.{method}({given})"
        assert read(of, text) != read(of, start), method


@pytest.mark.parametrize("of", EXAMPLES)
def test_a_method_without_part_in_an_outcome_changes_nothing(of: str) -> None:
    start = EXAMPLES[of][0]
    for method in BUILDERS[of].idle:
        assert read(of, f"{start}.{method}(1)") == read(of, start), method


@pytest.mark.parametrize("of", EXAMPLES)
def test_a_method_that_is_not_read_is_refused_by_its_name(of: str) -> None:
    for method, why in {**BUILDERS[of].refused, "Colour": "is not known"}.items():
        with pytest.raises(InputError, match=f"{method} of a {of} .*{why}"):
            read(of, f"{EXAMPLES[of][0]}.{method}(1)")
