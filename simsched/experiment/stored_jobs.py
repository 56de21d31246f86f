"""Jobs in a file, for workloads that no process should hold whole."""

from __future__ import annotations

import pickle
import weakref
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from itertools import islice
from multiprocessing import parent_process
from pathlib import Path
from typing import Any, overload

from simsched.experiment.canonical import canonical
from simsched.model import JobSpec

#: Jobs that are read and written at a time.
_AT_ONCE = 8192


class HeldJobs(tuple[JobSpec, ...]):
    """Jobs in memory; they go to another process some at a time, as pickle holds on to all that it has written."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        """Hand on pickles of some jobs each."""
        return _held, ([pickle.dumps(self[at : at + _AT_ONCE]) for at in range(0, len(self), _AT_ONCE)],)


def _held(some: Sequence[bytes]) -> HeldJobs:
    return HeldJobs(job for one in some for job in pickle.loads(one))


class StoredJobs(Sequence[JobSpec]):
    """The jobs of a file in their order, of which few are in memory at a time; `digest` is that of a tuple of them.

    The file of `temporary` ones goes with the last object that names it; whoever runs the jobs in other processes
    keeps one.
    """

    def __init__(self, path: Path, places: Sequence[int], ends: Sequence[int], digest: str, *, temporary: bool) -> None:
        self.digest = digest
        self.path, self._temporary = path, temporary
        self._places, self._ends = places, ends
        self._held: tuple[int, Sequence[JobSpec]] = (-1, ())
        if temporary and parent_process() is None:
            weakref.finalize(self, path.unlink, missing_ok=True)

    @classmethod
    def write(cls, path: Path, jobs: Iterable[JobSpec], *, temporary: bool = False) -> StoredJobs:
        """Write jobs to a file, taking them as they come."""
        places: list[int] = []
        ends, digest, coming = [0], sha256(b"["), iter(jobs)
        with path.open("wb") as file:
            while some := list(islice(coming, _AT_ONCE)):
                digest.update((("," if places else "") + ",".join(map(canonical, some))).encode())
                places.append(file.tell())
                ends.append(ends[-1] + len(some))
                pickle.dump(some, file, protocol=pickle.HIGHEST_PROTOCOL)
        digest.update(b"]")
        return cls(path, places, ends[1:], digest.hexdigest(), temporary=temporary)

    def __reduce__(self) -> tuple[Any, ...]:
        """Hand on the name of the file."""
        return _stored, (self.path, self._places, self._ends, self.digest, self._temporary)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, index: int) -> JobSpec: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[JobSpec]: ...

    def __getitem__(self, index: int | slice) -> JobSpec | Sequence[JobSpec]:
        if isinstance(index, slice):
            return [self[at] for at in range(len(self))[index]]
        at = range(len(self))[index]
        number = bisect_right(self._ends, at)
        return self._some(number)[at - self._ends[number]]

    def __iter__(self) -> Iterator[JobSpec]:
        return self.between(0, len(self))

    def between(self, first: int, end: int) -> Iterator[JobSpec]:
        """Yield the jobs from one place to before another."""
        while first < end:
            number = bisect_right(self._ends, first)
            some = self._some(number)[first - self._ends[number] :][: end - first]
            yield from some
            first += len(some)

    def _some(self, number: int) -> Sequence[JobSpec]:
        """Read the jobs that were written together; negative places in them count from their end."""
        if self._held[0] != number:
            with self.path.open("rb") as file:
                file.seek(self._places[number])
                self._held = number, pickle.load(file)
        return self._held[1]


def _stored(path: Path, places: Sequence[int], ends: Sequence[int], digest: str, temporary: bool) -> StoredJobs:
    return StoredJobs(path, places, ends, digest, temporary=temporary)
