"""Cells, physical and virtual, and the trees that they form."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from simsched_policies.production.hived.spec import FREE, Gang


class Cell:
    """One cell of a tree of GPUs; level 1 is a GPU.

    `twin` is the cell bound to it on the other side, physical or virtual. `counts` holds the GPUs inside by the
    priority of the gangs on them. `root` marks a cell that a tenant owns as a whole; `split` a physical cell whose
    children are allocated one by one.
    """

    __slots__ = (
        "at_node",
        "chain",
        "children",
        "counts",
        "healthy",
        "index",
        "leaves",
        "level",
        "node",
        "parent",
        "pinned",
        "priority",
        "root",
        "run",
        "split",
        "tenant",
        "twin",
    )

    def __init__(self, chain: str, level: int, parent: Cell | None = None) -> None:
        """Create a cell without children, on no node."""
        self.chain, self.level, self.parent = chain, level, parent
        self.children: list[Cell] = []
        self.counts: dict[int, int] = {}
        self.twin: Cell | None = None
        self.node, self.index, self.pinned, self.tenant = "", 0, "", ""
        self.healthy, self.split, self.root, self.at_node = True, False, False, False
        self.priority = FREE
        self.leaves: tuple[Cell, ...] = ()
        #: Of a physical GPU: the gangs that run on it or wait for it.
        self.run = Use()

    def path(self) -> Iterator[Cell]:
        """Yield the cell and those above it."""
        cell: Cell | None = self
        while cell is not None:
            yield cell
            cell = cell.parent

    def set_priority(self, priority: int) -> None:
        """Set the priority on a GPU, and update the counts of the cells above."""
        for cell in self.path():
            if self.priority != FREE:
                cell.counts[self.priority] -= 1
            if priority != FREE:
                cell.counts[priority] = cell.counts.get(priority, 0) + 1
        self.priority = priority

    def used(self, least: int = FREE) -> int:
        """Count the GPUs in use at this priority or higher."""
        return sum(count for priority, count in self.counts.items() if priority >= least)


@dataclass
class Use:
    """The gang that runs on a physical GPU, and the one that reserves it."""

    holder: Group | None = None
    claimer: Group | None = None


@dataclass(eq=False)
class Group:
    """A gang with its GPUs; `virtual` is empty for one that runs opportunistically."""

    gang: Gang
    pods: tuple[tuple[Cell, ...], ...]
    virtual: dict[Cell, Cell] = field(default_factory=dict)
    running: bool = True

    @property
    def leaves(self) -> Iterator[Cell]:
        """Yield the physical GPUs of all pods."""
        return (leaf for pod in self.pods for leaf in pod)


def seal(cell: Cell) -> tuple[Cell, ...]:
    """Fill in the GPUs of every cell of a finished tree."""
    cell.leaves = (cell,) if not cell.children else tuple(leaf for child in cell.children for leaf in seal(child))
    return cell.leaves


def walk(cells: Iterable[Cell]) -> Iterator[Cell]:
    """Yield cells and all below them, from the top."""
    for cell in cells:
        yield cell
        yield from walk(cell.children)


def anchors(cells: Iterable[Cell]) -> list[Cell]:
    """List the cells over which pods are spread: the nodes, then the owned parts of nodes, largest first."""
    found: list[Cell] = []
    for cell in cells:
        found += _nodes(cell)
    return sorted(found, key=lambda cell: -cell.level)


def _nodes(cell: Cell) -> list[Cell]:
    inside = cell.at_node or not cell.children or cell.node != ""
    return [cell] if inside else [node for child in cell.children for node in _nodes(child)]
