"""The key `cluster.topology`: racks and islands as levels above the nodes, and the uplinks of all tiers."""

from __future__ import annotations

from pydantic import Field, model_validator

from simsched.documents import Section
from simsched.model import Cluster
from simsched.model.cluster import Level, Uplink, Within
from simsched.model.topology import consecutive, with_levels

_GB, _US = 1e9, 1e-6


class LevelSpec(Section):
    """A level above the nodes, whose domains (racks, islands) keep synchronisation short, or a tier within nodes.

    A tier of `gpus` lies within nodes; a tier of `nodes: 1` with an uplink is the nodes themselves.
    """

    level: str = Field(min_length=1, max_length=40, description="name, for instance 'rack'")
    gpus: int | None = Field(
        default=None, ge=1, le=1024, description="consecutive GPUs of a unit within a node, instead of 'nodes'"
    )
    nodes: int | None = Field(default=None, ge=1, description="consecutive nodes of a domain")
    domains: tuple[tuple[int, ...], ...] | None = Field(
        default=None, min_length=1, description="lists of the nodes of each domain, instead of 'nodes'"
    )
    sync_factor: float = Field(
        default=1.0,
        gt=0,
        le=1000,
        description="time of synchronisation across domains relative to that across nodes of one, for applications "
        "that do not give it",
    )

    inside_factor: float = Field(
        default=1.0,
        gt=0,
        le=1000,
        description="lowest level only: time of synchronisation across nodes of one domain relative to that of "
        "applications across nodes; for nodes that represent islands of GPUs in a server",
    )

    uplink_gb_s: float | None = Field(
        default=None,
        gt=0,
        le=1e9,
        description="GB/s, each way, of the uplink of a GPU, node or domain, for applications with plans",
    )
    oversubscription: float | None = Field(
        default=None,
        gt=0,
        le=1e6,
        description="instead of 'uplink_gb_s': ratio of the total bandwidth of the tier below to that of the uplink",
    )
    latency_us: float = Field(default=0.0, ge=0, le=1e9, description="microseconds that it adds to a collective")
    paths: int = Field(
        default=1,
        ge=1,
        le=1024,
        description="number of equal links of an uplink above the nodes; a job's traffic uses one",
    )

    @model_validator(mode="after")
    def _one_way(self) -> LevelSpec:
        if [self.gpus, self.nodes, self.domains].count(None) != 2:
            message = f"level '{self.level}' needs either 'nodes' or 'domains', or 'gpus' within a node"
            raise ValueError(message)
        if None not in (self.uplink_gb_s, self.oversubscription):
            message = f"level '{self.level}' needs either 'uplink_gb_s' or 'oversubscription', not both"
            raise ValueError(message)
        if self.latency_us and not self.linked:
            message = f"the latency of level '{self.level}' counts only with 'uplink_gb_s' or 'oversubscription'"
            raise ValueError(message)
        if self.paths > 1 and (self.within or not self.linked):
            message = f"'paths' of '{self.level}' apply only to uplinks of a level above the nodes"
            raise ValueError(message)
        if self.within and (not self.linked or self.model_fields_set & {"sync_factor", "inside_factor"}):
            message = f"tier '{self.level}' within a node needs an uplink, and no 'sync_factor' or 'inside_factor'"
            raise ValueError(message)
        return self

    @property
    def linked(self) -> bool:
        """Whether its uplinks are declared."""
        return self.uplink_gb_s is not None or self.oversubscription is not None

    @property
    def within(self) -> bool:
        """Whether it is a tier within the nodes, or the nodes themselves."""
        return self.gpus is not None or (self.nodes == 1 and self.linked)

    def uplink(self, below: Uplink | None, units: float) -> Uplink | None:
        """Return the uplink of a unit with this many units of the tier `below`."""
        if self.oversubscription is None:
            return None if self.uplink_gb_s is None else Uplink(self.uplink_gb_s * _GB, self.latency_us * _US)
        if below is None:
            message = f"'oversubscription' of level '{self.level}' needs the uplinks of the tier below it"
            raise ValueError(message)
        return Uplink(below.bytes_per_s * units / self.oversubscription, self.latency_us * _US)


def levelled(cluster: Cluster, specs: tuple[LevelSpec, ...]) -> Cluster:
    """Return a cluster with levels and tiers; raises `ValueError` if they do not fit it or each other."""
    if not specs:
        return cluster
    names = [spec.level for spec in specs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        message = f"there are two levels '{twice}'"
        raise ValueError(message)
    above = [spec for spec in specs if not spec.within]
    odd = next((spec.level for spec in above[1:] if spec.inside_factor != 1), None)
    if odd is not None:
        message = f"'inside_factor' is for the lowest level, '{above[0].level}', not for '{odd}'"
        raise ValueError(message)
    within, levels = list[Within](), list[Level]()
    below, size = None, 1
    per_node, count = max(node.gpus for node in cluster.nodes), len(cluster.nodes)
    for spec in specs:
        if spec.within:
            gpus = spec.gpus or per_node
            if levels or not size <= gpus <= per_node or (within and within[-1].gpus in (0, gpus)):
                message = f"tier '{spec.level}' does not lie between the tier before it and nodes of {per_node} GPUs"
                raise ValueError(message)
            below, size = spec.uplink(below, gpus / size), gpus
            assert below is not None
            within.append(Within(spec.level, spec.gpus or 0, below))
            continue
        domains = consecutive(spec.nodes, count) if spec.nodes is not None else spec.domains or ()
        gpus = per_node * max(len(domain) for domain in domains)
        below, size = spec.uplink(below, gpus / size), gpus
        one = None if below is None else below._replace(bytes_per_s=below.bytes_per_s / spec.paths)
        levels.append(Level(spec.level, domains, spec.sync_factor, spec.inside_factor, one, spec.paths))
    if (within or any(level.uplink is not None for level in levels)) and (not within or within[-1].gpus):
        raise ValueError("uplinks count with those of nodes: declare '{level: node, nodes: 1, uplink_gb_s: ...}' too")
    return with_levels(cluster, levels, within)
