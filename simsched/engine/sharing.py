"""Speeds and memory of jobs that share GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from simsched.arithmetic import ordered_sum
from simsched.engine.errors import EngineError
from simsched.engine.holders import Holders
from simsched.engine.state import JobState
from simsched.errors import InputError
from simsched.model import Cluster
from simsched.model.colocation import Colocation, GuaranteedFirst, Resident


class Sharing(NamedTuple):
    """How a job shares its GPUs: neighbours, mean share, and speed relative to running alone."""

    neighbours: tuple[str, ...]
    gpu_share: float
    speed: float


class Neighbourhood:
    """Computes the speeds of jobs that share a GPU."""

    def __init__(
        self, model: Colocation, occupancy: Holders, active: Mapping[str, JobState], *, shares: bool = False
    ) -> None:
        """Take speeds from `model`; `active` holds all jobs by id; with `shares` they may take fractions of GPUs."""
        if shares:
            occupancy.share_of = self._gpu_share
        self._model = model
        self._occupancy = occupancy
        self._active = active

    def _gpu_share(self, job_id: str) -> float:
        return self._active[job_id].request.gpu_share

    def around(self, job: JobState) -> dict[str, JobState]:
        """Return a job and its current neighbours."""
        others = self._occupancy.neighbours(job.request.id)
        return {job.request.id: job} | {other: self._active[other] for other in others}

    def look(self, job: JobState) -> Sharing:
        """Return how a job shares its GPUs, at its slowest GPU's speed."""
        assert job.site is not None
        known: dict[tuple[str, ...], float] = {}
        for holders in self._occupancy.sharers(job.request.id):
            key = tuple(holders)
            if key not in known:
                known[key] = 1.0 if len(key) == 1 else self._beside(job, key, job.site.gpu_type)
        job_id = job.request.id
        return Sharing(self._occupancy.neighbours(job_id), self._occupancy.share(job_id), min(known.values()))

    def memory_mb(self, job: JobState) -> float:
        """Return the known memory use on the fullest of a job's GPUs, neighbours included."""
        return max(
            sum(memory_mb(self._active[holder]) for holder in holders)
            for holders in self._occupancy.sharers(job.request.id)
        )

    def _beside(self, job: JobState, holders: tuple[str, ...], gpu_type: str) -> float:
        residents = [_resident(self._active[holder]) for holder in holders]
        first = any(self._active[holder].first for holder in holders)
        model = GuaranteedFirst(self._model) if first else self._model
        speed = model.speeds(residents, gpu_type)[holders.index(job.request.id)]
        held_back = speed == 0 and any(resident.guaranteed for resident in residents)
        if not (speed > 0 or held_back):
            raise EngineError(f"job {job.request.id} would stand still among {', '.join(holders)} on one GPU")
        return speed


def memory_mb(job: JobState) -> float:
    """Return a job's memory per GPU, 0 if unknown."""
    need = job.facts.memory
    return 0.0 if need is None else need.total_mb(job.batch.local_bsz)


def check_memory(job: JobState, cluster: Cluster, wanted_mb: float) -> None:
    """Reject a placement that needs more megabytes than the GPU type has; raises `EngineError` with both numbers."""
    assert job.site is not None
    room_mb = cluster.memory_mb.get(job.site.gpu_type)
    if room_mb is not None and wanted_mb > room_mb:
        among = f" with {', '.join(job.neighbours)}" if job.neighbours else ""
        message = (
            f"job {job.request.id} ({job.app.name}){among} needs {wanted_mb:,.0f} MB on a GPU of type "
            f"{job.site.gpu_type}, which has {room_mb:,.0f} MB"
        )
        raise EngineError(message)


def _resident(job: JobState) -> Resident:
    site, batch = job.site, job.batch
    assert site is not None
    iteration_s = 0.0
    if batch.local_bsz or job.request.profile is not None:
        step = job.app.step_time(site, batch.local_bsz)
        iteration_s = step.step_s + batch.accum_steps * (step.step_s - step.sync_s)
    return Resident(job.request.application, _examples(job), iteration_s, job.app.stages_s, job.guaranteed)


def _examples(job: JobState) -> int:
    """Return the examples per GPU and step; the requested ones if the batch is fixed."""
    return job.batch.local_bsz * (job.batch.accum_steps + 1) or job.request.batch_size


class TruePairs:
    """The true speeds of any two jobs that share a GPU, running or not."""

    def __init__(self, model: Colocation | None, active: Mapping[str, JobState]) -> None:
        self._model = model
        self._active = active

    def beside(self, one: str, other: str, gpu_type: str) -> tuple[float, float]:
        """Return the speeds of two jobs, zeros if the model has none."""
        if self._model is None:
            return 0.0, 0.0
        residents = [self._standing(self._active[job_id]) for job_id in (one, other)]
        try:
            first, second = self._model.speeds(residents, gpu_type)
        except InputError:
            return 0.0, 0.0
        return first, second

    @staticmethod
    def _standing(job: JobState) -> Resident:
        stages_s, request = job.app.stages_s, job.request
        return Resident(request.application, _examples(job), ordered_sum(stages_s), stages_s, request.guaranteed)
