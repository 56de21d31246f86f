"""POP: max-min fairness solved in parts (Narayanan et al., SOSP'21), for clusters with many jobs.

Jobs are distributed over the parts at each computation of shares, evenly by size; the paper does so once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from simsched.errors import input_error
from simsched.toolkit.programs import max_min, partitioned
from simsched.toolkit.rounds import SharesPolicy, Snapshot, Unit


@dataclass
class Pop(SharesPolicy):
    """Solves max-min fairness in `parts` parts, each with its share of every type's GPUs."""

    name: ClassVar[str] = "gavel-pop"

    parts: int = 4

    def __post_init__(self) -> None:
        """Raise `InputError` if there is no part."""
        super().__post_init__()
        if self.parts < 1:
            raise input_error("parts", f"it is {self.parts}", "give the number of parts, at least 1")

    def shares(self, snapshot: Snapshot) -> Mapping[Unit, Sequence[float]]:
        """Solve the parts."""
        solved = partitioned(snapshot.problem, self.parts, lambda part, _: max_min(part), snapshot.rng)
        return snapshot.by_job(solved)
