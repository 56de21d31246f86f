"""Policies that let jobs share GPUs, on cases worked out by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from simsched_policies.queues.by_key import Fifo
from simsched_policies.queues.qssf import Qssf
from simsched_policies.rounds.themis import Themis, ThemisRho
from simsched_policies.sharing.antman import AntMan
from simsched_policies.sharing.gandiva import Gandiva
from simsched_policies.sharing.horus import Horus
from simsched_policies.sharing.lucid import Lucid
from simsched_policies.sharing.muri import MuriL, MuriS

from simsched.engine.errors import InfeasibleDecisionError
from simsched.engine.options import EngineOptions
from simsched.engine.records import MemoryRecorder
from simsched.engine.simulation import simulate
from simsched.model.application import Application, MemoryNeed
from simsched.model.cluster import Cluster
from simsched.model.colocation import Guarantee
from simsched.model.colocation.contract import Colocation, ConstantSharing, GuaranteedFirst
from simsched.model.colocation.stages import StageInterleaving
from simsched.model.job import JobRequest, JobSpec, JobTruth, StageProfile
from simsched.model.tabulated import StagedJob
from simsched.policy import Decision, Onto, Place, Policy, View
from simsched.testing.builders import Applications, fresh_view, toy_application
from simsched.toolkit.type_pools import GpuMemory


class Staged:
    def __init__(self, memory: MemoryNeed | None = None) -> None:
        self._memory = memory

    def for_job(self, request: JobRequest, truth: JobTruth) -> Application:
        if request.profile is None:
            return Applications().for_job(request, truth)
        made = StagedJob(request.application, request.profile, truth.total_steps)
        made.memory = self._memory
        return made


def job(name: str, at_s: int, gpus: int, stages=(0.2, 0.5, 0.3), *, steps: int = 100, **rest) -> JobSpec:
    profile = StageProfile(sum(stages), stages)
    return JobSpec(name, at_s, gpus, rest.pop("model", "model"), total_steps=steps, profile=profile, **rest)


def run(
    policy, jobs, cluster: Cluster, model: Colocation, most: int = 4, memory: MemoryNeed | None = None
) -> MemoryRecorder:
    recorder = MemoryRecorder()
    options = EngineOptions(restart_delay_s=0, tick_s=0, max_jobs_per_gpu=most)
    simulate(cluster, jobs, Staged(memory), policy, options, 1, recorder, colocation=model, check_invariants=True)
    return recorder


def ends(recorder: MemoryRecorder) -> dict[str, float]:
    return {record.job_id: round(record.end_time_s, 6) for record in recorder.jobs}


#: Two jobs on a GPU do one and a half times what one does: beside a guaranteed job half a GPU is left.
HALF_MORE = ConstantSharing(0.75)
HALF = ConstantSharing(0.5)
PRIORITY = GuaranteedFirst(HALF_MORE)


def test_antman_never_slows_a_guaranteed_job_nor_stops_an_opportunistic_one() -> None:
    # b shares the GPUs of a from second 10 at half speed: 50 of its 100 s are done at 110, when a ends.
    jobs = [job("a", 10, 2, guaranteed=True), job("b", 10, 2)]
    assert ends(run(AntMan(), jobs, Cluster.uniform(1, 2), HALF_MORE)) == {"a": 110, "b": 160}


def test_antman_keeps_opportunistic_jobs_off_busy_gpus() -> None:
    jobs = [job("a", 10, 2, (0.1, 0.85, 0.05), guaranteed=True), job("b", 10, 2)]
    assert ends(run(AntMan(), jobs, Cluster.uniform(1, 2), HALF_MORE)) == {"a": 110, "b": 210}


def test_antman_alone_on_gpus_starts_both_classes_at_once_where_both_fit() -> None:
    # What the guaranteed job takes leaves two of four GPUs, so the opportunistic one of two does not wait.
    jobs = [job("a", 0, 2, guaranteed=True), job("b", 0, 2)]
    assert ends(run(AntMan(), jobs, Cluster.uniform(1, 4), HALF_MORE, most=1)) == {"a": 100, "b": 100}


def test_antman_reserves_gpus_for_the_first_guaranteed_job() -> None:
    # c would fit beside a at second 0, but the second GPU is reserved for b.
    jobs = [job("a", 0, 1, guaranteed=True), job("b", 0, 2, guaranteed=True), job("c", 0, 1, guaranteed=True)]
    assert ends(run(AntMan(), jobs, Cluster.uniform(1, 2), HALF_MORE, most=1)) == {"a": 100, "b": 200, "c": 300}


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
    # At 100 a runs with rho = (100 + 50) / 300, while b waits, (100 + 150) / 300; at 200 both have (200 + 50) / 300,
    # and a came first.
    params = {"lease_s": 100} if kind is Themis else {"interval_s": 100}
    jobs = [job("a", 0, 1, steps=150), job("b", 0, 1, steps=150)]
    assert ends(run(kind(**params), jobs, Cluster.uniform(1, 1), ConstantSharing(0.5))) == {"a": 250, "b": 300}


@pytest.mark.parametrize("kind", [Themis, ThemisRho])
@pytest.mark.parametrize(("waiting", "end"), [("served", 250), ("infinite", 350)])
def test_rho_of_a_job_that_waits_is_infinite_or_that_of_being_served(kind, waiting, end) -> None:
    # At 200 b runs with rho = (200 + 50) / 300; a waits, and with the GPU would have (200 + 900) / 2000.
    params = {"lease_s": 100} if kind is Themis else {"interval_s": 100}
    jobs = [job("a", 0, 1, steps=1000), job("b", 0, 1, steps=150)]
    policy = kind(**params, waiting=waiting)
    assert ends(run(policy, jobs, Cluster.uniform(1, 1), ConstantSharing(0.5))) == {"a": 1150, "b": end}


@pytest.mark.parametrize("kind", [Themis, ThemisRho])
def test_the_age_of_a_job_that_waits_counts_once_under_themis(kind) -> None:
    # At 200 b runs with rho = (200 + 50) / 300; a waits, (200 + 150) / 500, and would have more with its age twice.
    params = {"lease_s": 100} if kind is Themis else {"interval_s": 100}
    jobs = [job("a", 0, 1, steps=250), job("b", 0, 1, steps=150)]
    assert ends(run(kind(**params), jobs, Cluster.uniform(1, 1), ConstantSharing(0.5))) == {"a": 400, "b": 250}


@pytest.mark.parametrize("waiting", ["served", "infinite"])
@pytest.mark.parametrize("kind", [Themis, ThemisRho])
def test_of_jobs_that_wait_the_one_whose_rho_will_be_largest_comes_first_under_themis(kind, waiting) -> None:
    # At 100 rho with the GPU would be (100 + 150) / 450 for b, and (100 + 50) / 150 for c.
    params = {"lease_s": 100} if kind is Themis else {"interval_s": 100}
    jobs = [job(name, 0, 1, steps=steps) for name, steps in (("a", 250), ("b", 150), ("c", 50))]
    policy = kind(**params, waiting=waiting)
    assert ends(run(policy, jobs, Cluster.uniform(1, 1), ConstantSharing(0.5)))["c"] == 150


@pytest.mark.parametrize(
    "policy",
    [AntMan, Gandiva, Horus, lambda: Lucid(profile_s=0, least_jobs_per_h=0)],
    ids=["antman", "gandiva", "horus", "lucid"],
)
@pytest.mark.parametrize(("need_mb", "shares"), [(5_000, True), (5_001, False)])
def test_jobs_share_a_gpu_that_holds_both(policy: Callable[[], Policy], need_mb: float, shares: bool) -> None:
    cluster = Cluster(Cluster.uniform(1, 1, "t4").nodes, {"t4": 10_000.0})
    jobs = [job("a", 0, 1, steps=600, guaranteed=True), job("b", 0, 1, steps=600)]
    recorder = run(policy(), jobs, cluster, ConstantSharing(0.8), memory=MemoryNeed(need_mb, 0))
    assert bool(neighbours(recorder)) is shares


def test_memory_of_a_type_that_is_not_listed_holds_everybody() -> None:
    memory = GpuMemory.of(Cluster((), {"t4": 10_000.0}))
    view, _ = fresh_view(Fifo(), [job("a", 0, 1)], Cluster.uniform(1, 1), Staged(MemoryNeed(6_000, 0)))
    a = view.jobs["a"]
    assert memory.holds("t4", a)
    assert not memory.holds("t4", a, a)
    assert memory.holds("k80", a, a)


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


def test_gandiva_parts_a_pair_whose_trial_fails_even_where_gpus_are_free() -> None:
    # c is tried beside a or b at 0.4 of the speed of either, while the other job ends and leaves a node empty.
    jobs = [job("a", 0, 1, steps=3000), job("b", 0, 1, steps=250), job("c", 0, 1, steps=3000)]
    recorder = run(Gandiva(), jobs, Cluster.uniform(2, 1), ConstantSharing(0.4))
    shared_s = [row.end_s - row.start_s for row in recorder.allocations if row.job_id == "c" and row.neighbours]
    assert 0 < sum(shared_s) <= 4 * 60, "at most one trial of two slices with each of the others"
    assert max(ends(recorder).values()) < 3600


def test_gandiva_unpacks_a_pair_once_gpus_are_free() -> None:
    # At 0.8 of their speed each the pair pays; when b ends, nobody waits and one of the two moves onto its GPU.
    jobs = [job("a", 0, 1, steps=2000), job("b", 0, 1, steps=400), job("c", 0, 1, steps=2000)]
    recorder = run(Gandiva(), jobs, Cluster.uniform(2, 1), ConstantSharing(0.8))
    b_ends_s = ends(recorder)["b"]
    assert neighbours(recorder)
    assert all(row.end_s <= b_ends_s for row in recorder.allocations if row.neighbours)


class Scripted(Policy):
    """Decides as it is told, in turn."""

    name = "scripted"

    def __init__(self, *decisions: Decision) -> None:
        self._decisions = iter(decisions)

    def decide(self, view: View, rng) -> Decision:
        return next(self._decisions, Decision.change({}))


ON_NODE_0 = {"a": ((0, 1),), "b": ((0, 1),)}
ONTO_A = Place(((0, 1),), more=(Onto("a"),))


def test_onto_puts_a_job_on_the_very_gpus_of_another_where_others_are_free() -> None:
    jobs = [job("a", 0, 1), job("b", 0, 1)]
    beside = run(
        Scripted(Decision({**ON_NODE_0, "b": Place(((0, 1),), beside=["a"])})), jobs, Cluster.uniform(1, 4), HALF
    )
    onto = run(Scripted(Decision({**ON_NODE_0, "b": ONTO_A})), jobs, Cluster.uniform(1, 4), HALF)
    assert ends(beside) == {"a": 100, "b": 100}
    assert ends(onto) == {"a": 200, "b": 200}


def test_guaranteed_says_who_is_as_fast_as_if_alone_whatever_was_asked_for() -> None:
    jobs = [job("a", 0, 1), job("b", 0, 1, guaranteed=True)]
    decision = Decision(
        {"a": Place(((0, 1),), more=(Guarantee(True),)), "b": Place(((0, 1),), more=(Onto("a"), Guarantee(False)))}
    )
    assert ends(run(Scripted(decision), jobs, Cluster.uniform(1, 4), PRIORITY)) == {"a": 100, "b": 150}
    with pytest.raises(InfeasibleDecisionError, match="'nobody' is not active"):
        run(
            Scripted(Decision({**ON_NODE_0, "nobody": Place((), more=(Guarantee(True),))})),
            jobs,
            Cluster.uniform(1, 4),
            PRIORITY,
        )


def test_restart_places_a_job_again_whose_nodes_stay_the_same() -> None:
    jobs = [job("a", 0, 1), job("b", 0, 1), job("c", 50, 1)]
    apart = Decision({"a": ((0, 1),), "b": Place(((0, 1),), restart=True), "c": ((0, 1),)})
    recorder = run(Scripted(Decision({**ON_NODE_0, "b": ONTO_A}), apart), jobs, Cluster.uniform(1, 4), HALF)
    assert ends(recorder) == {"a": 125, "b": 125, "c": 150}
    assert {record.job_id: record.restarts for record in recorder.jobs} == {"a": 0, "b": 1, "c": 0}


@pytest.mark.parametrize(
    ("decision", "message"),
    [
        (Decision({"a": ((0, 1),), "b": Place(((1, 1),), more=(Onto("a"),))}), "which are others"),
        (Decision({"b": ONTO_A}), "which does not run"),
        (Decision({**ON_NODE_0, "b": ONTO_A, "c": Place(((0, 1),), more=(Onto("b"),))}), "those of a third"),
    ],
)
def test_gpus_of_others_that_cannot_be_had(decision: Decision, message: str) -> None:
    jobs = [job(name, 0, 1) for name in "abc"]
    with pytest.raises(InfeasibleDecisionError, match=message):
        run(Scripted(decision), jobs, Cluster.uniform(2, 4), HALF)


def neighbours(recorder: MemoryRecorder) -> set[frozenset[str]]:
    return {frozenset((row.job_id, row.neighbours)) for row in recorder.allocations if row.neighbours}


def test_lucid_profiles_on_its_own_nodes_and_short_jobs_finish_there() -> None:
    jobs = [job("short", 0, 1, steps=50), job("long", 0, 1, steps=100), job("wide", 0, 4, steps=100)]
    recorder = run(Lucid(profile_s=60, profiled_gpus=2), jobs, Cluster.uniform(2, 4), HALF)
    assert ends(recorder) == {"short": 50, "long": 140, "wide": 100}  # `long` waits from 60 to 100
    places = {(row.job_id, row.placement) for row in recorder.allocations}
    assert places == {("short", "1:1"), ("long", "1:1"), ("wide", "0:4"), ("long", "0:1")}


def test_lucid_serves_by_expected_gpu_time_learned_from_finished_jobs() -> None:
    # `x` lasts 100 s, `y` 40 s, and neither is known at first; then a job like `y` goes before one like `x`.
    jobs = [job("x1", 0, 1, model="x"), job("y1", 1, 1, model="y", steps=40)]
    jobs += [job("x2", 2, 1, model="x"), job("y2", 3, 1, model="y", steps=40)]
    assert ends(run(Lucid(profile_s=0, packing=False), jobs, Cluster.uniform(1, 1), HALF)) == {
        "x1": 100,
        "y1": 140,
        "y2": 180,
        "x2": 280,
    }


def lucid_pairs(first: float, second: float, *, warm: int = 3, **params) -> set[frozenset[str]]:
    """Run two jobs that ask for the same two GPUs and keep them busy for so long, after others that came and went."""
    early = [job(f"early-{number}", 0, 2, steps=1) for number in range(warm)]
    pair = [job(name, 20, 2, (1 - busy, busy, 0)) for name, busy in (("a", first), ("b", second))]
    return neighbours(run(Lucid(profile_s=0, **params), [*early, *pair], Cluster.uniform(1, 2), HALF))


@pytest.mark.parametrize(("first", "second", "shares"), [(0.5, 0.5, True), (0.9, 0.1, True), (0.9, 0.5, False)])
def test_lucid_packs_jobs_whose_scores_add_up_to_two(first: float, second: float, shares: bool) -> None:
    found = lucid_pairs(first, second)
    assert (frozenset("ab") in found) == shares
    assert not lucid_pairs(first, second, packing=False)


def test_lucid_backs_off_while_few_jobs_arrive() -> None:
    assert frozenset("ab") not in lucid_pairs(0.5, 0.5, warm=0)
    assert frozenset("ab") in lucid_pairs(0.5, 0.5, warm=0, least_jobs_per_h=1)


def test_lucid_puts_no_long_job_beside_one_that_is_expected_to_end_soon() -> None:
    # Jobs like s took 10 s, jobs like l 30 s: more than twice as long.
    known = [job("s1", 0, 1, model="s", steps=10), job("l1", 0, 1, model="l", steps=30)]
    later = [job("s2", 50, 1, model="s", steps=100), job("l2", 51, 1, model="l"), job("s3", 52, 1, model="s")]
    found = neighbours(run(Lucid(profile_s=0), [*known, *later], Cluster.uniform(1, 1), HALF))
    assert frozenset(("s2", "s3")) in found
    assert frozenset(("s2", "l2")) not in found


def test_horus_shares_where_predicted_utilisations_leave_room() -> None:
    def pairs(*busy: float) -> set[frozenset[str]]:
        jobs = [job(name, at, 2, (1 - one, one, 0)) for at, (name, one) in enumerate(zip("abc", busy, strict=True))]
        return neighbours(run(Horus(), jobs, Cluster.uniform(2, 2), HALF))

    assert pairs(0.7, 0.3, 0.3) == {frozenset("bc")}, "beside the least busy one"
    assert pairs(0.7, 0.8, 0.3) == {frozenset("ac")}
    assert pairs(0.7, 0.8, 0.4) == set()


def test_antman_without_packing_lets_nobody_share() -> None:
    jobs = [job("a", 10, 2, guaranteed=True), job("b", 10, 2)]
    assert ends(run(AntMan(packing=False), jobs, Cluster.uniform(1, 2), HALF_MORE)) == {"a": 110, "b": 210}


def grown(batch_size: int, **params) -> MemoryRecorder:
    """Run a job of two GPUs on a node of four, and one that asks for the other two a while later."""
    jobs = [
        JobSpec("a", 0, 2, application="toy", batch_size=batch_size),
        JobSpec("b", 400, 2, application="toy", batch_size=64),
    ]
    recorder = MemoryRecorder()
    app = Applications(toy_application(epochs=20))
    options = EngineOptions(restart_delay_s=0, max_jobs_per_gpu=2)
    model = ConstantSharing(0.5)
    cluster = Cluster.uniform(1, 4)
    simulate(cluster, jobs, app, Gandiva(**params), options, 1, recorder, colocation=model, check_invariants=True)
    return recorder


def test_gandiva_lets_a_job_grow_into_idle_gpus_and_shrink_back_for_another() -> None:
    rows = [row for row in grown(128, grow=True).allocations if row.job_id == "a"]
    assert max(row.gpus for row in rows if row.end_s <= 400) == 4
    assert next(row.gpus for row in rows if row.start_s >= 401) == 2
    assert {row.gpus for row in grown(128).allocations} == {2}


def test_gandiva_does_not_grow_a_job_beyond_its_batch() -> None:
    assert {row.gpus for row in grown(16, grow=True).allocations if row.job_id == "a"} == {2}
