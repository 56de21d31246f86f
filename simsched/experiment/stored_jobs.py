"""Jobs in a file, for workloads too large for a process's memory."""

from __future__ import annotations

import pickle
import weakref
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import sha256
from itertools import islice
from multiprocessing import parent_process
from pathlib import Path
from typing import Any, overload

from simsched.experiment.task import canonical_rows, digest_of
from simsched.model import JobSpec
from simsched.model.job import SPEC_DEFAULTS
from simsched.stops import remove_at_end, scratch_path

#: Jobs read or written at a time.
_AT_ONCE = 8192


class HeldJobs(tuple[JobSpec, ...]):
    """Jobs in memory; they are pickled in small groups, since pickle keeps everything that it has written."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as groups of jobs."""
        some = (self[at : at + _AT_ONCE] for at in range(0, len(self), _AT_ONCE))
        return _held, ([_packed(len(one), JobSpec.columns_of(one)) for one in some],)


def _held(some: Sequence[bytes]) -> HeldJobs:
    return HeldJobs(job for one in some for job in JobSpec.of_columns(*pickle.loads(one)))


def _packed(jobs: int, columns: Mapping[str, Sequence[Any]]) -> bytes:
    """Pickle jobs by column, which is several times faster to unpickle."""
    return pickle.dumps((jobs, columns), protocol=pickle.HIGHEST_PROTOCOL)


class StoredJobs(Sequence[JobSpec]):
    """The jobs of a file in order, with few in memory at a time; `digest` follows from them.

    A `temporary` file is deleted with the last object that names it; a caller that runs the jobs in other processes
    must keep one.
    """

    def __init__(
        self, path: Path, places: Sequence[int], ends: Sequence[int], jobs: int, digest: str, *, temporary: bool
    ) -> None:
        """Take the positions of groups of jobs in the file, the index after each group, and the number of jobs."""
        self.digest = digest
        self.path, self._temporary = path, temporary
        self._places, self._ends, self._jobs = places, ends, jobs
        self._held: tuple[int, Sequence[JobSpec]] = (-1, ())
        if temporary and parent_process() is None:
            weakref.finalize(self, path.unlink, missing_ok=True)

    @classmethod
    def write(cls, path: Path, jobs: Iterable[JobSpec], *, temporary: bool = False) -> StoredJobs:
        """Write jobs to a file as they arrive; the digest is that of a tuple of them."""
        places: list[int] = []
        ends, digest, coming = [0], sha256(b"["), iter(jobs)
        with path.open("wb") as file:
            while some := list(islice(coming, _AT_ONCE)):
                columns = JobSpec.columns_of(some)
                rows = canonical_rows(JobSpec, columns, SPEC_DEFAULTS)
                digest.update((("," if places else "") + ",".join(rows)).encode())
                places.append(file.tell())
                ends.append(ends[-1] + len(some))
                file.write(_packed(len(some), columns))
        digest.update(b"]")
        return cls(path, places, ends[1:], ends[-1], digest.hexdigest(), temporary=temporary)

    def part(self, path: Path, first: int, end: int) -> StoredJobs:
        """Copy the groups of jobs that overlap a range to a new file."""
        numbers = range(bisect_right(self._ends, first), bisect_left(self._ends, end) + 1)
        places = [self._places[number] for number in numbers]
        after = self._places[numbers.stop] if numbers.stop < len(self._places) else self.path.stat().st_size
        with self.path.open("rb") as whole:
            whole.seek(places[0])
            path.write_bytes(whole.read(after - places[0]))
        ends = [self._ends[number] - first for number in numbers]
        digest = digest_of((self.digest, first, end))
        return StoredJobs(path, [place - places[0] for place in places], ends, end - first, digest, temporary=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle as the name of the file."""
        made = partial(StoredJobs, temporary=self._temporary)
        return made, (self.path, self._places, self._ends, self._jobs, self.digest)

    def __len__(self) -> int:
        return self._jobs

    @overload
    def __getitem__(self, index: int) -> JobSpec: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[JobSpec]: ...

    def __getitem__(self, index: int | slice) -> JobSpec | Sequence[JobSpec]:
        if isinstance(index, slice):
            return [self[at] for at in range(len(self))[index]]
        return next(self.between(at := range(len(self))[index], at + 1))

    def __iter__(self) -> Iterator[JobSpec]:
        return self.between(0, len(self))

    def between(self, first: int, end: int) -> Iterator[JobSpec]:
        """Yield the jobs from one place to before another."""
        for number, ours in self._parts(first, end):
            if self._held[0] != number:
                self._held = number, JobSpec.of_columns(*self._columns(number))
            yield from self._held[1][ours]

    def values_of(self, *names: str, first: int = 0, end: int | None = None) -> Iterator[Any]:
        """Yield the values of each job's fields, a tuple for several fields, without creating jobs."""
        for number, ours in self._parts(first, len(self) if end is None else end):
            jobs, columns = self._columns(number)
            told = [(columns.get(name) or [SPEC_DEFAULTS[name]] * jobs)[ours] for name in names]
            yield from zip(*told, strict=True) if len(told) > 1 else told[0]

    def _parts(self, first: int, end: int) -> Iterator[tuple[int, slice]]:
        """Yield the groups of jobs that overlap a range, with the positions in each group counted from its end."""
        while first < end:
            number = bisect_right(self._ends, first)
            after = self._ends[number]
            yield number, slice(first - after, end - after if end < after else None)
            first = after

    def _columns(self, number: int) -> tuple[int, Mapping[str, list[Any]]]:
        """Read the size of a group of jobs, and its columns."""
        with self.path.open("rb") as file:
            file.seek(self._places[number])
            read: tuple[int, Mapping[str, list[Any]]] = pickle.load(file)
        return read


def stored(jobs: Iterator[JobSpec]) -> StoredJobs:
    """Write jobs to a temporary file as they arrive."""
    path = scratch_path()
    remove_at_end(path)
    return StoredJobs.write(path, jobs, temporary=True)
