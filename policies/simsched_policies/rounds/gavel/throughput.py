"""The largest total throughput, and the largest per dollar: Gavel (Narayanan et al., OSDI'20), section 4.2.

"Minimum cost" is the throughput per dollar. Gavel's simulator adds raw steps per second, which favours models with
short steps; `normalised` counts each job's rate relative to its fastest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from simsched.errors import input_error
from simsched.policy import DEADLINES, REMAINING_WORK, Becomes, Signal, Traits
from simsched.toolkit.programs import Floats, total_throughput
from simsched.toolkit.rounds import SharesPolicy, Snapshot, Unit

#: Dollars an hour of a GPU, as in Gavel's simulator (Google Cloud, preemptible).
GAVEL_PRICES: Mapping[str, float] = MappingProxyType({"k80": 0.135, "p100": 0.43, "v100": 0.74})


@dataclass
class MaxThroughput(SharesPolicy):
    """Maximises the sum of all jobs' rates, raw or `normalised`."""

    name: ClassVar[str] = "gavel-max-throughput"

    normalised: bool = False

    def shares(self, snapshot: Snapshot) -> Mapping[Unit, Sequence[float]]:
        """Solve the program."""
        return snapshot.by_job(total_throughput(snapshot.problem, normalised=self.normalised))


@dataclass
class MinCost(SharesPolicy):
    """Maximises the sum of all jobs' rates per dollar; with `slos`, jobs with a deadline get what they need.

    `prices_per_h` are dollars per GPU-hour by type, Gavel's by default; types without a price cost 1. If not all
    deadlines can be met, none counts; passed deadlines never count. Idle GPUs do not go to jobs without a share of
    them, which would have to pay; Gavel's simulator does give them, and puts jobs on V100s while these are idle.
    """

    name: ClassVar[str] = "gavel-min-cost"
    traits: ClassVar[Traits] = replace(
        SharesPolicy.traits,
        wants={DEADLINES: Becomes("heeds prices alone, as with slos: false", params={"slos": False})},
    )
    idle_without_share: ClassVar[bool] = True

    prices_per_h: dict[str, float] | None = None
    slos: bool = False
    normalised: bool = False

    def __post_init__(self) -> None:
        """Raise `InputError` for a price that is not above 0."""
        super().__post_init__()
        for gpu_type, price in (self.prices_per_h or {}).items():
            if not 0 < price < float("inf"):
                raise input_error("prices_per_h", f"that of {gpu_type} is {price}", "give dollars above 0")

    @property
    def signals(self) -> frozenset[Signal]:
        """Also return the signal of remaining work if deadlines count."""
        return super().signals | ({REMAINING_WORK} if self.slos else frozenset())

    def shares(self, snapshot: Snapshot) -> Mapping[Unit, Sequence[float]]:
        """Solve the program."""
        known = GAVEL_PRICES if self.prices_per_h is None else self.prices_per_h
        price = np.array([known.get(gpu_type, 1.0) for gpu_type in self._gpus])
        least = _least_rates(snapshot) if self.slos else None
        shares = total_throughput(snapshot.problem, normalised=self.normalised, price=price, least_rate=least)
        return snapshot.by_job(shares)


def _least_rates(snapshot: Snapshot) -> Floats:
    """Return the rate that each job needs to meet its deadline, 0 without one or after it."""
    deadlines = [job.request.deadline_s for job in snapshot.jobs]
    left_s = np.array([np.inf if due is None else due for due in deadlines]) - snapshot.age_s
    return np.where(left_s > 0, snapshot.remaining / np.where(left_s > 0, left_s, 1.0), 0.0)
