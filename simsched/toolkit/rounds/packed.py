"""Shares of time for pairs of jobs that run together on one GPU (Gavel, OSDI'20, section 4.4: space sharing).

Only jobs of one GPU are paired: no measurements of larger jobs are published.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations_with_replacement
from types import MappingProxyType
from typing import ClassVar, NamedTuple

import numpy as np

from simsched.errors import input_error
from simsched.model import Cluster
from simsched.policy import Becomes, JobView, Signal, Traits, View
from simsched.policy.physics import SHARED_GPUS
from simsched.policy.signals import PAIR_SPEEDS, PairSpeeds
from simsched.toolkit.programs.problem import ShareProblem, pairs_of_kinds
from simsched.toolkit.rounds.policy import SharesPolicy


class _Kind(NamedTuple):
    """What a job's speed next to others depends on."""

    application: str
    batch_size: int
    gpus: int
    guaranteed: bool


_ALONE = Becomes("lets no two jobs run together, as with packed: false", params=MappingProxyType({"packed": False}))


@dataclass
class PackedShares(SharesPolicy):
    """Computes shares that, with `packed`, also let pairs of one-GPU jobs run together.

    Needs true rates, alone and in pairs. All jobs run alone if GPUs may not be shared (`engine.sharing.max_jobs`).
    """

    traits: ClassVar[Traits] = replace(SharesPolicy.traits, wants={SHARED_GPUS: _ALONE})

    packed: bool = False
    _speeds: dict[tuple[_Kind, _Kind, str], tuple[float, float]] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        """Raise `InputError` for pairs without true rates."""
        super().__post_init__()
        if self.packed and self.speeds != "true":
            raise input_error("packed", f"speeds is '{self.speeds}'", "packed policies need speeds 'true'")
        if self.packed and self.ideal:
            raise input_error("packed", "ideal is on, too", "leave one of them out")

    @property
    def signals(self) -> frozenset[Signal]:
        """Return the usual signals, and the speeds of pairs if jobs may run together."""
        return super().signals | ({PAIR_SPEEDS} if self.packed else frozenset())

    def begin(self, cluster: Cluster) -> None:
        """Start without speeds of pairs."""
        super().begin(cluster)
        self._speeds.clear()

    def _problem(self, jobs: Sequence[JobView], view: View) -> ShareProblem:
        alone = super()._problem(jobs, view)
        if not self.packed or view.max_jobs_per_gpu < 2:
            return alone
        return with_pairs(alone, jobs, view[PAIR_SPEEDS], tuple(self._gpus), self._speeds)


def with_pairs(
    alone: ShareProblem,
    jobs: Sequence[JobView],
    speeds: PairSpeeds,
    gpu_types: Sequence[str],
    known: dict[tuple[_Kind, _Kind, str], tuple[float, float]] | None = None,
) -> ShareProblem:
    """Return the problem with all pairs of one-GPU jobs that can run together on some type.

    `known` caches the speeds of kinds of jobs across calls.
    """
    known = {} if known is None else known
    kinds = [_kind(job) for job in jobs]
    number: Mapping[_Kind, int] = {kind: place for place, kind in enumerate(dict.fromkeys(kinds))}
    example = {kind: place for place, kind in reversed(list(enumerate(kinds)))}
    beside = np.zeros((len(number), len(number), len(gpu_types)))
    for one, other in combinations_with_replacement([kind for kind in number if kind.gpus == 1], 2):
        rows = alone.throughput[[example[one], example[other]]]
        for column, gpu_type in enumerate(gpu_types):
            if not rows[:, column].all():
                continue
            key = (one, other, gpu_type)
            if key not in known:
                known[key] = speeds.beside(jobs[example[one]].id, jobs[example[other]].id, gpu_type)
            beside[number[one], number[other], column] = known[key][0] * rows[0, column]
            beside[number[other], number[one], column] = known[key][1] * rows[1, column]
    numbers = np.array([number[kind] for kind in kinds], dtype=np.int64)
    return replace(alone, pairs=pairs_of_kinds(numbers, alone.scale_factor, beside), kinds=numbers)


def _kind(job: JobView) -> _Kind:
    request = job.request
    return _Kind(request.application, request.batch_size, job.num_gpus, request.guaranteed)
