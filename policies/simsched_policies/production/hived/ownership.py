"""The cells that each tenant owns: racks, whole nodes, halves of nodes and so on down to single GPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from simsched.model import Node, Tenant
from simsched_policies.production.hived.spec import CellCluster, CellSpec, CellType, VirtualCluster

#: The make of a node: its GPU type and number of GPUs.
Make = tuple[str, int]


@dataclass(frozen=True)
class Chain:
    """Cells of one make from the largest (racks, or nodes) down to the GPU: their types, and the GPUs in each."""

    make: Make
    names: tuple[str, ...]
    sizes: tuple[int, ...]

    def path(self, size: int) -> str:
        """Return the path of types to the cells of a size."""
        return ".".join(self.names[: self.sizes.index(size) + 1])


@dataclass(frozen=True)
class Ownership:
    """The cells of a cluster, and for each tenant and make the GPUs of its nodes and parts of nodes, largest first."""

    cluster: CellCluster
    owned: Mapping[tuple[str, Make], tuple[int, ...]]

    def pods(self, tenant: str, make: Make, gpus: int) -> tuple[int, ...] | None:
        """Return the GPUs of each pod of a job; None if the tenant's cells cannot hold it.

        A job fills whole nodes as far as the tenant has enough of them. If it also needs parts of nodes, its pods have
        one GPU each: pods are placed smallest first, and small pods might otherwise leave no cell for a larger one.
        """
        cells = self.owned.get((tenant, make), ())
        if sum(cells) < gpus:
            return None
        whole, rest = divmod(gpus, make[1])
        pods = (*(make[1],) * whole, *((rest,) if rest else ()))
        fits = cells[0] >= gpus if len(pods) == 1 else cells.count(make[1]) >= len(pods)
        return pods if fits else (1,) * gpus


def leaf(make: Make) -> str:
    """Return the name of the cells that are single GPUs."""
    return f"{_plain(make[0])} of {make[1]}"


def divide(nodes: Sequence[Node], tenants: Mapping[str, Tenant], others: str) -> Ownership:
    """Divide a cluster among tenants; the tenant `others` owns all of it if there are no others, and nothing otherwise.

    If every domain of the lowest level above the nodes has the same number of nodes of a make, these form a cell. A
    tenant owns, of each make, as many GPUs as its share covers, in the largest cells available to all tenants.
    """
    cells, racks = _physical(nodes)
    chains = [_chain(make, inside) for make, inside in racks.items()]
    gpus_of = [sum((node.gpu_type, node.gpus) == one.make for node in nodes) * one.make[1] for one in chains]
    types = {name: kind for chain in chains for name, kind in _types(chain).items()}
    owners = dict(sorted(tenants.items())) or {others: Tenant(share=1.0)}
    found = _owned(chains, gpus_of, owners)
    virtual = {others: VirtualCluster()} | {
        name: VirtualCluster(
            tuple((chain.path(size), n) for place, chain in enumerate(chains) for size, n in found[name, place].items())
        )
        for name in owners
    }
    owned = {
        (name, chain.make): _by_node(found[name, place], chain.make[1])
        for name in owners
        for place, chain in enumerate(chains)
    }
    return Ownership(CellCluster(types, tuple(cells), virtual), owned)


def _physical(nodes: Sequence[Node]) -> tuple[list[CellSpec], dict[Make, int]]:
    """Return the physical cells, and for each make the number of nodes per rack: 1 if racks differ."""
    domains: dict[Make, dict[int, list[Node]]] = {}
    for node in nodes:
        domain = node.domains[0] if node.domains else -1 - node.index
        domains.setdefault((node.gpu_type, node.gpus), {}).setdefault(domain, []).append(node)
    cells: list[CellSpec] = []
    racks: dict[Make, int] = {}
    for make, members in domains.items():
        sizes = {len(inside) for inside in members.values()}
        racks[make] = sizes.pop() if len(sizes) == 1 else 1
        for inside in members.values():
            alone = tuple(CellSpec(_node(make), str(node.index)) for node in inside)
            cells += alone if racks[make] == 1 else (CellSpec(_rack(make, racks[make]), children=alone),)
    return cells, racks


def _chain(make: Make, nodes: int) -> Chain:
    names, sizes = [_node(make)], [make[1]]
    while sizes[-1] > 1 and sizes[-1] % 2 == 0:
        sizes.append(sizes[-1] // 2)
        names.append(f"{sizes[-1]} of {_node(make)}" if sizes[-1] > 1 else leaf(make))
    if sizes[-1] > 1:
        sizes.append(1)
        names.append(leaf(make))
    if names[-1] != leaf(make):  # a node of one GPU
        names.append(leaf(make))
        sizes.append(1)
    if nodes > 1:
        names.insert(0, _rack(make, nodes))
        sizes.insert(0, nodes * make[1])
    return Chain(make, tuple(names), tuple(sizes))


def _types(chain: Chain) -> dict[str, CellType]:
    return {
        name: CellType(below, size // smaller, is_node=name == _node(chain.make))
        for name, below, size, smaller in zip(chain.names, chain.names[1:], chain.sizes, chain.sizes[1:], strict=False)
    }


def _owned(
    chains: Sequence[Chain], gpus_of: Sequence[int], owners: Mapping[str, Tenant]
) -> dict[tuple[str, int], Counter[int]]:
    """Distribute cells, largest first: for each tenant and chain, the number of cells by GPUs.

    `gpus_of` are the GPUs of each chain.
    """
    left = [Counter({chain.sizes[0]: gpus // chain.sizes[0]}) for chain, gpus in zip(chains, gpus_of, strict=True)]
    wanted = {
        (name, place): tenant.gpus if tenant.gpus is not None else tenant.own_gpus(gpus)
        for name, tenant in owners.items()
        for place, gpus in enumerate(gpus_of)
    }
    found = {key: Counter[int]() for key in wanted}
    for size in sorted({size for chain in chains for size in chain.sizes}, reverse=True):
        for name, place in list(wanted):
            if size not in chains[place].sizes:
                continue
            while wanted[name, place] >= size and _take(left[place], chains[place].sizes, size):
                found[name, place][size] += 1
                for other in range(len(chains)) if owners[name].gpus is not None else (place,):
                    wanted[name, other] -= size
    return found


def _take(left: Counter[int], sizes: Sequence[int], size: int) -> bool:
    """Take a cell of a size, splitting a larger one if there is none; False if that is impossible."""
    larger = [one for one in sizes if one >= size]
    fit = next((one for one in reversed(larger) if left[one]), None)
    if fit is None:
        return False
    while fit > size:
        smaller = next(one for one in sizes if one < fit)
        left[fit] -= 1
        left[smaller] += fit // smaller
        fit = smaller
    left[size] -= 1
    return True


def _by_node(cells: Counter[int], per_node: int) -> tuple[int, ...]:
    """List the cells, largest first; those larger than a node appear as their nodes."""
    parts = [min(size, per_node) for size, count in cells.items() for _ in range(count * max(size // per_node, 1))]
    return tuple(sorted(parts, reverse=True))


def _node(make: Make) -> str:
    return f"node of {make[1]} {_plain(make[0])}"


def _rack(make: Make, nodes: int) -> str:
    return f"{nodes} x {_node(make)}"


def _plain(gpu_type: str) -> str:
    return gpu_type.replace(".", "_")  # paths of cell types are cut at dots
