"""The fields of an object: each kind read as it is written, and refused at its path where it is something else."""

from __future__ import annotations

import pytest

from simsched.manifests import Account, read_workloads
from simsched.manifests.fields import Fields
from simsched.manifests.objects import Object, merged


def fields(data):
    account = Account()
    return Fields(Object("Job", "batch", "j", "a", data, "j.yaml", 2, {("x",): 7}), account), account


#: How a field is asked for, what is written and what that is.
READ = {
    "text": (lambda one: one.text("x"), "a", "a"),
    "one of": (lambda one: one.text("x", of=("a", "b")), "b", "b"),
    "whole": (lambda one: one.whole("x", 5, least=2), 2, 2),
    "no least": (lambda one: one.whole("x", 5), -3, -3),
    "maybe": (lambda one: one.maybe_whole("x"), 3, 3),
    "flag": (lambda one: one.flag("x", True), False, False),
    "CPUs": (lambda one: one.amount("x", "cpu"), "1500m", 1500),
    "memory": (lambda one: one.amount("x", "memory"), "1Ki", 1024),
    "number": (lambda one: one.number("x", 1.0), "500m", 0.5),
    "seconds": (lambda one: one.seconds("x", 1.0), "1h30m", 5400.0),
    "moment": (lambda one: one.moment("x"), "1970-01-02T00:00:01Z", 86_401.0),
    "moment of UTC where it says none": (lambda one: one.moment("x"), "1970-01-01T00:01:00", 60.0),
    "moment of a zone": (lambda one: one.moment("x"), "1970-01-01T02:00:00+01:00", 3600.0),
    "texts": (lambda one: one.texts("x"), ["a", "b"], ("a", "b")),
    "labels": (lambda one: one.labels("x"), {"a": "b"}, {"a": "b"}),
    "part": (lambda one: one.part("x").whole("y", 0), {"y": 4}, 4),
    "parts": (lambda one: [part.whole("y", 0) for part in one.parts("x")], [{"y": 4}, {}], [4, 0]),
}  # fmt: skip


@pytest.mark.parametrize("kind", READ)
def test_a_field_is_read_as_it_is_written(kind):
    ask, written, expected = READ[kind]
    one, account = fields({"x": written})
    assert ask(one) == expected
    assert account.problems == []
    assert list(one.left()) == []


@pytest.mark.parametrize("kind", READ)
def test_null_is_read_as_what_is_not_given(kind):
    ask, _, _ = READ[kind]
    null, account = fields({"x": None})
    absent, _ = fields({})
    assert ask(null) == ask(absent)
    assert (account.problems, list(null.left())) == ([], [])


#: How a field is asked for, what is written, what is taken in its place, and what the user is told.
REFUSED = {
    "text": (lambda one: one.text("x", "d"), 1, "d", "x: must be text (put it in quotes), not 1"),
    "one of": (lambda one: one.text("x", "d", of=("left", "right")), "lift", "d",
               "x: must be one of left, right, not 'lift'; did you mean 'left'?"),
    "missing": (lambda one: one.text("x", "d", of=("a", "b"), needed=True), None, "d",
                "x: is missing; give one of a, b"),
    "whole": (lambda one: one.whole("x", 5), True, 5, "x: must be a whole number, not True"),
    "least": (lambda one: one.whole("x", 5, least=2), 1, 5, "x: must be at least 2, not 1"),
    "maybe": (lambda one: one.maybe_whole("x", least=2), 1, 0, "x: must be at least 2, not 1"),
    "flag": (lambda one: one.flag("x", True), "no", True, "x: must be true or false, not 'no'"),
    "amount": (lambda one: one.amount("x", "cpu"), "-1", None,
               "x: '-1' is negative; write a quantity of 0 or more, as in 4, 1500m or 64Gi"),
    "number": (lambda one: one.number("x", 1.5), "much", 1.5,
               "x: 'much' is no quantity; write a number such as 1.5 or 500m"),
    "seconds": (lambda one: one.seconds("x", 1.5), "1d", 1.5,
                "x: '1d' is no duration; write it as in 30s, 5m or 1h30m"),
    "moment": (lambda one: one.moment("x"), "today", None,
               "x: 'today' is no timestamp; write it as in 2026-01-31T12:00:00Z"),
    "texts": (lambda one: one.texts("x"), ["a", 1], ("a", "1"), "x[1]: must be text (put it in quotes), not 1"),
    "labels": (lambda one: one.labels("x"), {"a": 1}, {"a": "1"}, "x.a: must be text (put it in quotes), not 1"),
    "part": (lambda one: one.part("x").there, 3, False, "x: must be a mapping of keys to values, not 3"),
    "needed": (lambda one: one.part("x", needed=True).there, None, False, "x: is missing"),
    "parts": (lambda one: one.parts("x"), [3], [], "x[0]: must be a mapping of keys to values, not 3"),
}  # fmt: skip


@pytest.mark.parametrize("kind", REFUSED)
def test_a_field_that_is_something_else_is_told_at_its_place(kind):
    ask, written, instead, said = REFUSED[kind]
    one, account = fields({"x": written})
    assert ask(one) == instead
    (problem,) = account.problems
    assert str(problem) == f"j.yaml:7: document 2, Job a/j, {said}"


def test_what_is_not_given_is_its_default_and_no_problem():
    one, account = fields({"other": 1})
    assert (one.text("x", "d"), one.whole("x", 5), one.maybe_whole("x"), one.flag("x")) == ("d", 5, None, False)
    assert (one.amount("x", "cpu"), one.number("x", 2.5), one.seconds("x", 1.5), one.moment("x")) == (
        None, 2.5, 1.5, None,
    )  # fmt: skip
    assert (one.texts("x"), one.labels("x"), one.parts("x"), one.part("x").there) == ((), {}, [], False)
    assert (one.flag("x", True), one.text("x"), "x" in one, "other" in one) == (True, "", False, True)
    assert account.problems == []
    assert list(one.left()) == [("other",)]


def test_objects_that_are_applied_take_the_places_of_those_of_their_kind_and_name():
    old = [Object("Job", "batch", name, "a", {"of": "old"}, "", 1) for name in ("p", "q")]
    new = [Object("Job", "batch", name, "a", {"of": "new"}, "", 1) for name in ("r", "q")]
    assert [(one.name, one.data["of"]) for one in merged(old, new)] == [("p", "old"), ("q", "new"), ("r", "new")]


POD = {
    "metadata": {"labels": {"a": "b"}, "name": "p", "namespace": "a", "generateName": "p-", "creationTimestamp": None},
    "spec": {
        "restartPolicy": "Never", "volumes": [{}], "priority": 3, "schedulerName": "default-scheduler",
        "containers": [{"name": "c", "image": "i", "command": ["x"], "resources": {"requests": {"cpu": 1}}}],
        "tolerations": [{"key": "k", "tolerationSeconds": 3}],
    },
}  # fmt: skip
BATCH = {
    "parallelism": 4, "backoffLimit": 1, "completionMode": "Indexed", "ttlSecondsAfterFinished": 1, "selector": {},
    "manualSelector": True, "podReplacementPolicy": "Failed", "podFailurePolicy": {}, "maxFailedIndexes": 1,
    "suspend": True, "backoffLimitPerIndex": 1, "template": POD,
}  # fmt: skip
RAY = {
    "rayVersion": "2", "headServiceAnnotations": {}, "gcsFaultToleranceOptions": {},
    "headGroupSpec": {"rayStartParams": {}, "serviceType": "x", "enableIngress": True, "headService": {},
                      "template": POD},
    "workerGroupSpecs": [{"groupName": "g", "rayStartParams": {}, "minReplicas": 1, "maxReplicas": 2, "template": POD,
                          "scaleStrategy": {}, "idleTimeoutSeconds": 3}],
}  # fmt: skip
#: Of each kind all that decides nothing about how its pods are scheduled, or a part of each list of that.
SPECS = {
    "Job": BATCH,
    "JobSet": {
        "network": {}, "ttlSecondsAfterFinished": 1, "suspend": True, "replicatedJobs": [
            {"name": "w", "template": {"metadata": {"labels": {}}, "spec": {**BATCH, "activeDeadlineSeconds": 9}}},
        ],
    },
    "PyTorchJob": {
        "nprocPerNode": "auto", "runPolicy": {"cleanPodPolicy": "None", "ttlSecondsAfterFinished": 1, "backoffLimit": 1,
                                              "suspend": True},
        "pytorchReplicaSpecs": {"Worker": {"restartPolicy": "Never", "replicas": 2, "template": POD}},
    },
    "MPIJob": {
        "sshAuthMountPath": "/", "slotsPerWorker": 2, "mpiImplementation": "OpenMPI", "launcherCreationPolicy": "x",
        "mpiReplicaSpecs": {"Launcher": {"template": POD}, "Worker": {"template": POD}},
    },
    "RayCluster": {"suspend": True, **RAY},
    "RayJob": {
        "entrypoint": "x", "runtimeEnvYAML": "x", "shutdownAfterJobFinishes": True, "ttlSecondsAfterFinished": 1,
        "jobId": "x", "metadata": {}, "suspend": True, "backoffLimit": 1, "submitterConfig": {},
        "entrypointNumCpus": 1, "entrypointNumGpus": 1, "deletionStrategy": {}, "rayClusterSpec": RAY,
    },
}  # fmt: skip


def read(kind, spec, *, status=None, **metadata):
    account = Account()
    data = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "j", **metadata}, "spec": spec}
    data |= {"status": status} if status else {}
    return read_workloads([Object(kind, "", "j", "a", data, "j.yaml", 1)], account), account


@pytest.mark.parametrize("kind", SPECS)
def test_fields_that_decide_nothing_are_passed_over_without_a_word_and_others_are_noted(kind):
    _, account = read(kind, SPECS[kind], uid="1", resourceVersion="2", generation=3, managedFields=[], selfLink="x",
                      ownerReferences=[], finalizers=[])  # fmt: skip
    assert (account.problems, account.unread) == ([], {})
    _, account = read(kind, {**SPECS[kind], "managedBy": "x"})
    assert list(account.unread) == [(kind, "spec.managedBy")]


@pytest.mark.parametrize(
    ("kind", "spec", "said"),
    [
        ("JobSet", {}, "spec.replicatedJobs: is missing or empty; a JobSet has at least one"),
        ("PyTorchJob", {"pytorchReplicaSpecs": {"Chief": {}}}, "spec.pytorchReplicaSpecs: has none of Master, Worker"),
        ("PyTorchJob", {"x": 1}, "spec.pytorchReplicaSpecs: is missing"),
        ("RayCluster", {**RAY, "enableInTreeAutoscaling": True},
         "spec.enableInTreeAutoscaling: is not modelled: it changes how many pods there are; take it out"),
        ("RayJob", {"rayClusterSpec": RAY, "clusterSelector": {"a": "b"}},
         "spec.clusterSelector: is not modelled: the job would run in another's pods; give rayClusterSpec"),
        ("RayJob", {"rayClusterSpec": RAY, "submissionMode": "SidecarMode"},
         "spec.submissionMode: SidecarMode is not modelled; use K8sJobMode"),
        ("Job", {"template": {"spec": {"restartPolicy": "Never"}}},
         "spec.template.spec.containers: is missing; a pod has at least one container"),
    ],
)  # fmt: skip
def test_a_workload_that_cannot_be_is_told_at_its_field(kind, spec, said):
    _, account = read(kind, spec)
    assert str(account.problems[0]) == f"j.yaml: document 1, {kind} a/j, {said}"


@pytest.mark.parametrize(
    ("status", "ran_s"),
    [
        ({"startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:01:30Z", "succeeded": 1}, 90),
        ({"startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:00Z"}, 1),
        ({"startTime": "2026-01-01T00:00:01Z", "completionTime": "2026-01-01T00:00:00Z"}, None),
        ({"startTime": "2026-01-01T00:00:00Z"}, None),
        ({"completionTime": "2026-01-01T00:00:00Z"}, None),
    ],
)
def test_a_job_ran_from_its_start_to_its_completion_at_least_a_second(status, ran_s):
    (one,), account = read("Job", BATCH, status=status)
    assert (one.ran_s, account.unread) == (ran_s, {})


def test_a_job_of_few_completions_has_as_many_pods():
    (one,), _ = read("Job", {**BATCH, "completions": 3})
    assert ([pods.count for pods in one.pod_sets], one.total("cpu"), one.total("memory")) == ([3], 3000, 0)
    (one,), _ = read("Job", {**BATCH, "completions": 9})
    assert (one.total("cpu"), one.suspended, one.namespace) == (4000, True, "a")
