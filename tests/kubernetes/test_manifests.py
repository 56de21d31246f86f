"""Kubernetes objects: quantities, pods, workloads and nodes; values worked by hand from the pages of Kubernetes."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from simsched.errors import InputError, Problem
from simsched.manifests import (
    Account,
    NodeFacts,
    is_manifest,
    node_groups,
    objects_text,
    quantity,
    read_nodes,
    read_objects,
    read_workloads,
    written,
)
from simsched.manifests.fields import go_seconds
from simsched.manifests.objects import Object, raise_any
from simsched.manifests.quantities import amount


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1500m", Fraction(3, 2)), ("1Gi", 2**30), ("1e3", 1000), ("0.1", Fraction(1, 10)), ("1.5Gi", 3 * 2**29),
        (8, 8), (0.5, Fraction(1, 2)), ("100k", 100_000), ("1E", 10**18), ("1E2", 100), ("1Ei", 2**60),
        (".5", Fraction(1, 2)), ("3n", Fraction(3, 10**9)), ("-2", -2), ("2E-1", Fraction(1, 5)),
    ],
)  # fmt: skip
def test_quantities_are_exact(text, value):
    assert quantity(text) == value


@pytest.mark.parametrize("text", ["", "1GB", "one", "1 Gi", "1ki", True, None, "1e", "0x10"])
def test_what_is_no_quantity_is_refused(text):
    with pytest.raises(ValueError, match="quantity"):
        quantity(text)


def test_amounts_are_counted_in_thousandths_of_cpus_and_else_in_whole_units_rounded_up():
    given = (("cpu", "1500m"), ("cpu", "0.0001"), ("memory", "1.5"), ("nvidia.com/gpu", "2"), ("cpu", 0))
    assert [amount(*one) for one in given] == [1500, 1, 2, 2, 0]
    assert (written("cpu", 1500), written("cpu", 2000), written("memory", 3 << 29), written("memory", 1)) == (
        "1500m", "2", "1536Mi", "1",
    )  # fmt: skip
    assert [written("memory", units) for units in (0, 1023, 1024, 1 << 60, 3 << 40)] == [
        "0",
        "1023",
        "1Ki",
        "1Ei",
        "3Ti",
    ]
    assert (written("cpu", 0), written("gpu", 1024), written("ephemeral-storage", 1 << 20)) == ("0", "1024", "1Mi")
    with pytest.raises(ValueError, match="negative"):
        amount("cpu", "-1")


def test_durations_of_go_are_seconds():
    assert [go_seconds(text) for text in ("1h30m", "90s", "1.5m", "0", "5", "m5", "250ms")] == [
        5400, 90, 90, 0, None, None, 0.25,
    ]  # fmt: skip
    assert [go_seconds(text) for text in ("3us", "3µs", "4ns", "1m3us", "")] == [
        3e-6, 3e-6, 4e-9, 60.000003, None,
    ]  # fmt: skip


def workloads(tmp_path: Path, text: str, name: str = "w.yaml"):
    (tmp_path / name).write_text(text)
    account = Account()
    found = read_workloads(read_objects(tmp_path / name), account)
    assert account.problems == []
    return found


POD = """
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  initContainers:
  - {name: setup, resources: {requests: {cpu: 5, memory: 1Gi}}}
  - {name: proxy, restartPolicy: Always, resources: {requests: {cpu: 500m}}}
  - {name: warm, resources: {requests: {memory: 6Gi}}}
  containers:
  - {name: a, resources: {requests: {cpu: 2, memory: 2Gi}, limits: {cpu: 4, nvidia.com/gpu: 1}}}
  - {name: b, resources: {limits: {memory: 3Gi}}}
  overhead: {cpu: 250m, memory: 64Mi}
"""


def test_requests_of_a_pod_are_summed_as_kubernetes_sums_them(tmp_path):
    # CPU: containers 2 + sidecar 0.5 = 2.5, init 5 before the sidecar; 5 + 0.25 of overhead.
    # Memory: 2 + 3 (limit) = 5 Gi, init 6; 6 Gi + 64 Mi.
    (one,) = workloads(tmp_path, POD)
    assert one.pod_sets[0].template.requests == {
        "cpu": 5250, "memory": (6 << 30) + (64 << 20), "nvidia.com/gpu": 1,
    }  # fmt: skip


TEMPLATE = "{spec: {containers: [{name: c, resources: {requests: {cpu: 1, nvidia.com/gpu: 2}}}]}}"
LABELS = "labels: {kueue.x-k8s.io/queue-name: q}"
KINDS = {
    "Job": (f"batch/v1|{{parallelism: 5, completions: 3, template: {TEMPLATE}}}", [("main", 3)]),
    "JobSet": (
        "jobset.x-k8s.io/v1alpha2|{replicatedJobs: [{name: w, replicas: 2, template: {spec: "
        f"{{parallelism: 3, template: {TEMPLATE}}}}}}}, {{name: d, template: {{spec: {{template: {TEMPLATE}}}}}}}]}}",
        [("w", 6), ("d", 1)],
    ),
    "PyTorchJob": (
        f"kubeflow.org/v1|{{pytorchReplicaSpecs: {{Worker: {{replicas: 3, template: {TEMPLATE}}}, "
        f"Master: {{template: {TEMPLATE}}}}}}}",
        [("master", 1), ("worker", 3)],
    ),
    "MPIJob": (
        f"kubeflow.org/v2beta1|{{mpiReplicaSpecs: {{Launcher: {{template: {TEMPLATE}}}, "
        f"Worker: {{replicas: 2, template: {TEMPLATE}}}}}}}",
        [("launcher", 1), ("worker", 2)],
    ),
    "RayJob": (
        f"ray.io/v1|{{rayClusterSpec: {{headGroupSpec: {{template: {TEMPLATE}}}, workerGroupSpecs: "
        f"[{{groupName: g, replicas: 2, numOfHosts: 2, template: {TEMPLATE}}}]}}}}",
        [("head", 1), ("g", 4), ("submitter", 1)],
    ),
    "RayCluster": (f"ray.io/v1|{{headGroupSpec: {{template: {TEMPLATE}}}}}", [("head", 1)]),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_workload_has_its_sets_of_pods(tmp_path, kind):
    said, expected = KINDS[kind]
    version, _, spec = said.partition("|")
    text = f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: x, {LABELS}}}\nspec: {spec}\n"
    (one,) = workloads(tmp_path, text)
    assert [(pods.name, pods.count) for pods in one.pod_sets] == expected
    assert (one.id, one.queue) == ("default/x", "q")


def test_pods_of_a_group_are_one_workload(tmp_path):
    pod = (
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: p{n}, labels: {{kueue.x-k8s.io/pod-group-name: g}}, "
        'annotations: {{kueue.x-k8s.io/pod-group-total-count: "3"}}}}\nspec: {{containers: '
        "[{{name: c, resources: {{requests: {{cpu: {cpu}}}}}}}]}}\n"
    )
    text = "---\n".join(pod.format(n=n, cpu=cpu) for n, cpu in enumerate((1, 2, 1)))
    (one,) = workloads(tmp_path, text)
    assert [(pods.count, dict(pods.template.requests)) for pods in one.pod_sets] == [
        (2, {"cpu": 1000}),
        (1, {"cpu": 2000}),
    ]
    assert one.id == "default/g"


def test_names_that_two_kinds_share_are_told_apart_and_generated_names_are_numbered(tmp_path):
    job = f"apiVersion: batch/v1\nkind: Job\nmetadata: {{NAME}}\nspec: {{template: {TEMPLATE}}}\n"
    pod = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: x}}\n{TEMPLATE[1:-1]}\n"
    names = ("name: x", "generateName: y-", "generateName: y-")
    text = "---\n".join([pod, *(job.replace("{NAME}", f"{{{name}}}") for name in names)])
    assert [one.id for one in workloads(tmp_path, text)] == [
        "default/Pod/x",
        "default/Job/x",
        "default/y-1",
        "default/y-2",
    ]


def test_a_list_of_json_is_read_as_documents_are(tmp_path):
    node = (
        '{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": {"rack": "r"}}, "spec": {"taints": '
        '[{"key": "k", "effect": "NoSchedule"}]}, "status": {"allocatable": {"cpu": "7910m", "memory": "1Mi", '
        '"nvidia.com/gpu": "4"}, "conditions": [{"type": "Ready", "status": "False"}]}}'
    )
    (tmp_path / "n.json").write_text(f'{{"apiVersion": "v1", "kind": "List", "items": [{node}]}}')
    (one,) = read_nodes(read_objects(tmp_path / "n.json"), Account())
    assert one.labels == {"kubernetes.io/hostname": "n", "rack": "r"}
    assert (one.gpus, one.ready, one.taints[0].key, one.gpu_type) == (4, False, "k", "gpu")


#: Values as kubectl prints them, and others that YAML allows there.
_VALUES = (
    "--epochs=10", "-x", "-1", "- a", "main=node-1*2", "a{b}, [c]", "f(x): y", "a #b", "a#b", "a:b", "a:", "~", "null",
    "1e3", "010", "0x10", ".5", "+7", "'it''s'", '"a\\tb"', '"caf\\u00e9"', "café", "a\tb", "{a: 1}", "[1, 2]", "{}",
    "|-\n      a\n      b",
    "'two\n      lines'", "true", "Yes", "'1'", '""', "''", "<none>", "=", "$(A)",
    "!tag x", "&a b", "*a", "%x", "@x", "a\x85b", "a b ",
)  # fmt: skip


@pytest.mark.parametrize("value", _VALUES)
def test_a_printed_list_holds_what_the_parser_reads(tmp_path, value):
    item = (
        f"- kind: Job\n  apiVersion: v1\n  metadata:\n    name: a\n  spec:\n    args:\n    - {value}\n    k: {value}\n"
    )
    again = item.replace("name: a", "name: b")  # most of it is known from the one before
    text = f"apiVersion: v1\nitems:\n{item}{again}kind: List\n"
    answers = []
    for head in ("", "# not as printed\n"):
        (tmp_path / "a.yaml").write_text(head + text, newline="")
        try:
            found = read_objects(tmp_path / "a.yaml")
            answers.append([(one.data, one.problem(("spec", "k"), "").line - len(head.splitlines())) for one in found])
        except InputError as error:
            answers.append(len(error.problems))
    assert answers[0] == answers[1]


@pytest.mark.parametrize("twice", ["  kind: Job\n", "  metadata:\n    name: c\n"])
def test_a_printed_item_has_each_field_once(tmp_path, twice):
    item = f"- apiVersion: v1\n  kind: Job\n  metadata:\n    name: a\n{twice}"
    (tmp_path / "a.yaml").write_text(f"apiVersion: v1\nitems:\n{item}kind: List\n")
    with pytest.raises(InputError, match="is given twice"):
        read_objects(tmp_path / "a.yaml")


def test_equal_nodes_beside_each_other_are_a_group_with_room_for_all_that_pods_may_ask():
    small = NodeFacts("a", {}, (), {"cpu": 7910, "memory": (1 << 30) + 1, "nvidia.com/gpu": 4})
    large = NodeFacts("b", {"gpu-type": "h"}, (), {"nvidia.com/gpu": 8})
    assert node_groups([small, small, large]) == [
        {"nodes": 2, "gpus_per_node": 4, "gpu_type": "gpu", "cores_per_node": 8, "memory_gb_per_node": 1025 / 1024},
        {"nodes": 1, "gpus_per_node": 8, "gpu_type": "h"},
    ]


def test_equal_copies_of_an_object_are_one_and_others_refused(tmp_path):
    text = "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n"
    (tmp_path / "a.yaml").write_text(text)
    (tmp_path / "b.yaml").write_text(f"# a comment\n{text}")
    assert len(read_objects(tmp_path)) == 1
    (tmp_path / "b.yaml").write_text("apiVersion: v1\nkind: Namespace\nmetadata: {name: a, labels: {x: y}}\n")
    with pytest.raises(
        InputError, match=r"b\.yaml:1: document 1, Namespace a: is there already, in .*a\.yaml, document 1"
    ):
        read_objects(tmp_path)


def test_a_copy_of_objects_tells_where_they_stood_and_is_passed_over_beside_them(tmp_path):
    (tmp_path / "a.yaml").write_text(
        "# two\napiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\napiVersion: batch/v1\nkind: Job\n"
        "metadata: {generateName: j-, annotations: {x: y}}\n"
    )
    objects = read_objects(tmp_path)
    assert [(one.id, one.key, one.number, one.first_line) for one in objects] == [
        ("Namespace a", ("", "Namespace", "", "a"), 1, 2),
        ("Job default/j-1", ("batch", "Job", "default", "j-1"), 2, 6),
    ]  # fmt: skip
    (tmp_path / "copy.json").write_text(objects_text(objects))
    copied = read_objects(tmp_path / "copy.json")
    assert [(one.id, one.where, one.number, one.first_line) for one in copied] == [
        (one.id, str(tmp_path / "a.yaml"), one.number, one.first_line) for one in objects
    ]
    assert copied[1].data["metadata"]["annotations"]["x"] == "y"
    assert (
        str(copied[1].problem(("spec",), "is odd")) == f"{tmp_path}/a.yaml:6: document 2, Job default/j-1, spec: is odd"
    )
    assert [one.id for one in read_objects(tmp_path)] == ["Namespace a", "Job default/j-1"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{kind: List, items: [3]}",
         "object (unnamed): is no object; a mapping with apiVersion, kind and metadata is expected"),
        ("{kind: Job}", "object (unnamed), apiVersion: is missing; every object says its apiVersion and kind"),
        ("{apiVersion: v1, kind: 3}", "object (unnamed), kind: must be text, not 3"),
        ("{apiVersion: v1, kind: Job, metadata: 3}",
         "object (unnamed), metadata: must be a mapping of keys to values, not 3"),
        ("{apiVersion: v1, kind: Job}", "Job (unnamed), metadata.name: is missing; give the object a name"),
        ("{apiVersion: v1, kind: Job, metadata: {name: 3}}",
         "Job 3, metadata.name: is missing; give the object a name"),
        ('{apiVersion: v1, kind: Job, metadata: {name: ""}}',
         "Job (unnamed), metadata.name: is missing; give the object a name"),
        ("{apiVersion: other/v1, kind: Configuration}",
         "Configuration (unnamed), metadata.name: is missing; give the object a name"),
        ("{apiVersion: config.kueue.x-k8s.io/v1, kind: Job}",
         "Job (unnamed), metadata.name: is missing; give the object a name"),
        ("{apiVersion: v1, kind: Job, metadata: {name: a, namespace: 3}}",
         "Job a, metadata.namespace: must be text, not 3"),
    ],
)  # fmt: skip
def test_what_is_no_object_is_refused_at_its_place(tmp_path, text, said):
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(InputError) as caught:
        read_objects(tmp_path / "a.yaml")
    assert str(caught.value).startswith(f"{tmp_path}/a.yaml:")
    assert str(caught.value).endswith(f"document 1, {said}")


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("a.yaml#2#7", ("a.yaml", 2, 7)),
        ("odd#name.yaml#2#7", ("odd#name.yaml", 2, 7)),
        ("a.yaml#7", None), ("a.yaml#x#7", None), ("a.yaml#2#x", None), ("", None),
    ],
)  # fmt: skip
def test_a_copy_stands_where_its_source_stood_if_that_is_told_whole(tmp_path, source, place):
    text = (
        "{apiVersion: config.kueue.x-k8s.io/v1, kind: Configuration, metadata: {annotations: {simsched/source: '%s'}}}"
    )
    (tmp_path / "own.yaml").write_text(text % source)
    (one,) = read_objects(tmp_path / "own.yaml")
    assert (one.where, one.number, one.first_line) == (place or (str(tmp_path / "own.yaml"), 1, 1))
    assert one.id == "Configuration configuration"


def test_a_folder_is_one_of_manifests_where_a_file_begins_as_one(tmp_path):
    begins = "apiVersion: v1\nkind: Namespace\n"
    (tmp_path / "notes.txt").write_text(begins)
    (tmp_path / "half.yaml").write_text("apiVersion: v1\n")
    (tmp_path / "half.json").write_text('{"apiVersion": "v1"}')
    (tmp_path / "folder.yaml").mkdir()
    assert not is_manifest(tmp_path)
    assert not is_manifest(tmp_path / "notes.txt")
    assert not is_manifest(tmp_path / "none.yaml")
    (tmp_path / "folder.yaml" / "a.yml").write_text(begins)
    assert is_manifest(tmp_path)
    assert is_manifest(tmp_path / "folder.yaml" / "a.yml")
    (tmp_path / "whole.json").write_text('{"apiVersion": "v1",\n"kind": "Namespace"}')
    assert is_manifest(tmp_path / "whole.json")


def test_twenty_problems_are_told_and_the_others_counted():
    problems = [Problem("a", f"{number}") for number in range(22)]
    raise_any([])
    for count, last in ((20, "a: 19"), (22, "and 2 more problems")):
        with pytest.raises(InputError) as caught:
            raise_any([*problems[:count], problems[0]])
        assert len(caught.value.problems) == min(count, 21)
        assert str(caught.value).splitlines()[-1] == last


def test_a_problem_stands_at_the_nearest_line_that_is_known():
    lines = {("items", 0, "spec"): 4, ("items", 0, "kind"): 3, ("items", 0, "spec", "a"): 5}
    one = Object("Job", "batch", "j", "", {}, "a.yaml", 1, lines, ("items", 0))
    assert [one.problem(path, "").line for path in (("spec", "a", "b"), ("spec", "c"), ("status",), ())] == [5, 4, 3, 3]
    assert one.problem(("spec", 2, "a"), "is odd").message == "document 1, Job j, spec[2].a: is odd"
