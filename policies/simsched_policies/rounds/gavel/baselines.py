"""Shares without a program: isolated, proportional and Gandiva's fairness, as Gavel and Shockwave compare with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from simsched.policy import Traits
from simsched.toolkit.programs import gandiva_fair, isolated, proportional
from simsched.toolkit.rounds import SharesPolicy, Snapshot, Speeds, Unit


@dataclass
class IsolatedShares(SharesPolicy):
    """Gives every job an n-th of each type's GPUs, at most all its time (Gavel, OSDI'20, the baseline "isolated")."""

    name: ClassVar[str] = "gavel-isolated"
    traits: ClassVar[Traits] = replace(SharesPolicy.traits, type_aware=False)

    speeds: Speeds = "none"

    def shares(self, snapshot: Snapshot) -> Mapping[Unit, Sequence[float]]:
        """Divide the cluster."""
        return snapshot.by_job(isolated(snapshot.problem))


@dataclass
class ProportionalShares(SharesPolicy):
    """Splits every job's time over the types in proportion to their GPUs (Gavel, OSDI'20, section 4.1)."""

    name: ClassVar[str] = "gavel-proportional"
    traits: ClassVar[Traits] = replace(SharesPolicy.traits, type_aware=False)

    speeds: Speeds = "none"

    def shares(self, snapshot: Snapshot) -> Mapping[Unit, Sequence[float]]:
        """Split the time."""
        return snapshot.by_job(proportional(snapshot.problem))


@dataclass
class GandivaFair(SharesPolicy):
    """Gives every job the same time, whatever its size: Gandiva-Fair as Shockwave (NSDI'23) compares with it."""

    name: ClassVar[str] = "gavel-gandiva-fair"
    traits: ClassVar[Traits] = replace(SharesPolicy.traits, type_aware=False)

    speeds: Speeds = "none"

    def shares(self, snapshot: Snapshot) -> Mapping[Unit, Sequence[float]]:
        """Return equal shares of time."""
        return snapshot.by_job(gandiva_fair(snapshot.problem))
