"""Chooses where to cut the jobs of a cell into shards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from simsched.errors import input_error
from simsched.model import FIXED_DURATION, JobSpec
from simsched.model.job import values_of

#: The default warm-up, as a fraction of a shard's mean length.
_WARM_UP = 0.1

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Shard:
    """A part of a workload: jobs in [`first`, `end`) count, and jobs in [`begins`, `stops`) run.

    Decisions count from second `from_s` to before `until_s`.
    """

    first: int
    end: int
    begins: int
    stops: int
    from_s: float
    until_s: float

    def with_next(self, other: Shard) -> Shard:
        """Merge two neighbouring shards."""
        return Shard(self.first, other.end, self.begins, other.stops, self.from_s, other.until_s)


@dataclass(frozen=True)
class Cuts:
    """The shards of a workload in order; without `warm_up_s` the cluster must be empty at every cut.

    With it, jobs that come within this many seconds before and after a shard's jobs run with them.
    """

    shards: tuple[Shard, ...]
    warm_up_s: float = 0.0

    @property
    def uncut(self) -> Shard:
        """The first two shards as one, in which the second counts; exact, since it starts with the workload."""
        first, second = self.shards[:2]
        return Shard(second.first, second.end, first.begins, second.stops, second.from_s, second.until_s)


def cuts_of(jobs: Sequence[JobSpec], number: int, warm_up_s: float | None) -> Cuts:
    """Cut jobs into `count` parts at times near equal division when the cluster may be empty, else with a warm-up.

    It may be empty when all earlier jobs would be done by then if none had waited. The default warm-up is a tenth of a
    part. Raises `InputError` if a warm-up of 0 s is requested but there is no such time.
    """
    submit_s, done_s = _times(jobs)
    idle_s = submit_s - np.append(np.inf, np.maximum.accumulate(done_s[:-1], out=done_s[:-1]))
    found = [_emptiest(idle_s, part, number) for part in range(1, number)]
    empty = [0, *sorted({place for place in found if place})]
    if warm_up_s == 0 or 0 not in found:
        if len(empty) == 1:
            message = "the cluster is never empty, so jobs cannot be cut without a warm-up"
            raise input_error("shards.warm_up_s", message, "give a warm-up, or leave the key out")
        return Cuts(_shards(submit_s, empty, 0.0))
    even = [min(round(part * len(submit_s) / number), len(submit_s) - 1) for part in range(number)]
    firsts = sorted({int(np.searchsorted(submit_s, np.floor(submit_s[place]))) for place in even})
    if len(firsts) == 1:
        raise input_error("shards.parts", f"{len(submit_s)} jobs cannot be cut", "leave the section out")
    if warm_up_s is None:
        warm_up_s = float(np.ceil(_WARM_UP * (submit_s[-1] - submit_s[0]) / len(firsts)))
    return Cuts(_shards(submit_s, firsts, warm_up_s), warm_up_s)


def _times(jobs: Sequence[JobSpec]) -> tuple[Floats, Floats]:
    """Return when each job comes and its earliest possible completion (infinity if only a run can tell)."""
    told = values_of(jobs, "submit_time_s", "duration_s", "application", "speedup")
    pairs = (
        (submit_s, submit_s + duration_s if application == FIXED_DURATION and speedup is None else np.inf)
        for submit_s, duration_s, application, speedup in told
    )
    both = np.fromiter(chain.from_iterable(pairs), np.float64, 2 * len(jobs))
    return both[::2].copy(), both[1::2].copy()


def _emptiest(idle_s: Floats, part: int, parts: int) -> int:
    """Return the job before which the cluster may be empty for longest around the end of a part, 0 if never."""
    width = len(idle_s) / parts
    begins, ends = (min(max(round((part + by) * width), 1), len(idle_s)) for by in (-0.5, 0.5))
    best = begins + int(np.argmax(idle_s[begins:ends])) if begins < ends else 0
    return best if best and idle_s[best] > 0 else 0


def _shards(submit_s: Floats, firsts: Sequence[int], warm_up_s: float) -> tuple[Shard, ...]:
    ends = [*firsts[1:], len(submit_s)]
    times = [-np.inf, *(float(submit_s[first]) for first in firsts[1:]), np.inf]
    before = [int(np.searchsorted(submit_s, time - warm_up_s)) for time in times[:-1]] if warm_up_s else firsts
    after = [int(np.searchsorted(submit_s, time + warm_up_s)) for time in times[1:]] if warm_up_s else ends
    return tuple(map(Shard, firsts, ends, before, after, times[:-1], times[1:]))
