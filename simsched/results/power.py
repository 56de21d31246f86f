"""What the GPUs and nodes of a cell draw."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class NodeMake:
    """A number of equal nodes."""

    nodes: int
    gpus_per_node: int
    gpu_type: str


@dataclass(frozen=True)
class Power:
    """What GPUs and nodes draw, in watts; `makes` are runs of equal nodes in the order of their indices."""

    makes: tuple[NodeMake, ...]
    idle_w: Mapping[str, float]
    busy_w: Mapping[str, float]
    node_w: float = 0.0
    asleep_w: float = 0.0

    @classmethod
    def of(cls, cluster: Iterable[Mapping[str, Any]], power: Mapping[str, Any]) -> Power:
        """Read it from the sections `cluster` and `power` of a cell's manifest."""
        makes = tuple(NodeMake(run["nodes"], run["gpus_per_node"], run["gpu_type"]) for run in cluster)
        idle_w, busy_w = ({kind: gpu[state] for kind, gpu in power["gpus"].items()} for state in ("idle_w", "busy_w"))
        return cls(makes, idle_w, busy_w, power["node_w"], power["asleep_w"])

    @property
    def nodes(self) -> int:
        """Count the nodes."""
        return sum(make.nodes for make in self.makes)

    @property
    def types(self) -> list[str]:
        """List the GPU types."""
        return sorted({make.gpu_type for make in self.makes})
