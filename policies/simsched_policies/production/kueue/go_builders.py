"""The methods of the builders of Kueue's tests: which are read, irrelevant to the outcome, or refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from simsched.errors import input_error
from simsched_policies.production.go_values import Call, Composite

#: Steps of a chain that change nothing: the end, a copy, the object inside a builder.
_SAME = {"Obj", "Clone", "DeepCopy", ".Workload", ".Cohort", ".ClusterQueue", ".ResourceFlavor", ".Topology", ".Node",
         ".Pod", ".PodSet", ".LocalQueue", ".Namespace"}  # fmt: skip


@dataclass(frozen=True)
class Builder:
    """The methods of a builder by name: those that are `read`, those that are `idle`, and why others are refused."""

    read: frozenset[str]
    idle: frozenset[str] = frozenset()
    refused: Mapping[str, str] = field(default_factory=dict)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LEAVES = "an object that is being deleted is not modelled"
_DEVICES = "devices that are claimed one by one are not modelled"
_INIT = "init containers change what a pod requests; give the request of the whole pod"

#: All known methods by the object built, including its constructors.
BUILDERS: Mapping[str, Builder] = {
    "workload": Builder(
        _names(
            "MakeWorkload MakeWorkloadWithGeneratedUID Name Queue Active Priority Creation PodSets Request Limit "
            "RequestAndLimit Toleration NodeSelector PreemptionGate PreemptionGates ReclaimablePods ReserveQuota "
            "ReserveQuotaAt Admission SimpleReserveQuota QuotaReservedTime Annotation Annotations UnhealthyNodes "
            "AdmissionCheck AdmissionChecks Condition Conditions SetOrReplaceCondition Evicted EvictedAt Finished "
            "FinishedAt RequeueState OwnerReference ControllerReference"
        ),
        _names(
            "UID JobUID ResourceVersion Finalizers Generation Label Labels MaximumExecutionTimeSeconds Admitted "
            "AdmittedAt PastAdmittedTime RuntimeClass ClusterName NominatedClusterNames SchedulingStatsEviction "
            "PriorityClass PriorityClassRef WorkloadPriorityClassRef PodPriorityClassRef PriorityClassSource PodsReady "
            "ResourceRequests Image"
        ),
        {"DeletionTimestamp": _LEAVES, "Namespace": "name the namespace in MakeWorkload"},
    ),
    "admission": Builder(
        _names(
            "MakeAdmission PodSets Assignment AssignmentWithIndex AssignmentPodCount AssignmentPodCountWithIndex "
            "TopologyAssignment DelayedTopologyRequest"
        )
    ),
    "assignment of a pod set": Builder(
        _names(
            "MakePodSetAssignment Assignment Flavor ResourceUsage Count TopologyAssignment DelayedTopologyRequest "
            "AssignmentPodCount"
        )
    ),
    "topology assignment": Builder(
        _names("MakeTopologyAssignment Levels Domain Domains"),
        refused=dict.fromkeys(("Slice", "Slices"), "write the domains one by one"),
    ),
    "domain": Builder(_names("MakeTopologyDomainAssignment Count Values")),
    "pod set": Builder(
        _names(
            "MakePodSet Request Limit RequestAndLimit SetMinimumCount NodeSelector Toleration PodSetGroup "
            "Containers Affinity RequiredDuringSchedulingIgnoredDuringExecution "
            "PreferredDuringSchedulingIgnoredDuringExecution RequiredTopologyRequest PreferredTopologyRequest "
            "UnconstrainedTopologyRequest SliceRequiredTopologyRequest SliceSizeTopologyRequest "
            "PodSetSliceRequiredTopology PodSetSliceSize SliceRequiredTopologyConstraints "
            "PodsetSliceRequiredTopologyConstraints PodOverHead"
        ),
        _names(
            "PodIndexLabel SubGroupIndexLabel SubGroupCount Annotations Annotation Labels Label Image PriorityClass "
            "RuntimeClass RestartPolicy SchedulingGates ElasticJobSchedulingGate"
        ),
        {
            "InitContainers": _INIT,
            "PodSpec": "write the pod with the builder's methods",
            "NodeName": "pods that name their node are not modelled",
            **dict.fromkeys(("ResourceClaim", "ResourceClaimTemplate"), _DEVICES),
        },
    ),
    "container": Builder(
        _names("MakeContainer SingleContainerForRequest WithResourceReq WithResourceLimit"),
        _names("Name Image WithEnvVar"),
    ),
    "cluster queue": Builder(
        _names(
            "MakeClusterQueue Name Cohort ResourceGroup Preemption FlavorFungibility FairWeight QueueingStrategy "
            "NamespaceSelector StopPolicy AdmissionChecks AdmissionCheckStrategy AdmissionChecksStrategy"
        ),
        _names(
            "AdmissionMode AdmissionScope Generation Active Condition Label Annotation UID Creation Finalizers "
            "PendingWorkloads AdmittedWorkloads ReservingWorkloads"
        ),
        {
            "DeletionTimestamp": _LEAVES,
            "GeneratedName": "give the queue a name",
            "ConcurrentAdmissionPolicy": "admission of several variants at once is not modelled",
        },
    ),
    "check rule": Builder(_names("MakeAdmissionCheckStrategyRule OnFlavors")),
    "cohort": Builder(_names("MakeCohort Parent ResourceGroup FairWeight"), _names("Label Generation UID")),
    "flavor quotas": Builder(
        _names("MakeFlavorQuotas Resource ResourceQuotaWrapper NominalQuota BorrowingLimit LendingLimit"),
        _names("Append"),
    ),
    "resource flavor": Builder(
        _names("MakeResourceFlavor NodeLabel NodeLabels Taint Toleration TopologyName .Name"),
        _names("Label Annotation Creation Generation UID Finalizers"),
        {"DeletionTimestamp": _LEAVES},
    ),
    "topology": Builder(
        _names(
            "MakeTopology Levels MakeDefaultOneLevelTopology MakeDefaultTwoLevelTopology MakeDefaultThreeLevelTopology"
        ),
        _names("Label OwnerReference Finalizers UID Generation"),
        {"DeletionTimestamp": _LEAVES},
    ),
    "node": Builder(
        _names("MakeNode Name Label Labels StatusAllocatable StatusConditions Ready NotReady Unschedulable Taints"),
        _names("Annotation UID ResourceVersion Creation CreationTimestamp"),
        {"DeletionTimestamp": _LEAVES},
    ),
    "pod": Builder(
        _names("MakePod NodeName Request Limit RequestAndLimit StatusPhase Label Annotation"),
        _names(
            "UID NodeSelector Queue Name Namespace Finalizer KueueFinalizer KueueSchedulingGate TopologySchedulingGate "
            "Gate Group GroupTotalCount GroupIndex RoleHash ManagedByKueueLabel PrebuiltWorkload OwnerReference Image "
            "StatusConditions StatusMessage CreationTimestamp DeletionTimestamp Delete TerminationGracePeriod "
            "PriorityClass WorkloadPriorityClass Toleration"
        ),
        {"InitContainers": _INIT, "Overhead": "give the request of the whole pod"},
    ),
    "local queue": Builder(
        _names("MakeLocalQueue ClusterQueue StopPolicy"),
        _names(
            "FairSharing FairSharingStatus Condition Generation Active Label Annotation Creation UID PendingWorkloads "
            "AdmittedWorkloads ReservingWorkloads"
        ),
    ),
    "namespace": Builder(_names("MakeNamespace MakeNamespaceWrapper Label"), _names("Annotation UID GenerateName")),
    "limit range": Builder(_names("MakeLimitRange WithValue WithType")),
    "admission check": Builder(
        _names("MakeAdmissionCheck ControllerName Active Condition"),
        _names("Parameters Generation Label SingleInstanceInClusterQueue ApplyToAllFlavors UID"),
        {"DeletionTimestamp": _LEAVES},
    ),
    "candidate": Builder(_names("NewInfo LocalQueueFSUsage=")),
}


#: The fields of objects that a table may also write as structs, each with the equivalent method of the builder; one
#: that ends with `*` is called for each item.
STRUCTS: Mapping[str, Mapping[str, str]] = {
    "local queue": {"Spec.ClusterQueue": "ClusterQueue", "Spec.StopPolicy": "StopPolicy"},
    "topology": {"Spec.Levels": "Levels"},
    "resource flavor": {
        "Spec.NodeLabels": "NodeLabels",
        "Spec.TopologyName": "TopologyName",
        "Spec.NodeTaints": "Taint*",
        "Spec.Tolerations": "Toleration*",
    },
    "node": {
        "ObjectMeta.Labels": "Labels",
        "Spec.Taints": "Taints*",
        "Spec.Unschedulable": "Unschedulable",
        "Status.Allocatable": "StatusAllocatable",
        "Status.Conditions": "StatusConditions*",
    },
    "admission check": {"Spec.ControllerName": "ControllerName", "Status.Conditions": "Condition*"},
}


def calls(value: Any, of: str) -> list[Call]:
    """Return the calls of a builder of `of` that are read, without those irrelevant to the outcome.

    Raises `InputError` naming a method that is refused or unknown.
    """
    return list(_read(value, of, strict=True))


def known_calls(value: Any, of: str) -> list[Call]:
    """Return the calls of a builder that are read, skipping all others."""
    return list(_read(value, of, strict=False))


def _read(value: Any, of: str, *, strict: bool) -> Iterator[Call]:
    builder = BUILDERS[of]
    if not isinstance(value, Call) and not (isinstance(value, Composite) and of in STRUCTS):
        raise unread(value)
    for call in value.chain() if isinstance(value, Call) else _calls_of_struct(value, of):
        if call.name in builder.read:
            yield call
        elif strict and call.name not in builder.idle and call.name not in _SAME:
            why = builder.refused.get(call.name)
            told = "is not known" if why is None else f"is not read: {why}"
            raise input_error("Go table", f"{call.name} of a {of} {told}", "write the case in the JSON form")


def _calls_of_struct(value: Composite, of: str) -> Iterator[Call]:
    """Yield the equivalent builder calls for an object written as a struct."""
    meta = value.get("ObjectMeta", value)
    named = [one for one in (meta.get("Name", ""), meta.get("Namespace")) if one is not None]
    yield Call(f"Make{of.title().replace(' ', '')}", None, tuple(named))
    for part in ("ObjectMeta", "Spec", "Status"):
        for name, given in value.get(part, Composite("", {})).fields.items():
            method = STRUCTS[of].get(f"{part}.{name}", "" if part == "ObjectMeta" else None)
            if method is None:
                raise unread(Call(str(name), None, (given,)))
            items = given if method.endswith("*") else (given,)
            for one in (items or ()) if method and given else ():
                yield Call(method.rstrip("*"), None, () if one is True else (one,))


def unread(value: Any) -> Exception:
    """Return the error for a Go value that our format cannot express."""
    return input_error("Go table", f"{str(value)[:200]} is not understood", "write the case in the JSON form")
