"""What a policy says of its jobs at a decision, where reasons are kept: their order, and why one has to wait."""

from __future__ import annotations

from collections.abc import Mapping

from simsched.words import Why as Why

#: The numbers by which a job is ordered, as its policy has them; () if its place follows from none.
Urgency = float | tuple[float, ...]


class Reasons:
    """Takes what a policy, or a piece that it shares with others, says of the decision that it is about to return."""

    def __init__(self) -> None:
        self.places: dict[str, tuple[int, Urgency]] = {}
        self.waits: dict[str, tuple[Why, str]] = {}

    def order(self, scores: Mapping[str, Urgency]) -> None:
        """Say in which order jobs are considered, the most urgent first, each with its score."""
        self.places |= {job_id: (rank, score) for rank, (job_id, score) in enumerate(scores.items(), start=1)}

    def wait(self, job_id: str, why: Why, detail: str = "") -> None:
        """Say why a job has to wait; of one that runs after the decision it does not count."""
        self.waits[job_id] = why, detail

    def clear(self) -> None:
        """Forget what was said, as the decision is carried out."""
        self.places.clear()
        self.waits.clear()
