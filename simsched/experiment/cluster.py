"""The section `cluster`: groups of nodes, levels and uplinks above and within them, and the market of their prices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from math import isclose
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from simsched.applications import gpu_types
from simsched.arithmetic import Series
from simsched.documents import Section
from simsched.errors import input_error, nearest
from simsched.model import Cluster, JobSpec, NodeGroup
from simsched.model.cluster import Level, Uplink, Within
from simsched.model.outages import Market, MarketGroup
from simsched.model.topology import consecutive, with_levels
from simsched.reading import first_lines, number, read_records, whole_number

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

    def _conflicts(self) -> Iterator[str]:
        if [self.gpus, self.nodes, self.domains].count(None) != 2:
            yield f"level '{self.level}' needs either 'nodes' or 'domains', or 'gpus' within a node"
        if None not in (self.uplink_gb_s, self.oversubscription):
            yield f"level '{self.level}' needs either 'uplink_gb_s' or 'oversubscription', not both"
        if self.latency_us and not self.linked:
            yield f"the latency of level '{self.level}' counts only with 'uplink_gb_s' or 'oversubscription'"
        if self.paths > 1 and (self.within or not self.linked):
            yield f"'paths' of '{self.level}' apply only to uplinks of a level above the nodes"
        if self.within and (not self.linked or self.model_fields_set & {"sync_factor", "inside_factor"}):
            yield f"tier '{self.level}' within a node needs an uplink, and no 'sync_factor' or 'inside_factor'"

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

    def _conflicts(self) -> Iterator[str]:
        if self.zone and self.price_per_h is None:
            yield "a group with a 'zone' needs 'price_per_h'"
        if not self.zone and (self.available is not None or self.price_per_h is not None):
            yield "'available' and 'price_per_h' need a 'zone'"

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


#: Watts, and dollars, by GPU type.
Watts = dict[str, Annotated[float, Field(ge=0, le=1e5)]]
Prices = dict[str, Annotated[float, Field(gt=0, le=1e9)]]


class PowerSpec(Section):
    """The power of the cluster, in watts."""

    idle_w: Watts = Field(default={}, description="idle GPU, by type; types not listed are as in the catalogue")
    busy_w: Watts = Field(
        default={}, description="GPU that a job holds, by type; types not listed are as in the catalogue"
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
    bill_s: float | None = Field(
        default=None,
        gt=0,
        le=86400,
        description="seconds of the steps for which groups with zones are paid, each begun one in whole; by default, "
        "by the second",
    )
    gpu_price_per_h: Prices = Field(
        default={}, description="GPU type -> its price in dollars per hour; gives the metric 'gpu_cost'"
    )
    topology: tuple[LevelSpec, ...] = Field(
        default=(), description="levels above the nodes (racks, islands) and tiers within them, the lowest first"
    )
    power: PowerSpec | None = Field(
        default=None, description="power of GPUs and nodes; gives the metrics 'energy_kwh' and 'unused_energy_kwh'"
    )

    def _conflicts(self) -> Iterator[str]:
        both = sorted(self.model_fields_set & {"nodes", "gpus_per_node", "gpu_type"})
        if self.groups is not None and both:
            yield f"give either 'groups' or '{both[0]}', not both"
        types = {self.gpu_type} if self.groups is None else {group.gpu_type for group in self.groups}
        if self.gpu_price_per_h and (odd := sorted(types ^ self.gpu_price_per_h.keys())):
            yield f"'gpu_price_per_h' needs one price for each GPU type of the cluster and no other; see '{odd[0]}'"
        if self.groups and len({bool(group.zone) for group in self.groups}) > 1:
            yield "either all groups have a 'zone', or none"
        if self.bill_s is not None and not (self.groups and self.groups[0].zone):
            yield "'bill_s' needs groups with a 'zone'"
        if self.groups and self.groups[0].zone and (self.gpu_price_per_h or self.node_price_per_h is not None):
            yield "groups with a 'zone' have their own prices; leave out the cluster's"
        if self.topology:
            levelled(self._nodes(), self.topology)
        self.drawn_w()

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
        watts: float | None = getattr(self.power, state).get(gpu_type, getattr(made, state, None))
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


_TIME = "time_s"


def market_of(spec: ClusterSpec, tick_s: float = 0) -> Market | None:
    """Return the market of a cluster, None if no group has a zone.

    Raises `InputError` naming file and line for a series with gaps, prices below 0, an availability other than 0 and 1,
    or times that are no multiples of the engine's ticks of `tick_s` seconds.
    """
    groups, first = [], 0
    for group in spec.groups or ():
        for spot, price in group.offers():
            nodes = tuple(range(first, first := first + group.nodes))
            available = _series(group.available, group.zone, tick_s, most=1) if spot and group.available else None
            prices = _priced(price, group.zone, tick_s)
            groups.append(MarketGroup(group.zone, nodes, spot, prices, available, group.notice))
    return Market(tuple(groups)) if any(group.zone for group in spec.groups or ()) else None


def _priced(price: Price, zone: str, tick_s: float) -> Series:
    return _series(price, zone, tick_s) if isinstance(price, str) else Series(1.0, (price,))


@lru_cache(maxsize=256)
def _series(path: str, zone: str, tick_s: float, most: float = float("inf")) -> Series:
    header = next(iter(first_lines(Path(path), 1)), "").strip().split(",")
    if zone not in header:
        raise input_error(path, f"has no column for the zone '{zone}'", nearest(zone, header), line=1)
    times: list[float] = []
    values: list[float] = []
    for line, row in read_records(Path(path), (_TIME, zone), header):
        try:
            times.append(number(row[_TIME], f"column '{_TIME}'", least=0))
            if most == 1:
                values.append(whole_number(row[zone], f"column '{zone}'", most=1))
            else:
                values.append(number(row[zone], f"column '{zone}'", least=0))
            _check_time(times, tick_s)
        except ValueError as error:
            raise input_error(path, str(error), "", line=line) from error
    if len(values) < 2:
        raise input_error(path, "a series needs at least two rows", "give a number for a constant price")
    return Series(times[1] - times[0], tuple(values), path)


def _check_time(times: Sequence[float], tick_s: float) -> None:
    if len(times) == 1 and times[0]:
        raise ValueError(f"the first '{_TIME}' is {times[0]:g}; begin at second 0, the start of the workload")
    if (len(times) > 1 and not isclose(times[-1] - times[-2], times[1] - times[0], rel_tol=1e-9)) or times[-1] < 0:
        raise ValueError(f"'{_TIME}' goes from {times[-2]:g} to {times[-1]:g} in a series of equal steps")
    if len(times) > 1 and times[1] <= times[0]:
        raise ValueError(f"'{_TIME}' does not rise from {times[0]:g} to {times[1]:g}")
    if tick_s and not isclose(times[-1] / tick_s, round(times[-1] / tick_s), abs_tol=1e-9):
        raise ValueError(f"second {times[-1]:g} is no multiple of the engine's ticks of {tick_s:g} s (engine.tick_s)")


def check_horizon(market: Market, jobs: Sequence[JobSpec]) -> None:
    """Raise `InputError` for a series that ends before the deadline or the duration of some job is over."""
    last_s = max((job.submit_time_s + max(job.deadline_s or 0, job.duration_s) for job in jobs), default=0)
    for group in market.groups:
        for series in (group.prices, group.available):
            if series is not None and series.source and (end_s := series.step_s * len(series.values)) < last_s:
                message = f"the series ends at second {end_s:g}, before the work could (second {last_s:g})"
                raise input_error(
                    series.source, message, "give a longer one, or fewer jobs", line=len(series.values) + 1
                )


def prices_of(market: Market) -> list[dict[str, Any]]:
    """Return the prices of consecutive nodes as plain data, for a cell's manifest."""
    return [
        {
            "nodes": len(one.nodes),
            "zone": one.zone,
            "spot": one.spot,
            "step_s": one.prices.step_s,
            "values": list(one.prices.values),
        }
        for one in market.groups
    ]
