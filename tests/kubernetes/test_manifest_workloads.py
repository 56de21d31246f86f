"""Workloads of manifests: their pods, queues, priorities, limits and groups, worked by hand."""

from __future__ import annotations

import pytest

from simsched.manifests import Account, changes_of_pods, read_workloads
from simsched.manifests.objects import Object

KUEUE = "kueue.x-k8s.io"
POD = {"spec": {"containers": [{"resources": {"requests": {"cpu": 1}}}]}}


def job(name="j", kind="Job", *, spec=None, namespace="a", labels=None, notes=None, **metadata):
    data = {"metadata": {"labels": labels or {}, "annotations": notes or {}, **metadata},
            "spec": {"template": POD} if spec is None else spec}  # fmt: skip
    return Object(kind, "", name, namespace, data, "w.yaml", 1)


def read(*objects):
    account = Account()
    return read_workloads(objects, account), account


def told(account):
    return [problem.message.partition(", ")[2] for problem in account.problems]


@pytest.mark.parametrize(
    ("name", "good", "bad", "least"),
    [
        ("simsched/duration-s", ["1", "2.5", "1e3"], ["0.9", "0", "-1", "inf", "nan", "2h", ""], 1),
        ("simsched/submit-s", ["0", "0.5", "7"], ["-0.1", "inf", "nan", "now"], 0),
    ],
)
def test_seconds_in_annotations(name, good, bad, least):
    for text in good:
        (one,), account = read(job(notes={name: text}))
        found = one.duration_s if least else one.submit_s
        assert (found, account.problems) == (float(text), [])
    for text in bad:
        (one,), account = read(job(notes={name: text}))
        assert (one.duration_s, one.submit_s) == (None, None)
        assert told(account) == [f"Job a/j, metadata.annotations.{name}: '{text}' is not a number of at least {least}"]


@pytest.mark.parametrize(
    ("label", "spec", "limit_s"),
    [
        (None, {}, None),
        ("30", {}, 30.0),
        (None, {"activeDeadlineSeconds": 40}, 40.0),
        (None, {"runPolicy": {"activeDeadlineSeconds": 20}}, 20.0),
        ("30", {"activeDeadlineSeconds": 40, "runPolicy": {"activeDeadlineSeconds": 50}}, 30.0),
        ("60", {"activeDeadlineSeconds": 40, "runPolicy": {"activeDeadlineSeconds": 1}}, 1.0),
    ],
)
def test_a_workload_is_stopped_after_the_least_of_its_limits(label, spec, limit_s):
    labels = {} if label is None else {f"{KUEUE}/max-exec-time-seconds": label}
    (one,), account = read(job(spec={"template": POD, **spec}, labels=labels))
    assert (one.limit_s, account.problems) == (limit_s, [])
    _, account = read(job(spec={"template": POD, "activeDeadlineSeconds": 0}))
    assert told(account) == ["Job a/j, spec.activeDeadlineSeconds: must be at least 1, not 0"]


def test_queues_stand_in_labels_before_annotations_and_priorities_in_the_policy_before_pods():
    name = f"{KUEUE}/queue-name"
    found, _ = read(job("p", labels={name: "x"}, notes={name: "y"}), job("q", notes={name: "y"}), job("r"))
    assert [(one.queue, one.priority_class, one.pod_priority) for one in found] == [
        ("x", "", ""),
        ("y", "", ""),
        ("",) * 3,
    ]
    first, second = ({"spec": {**POD["spec"], "priorityClassName": who}} for who in ("high", "low"))
    replicas = {"pytorchReplicaSpecs": {"Master": {"template": POD}, "Worker": {"template": first}}}
    told_by = {"runPolicy": {"schedulingPolicy": {"priorityClass": "own"}}}
    labels = {f"{KUEUE}/priority-class": "gold"}
    by_pods, by_policy = (job("s", "PyTorchJob", spec=spec, labels=labels) for spec in (replicas, replicas | told_by))
    found, account = read(by_pods, by_policy, job("u", spec={"template": second}))
    assert [(one.priority_class, one.pod_priority) for one in found] == [("gold", "high"), ("gold", "own"), ("", "low")]
    assert account.problems == []


def test_labels_of_kueue_that_nothing_reads_are_noted_and_others_are_not():
    labels = {f"{KUEUE}/queue-name": "q", f"{KUEUE}/new-thing": "x", f"sub.{KUEUE}/own": "y", "other.io/name": "z"}
    _, account = read(job(labels=labels, notes={f"{KUEUE}/podset-slice-size": "2", f"{KUEUE}/later": "z"}))
    assert sorted(path for _, path in account.unread) == [
        f"metadata.annotations.{KUEUE}/later",
        f"metadata.annotations.{KUEUE}/podset-slice-size",  # of templates of pods
        f"metadata.labels.{KUEUE}/new-thing", f"metadata.labels.sub.{KUEUE}/own",
    ]  # fmt: skip
    assert [changes_of_pods("Job", path) != "" for path in (
        f"metadata.labels.{KUEUE}/new-thing", "spec.template.spec.affinity.podAffinity", "spec.x.matchFields[]",
        "spec.podAffinities", "metadata.labels")] == [True, True, True, False, False]  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "least", "count", "min_count", "problem"),
    [
        ({}, None, 1, None, None),
        ({"parallelism": 4, "completions": 3}, None, 3, None, None),
        ({"parallelism": 4, "completions": 5}, None, 4, None, None),
        ({"parallelism": 4}, "4", 4, 4, None),
        ({"parallelism": 4}, "3", 4, 3, None),
        ({"parallelism": 4}, "5", 4, 5, "5 is more than the parallelism of 4"),
        ({"parallelism": 0}, None, 1, None, "must be at least 1, not 0"),
        ({"completions": 0}, None, 0, None, "must be at least 1, not 0"),
    ],
)
def test_pods_of_a_job(spec, least, count, min_count, problem):
    notes = {} if least is None else {f"{KUEUE}/job-min-parallelism": least}
    (one,), account = read(job(spec={"template": POD, **spec}, notes=notes))
    assert [(pods.name, pods.count, pods.min_count) for pods in one.pod_sets] == [("main", count, min_count)]
    assert [text.rpartition(": ")[2] for text in told(account)] == ([] if problem is None else [problem])


def test_pods_of_job_sets_and_clusters_of_ray():
    replicated = {"replicatedJobs": [
        {"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 3, "completions": 2, "template": POD}}},
        {"name": "d", "template": {"spec": {"template": POD}}},
    ]}  # fmt: skip
    groups = [{"groupName": name, "replicas": replicas, "numOfHosts": hosts, "template": POD}
              for name, replicas, hosts in (("g", 3, 2), ("none", 0, 4), ("h", 1, 1))]  # fmt: skip
    cluster = {"headGroupSpec": {"template": POD}, "workerGroupSpecs": groups}
    found, account = read(job("s", "JobSet", spec=replicated), job("c", "RayCluster", spec=cluster))
    assert [[(pods.name, pods.count) for pods in one.pod_sets] for one in found] == [
        [("w", 4), ("d", 1)], [("head", 1), ("g", 6), ("h", 1)],
    ]  # fmt: skip
    assert account.problems == []
    for mode, template, requests in (
        ({}, {}, {"cpu": 500, "memory": 200 << 20}),
        ({}, {"submitterPodTemplate": POD}, {"cpu": 1000}),
        ({"submissionMode": "K8sJobMode"}, {}, {"cpu": 500, "memory": 209_715_200}),
        ({"submissionMode": "HTTPMode"}, {}, None),
        ({"submissionMode": "InteractiveMode"}, {}, None),
    ):
        (one,), account = read(job("r", "RayJob", spec={"rayClusterSpec": cluster, **mode, **template}))
        assert account.problems == []
        submitters = [pods.template.requests for pods in one.pod_sets if pods.name == "submitter"]
        assert submitters == ([] if requests is None else [requests])


def set_of(count):
    return {"replicatedJobs": [{"name": "w", "template": {"spec": {"template": POD}}, **count}]}


def roles_of(key, role):
    return lambda count: {key: {role: {"template": POD, **count}}}


def workers_of(count):
    return {"headGroupSpec": {"template": POD}, "workerGroupSpecs": [{"groupName": "g", "template": POD, **count}]}


@pytest.mark.parametrize(
    ("kind", "field", "least", "spec"),
    [
        ("JobSet", "replicas", 1, set_of),
        ("PyTorchJob", "replicas", 1, roles_of("pytorchReplicaSpecs", "Worker")),
        ("MPIJob", "replicas", 1, roles_of("mpiReplicaSpecs", "Launcher")),
        ("RayCluster", "replicas", 0, workers_of),
        ("RayCluster", "numOfHosts", 1, workers_of),
    ],
)
def test_pods_are_one_where_no_number_is_given_and_none_only_in_clusters_of_ray(kind, field, least, spec):
    def pods(count):
        (one,), account = read(job(kind=kind, spec=spec(count)))
        said = [problem.message.rpartition(f"{field}: ")[2] for problem in account.problems]
        return sum(pods.count for pods in one.pod_sets if pods.name != "head"), said

    assert [pods(count) for count in ({}, {field: least}, {field: 3})] == [(1, []), (least, []), (3, [])]
    assert pods({field: least - 1}) == (1, [f"must be at least {least}, not {least - 1}"])


def pod(name, group="g", size="2", *, cpu=1, namespace="a", created=None, duration=None, **notes):
    notes |= {f"{KUEUE}/pod-group-total-count": size} if size else {}
    notes |= {"simsched/duration-s": duration} if duration else {}
    metadata = {"creationTimestamp": created} if created else {}
    spec = {"containers": [{"resources": {"requests": {"cpu": cpu}}}]}
    labels = {f"{KUEUE}/pod-group-name": group} if group else {}
    return job(name, "Pod", spec=spec, namespace=namespace, labels=labels, notes=notes, **metadata)


def test_a_group_of_pods_is_there_when_its_last_pod_is_and_runs_as_long_as_its_longest():
    found, account = read(
        pod("p", size="3", created="1970-01-01T00:01:00Z", duration="50", of="p"), pod("alone", group=""),
        pod("q", size="3", cpu=2, created="1970-01-01T00:02:00Z"), pod("r", size="3", duration="40", of="r"),
    )  # fmt: skip
    assert account.problems == []
    alone, group = found
    assert (alone.id, group.id, group.owner.name, group.created_s, group.duration_s) == ("a/alone", "a/g", "g", 120, 50)
    assert [(pods.name, pods.count, pods.template.requests["cpu"]) for pods in group.pod_sets] == [
        ("set-1", 2, 1000), ("set-2", 1, 2000),
    ]  # fmt: skip
    assert (group.total("cpu"), group.total("gpu"), alone.total("cpu")) == (4000, 0, 1000)
    (bare,), _ = read(pod("p", size="1"))
    assert (bare.created_s, bare.duration_s) == (None, None)


def test_groups_of_one_name_in_two_namespaces_are_two_and_a_pod_that_is_missing_is_told():
    found, account = read(pod("p"), pod("q"), pod("p", namespace="b"), pod("q", namespace="b"))
    assert ([one.id for one in found], account.problems) == (["a/g", "b/g"], [])
    for size, said in (("3", "2 pods of 3"), ("1", "2 pods of 1"), ("", "2 pods of an unsaid number")):
        _, account = read(pod("p", size=size), pod("q", size=size))
        assert told(account) == [f"Pod a/p, metadata: the pod group 'g' has {said}"]


def test_names_that_kinds_share_are_told_apart():
    found, _ = read(job("x"), job("x", "Pod", spec=POD["spec"]), job("x", namespace="b"), job("y", "Deployment"))
    assert [one.id for one in found] == ["a/Job/x", "a/Pod/x", "b/x"]
