"""Recorded: replays shares of time computed elsewhere through the mechanism of rounds.

Idea: a policy like Gavel's (Narayanan et al., OSDI'20) computes the share of time of each job on each GPU type, and a
mechanism turns shares into rounds (section 5). Shares from a file isolate the mechanism: its cost, and whether it
agrees with another implementation.

Deviations: none from section 5. Without a file every job has an equal share of time, as under Gandiva's fair sharing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np

from simsched.model import Cluster, Node
from simsched.policy import INPUT_FILE, Decision, JobView, Policy, Traits, View
from simsched.toolkit import available_by_type
from simsched.toolkit.recording import Recording
from simsched.toolkit.rounds import RoundOptions, Rounds, Unit, whole_places


@dataclass
class Recorded(Policy):
    """Runs, in rounds of `round_s` seconds, the jobs that are furthest behind the shares in a file.

    `shares_path` names a JSON file with a list `allocations`; the `x` of its n-th entry holds the shares of the n-th
    computation, by job: a number if the cluster has one GPU type, else a mapping from GPU types. Shares are computed
    after arrivals and completions, at least `min_reset_s` seconds apart. An entry may give its second as `t`. Every job
    of the workload must have shares, in the first entry after its submission if times are given, and no other job may.
    """

    name: ClassVar[str] = "recorded"
    traits: ClassVar[Traits] = Traits(interval="round_s")

    shares_path: Annotated[str | None, INPUT_FILE] = None
    round_s: float = 360
    min_reset_s: float = 1920
    _recording: Recording | None = field(init=False, repr=False)
    _types: tuple[str, ...] = field(default=(), init=False, repr=False)
    _rounds: Rounds = field(init=False, repr=False)
    _played: int = field(default=0, init=False, repr=False)
    _ran: dict[Unit, str] = field(default_factory=dict, init=False, repr=False)
    _held_s: dict[str, float] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        """Read the file; raises `InputError` if it is not a recording."""
        self._options = RoundOptions(round_s=self.round_s, min_reset_s=self.min_reset_s)
        self._recording = None if self.shares_path is None else read_recording(Path(self.shares_path))

    @property
    def longest_pause_s(self) -> float:
        """Return the time between two computations of shares, for which new jobs wait."""
        return self.min_reset_s

    def begin(self, cluster: Cluster) -> None:
        """Learn the GPU types."""
        self._learn(cluster.nodes)

    def _learn(self, nodes: Sequence[Node]) -> None:
        self._types = tuple(dict.fromkeys(node.gpu_type for node in nodes))
        self._rounds = Rounds(self._types, self._options)

    def check_jobs(self, jobs: Sequence[JobView], cluster: Cluster) -> None:
        """Refuse a recording of other jobs or other GPU types."""
        recording = self._recording
        if recording is None:
            return
        submitted_s = {job.id: job.request.submit_time_s for job in jobs}
        remedy = f"give the recording of this workload, which has {len(jobs)} jobs"
        late = dict(submitted_s)
        for number, entry in enumerate(recording.entries):
            shares, time_s = entry["x"], entry.get("t", math.inf)
            for job, share in shares.items():
                if submitted_s.get(job, math.inf) > time_s or job not in submitted_s:
                    message = f"has shares for job '{job}', which the workload does not have by then"
                    raise recording.problem(number, message, remedy)
                kinds = share.keys() - set(cluster.gpu_types) if isinstance(share, Mapping) else ()
                if kinds:
                    message = f"has shares on GPUs of the type '{min(kinds)}', which the cluster does not have"
                    raise recording.problem(number, message, f"its types are {', '.join(cluster.gpu_types)}")
            late = {job: second for job, second in late.items() if job not in shares}
            if "t" in entry:
                lacking = next((job for job, second in late.items() if second <= time_s), None)
                if lacking is not None:
                    raise recording.problem(number, f"has no shares for job '{lacking}', which waits then", remedy)
        if late:
            message = f"is the last, and none has shares for job '{next(iter(late))}'"
            raise recording.problem(len(recording.entries) - 1, message, remedy)

    def decide(self, view: View, rng: np.random.Generator) -> Decision:
        """Account for the round that has ended, and choose the jobs of the next."""
        if not self._types:
            self._learn(view.nodes)
        rounds, free = self._rounds, available_by_type(view)
        self._account(view)
        known = set(rounds.units)
        for job in view.jobs.values():
            if (job.id,) not in known:
                rounds.add((job.id,), job.num_gpus)
        if rounds.due(view.now_s):
            rounds.reset(view.now_s, self._next_shares(list(view.jobs), sum(free.values())), {})
        able = [kind for kind in self._types if free[kind]]
        grants = rounds.choose(free, able, self._ran)
        grants = [grant for grant in grants if view.jobs[grant.unit[0]].facts.runs_on(grant.gpu_type)]
        if view.reasons is not None:
            view.reasons.order(rounds.order())
        placed = whole_places(grants, view)
        self._ran = {grant.unit: grant.gpu_type for grant in grants if grant.runs}
        self._held_s = {unit[0]: view.jobs[unit[0]].held_s for unit in placed}
        return Decision({unit[0]: allocation for unit, allocation in placed.items()})

    def _account(self, view: View) -> None:
        """Count the received time; a finished job counts a whole round."""
        for unit, gpu_type in self._ran.items():
            job = view.jobs.get(unit[0])
            seconds = self.round_s if job is None else job.held_s - self._held_s[job.id]
            self._rounds.receive(unit, gpu_type, seconds)
        for job_id in view.finished:
            self._rounds.remove(job_id)

    def _next_shares(self, jobs: Sequence[str], gpus: int) -> dict[Unit, Sequence[float]]:
        """Return the next recorded solution, for its jobs that are present; the last one remains in force."""
        if self._recording is None:
            return {(job,): (min(1.0, gpus / len(jobs)) / len(self._types),) * len(self._types) for job in jobs}
        entries = self._recording.entries
        solution = entries[min(self._played, len(entries) - 1)]["x"]
        self._played += 1
        present = set(jobs)
        return {(job,): self._row(share) for job, share in solution.items() if job in present}

    def _row(self, share: Any) -> Sequence[float]:
        if isinstance(share, Mapping):
            return tuple(float(share.get(gpu_type, 0.0)) for gpu_type in self._types)
        return (float(share),) * len(self._types)


def read_recording(path: Path) -> Recording:
    """Read a recording of shares by job; raises `InputError` for anything else."""
    recording = Recording(path, "allocations")
    for number, entry in enumerate(recording.entries):
        shares = entry.get("x") if isinstance(entry, dict) else None
        if not isinstance(shares, dict) or not all(map(_is_share, shares.values())):
            raise recording.problem(
                number, "has no shares 'x' by job", "give a share, or one by GPU type, for each job"
            )
        if not _is_number(entry.get("t", 0)):
            raise recording.problem(number, "has a time 't' that is not a number", "give seconds, or leave it out")
    return recording


def _is_share(share: Any) -> bool:
    return all(map(_is_number, share.values())) if isinstance(share, Mapping) else _is_number(share)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
