"""Gandiva's random packing as Gavel compares with it (Narayanan et al., OSDI'20, section 7.1).

Equal time for all while they fit; otherwise jobs are paired at random, and pairs that achieve less than one job alone
split up. The policy `gandiva` is Gandiva itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import ClassVar

import numpy as np

from simsched.toolkit.programs import Floats, RandomPacking
from simsched.toolkit.rounds import PackedShares, Snapshot, Unit


@dataclass
class GandivaPacking(PackedShares):
    """Gives equal time to jobs and random pairs of jobs."""

    name: ClassVar[str] = "gavel-gandiva"

    packed: bool = True
    _packing: RandomPacking | None = field(default=None, init=False, repr=False)

    def shares(self, snapshot: Snapshot) -> Mapping[Unit, Sequence[float]]:
        """Draw pairs for unpaired jobs, and divide the cluster."""
        if self._packing is None:
            self._packing = RandomPacking(Random(int(snapshot.rng.integers(2**63))))
        problem = snapshot.problem
        place = {job_id: number for number, job_id in enumerate(snapshot.ids)}
        together: dict[tuple[int, int], Floats] = {}
        if problem.pairs is not None:
            rows = zip(problem.pairs.jobs.tolist(), problem.pairs.throughput, strict=True)
            together = {(one, other): rates for (one, other), rates in rows}
        nothing = np.zeros((2, len(problem.num_gpus)))

        def rates(unit: Unit) -> Floats:
            if len(unit) == 1:
                return np.asarray(problem.throughput[place[unit[0]]])
            one, other = place[unit[0]], place[unit[1]]
            found = together.get((min(one, other), max(one, other)), nothing)
            return found if one < other else found[::-1]

        sizes = {job.id: job.num_gpus for job in snapshot.jobs}
        shares = self._packing.shares(sizes, problem.num_gpus, rates)
        waiting = {(job_id,): [0.0] * len(problem.num_gpus) for job_id in snapshot.ids}
        return waiting | {unit: row.tolist() for unit, row in shares.items()}
