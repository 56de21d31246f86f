"""Max-min fairness over GPU types: maximises the least rate of a job, relative to a proportional share.

Narayanan et al., Gavel (OSDI'20), section 4.1, "LAS"; with `speeds: none` the agnostic form, which splits time alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from simsched.toolkit.programs import Program, max_min
from simsched.toolkit.rounds import PackedShares, Snapshot, Unit


@dataclass
class MaxMin(PackedShares):
    """Gives every job the same multiple of its proportional share, by job weight.

    With `packed`, jobs of one GPU may also run in pairs, and a job's rate sums both.
    """

    name: ClassVar[str] = "gavel-max-min"

    _program: Program = field(default_factory=Program, init=False, repr=False)

    def shares(self, snapshot: Snapshot) -> Mapping[Unit, Sequence[float]]:
        """Solve the program."""
        return snapshot.by_job(max_min(snapshot.problem, program=self._program))
