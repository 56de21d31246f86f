"""HiveD's decisions: which gang runs on which GPUs, which gangs are preempted, and how bad nodes affect tenants."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from simsched.errors import input_error, nearest
from simsched_policies.production.hived.binding import Bindings
from simsched_policies.production.hived.buddy import Binding, find_roots, match_all, needed
from simsched_policies.production.hived.build import build_chains, build_tenants
from simsched_policies.production.hived.cell import Cell, Group, anchors
from simsched_policies.production.hived.spec import (
    FREE,
    MOST_URGENT,
    OPPORTUNISTIC,
    CellCluster,
    Gang,
    Outcome,
    Placed,
    Preempts,
    Waits,
)
from simsched_policies.production.hived.topology import Usable, place


class CellScheduler:
    """The cells of a cluster and the gangs on them.

    Guaranteed gangs get their tenant's virtual cells, bound to physical ones; opportunistic gangs whatever is idle.
    Calls change the state at once: a gang that is `Placed` runs until `release`. Source: HiveD (OSDI'20); if the paper
    leaves a choice, the behaviour of its open implementation.
    """

    def __init__(self, cluster: CellCluster) -> None:
        """Build the cells with all nodes healthy; raises `InputError` for an inconsistent cluster."""
        self.chains = build_chains(cluster)
        self.tenants = build_tenants(cluster, self.chains)
        self.bindings = Bindings(self.chains, self.tenants)
        self.groups: dict[str, Group] = {}
        self._nodes = {chain: anchors(self.chains[chain].tops) for chain in self.chains}

    def schedule(self, gang: Gang, suggested: Collection[str] | None = None, *, preempt: bool = True) -> Outcome:
        """Place a gang, or reserve the cells of the gangs to preempt for it.

        Only nodes in `suggested` are used, if given. With `preempt` False nothing is reserved. A repeated call for a
        gang that waits for its victims places it once they are gone, and searches again if its nodes are no longer
        usable. Raises `InputError` for an unknown tenant, pinned cell or GPU type, and a bad priority.
        """
        self._check(gang)
        usable = _usable(suggested)
        group = self.groups.get(gang.name)
        if group is not None:
            outcome = self._again(group, usable)
            if outcome is not None:
                return outcome
        if gang.priority == OPPORTUNISTIC:
            return self._opportunistic(gang, usable)
        return self._guaranteed(gang, usable, preempt=preempt)

    def release(self, name: str) -> None:
        """Remove a gang from its GPUs, or release the cells that it has reserved."""
        group = self.groups.pop(name)
        if group.running:
            self._stop(group)
        else:
            self._cancel(group)
        self.bindings.settle()

    def set_health(self, node: str, *, healthy: bool) -> None:
        """Mark a node as bad or healthy; gangs on a bad node stay until they are released."""
        self.bindings.set_health(node, healthy=healthy)

    def _check(self, gang: Gang) -> None:
        where = f"gang '{gang.name}'"
        if gang.tenant not in self.tenants:
            raise input_error(where, f"tenant '{gang.tenant}' is unknown", nearest(gang.tenant, self.tenants))
        tenant = self.tenants[gang.tenant]
        if not OPPORTUNISTIC <= gang.priority <= MOST_URGENT:
            raise input_error(
                where, f"priority {gang.priority} is out of range", f"use {OPPORTUNISTIC} to {MOST_URGENT}"
            )
        if not gang.pods or min(gang.pods) < 1:
            raise input_error(where, "asks for no GPU in some pod", "ask for at least one in each")
        if gang.pinned and gang.pinned not in tenant.pinned:
            raise input_error(
                where, f"pinned cell '{gang.pinned}' is not the tenant's", nearest(gang.pinned, tenant.pinned)
            )
        known = self.chains if gang.priority == OPPORTUNISTIC else tenant.roots
        types = {self.chains[chain].types[0] for chain in known}
        if gang.gpu_type and not gang.pinned and gang.gpu_type not in types:
            raise input_error(where, f"GPU type '{gang.gpu_type}' is not the tenant's", nearest(gang.gpu_type, types))

    def _chains_for(self, gang: Gang) -> Iterator[str]:
        for gpu_type in sorted({chain.types[0] for chain in self.chains.values()}):
            if gang.gpu_type in ("", gpu_type):
                yield from (name for name, chain in self.chains.items() if chain.types[0] == gpu_type)

    def _opportunistic(self, gang: Gang, usable: Usable) -> Outcome:
        for chain in self._chains_for(gang):
            pods = place(self._nodes[chain], gang.pods, OPPORTUNISTIC, usable, pack=False)
            if pods is not None:
                group = Group(gang, tuple(pods))
                self.groups[gang.name] = group
                for leaf in group.leaves:
                    leaf.run.holder = group
                    leaf.set_priority(OPPORTUNISTIC)
                return Placed(_places(group))
        return Waits()

    def _guaranteed(self, gang: Gang, usable: Usable, *, preempt: bool) -> Outcome:
        tenant = self.tenants[gang.tenant]
        options = [[tenant.pinned[gang.pinned]]] if gang.pinned else []
        if not gang.pinned:
            options = [list(tenant.roots[chain]) for chain in self._chains_for(gang) if chain in tenant.roots]
        for roots in options:
            pods = place(anchors(roots), gang.pods, gang.priority, lambda cell: _twin_usable(cell, usable), pack=True)
            if pods is not None:
                outcome = self._bind(gang, pods, usable, preempt=preempt)
                if outcome is not None:
                    return outcome
        return Waits()

    def _bind(
        self, gang: Gang, pods: list[tuple[Cell, ...]], usable: Usable, *, preempt: bool
    ) -> Placed | Preempts | Waits | None:
        """Find physical GPUs for virtual ones and start the gang or its preemption; None if there are none."""
        demoted = self._demote(leaf for pod in pods for leaf in pod)
        binding = self._map(pods, usable)
        if binding is None:
            self._restore(demoted)
            return None
        group = Group(gang, tuple(tuple(binding[leaf] for leaf in pod) for pod in pods))
        group.virtual = {binding[leaf]: leaf for pod in pods for leaf in pod}
        names = tuple(other.gang.name for other, _ in demoted)
        victims = _holders(group)
        if victims and not preempt:
            self._restore(demoted)
            return Waits("only by preemption")
        for rival in _claimers(group):
            self._cancel(self.groups.pop(rival.gang.name))
        self.groups[gang.name] = group
        if victims:
            self._claim(group)
            outcome: Placed | Preempts = Preempts(tuple(v.gang.name for v in victims), _places(group), names)
        else:
            self._start(group)
            outcome = Placed(_places(group), names)
        self.bindings.settle()
        return outcome

    def _map(self, pods: list[tuple[Cell, ...]], usable: Usable) -> Binding | None:
        """Choose physical cells for all virtual GPUs and the unbound cells above them."""
        leaves = [leaf for pod in sorted(pods, key=len) for leaf in pod]
        binding: Binding = {leaf: leaf.twin for leaf in leaves if leaf.twin is not None}
        tops = list(needed(leaves))
        needs = {cell: below for _, part in tops for cell, below in part.items()}
        roots = [top for top, _ in tops if top.root]
        if roots:
            free, chain = self.bindings.free[roots[0].chain], roots[0].chain
            found = find_roots(free, roots, needs, usable, lambda level: self.bindings.reserved(chain, level))
            if found is None:
                return None
            binding |= found
        siblings: dict[Cell, list[Cell]] = {}
        for top, _ in tops:
            if not top.root and top.parent is not None and top.parent.twin is not None:
                siblings.setdefault(top.parent.twin, []).append(top)
        for parent, children in siblings.items():
            inside = match_all(children, parent.children, needs, usable)
            if inside is None:
                return None
            binding |= inside
        return binding

    def _start(self, group: Group) -> None:
        group.running = True
        for physical, virtual in group.virtual.items():
            physical.run.holder = group
            self.bindings.bind(virtual, physical, group.gang.priority)

    def _claim(self, group: Group) -> None:
        """Reserve the cells of a gang; the gangs running there keep their GPUs but lose their virtual cells."""
        group.running = False
        for physical, virtual in group.virtual.items():
            holder = physical.run.holder
            if holder is not None and physical in holder.virtual:
                self.bindings.unbind(holder.virtual[physical])
            physical.run.claimer = group
            self.bindings.bind(virtual, physical, group.gang.priority)

    def _cancel(self, group: Group) -> None:
        """Return the reserved cells of a gang to the gangs that still run on them."""
        for physical, virtual in group.virtual.items():
            physical.run.claimer = None
            self.bindings.unbind(virtual)
            holder = physical.run.holder
            if holder is not None and physical in holder.virtual:
                self.bindings.bind(holder.virtual[physical], physical, holder.gang.priority)
            elif holder is not None:
                physical.set_priority(OPPORTUNISTIC)

    def _stop(self, group: Group) -> None:
        for physical in group.leaves:
            physical.run.holder = None
            if physical.run.claimer is not None:
                continue
            if physical in group.virtual:
                self.bindings.unbind(group.virtual[physical])
            else:
                physical.set_priority(FREE)

    def _again(self, group: Group, usable: Usable) -> Outcome | None:
        """Answer for a known gang; None if it gave up its cells and needs a new placement."""
        if group.running:
            return Placed(_places(group))
        if not all(usable(leaf) for leaf in group.leaves):
            self.release(group.gang.name)
            return None
        victims = _holders(group)
        if victims:
            return Preempts(tuple(victim.gang.name for victim in victims), _places(group))
        for physical in group.virtual:
            physical.run.claimer, physical.run.holder = None, group
        group.running = True
        return Placed(_places(group))

    def _demote(self, leaves: Iterator[Cell]) -> list[tuple[Group, dict[Cell, Cell]]]:
        """Make lazy gangs opportunistic if a more urgent gang takes their virtual GPUs."""
        demoted = []
        for leaf in leaves:
            use = leaf.twin.run if leaf.twin is not None else None
            if use is None or use.claimer is not None or use.holder is None or not use.holder.gang.lazy:
                continue
            group = use.holder
            demoted.append((group, group.virtual))
            for physical, virtual in group.virtual.items():
                if physical.run.claimer is None:
                    self.bindings.unbind(virtual)
                    physical.set_priority(OPPORTUNISTIC)
            group.virtual = {}
        return demoted

    def _restore(self, demoted: list[tuple[Group, dict[Cell, Cell]]]) -> None:
        for group, virtual in reversed(demoted):
            group.virtual = virtual
            for physical, leaf in virtual.items():
                if physical.run.claimer is None:
                    self.bindings.bind(leaf, physical, group.gang.priority)


def _usable(suggested: Collection[str] | None) -> Usable:
    names = None if suggested is None else frozenset(suggested)
    return lambda cell: cell.healthy and (names is None or cell.node in names)


def _twin_usable(cell: Cell, usable: Usable) -> bool:
    return cell.twin is None or usable(cell.twin)


def _holders(group: Group) -> list[Group]:
    found = {leaf.run.holder.gang.name: leaf.run.holder for leaf in group.leaves if leaf.run.holder is not None}
    return [found[name] for name in sorted(found)]


def _claimers(group: Group) -> list[Group]:
    found = {leaf.run.claimer.gang.name: leaf.run.claimer for leaf in group.leaves if leaf.run.claimer is not None}
    return [found[name] for name in sorted(found)]


def _places(group: Group) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return tuple((pod[0].node, tuple(leaf.index for leaf in pod)) for pod in group.pods)
