"""Reasons of a policy's decision, if they are kept: the order of jobs, and why a job has to wait."""

from __future__ import annotations

from collections.abc import Mapping

from simsched.words import Why as Why

#: The numbers by which the policy orders a job; () if its position follows from none.
Urgency = float | tuple[float, ...]


class Reasons:
    """Receives from a policy, or from the toolkit, the reasons of the decision that it is about to return."""

    def __init__(self) -> None:
        self.places: dict[str, tuple[int, Urgency]] = {}
        self.waits: dict[str, tuple[Why, str]] = {}

    def order(self, scores: Mapping[str, Urgency]) -> None:
        """Report the order in which jobs are considered, the most urgent first, each with its score."""
        self.places |= {job_id: (rank, score) for rank, (job_id, score) in enumerate(scores.items(), start=1)}

    def wait(self, job_id: str, why: Why, detail: str = "") -> None:
        """Report why a job has to wait; ignored for a job that runs after the decision."""
        self.waits[job_id] = why, detail

    def clear(self) -> None:
        """Forget all reasons once the decision is carried out."""
        self.places.clear()
        self.waits.clear()
