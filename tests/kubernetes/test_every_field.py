"""Every field and annotation of the objects read, from the published schemas: used, without effect, or told."""

from __future__ import annotations

from typing import Any

import pytest
from simsched_policies.kubernetes.kueue import objects as kueue

from simsched.manifests import Account, changes_of_pods, read_nodes, read_workloads
from simsched.manifests.fields import Fields
from simsched.manifests.objects import Object

KUEUE = "kueue.x-k8s.io"
RAN = "how pods start, fail and end is not simulated"
KEPT = "bookkeeping of the API"
WITHIN = "what happens within a pod does not affect where it runs"
ABOUT_METADATA = {
    "read": "labels annotations creationTimestamp",
    KEPT: "name namespace generateName uid resourceVersion generation managedFields selfLink ownerReferences "
    "finalizers",
}
#: For each kind and path: fields that are read; those without effect, with the reason; `told` are listed as left out,
#: `refused` end the run unless they are allowed. Lists are marked with their first item, as in `containers.0`.
FIELDS: dict[tuple[str, str], dict[str, str]] = {
    ("Job", "metadata"): ABOUT_METADATA,
    ("Job", "spec"): {
        "read": "parallelism completions template activeDeadlineSeconds",
        "it counts for the workload as a whole": "suspend",
        RAN: "backoffLimit backoffLimitPerIndex completionMode maxFailedIndexes podFailurePolicy "
        "podReplacementPolicy "
        "ttlSecondsAfterFinished",
        "pods are counted, not selected": "selector manualSelector",
        "told": "successPolicy",
        "refused": "managedBy",
    },
    ("Job", "spec.template.spec"): {
        "read": "affinity containers initContainers nodeSelector overhead priorityClassName resources "
        "tolerations volumes",
        RAN: "restartPolicy terminationGracePeriodSeconds readinessGates",
        WITHIN: "automountServiceAccountToken dnsConfig dnsPolicy enableServiceLinks hostAliases hostIPC "
        "hostPID hostUsers "
        "hostname imagePullSecrets os securityContext serviceAccount serviceAccountName setHostnameAsFQDN "
        "shareProcessNamespace subdomain",
        "classes say the priority, and Kueue preempts": "preemptionPolicy priority",
        "told": "activeDeadlineSeconds ephemeralContainers hostNetwork runtimeClassName schedulerName",
        "refused": "nodeName resourceClaims schedulingGates topologySpreadConstraints",
    },
    ("Job", "spec.template.spec.containers.0"): {
        "read": "resources ports",
        WITHIN: "args command env envFrom image imagePullPolicy lifecycle livenessProbe name readinessProbe "
        "resizePolicy "
        "securityContext startupProbe stdin stdinOnce terminationMessagePath terminationMessagePolicy tty "
        "volumeDevices "
        "volumeMounts workingDir",
        "told": "restartPolicy",
    },
    ("Job", "spec.template.spec.containers.0.ports.0"): {
        WITHIN: "containerPort name protocol",
        "told": "hostIP",
        "refused": "hostPort",
    },
    ("Job", "spec.template.spec.volumes.0"): {
        "any node can offer it": "configMap downwardAPI emptyDir hostPath image name nfs projected secret",
        "told": "azureFile cephfs cinder csi ephemeral fc flexVolume glusterfs iscsi persistentVolumeClaim rbd",
        "refused": "awsElasticBlockStore azureDisk gcePersistentDisk",
    },
    ("Node", "spec"): {
        "read": "taints unschedulable",
        KEPT: "externalID podCIDR podCIDRs providerID",
        "told": "configSource",
    },
    ("ClusterQueue", "spec"): {
        "read": "admissionChecks admissionChecksStrategy admissionScope cohort cohortName fairSharing "
        "flavorFungibility "
        "namespaceSelector preemption queueingStrategy resourceGroups stopPolicy",
    },
    ("LocalQueue", "spec"): {"read": "clusterQueue fairSharing stopPolicy"},
    ("Cohort", "spec"): {"read": "fairSharing parent parentName resourceGroups"},
    ("ResourceFlavor", "spec"): {"read": "nodeLabels nodeTaints tolerations topologyName"},
    ("Topology", "spec"): {"read": "levels"},
    ("AdmissionCheck", "spec"): {
        "its seconds are an annotation": "parameters retryDelayMinutes",
        "refused": "controllerName",
    },
    ("Configuration", ""): {
        "read": "admissionFairSharing fairSharing featureGates integrations resources waitForPodsReady",
        "how Kueue runs, not what it decides": "clientConnection controller health internalCertManagement "
        "leaderElection "
        "metrics namespace objectRetentionPolicies pprofBindAddress tls webhook",
        "a workload without a queue is refused": "manageJobsWithoutQueueName",
        "refused": "multiKueue managedJobsNamespaceSelector",
    },
}
BASES: dict[str, dict[str, Any]] = {
    "Job": {"spec": {"template": {"metadata": {}, "spec": {
        "containers": [{"resources": {"requests": {"cpu": "1"}}, "ports": [{}]}], "volumes": [{}],
    }}}},
    "Node": {"spec": {}, "status": {"allocatable": {"nvidia.com/gpu": "1"}}},
    "ClusterQueue": {"spec": {}}, "LocalQueue": {"spec": {"clusterQueue": "q"}}, "Cohort": {"spec": {}},
    "ResourceFlavor": {"spec": {}}, "Topology": {"spec": {"levels": []}},
    "AdmissionCheck": {"spec": {}, "metadata": {"annotations": {"simsched/delay-s": "1"}}}, "Configuration": {},
}  # fmt: skip
#: Fields whose effect depends on their value.
VALUES = {"controllerName": f"{KUEUE}/multikueue", "schedulerName": "mine"}


def _state(kind: str, path: str, name: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what a reader does with a field: read, none (without effect), told or refused."""
    import copy

    data = copy.deepcopy({"metadata": {}, **BASES[kind]})
    at: Any = data
    for part in path.split(".") if path else ():
        at = at[int(part)] if part.isdigit() else at[part]
    if name in at:
        return "read"
    at[name] = VALUES.get(name, {"?": 1} if name != "overhead" else {})
    skipped: set[str] = set()
    own = Fields.skip
    with monkeypatch.context() as patch:
        patch.setattr(Fields, "skip", lambda self, *names: (skipped.update(
            ".".join(map(str, (*self.path, one))) for one in names), own(self, *names))[1])  # fmt: skip
        account, pods = Account(), Account()
        group = {"Job": "batch", "Node": "", "Configuration": f"config.{KUEUE}"}.get(kind, KUEUE)
        one = Object(kind, group, "x", "a", {"apiVersion": "v1", "kind": kind, **data}, "x.yaml", 1)
        if kind in ("Job", "Node"):
            (read_workloads if kind == "Job" else read_nodes)([one], account)
            decides = changes_of_pods
        else:
            kueue._Reader([one], account, pods).read()
            decides = kueue.changes_outcome
    full = f"{path}.{name}" if path else name
    marked = full.replace(".0", "[]")
    if (kind, marked) in account.unread:
        return "refused" if decides(kind, marked) else "told"
    return "none" if full in skipped else "read"


@pytest.mark.parametrize(("kind", "path"), FIELDS)
def test_every_field_is_read_or_without_effect_or_told(kind: str, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = {name: how for how, names in FIELDS[kind, path].items() for name in names.split()}
    found = {name: _state(kind, path, name, monkeypatch) for name in listed}
    assert found == {name: how if how in ("read", "told", "refused") else "none" for name, how in listed.items()}
    if path != "metadata":
        assert _state(kind, path, "newField", monkeypatch) in ("told", "refused")


TEMPLATE = {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}


def _marked(kind: str, outer: dict[str, Any], inner: dict[str, Any]) -> Account:
    account = Account()
    spec = {"template": {"metadata": inner, "spec": TEMPLATE}}
    group = "batch" if kind in ("Job", "CronJob") else "apps"
    data = {"apiVersion": "v1", "kind": kind, "metadata": outer, "spec": spec}
    read_workloads([Object(kind, group, "x", "a", data, "x.yaml", 1)], account)
    return account


@pytest.mark.parametrize(
    ("where", "name", "said"),
    [
        ("annotations", f"{KUEUE}/podset-requird-topology", f"(did you mean '{KUEUE}/podset-required-topology'?)"),
        ("labels", f"{KUEUE}/queue-name", "is not read there"),
        ("annotations", "alpha.jobset.sigs.k8s.io/exclusive-topology", "gives each job a domain of its own"),
    ],
)
def test_marks_on_templates_that_nothing_reads_are_refused(where: str, name: str, said: str) -> None:
    account = _marked("Job", {}, {where: {name: "x"}})
    ((kind, path),) = account.unread
    assert path == f"spec.template.metadata.{where}.{name}"
    assert said in changes_of_pods(kind, path)


@pytest.mark.parametrize("name", ["kueue.x-k8s.io/queue-name", "kai.scheduler/queue"])
def test_other_kinds_of_workloads_are_refused_if_a_template_names_a_queue_and_else_left_out(name: str) -> None:
    account = _marked("CronJob", {}, {"labels": {name: "q"}})
    assert [(key, bool(changes_of_pods(*key))) for key in account.unread] == [(("CronJob", "kind"), True)]
    account = _marked("Deployment", {}, {})
    assert [(key, bool(changes_of_pods(*key))) for key in account.unread] == [(("Deployment", "spec"), False)]


def test_input_of_other_kinds_alone_names_the_kinds_that_are_read() -> None:
    (problem,) = _marked("Deployment", {}, {}).problems
    assert "is of a kind of workloads that is not read; known: Job, JobSet, " in str(problem)


def test_a_deactivated_workload_is_refused() -> None:
    account = Account()
    one = Object("Workload", KUEUE, "x", "a", {"kind": "Workload", "spec": {"active": False}}, "x.yaml", 1)
    kueue._Reader([one], account, Account()).read()
    assert [kueue.changes_outcome(*key) for key in account.unread] == ["deactivates its job, which is not modelled"]
