"""Policies that let jobs share GPUs, on cases worked out by hand."""

from __future__ import annotations

from simsched_policies.antman import AntMan
from simsched_policies.muri import MuriL, MuriS

from simsched.engine.options import EngineOptions
from simsched.engine.records import MemoryRecorder
from simsched.engine.simulation import simulate
from simsched.model.cluster import Cluster
from simsched.model.colocation.constant import ConstantSharing
from simsched.model.colocation.contract import Colocation, GuaranteedFirst
from simsched.model.colocation.stages import StageInterleaving
from simsched.model.job import JobRequest, JobSpec, JobTruth, StageProfile
from simsched.model.staged import StagedJob


class Staged:
    def for_job(self, request: JobRequest, truth: JobTruth) -> StagedJob:
        assert request.profile is not None
        return StagedJob(request.application, request.profile, truth.total_steps)


def job(
    name: str, at_s: int, gpus: int, stages=(0.2, 0.5, 0.3), *, steps: int = 100, guaranteed: bool = False
) -> JobSpec:
    profile = StageProfile(sum(stages), stages)
    return JobSpec(name, at_s, gpus, f"model-{name}", guaranteed=guaranteed, total_steps=steps, profile=profile)


def run(policy, jobs, cluster: Cluster, model: Colocation, most: int = 4) -> MemoryRecorder:
    recorder = MemoryRecorder()
    options = EngineOptions(restart_delay_s=0, tick_s=0, max_jobs_per_gpu=most)
    simulate(cluster, jobs, Staged(), policy, options, 1, recorder, colocation=model, check_invariants=True)
    return recorder


def ends(recorder: MemoryRecorder) -> dict[str, float]:
    return {record.job_id: round(record.end_time_s, 6) for record in recorder.jobs}


HALF = GuaranteedFirst(ConstantSharing(0.5))


def test_antman_never_slows_a_guaranteed_job_nor_stops_an_opportunistic_one() -> None:
    # b shares the GPUs of a from second 10 at half speed: 50 of its 100 s are done at 110, when a ends.
    jobs = [job("a", 10, 2, guaranteed=True), job("b", 10, 2)]
    assert ends(run(AntMan(), jobs, Cluster.uniform(1, 2), HALF)) == {"a": 110, "b": 160}


def test_antman_keeps_opportunistic_jobs_off_busy_gpus() -> None:
    jobs = [job("a", 10, 2, (0.1, 0.85, 0.05), guaranteed=True), job("b", 10, 2)]
    assert ends(run(AntMan(), jobs, Cluster.uniform(1, 2), HALF)) == {"a": 110, "b": 210}


def test_antman_reserves_gpus_for_the_first_guaranteed_job() -> None:
    # c would fit beside a at second 0, but the second GPU is reserved for b.
    jobs = [job("a", 0, 1, guaranteed=True), job("b", 0, 2, guaranteed=True), job("c", 0, 1, guaranteed=True)]
    assert ends(run(AntMan(), jobs, Cluster.uniform(1, 2), HALF, most=1)) == {"a": 100, "b": 200, "c": 300}


COMPLEMENTS = {"a": (0.6, 0.2, 0.2), "b": (0.2, 0.6, 0.2), "c": (0.58, 0.22, 0.2), "d": (0.22, 0.58, 0.2)}


def test_muri_pairs_jobs_that_keep_different_resources_busy() -> None:
    jobs = [job(name, 0, 4, stages) for name, stages in COMPLEMENTS.items()]
    recorder = run(MuriL(interval_s=10, most_jobs=2), jobs, Cluster.uniform(2, 4), StageInterleaving())
    pairs = {frozenset((row.job_id, row.neighbours)) for row in recorder.allocations if row.neighbours}
    assert pairs <= {frozenset(pair) for pair in ("ab", "cd", "ad", "cb")} and pairs
    assert len({row.placement for row in recorder.allocations}) == 2


def test_muri_does_not_merge_while_everybody_fits() -> None:
    jobs = [job(name, 0, 2, stages) for name, stages in COMPLEMENTS.items()]
    recorder = run(MuriS(interval_s=10), jobs, Cluster.uniform(2, 4), StageInterleaving())
    assert set(ends(recorder).values()) == {110}
    assert not any(row.neighbours for row in recorder.allocations)
