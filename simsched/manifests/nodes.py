"""Nodes: labels, taints and allocatable resources from `kubectl get nodes -o json`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from simsched.manifests.fields import Account, Fields, chosen
from simsched.manifests.objects import Object
from simsched.manifests.pods import Taint, amounts, taints
from simsched.reading import whole_number

HOSTNAME = "kubernetes.io/hostname"
#: An annotation of simsched: the number of equal nodes that one declared object stands for.
COUNT = "simsched/count"
_TYPES = ("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator", "amd.com/gpu.product-name", "gpu-type")
_MOST = 100_000


def is_gpu(resource: str) -> bool:
    """Return whether a resource counts whole GPUs: `nvidia.com/gpu`, `amd.com/gpu` or plain `gpu`."""
    return resource.rpartition("/")[2] == "gpu"


@dataclass(frozen=True)
class NodeFacts:
    """A node that takes pods, or would if it were `ready` and not `cordoned`; amounts are as in pods."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    allocatable: Mapping[str, int] = field(default_factory=dict)
    ready: bool = True
    cordoned: bool = False

    @property
    def takes_pods(self) -> bool:
        """Return whether it is ready and not cordoned."""
        return self.ready and not self.cordoned

    @property
    def gpus(self) -> int:
        """Return how many GPUs it has."""
        return sum(units for name, units in self.allocatable.items() if is_gpu(name))

    @property
    def gpu_type(self) -> str:
        """Return the type of its GPUs as a label names it, `gpu` if none does."""
        return next((self.labels[name] for name in _TYPES if name in self.labels), "gpu")


def read_nodes(objects: Sequence[Object], account: Account) -> list[NodeFacts]:
    """Read the nodes among objects, in order, expanding those with a count; problems go to `account`."""
    found: list[NodeFacts] = []
    for one in chosen(objects, "Node"):
        fields = Fields(one, account)
        found += _nodes(fields)
        account.close(fields)
    return found


def _nodes(fields: Fields) -> Iterator[NodeFacts]:
    name = fields.owner.name
    fields.skip("apiVersion", "kind")
    metadata, spec, status = fields.part("metadata"), fields.part("spec"), fields.part("status", needed=True)
    metadata.skip("name", "uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "finalizers")
    spec.skip("podCIDR", "podCIDRs", "providerID", "externalID")
    labels, notes = metadata.labels("labels"), metadata.labels("annotations")
    ready = True
    for condition in status.parts("conditions"):
        if condition.text("type") == "Ready":
            ready = condition.text("status") == "True"
        condition.skip(*condition)
    for key in status:
        if key != "allocatable":
            status.skip(key)
    allocatable = amounts(status.part("allocatable", needed=True))
    cordoned = spec.flag("unschedulable")
    node = NodeFacts(name, {HOSTNAME: name, **labels}, taints(spec, "taints"), allocatable, ready, cordoned)
    count = 1
    try:
        count = whole_number(notes.get(COUNT, "1"), "it", least=1, most=_MOST)
    except ValueError:
        message, remedy = (
            f"'{notes[COUNT]:.40}' is not a number from 1 to {_MOST}",
            "write how many such nodes there are",
        )
        fields.account.problems.append(fields.owner.problem(("metadata", "annotations", COUNT), message, remedy))
    if COUNT not in notes:
        yield node
        return
    for number in range(count):
        yield replace(node, name=f"{name}-{number}", labels={**node.labels, HOSTNAME: f"{name}-{number}"})


def in_service(nodes: Sequence[NodeFacts]) -> list[NodeFacts]:
    """Return the nodes of a run in order: those with GPUs that are ready and not cordoned."""
    return [node for node in nodes if node.gpus and node.takes_pods]


def levels_of(objects: Sequence[Object], nodes: Sequence[NodeFacts]) -> list[dict[str, Any]]:
    """Return the levels above the nodes in the form of an experiment's `cluster.topology`, the lowest first.

    They come from the first `Topology` for which all nodes have labels. Of levels with the same domains, only the
    lowest counts.
    """
    for one in chosen(objects, "Topology"):
        parts = Fields(one, Account()).part("spec").parts("levels")
        labels = [label for part in parts if (label := part.text("nodeLabel")) != HOSTNAME]
        if labels and nodes and all(label in node.labels for label in labels for node in nodes):
            levels = [_level(labels[: place + 1], nodes) for place in reversed(range(len(labels)))]
            return [one for at, one in enumerate(levels) if not at or one["domains"] != levels[at - 1]["domains"]]
    return []


def _level(labels: Sequence[str], nodes: Sequence[NodeFacts]) -> dict[str, Any]:
    domains: dict[tuple[str, ...], list[int]] = {}
    for place, node in enumerate(nodes):
        domains.setdefault(tuple(node.labels[label] for label in labels), []).append(place)
    return {"level": labels[-1].rpartition("/")[2], "domains": list(domains.values())}


def node_groups(nodes: Sequence[NodeFacts], gpu_type: str = "") -> list[dict[str, Any]]:
    """Return nodes, in order, as groups of equal nodes in the form of an experiment's `cluster.groups`.

    Cores are rounded up to whole ones, memory to whole MiB; `gpu_type` replaces all types unless it is empty.
    """
    groups: list[dict[str, Any]] = []
    for node in nodes:
        cores = -(-node.allocatable.get("cpu", 0) // 1000)
        memory = -(-node.allocatable.get("memory", 0) // 2**20) / 1024
        make: dict[str, Any] = {"gpus_per_node": node.gpus, "gpu_type": gpu_type or node.gpu_type}
        make |= {"cores_per_node": cores} if cores else {}
        make |= {"memory_gb_per_node": memory} if memory else {}
        if groups and {key: value for key, value in groups[-1].items() if key != "nodes"} == make:
            groups[-1]["nodes"] += 1
        else:
            groups.append({"nodes": 1, **make})
    return groups
