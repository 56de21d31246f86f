"""What a policy says of its jobs at a decision, where reasons are kept: their order, and why one has to wait."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

#: The numbers by which a job is ordered, as its policy has them; () where its place follows from none.
Urgency = float | tuple[float, ...]


class Why(StrEnum):
    """Why a job waits. The policy's word comes before what is seen of the room: the first two, and else the last."""

    NO_ROOM = "no room"
    NOT_ON_ONE_NODE = "not on one node"
    OVER_QUOTA = "over quota"
    RESERVED = "reserved for another"
    ANOTHER_FIRST = "another comes first"
    LET_WAIT = "the policy lets it wait"


class Reasons:
    """Takes what a policy, or a piece that it shares with others, says of the decision that it is about to return."""

    def __init__(self) -> None:
        """Begin with nothing said."""
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
