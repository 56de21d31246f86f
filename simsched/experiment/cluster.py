"""The section `cluster`: nodes, prices and power."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, model_validator

from simsched.applications import gpu_types
from simsched.documents import Section
from simsched.experiment.topology import LevelSpec, levelled
from simsched.model import Cluster, NodeGroup

#: Dollars of a node-hour, or the file of a series of them.
Price = Annotated[float, Field(ge=0, le=1e9)] | Annotated[str, Field(min_length=1)]


class MarketPrices(Section):
    """Prices of a zone's spot and on-demand nodes."""

    spot: Price = Field(description="dollars of a spot node-hour, or a CSV of them (time_s, a column a zone)")
    on_demand: Price = Field(description="the same on demand")


class GroupSpec(Section):
    """A group of equal nodes."""

    nodes: int = Field(ge=1, le=100_000, description="how many nodes")
    gpus_per_node: int = Field(ge=1, le=1024, description="GPUs on each of them")
    gpu_type: str = Field(default="t4", min_length=1, description="GPU type, which determines an application's speed")
    cores_per_node: int | None = Field(default=None, ge=1, le=100_000, description="cores of each of them, if limited")
    memory_gb_per_node: float | None = Field(
        default=None, gt=0, le=1e6, description="memory of each of them in GiB, if limited"
    )
    partitions: tuple[str, ...] = Field(
        default=(), description="their partitions (queues); a queue that no group names may use all nodes"
    )
    zone: str = Field(default="", description="the zone of a market in which they are, as in us-east-1c")
    available: str | None = Field(
        default=None, min_length=1, description="CSV (time_s, a column a zone; 1 or 0): when spot nodes are to be had"
    )
    notice: bool = Field(
        default=True, description="whether jobs can save their progress before the market takes their nodes back"
    )
    price_per_h: Price | MarketPrices | None = Field(
        default=None,
        description="dollars of a node-hour, or a CSV of them (time_s, a column a zone); with `spot` and `on_demand` "
        "the group has as many nodes of each",
    )

    @model_validator(mode="after")
    def _market(self) -> GroupSpec:
        if self.zone and self.price_per_h is None:
            raise ValueError("a group with a 'zone' needs 'price_per_h'")
        if not self.zone and (self.available is not None or self.price_per_h is not None):
            raise ValueError("'available' and 'price_per_h' need a 'zone'")
        return self

    def offers(self) -> list[tuple[bool, Price]]:
        """Return whether nodes are spot, and their price, for each of its kinds of nodes."""
        prices = self.price_per_h
        if isinstance(prices, MarketPrices):
            return [(True, prices.spot), (False, prices.on_demand)]
        return [(self.available is not None, 0.0 if prices is None else prices)]

    def build(self) -> NodeGroup:
        """Return the nodes of the cluster."""
        cores, memory = self.cores_per_node, self.memory_gb_per_node
        return NodeGroup(
            self.nodes,
            self.gpus_per_node,
            self.gpu_type,
            None if cores is None else 1000 * cores,
            None if memory is None else round(1024 * memory),
            self.partitions,
        )


def sorted_pairs(mapping: Any) -> Any:
    """Return a mapping as sorted pairs, which are hashable, and anything else unchanged."""
    return tuple(sorted(mapping.items())) if isinstance(mapping, dict) else mapping


#: Watts by GPU type, as sorted pairs.
Watts = Annotated[
    tuple[tuple[str, Annotated[float, Field(ge=0, le=1e5)]], ...],
    BeforeValidator(sorted_pairs),
    PlainSerializer(dict),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": "number", "minimum": 0, "maximum": 1e5}}),
]


#: Dollars by GPU type, as sorted pairs.
Prices = Annotated[
    tuple[tuple[str, Annotated[float, Field(gt=0, le=1e9)]], ...],
    BeforeValidator(sorted_pairs),
    PlainSerializer(dict),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": "number", "exclusiveMinimum": 0}}),
]


class PowerSpec(Section):
    """The power of the cluster, in watts."""

    idle_w: Watts = Field(default=(), description="idle GPU, by type; types not listed are as in the catalogue")
    busy_w: Watts = Field(
        default=(), description="GPU that a job holds, by type; types not listed are as in the catalogue"
    )
    node_w: float = Field(default=0, ge=0, le=1e6, description="node that is up or coming up, without its GPUs")
    asleep_w: float = Field(default=0, ge=0, le=1e6, description="node that is down, in total")


class ClusterSpec(Section):
    """The cluster: equal nodes, or groups of them."""

    nodes: int = Field(default=16, ge=1, le=100_000, description="number of nodes, if all are equal")
    gpus_per_node: int = Field(default=4, ge=1, le=1024, description="GPUs on each node, if all are equal")
    gpu_type: str = Field(default="t4", min_length=1, description="GPU type, if all nodes are equal")
    groups: tuple[GroupSpec, ...] | None = Field(
        default=None, min_length=1, description="groups of equal nodes, instead"
    )
    node_price_per_h: float | None = Field(
        default=None, ge=0, le=1e9, description="price of a node in dollars per hour; gives the metric 'cost'"
    )
    gpu_price_per_h: Prices = Field(
        default=(), description="GPU type -> its price in dollars per hour; gives the metric 'gpu_cost'"
    )
    topology: tuple[LevelSpec, ...] = Field(
        default=(), description="levels above the nodes (racks, islands) and tiers within them, the lowest first"
    )
    power: PowerSpec | None = Field(
        default=None, description="power of GPUs and nodes; gives the metrics 'energy_kwh' and 'unused_energy_kwh'"
    )

    @model_validator(mode="after")
    def _one_way(self) -> ClusterSpec:
        both = sorted(self.model_fields_set & {"nodes", "gpus_per_node", "gpu_type"})
        if self.groups is not None and both:
            raise ValueError(f"give either 'groups' or '{both[0]}', not both")
        types = {self.gpu_type} if self.groups is None else {group.gpu_type for group in self.groups}
        priced = {name for name, _ in self.gpu_price_per_h}
        if priced and priced != types:
            odd = sorted(types ^ priced)[0]
            message = f"'gpu_price_per_h' needs one price for each GPU type of the cluster and no other; see '{odd}'"
            raise ValueError(message)
        if self.groups and len({bool(group.zone) for group in self.groups}) > 1:
            raise ValueError("either all groups have a 'zone', or none")
        if self.groups and self.groups[0].zone and (self.gpu_price_per_h or self.node_price_per_h is not None):
            raise ValueError("groups with a 'zone' have their own prices; leave out the cluster's")
        if self.topology:
            levelled(self._nodes(), self.topology)
        return self

    @model_validator(mode="after")
    def _power_known(self) -> ClusterSpec:
        self.drawn_w()
        return self

    def drawn_w(self) -> dict[str, Any] | None:
        """Return the power of GPUs by type and of nodes as plain values, None if not requested.

        Raises `ValueError` for a GPU type whose power neither the experiment nor the catalogue gives.
        """
        if self.power is None:
            return None
        types = [self.gpu_type] if self.groups is None else sorted({group.gpu_type for group in self.groups})
        gpus = {kind: {"idle_w": self._watts(kind, "idle_w"), "busy_w": self._watts(kind, "busy_w")} for kind in types}
        return {"gpus": gpus, "node_w": self.power.node_w, "asleep_w": self.power.asleep_w}

    def _watts(self, gpu_type: str, state: Literal["idle_w", "busy_w"]) -> float:
        made = gpu_types().get(gpu_type)
        watts: float | None = dict(getattr(self.power, state)).get(gpu_type, getattr(made, state, None))
        if watts is None:
            message = (
                f"the power of GPUs of type '{gpu_type}' is unknown: "
                f"give it as 'power.{state}: {{{gpu_type}: ...}}', or leave out 'power'"
            )
            raise ValueError(message)
        return watts

    def _nodes(self) -> Cluster:
        if self.groups is None:
            return Cluster.uniform(self.nodes, self.gpus_per_node, self.gpu_type)
        return Cluster.of(*(one.build() for one in self.groups for _ in one.offers()))

    def build(self) -> Cluster:
        """Build the cluster, with the catalogue's GPU memory."""
        cluster = levelled(self._nodes(), self.topology)
        known = gpu_types()
        memory_mb = {kind: known[kind].memory_mb for kind in cluster.gpu_types if kind in known}
        return replace(cluster, memory_mb=memory_mb)
