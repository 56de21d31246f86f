"""Kueue's objects in manifests: what they declare, and what mistakes in them are told as."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from simsched_policies.kubernetes.kueue.gates import gates
from simsched_policies.kubernetes.kueue.machines import Machines
from simsched_policies.kubernetes.kueue.model import Assigned, PodsReady, Quota, Reclaim, Within
from simsched_policies.kubernetes.kueue.objects import declared
from simsched_policies.kubernetes.kueue.policy import Kueue

from simsched.errors import InputError
from simsched.operators import ManifestOptions, manifest_plan

SAMPLE = Path(__file__).resolve().parents[2] / "traces" / "kubernetes-sample"
GI = 1 << 30


def test_the_sample_declares_what_its_files_say():
    found = declared(SAMPLE)
    vision = next(one for one in found.setup.queues if one.name == "vision")
    assert vision.quotas["a100", "nvidia.com/gpu"] == Quota(24, borrowing_limit=8)
    assert vision.quotas["h100", "memory"] == Quota(8 * 128 * GI)
    assert vision.quotas["h100", "cpu"] == Quota(96_000)
    assert (vision.within, vision.reclaim, vision.cohort) == (Within.LOWER_PRIORITY, Reclaim.ANY, "models")
    assert found.setup.priorities == {"production": 1000, "research": 100, "batch": 0}
    assert found.setup.topologies["racks"].levels == ("example.com/rack", "kubernetes.io/hostname")
    assert (len(found.jobs), len(found.nodes), sum(node.gpus for node in found.nodes)) == (30, 12, 96)
    job = found.jobs["language/language-01"]
    assert (job.local_queue, job.priority, job.pod_sets[0].count) == ("gpu", 100, 2)
    assert job.pod_sets[0].topology is not None
    assert (job.pod_sets[0].topology.kind, job.pod_sets[0].topology.level) == ("required", "example.com/rack")


def test_without_its_gate_pods_get_hosts_whatever_level_they_want():
    found = declared(SAMPLE)
    (pods,) = found.jobs["language/language-01"].pod_sets
    machines = Machines(found.nodes, replace(found.setup, gates=gates({"TopologyAwareScheduling": False})))
    placed = machines.place([pods], [Assigned(pods.name, pods.count, {}, {"nvidia.com/gpu": "h100"})])
    assert not machines.topologies
    assert sum(one.number for one in placed) == pods.count == 2


#: Mistakes: file, text in it, what stands there instead, and what is told: line of the text, field, message, remedy.
MISTAKES = {
    "a misspelt field": (
        "queues.yaml", "cohortName: models", "cohrtName: models",
        "ClusterQueue language, spec.cohrtName: is not known to the model of Kueue",
        "--allow ClusterQueue.spec.cohrtName",
    ),
    "no quantity": (
        "queues.yaml", "nominalQuota: 16}", "nominalQuota: 16GB}", "nominalQuota: '16GB' is no quantity", "64Gi",
    ),
    "a negative quantity": ("queues.yaml", "nominalQuota: 16}", "nominalQuota: -1}", "'-1' is negative", "0 or more"),
    "an unknown policy of preemption": (
        "queues.yaml", "reclaimWithinCohort: Any", "reclaimWithinCohort: Always",
        "spec.preemption.reclaimWithinCohort: must be one of Never, LowerPriority, Any", "known: ",
    ),
    "a queue without its cluster queue": (
        "queues.yaml", "spec: {clusterQueue: language}", "spec: {clusterQueue: langauge}",
        "LocalQueue language/gpu, spec.clusterQueue: there is no ClusterQueue 'langauge'", "did you mean 'language'?",
    ),
    "a flavour that is not there": (
        "queues.yaml", "- name: h100", "- name: h200",
        "spec.resourceGroups[0].flavors[0].name: there is no ResourceFlavor 'h200'", "did you mean 'h100'?",
    ),
    "a resource that the group does not cover": (
        "queues.yaml", "{name: cpu, nominalQuota: 192}", "{name: cpus, nominalQuota: 192}",
        "flavors[0].resources: names nvidia.com/gpu, cpus, memory, and the group covers", "each covered resource once",
    ),
    "a topology that is not there": (
        "flavors.yaml", "topologyName: racks", "topologyName: rack",
        "ResourceFlavor h100, spec.topologyName: there is no Topology 'rack'", "did you mean 'racks'?",
    ),
    "a host above racks": (
        "flavors.yaml", "- nodeLabel: example.com/rack\n  - nodeLabel: kubernetes.io/hostname",
        "- nodeLabel: kubernetes.io/hostname\n  - nodeLabel: example.com/rack",
        "Topology racks, spec.levels: kubernetes.io/hostname can only be the lowest level", "put it last",
    ),
    "a priority in quotes": (
        "flavors.yaml", "value: 1000", 'value: "1000"', "value: must be a whole number, not '1000'", "",
    ),
    "a label that is a number": (
        "flavors.yaml", "nodeLabels: {gpu-type: h100}", "nodeLabels: {gpu-type: 100}",
        "ResourceFlavor h100, spec.nodeLabels.gpu-type: must be text (put it in quotes), not 100", "",
    ),
    "an operator of tolerations": (
        "flavors.yaml", "operator: Exists", "operator: Exist",
        "spec.tolerations[0].operator: must be one of Equal, Exists",
        "did you mean 'Exists'?",
    ),
    "a local queue that is not there": (
        "workloads.yaml", "queue-name: gpu", "queue-name: gpus",
        "metadata.labels.kueue.x-k8s.io/queue-name: there is no LocalQueue in the namespace 'language' called 'gpus'",
        "did you mean 'gpu'?",
    ),
    "a priority class that is not there": (
        "workloads.yaml", "priority-class: research", "priority-class: resarch",
        "there is no WorkloadPriorityClass 'resarch'", "did you mean 'research'?",
    ),
    "two kinds of topology": (
        "workloads.yaml", "kueue.x-k8s.io/podset-required-topology: example.com/rack",
        'kueue.x-k8s.io/podset-required-topology: r, kueue.x-k8s.io/podset-unconstrained-topology: "true"',
        "pod set 'workers' asks for required and unconstrained topology", "ask for one of them",
    ),
    "more than the limit": (
        "workloads.yaml", 'limits: {nvidia.com/gpu: "8"}', 'limits: {nvidia.com/gpu: "4"}',
        "resources.requests: asks for more of nvidia.com/gpu than its limit", "raise the limit",
    ),
    "no seconds": (
        "workloads.yaml", 'simsched/duration-s: "7200"', 'simsched/duration-s: "2h"',
        "JobSet language/language-01, metadata.annotations.simsched/duration-s: '2h' is not a number of at least 1",
        "write a number",
    ),
    "no duration": (
        "workloads.yaml", ', simsched/duration-s: "7200"', "", "language-01: does not say how long it runs",
        "--duration DISTRIBUTION",
    ),
    "pods that spread": (
        "workloads.yaml", "            restartPolicy: Never",
        "            topologySpreadConstraints: []\n            restartPolicy: Never",
        "spec.topologySpreadConstraints: spreads pods, which is not modelled",
        "--allow JobSet.spec.replicatedJobs[].template.spec.template.spec.topologySpreadConstraints",
    ),
    "a pod group that lacks a pod": (
        "workloads.yaml", 'pod-group-total-count: "2"', 'pod-group-total-count: "3"',
        "the pod group 'vision-26' has 2 pods of 3", "say how many in the annotation",
    ),
    "a job without a template": (
        "workloads.yaml", "parallelism: 1\n  completions: 1\n  suspend: true\n  template:",
        "parallelism: 1\n  completions: 1\n  suspend: true\n  templates:",
        "Job search/search-03, spec.template: is missing", "",
    ),
    "a key given twice": (
        "nodes.yaml", "kind: Node", "kind: Node\nkind: Node", "the key 'kind' is given twice", "keep one",
    ),
    "a kind that binds pods": (
        "queues.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: language}",
        "apiVersion: v1\nkind: LimitRange\nmetadata: {name: language, namespace: language}",
        "LimitRange language/language, kind: objects of this kind are not read", "--allow LimitRange.kind",
    ),
    "a job without a queue": (
        "workloads.yaml", "kueue.x-k8s.io/queue-name: gpu, ", "",
        "JobSet language/language-01, metadata.labels.kueue.x-k8s.io/queue-name: names no queue",
        "--allow JobSet.metadata.labels.kueue.x-k8s.io/queue-name",
    ),
    "a job that may start with fewer pods": (
        "workloads.yaml", 'simsched/submit-s: "360", ',
        'simsched/submit-s: "360", kueue.x-k8s.io/job-min-parallelism: "1", ',
        "Job search/search-03, metadata.annotations.kueue.x-k8s.io/job-min-parallelism: starts a job with fewer pods",
        "--allow Job.metadata.annotations.kueue.x-k8s.io/job-min-parallelism",
    ),
    "no kind": (
        "nodes.yaml", "kind: Node\n", "", "document 1, object (unnamed), kind: is missing", "apiVersion and kind",
    ),
    "an effect of a taint": (
        "nodes.yaml", "effect: NoSchedule", "effect: Never",
        "Node h100-r1, spec.taints[0].effect: must be one of NoSchedule",
        "known: ",
    ),
    "a count of nodes": (
        "nodes.yaml", 'simsched/count: "2"', 'simsched/count: "two"',
        "metadata.annotations.simsched/count: 'two' is not a number from 1 to", "how many such nodes",
    ),
}  # fmt: skip


def problems(folder: Path) -> str:
    """Return what is told of manifests, by whoever reads them."""
    try:
        manifest_plan(folder, ManifestOptions(), folder / "out")
        Kueue(manifests=str(folder))
    except InputError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_told_with_file_line_document_field_and_remedy(tmp_path, mistake):
    file, text, other, message, remedy = MISTAKES[mistake]
    folder = tmp_path / "manifests"
    shutil.copytree(SAMPLE, folder)
    whole = (folder / file).read_text()
    assert text in whole, "the sample has changed"
    (folder / file).write_text(whole.replace(text, other, 1))
    told = next((line for line in problems(folder).splitlines() if message in line), "")
    assert told, problems(folder)
    assert f"{folder / file}:" in told
    assert remedy in told
    named = told.removeprefix(f"{folder / file}:").split(":")[0]
    assert named.isdigit(), told
    assert "document" in told or mistake == "a key given twice"


def test_the_sample_has_no_mistake(tmp_path):
    shutil.copytree(SAMPLE, tmp_path / "manifests")
    assert problems(tmp_path / "manifests") == ""


def test_all_mistakes_are_told_at_once(tmp_path):
    folder = tmp_path / "manifests"
    shutil.copytree(SAMPLE, folder)
    for file, text, other, *_ in (
        MISTAKES["an unknown policy of preemption"],
        MISTAKES["a topology that is not there"],
    ):
        (folder / file).write_text((folder / file).read_text().replace(text, other, 1))
    assert len(problems(folder).splitlines()) == 2


def test_a_field_that_is_allowed_passes(tmp_path):
    folder = tmp_path / "manifests"
    shutil.copytree(SAMPLE, folder)
    file, text, other, *_ = MISTAKES["a misspelt field"]
    (folder / file).write_text((folder / file).read_text().replace(text, other, 1))
    with pytest.warns(UserWarning, match=r"1 ClusterQueue: fields that are not modelled: spec\.cohrtName"):
        Kueue(manifests=str(folder), allow=("ClusterQueue.spec.cohrtName",))


def _configured(tmp_path, notes, waiting):
    folder = tmp_path / "manifests"
    shutil.copytree(SAMPLE, folder)
    head = f"apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nmetadata: {{annotations: {notes}}}\n"
    (folder / "kueue.yaml").write_text(f"{head}waitForPodsReady: {waiting}\n")
    return declared(folder).setup.pods_ready


def test_what_waits_until_pods_are_ready_is_read_with_the_defaults_of_kueue(tmp_path):
    ready = _configured(tmp_path, '{simsched/ready-s: "1.05"}', "{blockAdmission: true, timeout: 5m}")
    assert ready == PodsReady(1.05, True, 300, 60, 3600, None, True)


def test_waiting_for_pods_that_is_off_does_nothing(tmp_path):
    assert _configured(tmp_path, "{}", "{enable: false, timeout: 5m}") is None


@pytest.mark.parametrize(
    ("waiting", "said"),
    [("{enable: false}", "is not on, and simsched/ready-s needs it"), ("{timeout: 1s}", "all are evicted")],
)
def test_seconds_until_pods_are_ready_that_cannot_be_are_refused(tmp_path, waiting, said):
    with pytest.raises(InputError, match=said):
        _configured(tmp_path, '{simsched/ready-s: "2"}', waiting)


def test_manifests_and_other_rules_exclude_each_other():
    with pytest.raises(ValueError, match="manifests and fair_sharing exclude each other"):
        Kueue(manifests=str(SAMPLE), fair_sharing=True)
