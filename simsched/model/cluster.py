"""The cluster: nodes, each with GPUs of one type."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import NamedTuple

from simsched.arithmetic import ordered_sum
from simsched.keys import key
from simsched.model.placement import Allocation, Site
from simsched.words import counted


@dataclass(frozen=True)
class Node:
    """A machine with `gpus` GPUs of type `gpu_type`, identified by its index in the cluster."""

    index: int
    gpus: int
    gpu_type: str = "t4"
    #: Its domain at each level above the nodes, the lowest level first; () without levels.
    domains: tuple[int, ...] = ()
    name: str = ""
    #: Thousandths of cores, and memory, if declared.
    cpu_milli: int | None = None
    memory_mib: int | None = None
    #: Its partitions (queues); a queue that no node names may use all nodes.
    partitions: tuple[str, ...] = ()


@dataclass(frozen=True)
class NodeGroup:
    """`nodes` machines of the same kind."""

    nodes: int
    gpus_per_node: int
    gpu_type: str = "t4"
    cpu_milli: int | None = None
    memory_mib: int | None = None
    partitions: tuple[str, ...] = ()


class Uplink(NamedTuple):
    """The link from a unit (a GPU, an island, a node, a leaf) to the others: bytes per second each way, and latency."""

    bytes_per_s: float
    latency_s: float = 0.0


@dataclass(frozen=True)
class Within:
    """A tier of equal units within nodes, each of `gpus` consecutive GPUs (0: the node itself), with their uplinks."""

    name: str
    gpus: int
    uplink: Uplink


@dataclass(frozen=True)
class Level:
    """A level above the nodes, such as racks; each of its domains is a tuple of node indices.

    Synchronisation across nodes takes `sync_factor` times as long for a job whose nodes are in several domains as
    within one, unless its application says otherwise. If the nodes are themselves islands of a server, a job on several
    nodes of one lowest-level domain takes `inside_factor` times the seconds that its application gives. The `uplink`
    joins a domain to the others, for jobs that know what they send (None: not declared). Each domain has `paths` such
    uplinks, and a job's traffic takes the same one in each domain.
    """

    name: str
    domains: tuple[tuple[int, ...], ...]
    sync_factor: float = 1.0
    inside_factor: float = 1.0
    uplink: Uplink | None = None
    paths: int = 1

    def described(self) -> dict[str, object]:
        """Return the level as plain data, without defaults."""
        usual = {"inside_factor": 1.0, "uplink": None, "paths": 1}
        return {key: value for key, value in asdict(self).items() if key not in usual or value != usual[key]}


@dataclass(frozen=True, repr=False)
class Cluster:
    """All nodes, in the order of their indices, and the memory of a GPU of each type in MB if known.

    `levels` are above the nodes, the lowest first (`simsched.model.topology.with_levels` adds them), `within` the tiers
    inside them whose uplinks are declared, the smallest first, with the nodes themselves last.
    """

    nodes: tuple[Node, ...]
    memory_mb: Mapping[str, float] = field(default_factory=dict, hash=False)
    levels: tuple[Level, ...] = ()
    within: tuple[Within, ...] = ()

    def __repr__(self) -> str:
        """Describe its size in one line."""
        gpus = ", ".join(f"{gpus} {kind}" for kind, gpus in self.gpus_by_type.items())
        return f"<cluster: {counted(len(self.nodes), 'node')}, GPUs: {gpus or 'none'}>"

    @classmethod
    def of(cls, *groups: NodeGroup) -> Cluster:
        """Build a cluster from groups of nodes, numbered from 0 in the order given."""
        makes = [group for group in groups for _ in range(group.nodes)]
        return cls(
            tuple(
                Node(i, one.gpus_per_node, one.gpu_type, (), "", one.cpu_milli, one.memory_mib, one.partitions)
                for i, one in enumerate(makes)
            )
        )

    @classmethod
    def uniform(cls, nodes: int = 16, gpus_per_node: int = 4, gpu_type: str = "t4") -> Cluster:
        """Build a cluster of `nodes` equal nodes (by default the one of Pollux, section 5.1)."""
        return cls.of(NodeGroup(nodes, gpus_per_node, gpu_type))

    @cached_property
    def total_gpus(self) -> int:
        """Count the GPUs of all nodes."""
        return sum(node.gpus for node in self.nodes)

    @cached_property
    def tightest_sites(self) -> dict[tuple[int, str], Site]:
        """Return the sites that `tightest_site` has found, by GPUs and type."""
        return {}

    @cached_property
    def gpus_by_type(self) -> dict[str, int]:
        """Return the number of GPUs of each type, in the order of the nodes."""
        counts: dict[str, int] = {}
        for node in self.nodes:
            counts[node.gpu_type] = counts.get(node.gpu_type, 0) + node.gpus
        return counts

    def gpus_per_node(self, gpu_type: str) -> int:
        """Return the GPUs of the largest node of a type; raises `ValueError` if there is none."""
        if gpu_type not in self._largest_nodes:
            message = f"no node has GPUs of type '{gpu_type}'"
            raise ValueError(message)
        return self._largest_nodes[gpu_type]

    @cached_property
    def _largest_nodes(self) -> dict[str, int]:
        largest: dict[str, int] = {}
        for node in self.nodes:
            largest[node.gpu_type] = max(node.gpus, largest.get(node.gpu_type, 0))
        return largest

    @cached_property
    def largest_domains(self) -> dict[str, tuple[int, ...]]:
        """Return, for each GPU type, its largest number of GPUs in a domain of each level, the lowest level first."""
        found: dict[str, tuple[int, ...]] = {}
        for kind in self.gpus_by_type:
            gpus = [node.gpus if node.gpu_type == kind else 0 for node in self.nodes]
            found[kind] = tuple(
                max(sum(gpus[node] for node in domain) for domain in level.domains) for level in self.levels
            )
        return found

    @cached_property
    def tiered(self) -> bool:
        """Whether any tier declares its uplinks."""
        return bool(self.within) or any(level.uplink is not None for level in self.levels)

    def uplinks(self, at: Allocation, place: int, path: int) -> tuple[Hashable, ...]:
        """Return the uplinks, on one of the equal paths, of the domains of a level that hold part of an allocation.

        () if the level declares none.
        """
        level = self.levels[place]
        domains = dict.fromkeys(self.nodes[node].domains[place] for node, _ in at) if level.uplink is not None else ()
        return tuple((level.name, domain, path) for domain in domains)

    @cached_property
    def gpu_types(self) -> tuple[str, ...]:
        """List the GPU types in the cluster, sorted."""
        return tuple(sorted({node.gpu_type for node in self.nodes}))


#: The parameter of a policy that is filled from the experiment's section `tenants`.
TENANTS_PARAMETER = "tenants"


@dataclass(frozen=True)
class Tenant:
    """What one tenant may use.

    `share` is the part of the cluster's GPUs that the tenant owns, `gpus` the same as a number, which takes precedence;
    without either it owns none. With `borrows` it may also use GPUs that others leave idle, up to `max_gpus` in total.
    `lends` is how many of its own GPUs others may use while idle (None: all). With `reclaims` it takes its own GPUs
    back from borrowers at once. `weight` matters if policies divide in proportion. Tenants of one `parent`, another
    tenant, share among themselves first; what the parent owns is for all below it.
    """

    share: float | None = key(None, "part of the cluster's GPUs that is the tenant's own", ge=0, le=1)
    gpus: int | None = key(None, "GPUs that are the tenant's own, instead of 'share'", ge=0)
    max_gpus: int | None = key(None, "GPUs that the tenant may use at once, its own and borrowed ones", ge=0)
    borrows: bool = key(True, "whether it may use GPUs that others leave idle")
    lends: int | None = key(None, "how many of its own GPUs others may use; by default all", ge=0)
    reclaims: bool = key(True, "whether it takes its own GPUs back from borrowers by preemption")
    weight: float = key(1.0, "its weight where a policy divides in proportion", ge=0)
    parent: str = key("", "the tenant above it, whose other tenants it shares with first")

    def own_gpus(self, total: int) -> int:
        """Return the tenant's own GPUs in a cluster of `total`; a share is rounded down."""
        if self.gpus is not None:
            return min(self.gpus, total)
        return int((self.share or 0.0) * total + 1e-9)

    def most_gpus(self, total: int) -> int:
        """Return the GPUs in a cluster of `total` that the tenant may use at once."""
        most = total if self.borrows else self.own_gpus(total)
        return most if self.max_gpus is None else min(most, self.max_gpus)


Tenants = Mapping[str, Tenant]


def excess(tenants: Tenants) -> str:
    """Describe what is wrong with the shares of all tenants together; empty if nothing is."""
    total = ordered_sum(tenant.share or 0.0 for tenant in tenants.values() if tenant.gpus is None)
    return f"the shares add up to {total:g}, more than the whole cluster" if total > 1 + 1e-9 else ""


def circle(tenants: Tenants) -> str:
    """Describe which tenant is above itself; empty if none is."""
    for name in sorted(tenants):
        seen, above = {name}, tenants[name].parent
        while above in tenants and above not in seen:
            seen.add(above)
            above = tenants[above].parent
        if above == name:
            return f"'{name}' is above itself; break the circle of parents"
    return ""
