"""Bindings of virtual to physical cells, free cells, and doomed bad cells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from simsched.errors import input_error, nearest
from simsched_policies.production.hived.buddy import FreeCells
from simsched_policies.production.hived.build import Chain, Tenant
from simsched_policies.production.hived.cell import Cell, walk
from simsched_policies.production.hived.spec import FREE


class Bindings:
    """The bindings of all chains; every change goes through here.

    A tenant's cell is *doomed* when too few healthy free cells of its level remain for what the tenant has not used: it
    is bound to a bad cell until enough are healthy again.
    """

    def __init__(self, chains: Mapping[str, Chain], tenants: Mapping[str, Tenant]) -> None:
        """Remove pinned cells from the free ones."""
        self._chains, self._tenants = chains, tenants
        self.free = {name: FreeCells(chain) for name, chain in chains.items()}
        self._doomed: dict[str, list[Cell]] = {name: [] for name in chains}
        self._bad: Counter[str] = Counter()
        #: Roots without a binding, by chain and level, of each tenant.
        self._idle: Counter[tuple[str, str, int]] = Counter()
        self._leaves: dict[str, list[Cell]] = {}
        self._at_level: dict[tuple[str, int], list[Cell]] = {}
        for tenant in tenants.values():
            for cell in tenant.pinned.values():
                if cell.twin is not None:
                    twin, cell.twin.twin = cell.twin, None
                    self.free[cell.chain].take(twin)
                    twin.twin = cell
            self._idle.update(
                (tenant.name, cell.chain, cell.level) for cells in tenant.roots.values() for cell in cells
            )
        owners = sorted({key for key in self._idle if self._idle[key]})
        self._owners = {
            (chain.name, level): [t for t, c, at in owners if (c, at) == (chain.name, level)]
            for chain in chains.values()
            for level in range(1, len(chain.types) + 1)
        }
        for chain in chains.values():
            for cell in walk(chain.tops):
                self._at_level.setdefault((chain.name, cell.level), []).append(cell)
                if cell.level == 1:
                    self._leaves.setdefault(cell.node, []).append(cell)

    def reserved(self, chain: str, level: int) -> int:
        """Count the cells of a level that tenants own but have not bound."""
        return sum(self._idle[name, chain, level] for name in self._tenants)

    def bind(self, virtual: Cell, physical: Cell, priority: int) -> None:
        """Bind two GPUs and the cells above them that are not bound yet."""
        for cell, twin in zip(virtual.path(), physical.path(), strict=False):
            if cell.twin is not None:
                break
            if cell.root:
                self._bind_root(cell, twin)
                break
            cell.twin, twin.twin = twin, cell
        virtual.set_priority(priority)
        physical.set_priority(priority)

    def unbind(self, virtual: Cell) -> None:
        """Free a virtual GPU and the cells above it that contain no other bound one."""
        physical = virtual.twin
        if physical is None:
            raise ValueError("the virtual GPU is bound to none")
        virtual.set_priority(FREE)
        physical.set_priority(FREE)
        for cell in virtual.path():
            if any(child.twin is not None for child in cell.children) or cell.pinned:
                break
            if cell.root:
                self._unbind_root(cell)
                break
            if cell.twin is not None:
                cell.twin.twin = None
            cell.twin = None

    def _bind_root(self, cell: Cell, twin: Cell) -> None:
        self.free[cell.chain].take(twin)
        cell.twin, twin.twin = twin, cell
        self._idle[cell.tenant, cell.chain, cell.level] -= 1

    def _unbind_root(self, cell: Cell) -> None:
        if cell.twin is None:
            return
        twin, cell.twin = cell.twin, None
        twin.twin = None
        self.free[cell.chain].give_back(twin)
        self._idle[cell.tenant, cell.chain, cell.level] += 1
        self._doomed[cell.chain] = [other for other in self._doomed[cell.chain] if other is not cell]

    def set_health(self, node: str, *, healthy: bool) -> None:
        """Mark a node and every cell that contains part of it; raises `InputError` for an unknown node."""
        if node not in self._leaves:
            raise input_error(f"node '{node}'", "is not in the cluster", nearest(node, self._leaves))
        chain = self._leaves[node][0].chain
        for leaf in self._leaves[node]:
            self._bad[chain] += leaf.healthy - healthy
            leaf.healthy = healthy
            for cell in leaf.path():
                cell.healthy = all(child.healthy for child in cell.children) if cell.children else healthy
        self._balance(chain)

    def settle(self) -> None:
        """Bind and free doomed cells after cells were bound or freed."""
        for chain in self._chains:
            self._balance(chain)

    def _balance(self, chain: str) -> None:
        """Match the doomed cells to the healthy ones; free of cost if all nodes are healthy."""
        if not self._bad[chain] and not self._doomed[chain]:
            return
        for cell in list(self._doomed[chain]):
            if cell.used():
                self._doomed[chain].remove(cell)
            elif cell.twin is not None and cell.twin.healthy:
                self._unbind_root(cell)
        for level in range(len(self._chains[chain].types), 0, -1):
            for name in self._owners[chain, level]:
                self._balance_level(chain, level, name)

    def _balance_level(self, chain: str, level: int, tenant: str) -> None:
        while self._idle[tenant, chain, level] > self._healthy_free(chain, level):
            bad = next((cell for cell in self._free_cells(chain, level) if not cell.healthy), None)
            root = next((c for c in self._tenants[tenant].roots[chain] if c.level == level and c.twin is None), None)
            if bad is None or root is None:
                return
            self._bind_root(root, bad)
            self._doomed[chain].append(root)
        while self._idle[tenant, chain, level] < self._healthy_free(chain, level):
            doomed = [c for c in self._doomed[chain] if c.tenant == tenant and c.level == level and not c.used()]
            if not doomed:
                return
            self._unbind_root(doomed[0])

    def _free_cells(self, chain: str, level: int) -> Iterator[Cell]:
        return (cell for cell in self._at_level[chain, level] if self.free[chain].holds(cell))

    def _healthy_free(self, chain: str, level: int) -> int:
        return sum(cell.healthy for cell in self._free_cells(chain, level))
