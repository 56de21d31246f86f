"""The free physical cells of a chain, and the search for those to which virtual cells can be bound."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

from simsched_policies.production.hived.build import Chain
from simsched_policies.production.hived.cell import Cell
from simsched_policies.production.hived.spec import OPPORTUNISTIC
from simsched_policies.production.hived.topology import Usable

#: Virtual cells to bind, and the physical ones chosen for them.
Binding = dict[Cell, Cell]
#: The children of a virtual cell that a placement needs.
Needs = dict[Cell, list[Cell]]


class FreeCells:
    """The free cells of a chain by level; a cell is split only when a smaller one is needed.

    Taking a cell moves the last one of its level to its position, which gives HiveD's order of allocation.
    """

    def __init__(self, chain: Chain) -> None:
        """Start with all top cells free."""
        self.levels: list[list[Cell]] = [[] for _ in chain.types]
        self.levels[-1] = list(chain.tops)
        self._fan_out = chain.fan_out

    def of(self, level: int) -> list[Cell]:
        """Return the free cells of a level that are not part of larger free ones."""
        return self.levels[level - 1]

    def fan_out(self, level: int) -> int:
        """Return the number of children of a cell of a level."""
        return self._fan_out[level - 2]

    @contextmanager
    def trial(self) -> Iterator[list[Cell]]:
        """Restore everything, in order, at the end; yields a list that collects the cells taken in the trial."""
        taken: list[Cell] = []
        before = [list(cells) for cells in self.levels]
        whole = {cell for cells in before for cell in cells}
        try:
            yield taken
        finally:
            self.levels = before
            for cell in taken:
                for step in cell.path():
                    if step is not cell:
                        step.split = False
                    if step in whole:
                        break

    def take(self, cell: Cell) -> None:
        """Remove a cell, splitting those above it as needed."""
        step: Cell | None = cell
        while step is not None:
            parent = step.parent
            split = parent is not None and not parent.split
            if parent is not None and split:
                self.of(step.level).extend(parent.children)
                parent.split = True
            _remove(self.of(step.level), step)
            step = parent if split else None

    def give_back(self, cell: Cell) -> None:
        """Return a cell, merging it with its buddies if all of them are free."""
        step = cell
        while step.parent is not None:
            free = self.of(step.level)
            buddies = [child for child in step.parent.children if child is not step]
            if not all(any(buddy is other for other in free) for buddy in buddies):
                break
            for buddy in buddies:
                _remove(free, buddy)
            step.parent.split = False
            step = step.parent
        self.of(step.level).append(step)

    @staticmethod
    def holds(cell: Cell) -> bool:
        """Return whether a cell is free, on its own or as part of a larger one."""
        for step in cell.path():
            if step.split or step.twin is not None:
                return False
            if step.parent is not None and step.parent.split:
                break
        return True


def _remove(cells: list[Cell], cell: Cell) -> None:
    place = next(i for i, other in enumerate(cells) if other is cell)
    cells[place] = cells[-1]
    cells.pop()


def find_roots(
    free: FreeCells, roots: Sequence[Cell], needs: Needs, usable: Usable, reserved: Callable[[int], int]
) -> Binding | None:
    """Choose free physical cells for owned virtual ones in turn; None if one finds none.

    The smallest free cell that is large enough is split; if it contains no usable one, larger cells are split, as far
    as the cells that tenants still own at their level (`reserved`) allow ("safe relaxed"). `free` is unchanged.
    """
    chosen: Binding = {}
    with free.trial() as taken:
        for root in roots:
            found = _buddy(free, root, needs, usable) or _relaxed(free, root, needs, usable, reserved)
            if not found:
                return None
            chosen |= found
            free.take(found[root])
            taken.append(found[root])
    return chosen


def _buddy(free: FreeCells, root: Cell, needs: Needs, usable: Usable) -> Binding | None:
    level = next((level for level in range(root.level, len(free.levels) + 1) if free.of(level)), 0)
    return _descend(free.of(level), root, needs, usable) if level else None


def _relaxed(
    free: FreeCells, root: Cell, needs: Needs, usable: Usable, reserved: Callable[[int], int]
) -> Binding | None:
    spare = 0
    safe: dict[int, bool] = {}
    for level in range(len(free.levels), root.level, -1):
        spare += len(free.of(level)) - reserved(level)
        safe[level] = spare > 0
        spare *= free.fan_out(level)
    for level in range(root.level + 1, len(free.levels) + 1):
        if not safe[level]:
            return None
        found = _descend(free.of(level), root, needs, usable)
        if found:
            return found
    return None


def _descend(cells: Iterable[Cell], root: Cell, needs: Needs, usable: Usable) -> Binding | None:
    """Search cells, and those inside larger ones, for one to which a virtual cell can be bound."""
    for cell in _least_opportunistic(cells):
        if cell.level > root.level:
            found = _descend(cell.children, root, needs, usable)
        else:
            found = match(root, cell, needs, usable)
        if found:
            return found
    return None


def _least_opportunistic(cells: Iterable[Cell]) -> list[Cell]:
    return sorted(cells, key=lambda cell: cell.counts.get(OPPORTUNISTIC, 0))


def match(virtual: Cell, physical: Cell, needs: Needs, usable: Usable) -> Binding | None:
    """Bind a virtual cell and the needed cells below it; None if the physical one is unsuitable."""
    if physical.node and not usable(physical):
        return None
    inside = match_all(needs.get(virtual, []), physical.children, needs, usable)
    return None if inside is None else {virtual: physical} | inside


def match_all(virtual: Sequence[Cell], physical: Iterable[Cell], needs: Needs, usable: Usable) -> Binding | None:
    """Bind several virtual cells to distinct unbound physical ones, by backtracking search."""
    if not virtual:
        return {}
    candidates = [cell for cell in _least_opportunistic(physical) if cell.twin is None]
    for cell in candidates:
        first = match(virtual[0], cell, needs, usable)
        if first is None:
            continue
        rest = match_all(virtual[1:], [other for other in candidates if other is not cell], needs, usable)
        if rest is not None:
            return first | rest
    return None


def needed(leaves: Iterable[Cell]) -> Iterator[tuple[Cell, Needs]]:
    """Yield the topmost unbound cell above each unbound virtual GPU, once, and the needed cells below it."""
    tops: dict[Cell, Needs] = {}
    for leaf in leaves:
        if leaf.twin is not None:
            continue
        chain = [leaf]
        while not chain[-1].root and chain[-1].parent is not None and chain[-1].parent.twin is None:
            chain.append(chain[-1].parent)
        needs = tops.setdefault(chain[-1], {})
        for child, parent in pairwise(chain):
            below = needs.setdefault(parent, [])
            if child not in below:
                below.append(child)
    yield from tops.items()
