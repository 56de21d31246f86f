"""Sequences whose items are made when they are asked for, so that a large grid costs neither time nor memory."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import TypeVar, overload

Item = TypeVar("Item")


class Lazy(Sequence[Item]):
    """`length` items, the i-th of which is `make(i)` each time that it is asked for."""

    def __init__(self, length: int, make: Callable[[int], Item]) -> None:
        """Make nothing yet."""
        self._length = length
        self._make = make

    def __len__(self) -> int:
        """Return how many items there are."""
        return self._length

    @overload
    def __getitem__(self, index: int) -> Item: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Item]: ...

    def __getitem__(self, index: int | slice) -> Item | Sequence[Item]:
        """Make an item, or a sequence of some."""
        if isinstance(index, slice):
            chosen = range(self._length)[index]
            return Lazy(len(chosen), lambda i: self._make(chosen[i]))
        if not -self._length <= index < self._length:
            raise IndexError(index)
        return self._make(index % self._length)

    def __iter__(self) -> Iterator[Item]:
        """Make the items one after the other."""
        return (self._make(index) for index in range(self._length))


def spread(length: int, most: int) -> list[int]:
    """Pick at most `most` indices below `length`, the first and the last among them, spread evenly."""
    if length <= most:
        return list(range(length))
    return sorted({round(step * (length - 1) / (most - 1)) for step in range(most)})


class Shape:
    """How many cells each point of a grid has."""

    def __init__(self, counts: Sequence[int], times: int = 1) -> None:
        """Take the counts point by point; the whole list of them stands `times` times."""
        self._ends = list(accumulate(counts))
        self._points = len(self._ends)
        self.total = self._ends[-1] * times

    def place(self, index: int) -> tuple[int, int]:
        """Return the point of a cell, and the cell's place within it."""
        turn, rest = divmod(index, self._ends[-1])
        point = bisect_right(self._ends, rest)
        return turn * self._points + point, rest - (self._ends[point - 1] if point else 0)
