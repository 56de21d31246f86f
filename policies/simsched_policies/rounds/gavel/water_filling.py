"""Max-min fairness raised level by level, and shared between entities: Gavel (OSDI'20), section 4.3.

Narayanan et al. call it water filling; with entities it is their hierarchical policy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np

from simsched.errors import input_error
from simsched.policy import JOBS_OF_TENANTS, Becomes, Traits
from simsched.toolkit.programs import Entities, water_filling
from simsched.toolkit.rounds import SharesPolicy, Snapshot, Unit

#: How the jobs of an entity share its allocation: by weight, or first come, first served.
Rule = Literal["fairness", "fifo"]


@dataclass
class WaterFilling(SharesPolicy):
    """Gives every job as much as possible without taking from jobs that have less."""

    name: ClassVar[str] = "gavel-water-filling"

    def shares(self, snapshot: Snapshot) -> Mapping[Unit, Sequence[float]]:
        """Solve one program per level."""
        return snapshot.by_job(water_filling(snapshot.problem))


@dataclass
class Hierarchical(SharesPolicy):
    """Shares the cluster between tenants by weight, and inside a tenant by jobs' weights or in order of arrival.

    `weights` and `rules` are by tenant; other tenants have weight 1 and `rule`.
    """

    name: ClassVar[str] = "gavel-hierarchical"
    traits: ClassVar[Traits] = replace(
        SharesPolicy.traits, wants={JOBS_OF_TENANTS: Becomes("divides among the jobs of one tenant")}
    )

    weights: dict[str, float] = field(default_factory=dict)
    rules: dict[str, Rule] = field(default_factory=dict)
    rule: Rule = "fairness"

    def __post_init__(self) -> None:
        """Raise `InputError` for a weight that is not above 0."""
        super().__post_init__()
        for tenant, weight in self.weights.items():
            if not 0 < weight < float("inf"):
                raise input_error("weights", f"that of '{tenant}' is {weight}", "give numbers above 0")

    def shares(self, snapshot: Snapshot) -> Mapping[Unit, Sequence[float]]:
        """Solve the programs, splitting tenants' weights at each level."""
        tenants = list(dict.fromkeys(job.request.tenant for job in snapshot.jobs))
        entities = Entities(
            np.array([tenants.index(job.request.tenant) for job in snapshot.jobs], dtype=np.int64),
            np.array([self.weights.get(tenant, 1.0) for tenant in tenants]),
            [self.rules.get(tenant, self.rule) for tenant in tenants],
        )
        return snapshot.by_job(water_filling(snapshot.problem, entities))
