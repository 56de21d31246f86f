"""Topology-aware placement: pods on few nodes, and within a node on nearby GPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from simsched_policies.production.hived.cell import Cell
from simsched_policies.production.hived.spec import FREE, OPPORTUNISTIC

#: Whether a node is healthy and may be used.
Usable = Callable[[Cell], bool]


def place(
    nodes: Sequence[Cell], pods: Sequence[int], priority: int, usable: Usable, *, pack: bool
) -> list[tuple[Cell, ...]] | None:
    """Choose GPUs for pods, in the order of `pods`; None if they do not fit.

    The first attempt preempts nothing, the second anything of lower priority. The most used nodes go first; with `pack`
    all uses count the same, otherwise nodes with little use of higher priority go first. Source: HiveD (OSDI'20),
    section 4, and its implementation.
    """
    order = sorted(range(len(pods)), key=lambda pod: pods[pod])
    sizes = [pods[pod] for pod in order]
    for level in dict.fromkeys((OPPORTUNISTIC, priority)):
        chosen = _nodes(nodes, sizes, level, usable, pack=pack)
        if chosen is not None:
            places = _leaves(chosen, sizes, level)
            return [places[order.index(pod)] for pod in range(len(pods))]
    return None


def _nodes(
    nodes: Sequence[Cell], sizes: Sequence[int], priority: int, usable: Usable, *, pack: bool
) -> list[Cell] | None:
    """Fill the nodes, best first, with the next pods; None if a pod is left over or a node is bad."""

    def key(node: Cell) -> tuple[bool, int, int]:
        if pack:
            return (not usable(node), -node.used(), 0)
        return (not usable(node), -node.counts.get(priority, 0), node.used(priority + 1))

    chosen: list[Cell] = []
    for node in sorted(nodes, key=key):
        free = len(node.leaves) - node.used(priority)
        while len(chosen) < len(sizes) and free >= sizes[len(chosen)]:
            if not usable(node):
                return None
            free -= sizes[len(chosen)]
            chosen.append(node)
        if len(chosen) == len(sizes):
            return chosen
    return None


def _leaves(chosen: Sequence[Cell], sizes: Sequence[int], priority: int) -> list[tuple[Cell, ...]]:
    taken: set[int] = set()
    places = []
    for node, size in zip(chosen, sizes, strict=True):
        free = [leaf for leaf in node.leaves if id(leaf) not in taken and leaf.priority == FREE]
        lower = [leaf for leaf in node.leaves if id(leaf) not in taken and FREE < leaf.priority < priority]
        picked = closest([*free, *lower], size)
        taken.update(id(leaf) for leaf in picked)
        places.append(picked)
    return places


def closest(leaves: Sequence[Cell], size: int) -> tuple[Cell, ...]:
    """Return `size` GPUs below the lowest common cell that has that many, the first in the order of `leaves`."""
    groups: dict[int, tuple[Cell, list[Cell]]] = {id(leaf): (leaf, [leaf]) for leaf in leaves}
    while groups:
        for _, inside in groups.values():
            if len(inside) >= size:
                return tuple(inside[:size])
        groups = _merge(groups, leaves)
    raise ValueError(f"{len(leaves)} GPUs cannot hold {size}")


def _merge(groups: dict[int, tuple[Cell, list[Cell]]], leaves: Sequence[Cell]) -> dict[int, tuple[Cell, list[Cell]]]:
    """Join the groups of GPUs of one level into those of the next."""
    rank = {id(leaf): place for place, leaf in enumerate(leaves)}
    above: dict[int, tuple[Cell, list[Cell]]] = {}
    for cell, inside in groups.values():
        if cell.parent is not None:
            above.setdefault(id(cell.parent), (cell.parent, []))[1].extend(inside)
    for _, inside in above.values():
        inside.sort(key=lambda leaf: rank[id(leaf)])
    return dict(sorted(above.items(), key=lambda entry: rank[id(entry[1][1][0])]))
