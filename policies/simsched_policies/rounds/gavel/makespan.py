"""Two objectives on remaining work: the makespan and the mean completion time.

Makespan: Narayanan et al., Gavel (OSDI'20), section 4.2, there found by bisection, here by one program. Completion
times: the policy `min_jct` of Sia's fork of Gavel (Jayaram Subramanya et al., SOSP'23).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from simsched.policy import REMAINING_WORK, Traits
from simsched.toolkit.programs import Program, makespan, min_jct
from simsched.toolkit.rounds import PackedShares, SharesPolicy, Snapshot, Unit

#: Relative tolerance on the least sum of completion times.
_GAP = 1e-3


@dataclass
class Makespan(PackedShares):
    """Minimises the end of the last present job if shares stay as they are."""

    name: ClassVar[str] = "gavel-makespan"
    traits: ClassVar[Traits] = replace(PackedShares.traits, needs={REMAINING_WORK})

    speeds: Literal["true", "measured", "fitted", "reference"] = "true"
    _program: Program = field(default_factory=Program, init=False, repr=False)

    def shares(self, snapshot: Snapshot) -> Mapping[Unit, Sequence[float]]:
        """Solve the program."""
        return snapshot.by_job(makespan(snapshot.problem, snapshot.remaining, program=self._program))


@dataclass
class MinJct(SharesPolicy):
    """Minimises the sum of the present jobs' completion times if shares stay as they are."""

    name: ClassVar[str] = "gavel-min-jct"
    traits: ClassVar[Traits] = replace(SharesPolicy.traits, needs={REMAINING_WORK})

    speeds: Literal["true", "measured", "fitted", "reference"] = "true"

    def shares(self, snapshot: Snapshot) -> Mapping[Unit, Sequence[float]]:
        """Solve the program."""
        return snapshot.by_job(min_jct(snapshot.problem, snapshot.remaining, gap=_GAP))
