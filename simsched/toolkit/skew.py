"""Placement by the skew of a model's tensors (Tiresias, section 3.4)."""

from __future__ import annotations

from typing import Literal

from simsched.model import ApplicationFacts, JobRequest
from simsched.model.pool import Placer
from simsched.policy import Becomes, Wants
from simsched.policy.physics import TENSORS
from simsched.toolkit.placers import CONSOLIDATED, FRAGMENTS, PLACERS, PlacerName

_FRAGMENTS_ALONE = Becomes("fills fragments with every job", params={"placement": "fragments"})
PlacementName = Literal["skew", PlacerName]


class SkewPlacement:
    """Gives each job its placer: by its model with `skew`, else the same for all jobs.

    A model is consolidated if its largest tensor makes up more than `limit` of it: large tensors keep a few links busy
    while the others idle. Models with unknown tensors fill fragments.
    """

    def __init__(self, placement: PlacementName, limit: float) -> None:
        """Take the placement; raises `ValueError` if the limit is not in [0, 1]."""
        if not 0 <= limit <= 1:
            raise ValueError(f"skew_limit must be from 0 to 1, not {limit}")
        self._same = None if placement == "skew" else PLACERS[placement]
        self._limit = limit
        self._skewed: set[str] = set()

    @property
    def wants(self) -> Wants:
        """Return what a policy with this placement counts on."""
        return {TENSORS: _FRAGMENTS_ALONE} if self._same is None else {}

    def note(self, request: JobRequest, facts: ApplicationFacts) -> None:
        """Record the skew of a job's model on submission."""
        skew = facts.tensor_skew
        if self._same is None and skew is not None and skew > self._limit:
            self._skewed.add(request.id)

    def placer(self, job_id: str) -> Placer:
        """Return the placer of an arriving job; call it once per job."""
        if self._same is not None:
            return self._same
        if job_id in self._skewed:
            self._skewed.discard(job_id)
            return CONSOLIDATED
        return FRAGMENTS
