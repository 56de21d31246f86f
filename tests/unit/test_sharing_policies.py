"""Policies that let jobs share GPUs, on cases worked out by hand."""

from __future__ import annotations

import pytest
from simsched_policies.antman import AntMan
from simsched_policies.gandiva import Gandiva
from simsched_policies.muri import MuriL, MuriS
from simsched_policies.qssf import Qssf
from simsched_policies.themis import Themis, ThemisRho

from simsched.engine.errors import InfeasibleDecisionError
from simsched.engine.options import EngineOptions
from simsched.engine.records import MemoryRecorder
from simsched.engine.simulation import simulate
from simsched.model.cluster import Cluster
from simsched.model.colocation.constant import ConstantSharing
from simsched.model.colocation.contract import Colocation, GuaranteedFirst
from simsched.model.colocation.stages import StageInterleaving
from simsched.model.job import JobRequest, JobSpec, JobTruth, StageProfile
from simsched.model.staged import StagedJob
from simsched.policy import Decision, Policy, View


class Staged:
    def for_job(self, request: JobRequest, truth: JobTruth) -> StagedJob:
        assert request.profile is not None
        return StagedJob(request.application, request.profile, truth.total_steps)


def job(name: str, at_s: int, gpus: int, stages=(0.2, 0.5, 0.3), *, steps: int = 100, **rest) -> JobSpec:
    profile = StageProfile(sum(stages), stages)
    return JobSpec(name, at_s, gpus, rest.pop("model", "model"), total_steps=steps, profile=profile, **rest)


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
    assert pairs <= {frozenset(pair) for pair in ("ab", "cd", "ad", "cb")}
    assert pairs
    assert len({row.placement for row in recorder.allocations}) == 2


def test_muri_does_not_merge_while_everybody_fits() -> None:
    jobs = [job(name, 0, 2, stages) for name, stages in COMPLEMENTS.items()]
    recorder = run(MuriS(interval_s=10), jobs, Cluster.uniform(2, 4), StageInterleaving())
    assert set(ends(recorder).values()) == {110}
    assert not any(row.neighbours for row in recorder.allocations)


def gandiva(share: float, **params) -> dict[str, float]:
    jobs = [job(name, 0, 1, steps=600) for name in "ab"]
    return ends(run(Gandiva(**params), jobs, Cluster.uniform(1, 1), ConstantSharing(share)))


def test_gandiva_keeps_a_pair_whose_trial_pays() -> None:
    # Each has run for a slice alone when they are put together at 120; 540 s are left, at 0.8.
    assert gandiva(0.8) == {"a": 795, "b": 795}


def test_gandiva_parts_a_pair_whose_trial_does_not_pay() -> None:
    # Of 1200 s of work 120 are done at 120 and 96 more by 240, when the trial ends; then one job runs at a time.
    assert max(gandiva(0.4).values()) == 1224
    assert max(gandiva(0.4, packing=False).values()) == 1200


def test_gandiva_pairs_jobs_without_batches_too() -> None:
    # As above, of fixed duration: what they measure of themselves is their progress.
    jobs = [JobSpec(name, 0, 1, duration_s=600) for name in "ab"]
    assert ends(run(Gandiva(), jobs, Cluster.uniform(1, 1), ConstantSharing(0.8))) == {"a": 795, "b": 795}


def test_gandiva_moves_jobs_together_when_others_have_left() -> None:
    # b and c hold a GPU on either node when a and d, which held three each, are done.
    jobs = [job("a", 0, 3), job("d", 0, 3), job("b", 0, 1, steps=500), job("c", 0, 1, steps=500)]
    recorder = run(Gandiva(), jobs, Cluster.uniform(2, 4), ConstantSharing(0.5))
    last = {row.job_id: row.placement for row in recorder.allocations}
    assert last["b"] == last["c"]


@pytest.mark.parametrize("kind", [Themis, ThemisRho])
def test_themis_gives_the_lease_to_the_less_fairly_treated(kind) -> None:
    # At 100 rho is (100 + 50) / 300 for a, which has run, and more than 1 for b; at 200 it is the other way round.
    params = {"lease_s": 100} if kind is Themis else {"interval_s": 100}
    jobs = [job("a", 0, 1, steps=150), job("b", 0, 1, steps=150)]
    assert ends(run(kind(**params), jobs, Cluster.uniform(1, 1), ConstantSharing(0.5))) == {"a": 250, "b": 300}


def test_qssf_expects_what_jobs_of_a_user_have_taken() -> None:
    jobs = [
        job("a", 0, 1, steps=100, user="slow"),
        job("b", 0, 1, steps=10, user="quick"),
        job("c", 50, 1, steps=100, user="new"),
        job("d", 120, 1, steps=100, user="slow"),
        job("e", 130, 1, steps=10, user="quick"),
    ]
    found = ends(run(Qssf(), jobs, Cluster.uniform(1, 1), ConstantSharing(0.5)))
    assert found == {"a": 100, "b": 110, "c": 210, "e": 220, "d": 320}


class Scripted(Policy):
    """Decides as it is told, in turn."""

    name = "scripted"

    def __init__(self, *decisions: Decision) -> None:
        self._decisions = iter(decisions)

    def decide(self, view: View, rng) -> Decision:
        return next(self._decisions, Decision.change({}))


ON_NODE_0 = {"a": ((0, 1),), "b": ((0, 1),)}


def test_onto_puts_a_job_on_the_very_gpus_of_another_where_others_are_free() -> None:
    jobs = [job("a", 0, 1), job("b", 0, 1)]
    beside = run(Scripted(Decision(ON_NODE_0, beside={"b": ["a"]})), jobs, Cluster.uniform(1, 4), HALF)
    onto = run(Scripted(Decision(ON_NODE_0, onto={"b": "a"})), jobs, Cluster.uniform(1, 4), HALF)
    assert ends(beside) == {"a": 100, "b": 100}
    assert ends(onto) == {"a": 200, "b": 200}


def test_anew_places_a_job_again_whose_nodes_stay_the_same() -> None:
    jobs = [job("a", 0, 1), job("b", 0, 1), job("c", 50, 1)]
    apart = Decision({**ON_NODE_0, "c": ((0, 1),)}, anew=["b"])
    recorder = run(Scripted(Decision(ON_NODE_0, onto={"b": "a"}), apart), jobs, Cluster.uniform(1, 4), HALF)
    assert ends(recorder) == {"a": 125, "b": 125, "c": 150}
    assert {record.job_id: record.restarts for record in recorder.jobs} == {"a": 0, "b": 1, "c": 0}


@pytest.mark.parametrize(
    ("decision", "message"),
    [
        (Decision({"a": ((0, 1),), "b": ((1, 1),)}, onto={"b": "a"}), "which are others"),
        (Decision({"b": ((0, 1),)}, onto={"b": "a"}), "which does not run"),
        (Decision({**ON_NODE_0, "c": ((0, 1),)}, onto={"b": "a", "c": "b"}), "those of a third"),
    ],
)
def test_gpus_of_others_that_cannot_be_had(decision: Decision, message: str) -> None:
    jobs = [job(name, 0, 1) for name in "abc"]
    with pytest.raises(InfeasibleDecisionError, match=message):
        run(Scripted(decision), jobs, Cluster.uniform(2, 4), HALF)
