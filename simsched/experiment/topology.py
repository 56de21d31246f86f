"""The key `cluster.topology`: racks and islands as levels above the nodes."""

from __future__ import annotations

from pydantic import Field, model_validator

from simsched.documents import Section
from simsched.model import Cluster, Level, consecutive, with_levels


class LevelSpec(Section):
    """A level above the nodes, whose domains (racks, islands) keep synchronisation short."""

    level: str = Field(min_length=1, max_length=40, description="name, for instance 'rack'")
    nodes: int | None = Field(default=None, ge=1, description="consecutive nodes of a domain")
    domains: tuple[tuple[int, ...], ...] | None = Field(
        default=None, min_length=1, description="lists of the nodes of each domain, instead of 'nodes'"
    )
    sync_factor: float = Field(
        default=1.0,
        gt=0,
        le=1000,
        description="how much longer synchronising across domains takes than across nodes of one, for applications "
        "that do not say it themselves",
    )

    inside_factor: float = Field(
        default=1.0,
        gt=0,
        le=1000,
        description="lowest level only: how much longer, or shorter, synchronising across nodes of one domain takes "
        "than applications have it across nodes; for nodes that stand for islands of GPUs in a server",
    )

    @model_validator(mode="after")
    def _one_way(self) -> LevelSpec:
        if (self.nodes is None) == (self.domains is None):
            message = f"level '{self.level}' needs either 'nodes' or 'domains'"
            raise ValueError(message)
        return self

    def build(self, count: int) -> Level:
        """Create the level of a cluster of `count` nodes."""
        domains = consecutive(self.nodes, count) if self.nodes is not None else self.domains or ()
        return Level(self.level, domains, self.sync_factor, self.inside_factor)


def levelled(cluster: Cluster, levels: tuple[LevelSpec, ...]) -> Cluster:
    """Return a cluster with levels; raises `ValueError` if they do not fit it or each other."""
    if not levels:
        return cluster
    names = [spec.level for spec in levels]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        message = f"there are two levels '{twice}'"
        raise ValueError(message)
    above = next((spec.level for spec in levels[1:] if spec.inside_factor != 1), None)
    if above is not None:
        message = f"'inside_factor' is for the lowest level, '{names[0]}', not for '{above}'"
        raise ValueError(message)
    return with_levels(cluster, [spec.build(len(cluster.nodes)) for spec in levels])
