"""Builds and checks the trees of cells that an administrator declares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from simsched.errors import input_error, nearest
from simsched_policies.production.hived.cell import Cell, seal, walk
from simsched_policies.production.hived.spec import CellCluster, CellSpec, CellType


@dataclass(frozen=True)
class Chain:
    """The types from the GPU up to a top cell, all top cells of that type, and the level of nodes."""

    name: str
    types: tuple[str, ...]
    tops: tuple[Cell, ...]
    fan_out: tuple[int, ...]


def build_chains(cluster: CellCluster) -> dict[str, Chain]:
    """Build the physical cells, by type of the top cell, in reverse alphabetical order.

    `fan_out[i]` is the number of children of a cell at level i + 2. Raises `InputError` for unknown types and
    mismatched children.
    """
    tops: dict[str, list[Cell]] = {}
    for position, spec in enumerate(cluster.cells):
        types = chain_types(cluster.types, spec.type, f"cell {position}")
        nodes = [cluster.types[name].is_node if name in cluster.types else False for name in types]
        top = _physical(cluster, types, nodes, spec, None, len(types), spec.type)
        seal(top)
        tops.setdefault(spec.type, []).append(top)
    chains = {}
    for name in sorted(tops, reverse=True):
        types = chain_types(cluster.types, name, name)
        chains[name] = Chain(name, types, tuple(tops[name]), tuple(cluster.types[kind].count for kind in types[1:]))
    return chains


def chain_types(types: Mapping[str, CellType], top: str, where: str) -> tuple[str, ...]:
    """List the types of a chain from the GPU up to `top`."""
    if top not in types:
        raise input_error(where, f"cell type '{top}' is unknown", nearest(top, types))
    names = [top]
    while names[-1] in types:
        names.append(types[names[-1]].child)
        if len(names) > len(types) + 1:
            raise input_error(where, f"cell type '{top}' contains itself", "break the circle of child types")
    return tuple(reversed(names))


def _physical(
    cluster: CellCluster,
    types: tuple[str, ...],
    nodes: list[bool],
    spec: CellSpec,
    parent: Cell | None,
    level: int,
    chain: str,
) -> Cell:
    cell = Cell(chain, level, parent)
    cell.pinned, cell.at_node = spec.pinned, nodes[level - 1]
    cell.node = parent.node if parent is not None else ""
    if cell.at_node:
        if not spec.address:
            raise input_error(f"cell of type '{types[level - 1]}'", "a node needs an address", "write the node's name")
        cell.node = spec.address
    if level == 1:
        cell.index = int(spec.address)
        return cell
    count = cluster.types[types[level - 1]].count
    if spec.children and len(spec.children) != count:
        message = f"has {len(spec.children)} children, its type says {count}"
        raise input_error(f"cell '{spec.address or types[level - 1]}'", message, "list all or none of them")
    for place in range(count):
        child = spec.children[place] if spec.children else CellSpec()
        if not child.address and not nodes[level - 2]:
            first = int(spec.address) * count if spec.address and cell.node and not cell.at_node else 0
            child = CellSpec(child.type, str(first + place), child.children, child.pinned)
        cell.children.append(_physical(cluster, types, nodes, child, cell, level - 1, chain))
    return cell


@dataclass(frozen=True)
class Tenant:
    """The virtual cells of a tenant: the roots that it owns, by chain, and its pinned ones by name."""

    name: str
    roots: Mapping[str, tuple[Cell, ...]]
    pinned: Mapping[str, Cell]


def build_tenants(cluster: CellCluster, chains: Mapping[str, Chain]) -> dict[str, Tenant]:
    """Build the virtual cells of every tenant and bind pinned ones; raises `InputError` if they do not all fit."""
    pins = {cell.pinned: cell for chain in chains.values() for cell in walk(chain.tops) if cell.pinned}
    tenants = {}
    for name in sorted(cluster.tenants):
        roots: dict[str, list[Cell]] = {}
        for path, count in cluster.tenants[name].cells:
            top, level = _owned_level(chains, path, name)
            roots.setdefault(top, []).extend(_virtual(name, chains[top], level) for _ in range(count))
        pinned = {pin: _pinned(name, pin, pins, chains) for pin in cluster.tenants[name].pinned}
        tenants[name] = Tenant(name, {chain: tuple(cells) for chain, cells in roots.items()}, pinned)
    for chain in chains.values():
        _check_fit(chain, tenants)
    return tenants


def _owned_level(chains: Mapping[str, Chain], path: str, tenant: str) -> tuple[str, int]:
    # The name of a type may not contain a dot: dots separate the parts of a path.
    names = path.split(".")
    if names[0] not in chains:
        raise input_error(
            f"tenant '{tenant}'", f"cell '{path}' begins with no physical cell", nearest(names[0], chains)
        )
    types = chains[names[0]].types
    if tuple(names) != types[::-1][: len(names)]:
        raise input_error(f"tenant '{tenant}'", f"cell '{path}' is no path", f"begin with {'.'.join(types[::-1])}")
    return names[0], len(types) - len(names) + 1


def _virtual(tenant: str, chain: Chain, level: int) -> Cell:
    nodes = [False] * len(chain.types)
    cell: Cell | None = chain.tops[0]
    while cell is not None:
        nodes[cell.level - 1] = cell.at_node
        cell = cell.children[0] if cell.children else None
    root = _virtual_tree(chain, level, nodes, None, tenant)
    root.root = True
    seal(root)
    return root


def _virtual_tree(chain: Chain, level: int, nodes: list[bool], parent: Cell | None, tenant: str) -> Cell:
    cell = Cell(chain.name, level, parent)
    cell.tenant, cell.at_node = tenant, nodes[level - 1]
    cell.node = "virtual" if not any(nodes[: level - 1]) else ""
    if level > 1:
        cell.children = [_virtual_tree(chain, level - 1, nodes, cell, tenant) for _ in range(chain.fan_out[level - 2])]
    return cell


def _pinned(tenant: str, pin: str, pins: Mapping[str, Cell], chains: Mapping[str, Chain]) -> Cell:
    if pin not in pins:
        raise input_error(f"tenant '{tenant}'", f"pinned cell '{pin}' is unknown", nearest(pin, pins))
    physical = pins[pin]
    if physical.twin is not None:
        raise input_error(f"tenant '{tenant}'", f"pinned cell '{pin}' belongs to another tenant", "name it once")
    root = _virtual(tenant, chains[physical.chain], physical.level)
    root.pinned, root.twin, physical.twin = pin, physical, root
    return root


def _check_fit(chain: Chain, tenants: Mapping[str, Tenant]) -> None:
    """Raise if the tenants own more of a chain than it holds, counted from the largest cells down."""
    owned: Counter[int] = Counter()
    for tenant in tenants.values():
        owned.update(cell.level for cell in tenant.roots.get(chain.name, ()))
        owned.update(cell.level for cell in tenant.pinned.values() if cell.chain == chain.name)
    left = len(chain.tops)
    for level in range(len(chain.types), 0, -1):
        if owned[level] > left:
            message = f"tenants own {owned[level]} cells of type '{chain.types[level - 1]}', {left} are left for them"
            raise input_error(f"chain '{chain.name}'", message, "give the tenants fewer cells")
        left = (left - owned[level]) * (chain.fan_out[level - 2] if level > 1 else 1)
