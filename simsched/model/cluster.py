"""The cluster: nodes that carry GPUs of one type each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property


@dataclass(frozen=True)
class Node:
    """A machine with `gpus` GPUs of type `gpu_type`, known by its index in the cluster."""

    index: int
    gpus: int
    gpu_type: str = "t4"


@dataclass(frozen=True)
class NodeGroup:
    """`nodes` machines of the same make."""

    nodes: int
    gpus_per_node: int
    gpu_type: str = "t4"


@dataclass(frozen=True)
class Cluster:
    """All nodes, in the order of their indices, and the memory of a GPU of each type in MB where it is known."""

    nodes: tuple[Node, ...]
    memory_mb: Mapping[str, float] = field(default_factory=dict, hash=False)

    @classmethod
    def of(cls, *groups: NodeGroup) -> Cluster:
        """Build a cluster of groups of nodes, numbered from 0 in the order given."""
        makes = [group for group in groups for _ in range(group.nodes)]
        return cls(tuple(Node(i, make.gpus_per_node, make.gpu_type) for i, make in enumerate(makes)))

    @classmethod
    def uniform(cls, nodes: int = 16, gpus_per_node: int = 4, gpu_type: str = "t4") -> Cluster:
        """Build a cluster of `nodes` equal nodes (by default the one of Pollux, section 5.1)."""
        return cls.of(NodeGroup(nodes, gpus_per_node, gpu_type))

    @cached_property
    def total_gpus(self) -> int:
        """Count the GPUs of all nodes."""
        return sum(node.gpus for node in self.nodes)

    @cached_property
    def gpus_by_type(self) -> dict[str, int]:
        """Return the number of GPUs of each type, in the order of the nodes."""
        counts: dict[str, int] = {}
        for node in self.nodes:
            counts[node.gpu_type] = counts.get(node.gpu_type, 0) + node.gpus
        return counts

    def gpus_per_node(self, gpu_type: str) -> int:
        """Return the GPUs of the largest node of a type; raises `ValueError` where there is none."""
        return max(node.gpus for node in self.nodes if node.gpu_type == gpu_type)

    @cached_property
    def gpu_types(self) -> tuple[str, ...]:
        """List the GPU types in the cluster, sorted."""
        return tuple(sorted({node.gpu_type for node in self.nodes}))
