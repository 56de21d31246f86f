"""The state of each job after a decision: the policy's order and reason, or else the cluster's room for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from simsched.engine.records import ReasonRecord
from simsched.engine.state import ClusterState, JobState
from simsched.model import gpus_of
from simsched.policy import Reasons, Urgency, Why
from simsched.words import seen_of_room

_UNRANKED: tuple[int, Urgency] = 0, ()


class KeptReasons:
    """Builds the rows of a decision from the reasons given."""

    def __init__(self, cluster: ClusterState) -> None:
        self.said = Reasons()
        self._cluster = cluster
        self._nodes: dict[str, list[int]] = {}
        for node in cluster.cluster.nodes:
            self._nodes.setdefault(node.gpu_type, []).append(node.index)

    def rows(self, now_s: float, active: Mapping[str, JobState]) -> Iterator[ReasonRecord]:
        """Yield the state of the active jobs now, and forget the reasons given."""
        free = self._cluster.free
        room = {kind: (sum(free[i] for i in nodes), max(free[i] for i in nodes)) for kind, nodes in self._nodes.items()}
        for job_id, job in active.items():
            gpus = gpus_of(job.allocation)
            rank, score = self.said.places.get(job_id, _UNRANKED)
            why, detail = ("", "") if gpus else self.said.waits.get(job_id) or self._seen(job, room)
            yield ReasonRecord(now_s, job_id, gpus, rank, _text(score), str(why), detail)
        self.said.clear()

    def _seen(self, job: JobState, room: Mapping[str, tuple[int, int]]) -> tuple[Why, str]:
        """Derive a reason from the free GPUs on the types that a job can use and asks for."""
        wanted, kinds = job.request.num_gpus, [kind for kind in room if job.facts.runs_on(kind)]
        most, on_one = (max((room[kind][at] for kind in kinds), default=0) for at in (0, 1))
        nodes = self._cluster.cluster.nodes
        largest = max((nodes[i].gpus for kind in kinds for i in self._nodes[kind]), default=0)
        return seen_of_room(wanted, most, on_one, largest)


def _text(score: Urgency) -> str:
    return " ".join(f"{one + 0.0:.10g}" for one in (score if isinstance(score, tuple) else (score,)))
