"""Sequences that create their items on access, which keeps large grids cheap."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import TypeVar, overload

Item = TypeVar("Item")


class Lazy(Sequence[Item]):
    """A sequence of `length` items; `make(i)` creates the i-th on each access."""

    def __init__(self, length: int, make: Callable[[int], Item]) -> None:
        self._length = length
        self._make = make

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Item: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Item]: ...

    def __getitem__(self, index: int | slice) -> Item | Sequence[Item]:
        if isinstance(index, slice):
            chosen = range(self._length)[index]
            return Lazy(len(chosen), lambda i: self._make(chosen[i]))
        if not -self._length <= index < self._length:
            raise IndexError(index)
        return self._make(index % self._length)

    def __iter__(self) -> Iterator[Item]:
        return (self._make(index) for index in range(self._length))


def spread(length: int, most: int) -> list[int]:
    """Pick at most `most` evenly spread indices below `length`, first and last included."""
    if length <= most:
        return list(range(length))
    return sorted({round(step * (length - 1) / (most - 1)) for step in range(most)})


class Shape:
    """The number of cells at each point of a grid."""

    def __init__(self, counts: Sequence[int], times: int = 1) -> None:
        """The counts by point, repeated `times` times."""
        self._ends = list(accumulate(counts))
        self._points = len(self._ends)
        self.total = self._ends[-1] * times

    def place(self, index: int) -> tuple[int, int]:
        """Return a cell's point and its index there."""
        turn, rest = divmod(index, self._ends[-1])
        point = bisect_right(self._ends, rest)
        return turn * self._points + point, rest - (self._ends[point - 1] if point else 0)
