"""GPUs that several jobs hold: who gets which, how fast jobs are, and what is refused; cases worked by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pytest

from simsched.engine.errors import InfeasibleDecisionError
from simsched.engine.holders import Holders
from simsched.engine.options import EngineOptions
from simsched.engine.records import MemoryRecorder
from simsched.engine.simulation import simulate
from simsched.model.application import MemoryNeed
from simsched.model.cluster import Cluster, NodeGroup
from simsched.model.colocation import Guarantee
from simsched.model.colocation.contract import ConstantSharing, TimeSlicing
from simsched.model.colocation.pairs import Kind, PairTable
from simsched.model.job import JobSpec
from simsched.model.placement import Allocation
from simsched.policy import Decision, Place, Policy, Traits, Triggers, View
from simsched.testing.builders import Applications, run, two_type_application


@dataclass
class Plan(Policy):
    """Decides at given seconds as told; in between everything stays."""

    name: ClassVar[str] = "plan"
    traits: ClassVar[Traits] = Traits(rigid=False)

    steps: Mapping[int, Mapping[str, Allocation]]
    beside: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    seen: dict[float, dict[str, tuple[str, ...]]] = field(default_factory=dict)
    terms: ClassVar[tuple[Guarantee, ...]] = ()

    @property
    def triggers(self) -> Triggers:
        return Triggers(interval_s=1)

    def decide(self, view: View, rng) -> Decision:
        self.seen[view.now_s] = {job.id: job.neighbours for job in view.jobs.values()}
        here = self.steps.get(int(view.now_s), {})
        places = {job_id: placed for job_id, placed in here.items() if placed}
        start = {job_id: Place(at, self.beside.get(job_id, ()), more=self.terms) for job_id, at in places.items()}
        return Decision.change(start, [job_id for job_id, placed in here.items() if not placed])


class GuaranteedPlan(Plan):
    """The same, guaranteed jobs first."""

    terms = (Guarantee(),)


def share(policy: Policy, jobs, *, cluster=None, colocation=None, most: int = 2, applications=None, delay_s: int = 0):
    recorder = MemoryRecorder()
    simulate(
        cluster or Cluster.uniform(1, 2),
        jobs,
        applications or Applications(),
        policy,
        EngineOptions(restart_delay_s=delay_s, max_jobs_per_gpu=most),
        1,
        recorder,
        colocation=colocation,
        check_invariants=True,
    )
    return recorder


def job(job_id: str, duration_s: int = 100, gpus: int = 1, **more) -> JobSpec:
    return JobSpec(job_id, 0, gpus, duration_s=duration_s, **more)


def ends(records: MemoryRecorder) -> dict[str, float]:
    return {record.job_id: record.end_time_s for record in records.jobs}


ONE = Cluster.uniform(1, 1)
BOTH = {1: {"a": ((0, 1),), "b": ((0, 1),)}}


def test_two_equal_jobs_under_time_slicing_end_at_twice_their_time() -> None:
    plan = Plan(BOTH, {"b": ("a",)})
    records = share(plan, [job("a"), job("b")], cluster=ONE, colocation=TimeSlicing())
    assert ends(records) == {"a": 201, "b": 201}
    assert plan.seen[2] == {"a": ("b",), "b": ("a",)}


def test_speeds_change_at_the_second_at_which_a_neighbour_comes_and_completes() -> None:
    # a runs 40 s alone, then half as fast beside b until b has made 30 s of progress at 1 + 40 + 60.
    plan = Plan({1: {"a": ((0, 1),)}, 41: {"b": ((0, 1),)}}, {"b": ("a",)})
    records = share(plan, [job("a"), job("b", 30)], cluster=ONE)
    assert ends(records) == {"b": 101, "a": 101 + 30}
    speeds = [(one.start_s, one.relative_speed, one.neighbours) for one in records.allocations if one.job_id == "a"]
    assert speeds == [(1, 1.0, ""), (41, 0.5, "b"), (101, 1.0, "")]


def test_a_restart_of_one_does_not_restart_the_other() -> None:
    plan = Plan({1: {"a": ((0, 1),)}, 41: {"b": ((0, 1),)}}, {"b": ("a",)})
    records = share(plan, [job("a"), job("b", 30)], cluster=ONE, delay_s=10, colocation=ConstantSharing(1.0))
    assert ends(records) == {"b": 41 + 10 + 30, "a": 1 + 10 + 100}
    assert [record.restarts for record in records.jobs] == [0, 0]


def test_an_interval_ends_where_the_neighbours_change_though_the_speed_does_not() -> None:
    # a restarts until 11; b comes at 6, while it does, and ends at 36; c, which slows down nobody, is there from 46.
    steps = {1: {"a": ((0, 1),)}, 6: {"b": ((0, 1),)}, 46: {"c": ((0, 1),)}, 61: {"c": ()}, 71: {"c": ((0, 1),)}}
    plan = Plan(steps, {"b": ("a",), "c": ("a",)})
    jobs = [job("a"), job("b", 20), job("c", 50)]
    records = share(plan, jobs, cluster=ONE, delay_s=10, colocation=ConstantSharing(1.0))
    found = [
        (one.start_s, one.end_s, one.neighbours, one.gpu_share, one.restarting)
        for one in records.allocations
        if one.job_id == "a"
    ]
    assert found == [
        (1, 6, "", 1.0, True), (6, 11, "b", 0.5, True), (11, 36, "b", 0.5, False), (36, 46, "", 1.0, False),
        (46, 61, "c", 0.5, False), (61, 71, "", 1.0, False), (71, 111, "c", 0.5, False),
    ]  # fmt: skip
    assert [plan.seen[second]["c"] for second in (60, 62, 72)] == [("a",), (), ("a",)]


def test_free_gpus_come_first_then_those_of_the_lowest_index() -> None:
    held = Holders([3], 2)
    assert held.take("a", ((0, 2),), ()) is None
    assert held.take("b", ((0, 2),), ("a",)) is None
    assert (held.gpus("a"), held.gpus("b")) == ({0: [0, 1]}, {0: [0, 2]})
    assert (held.free(0), held.neighbours("a"), held.share("a"), held.share("b")) == (0, ("b",), 0.75, 0.75)
    held.give_back("a")
    assert (held.free(0), held.neighbours("b")) == (1, ())
    assert held.take("c", ((0, 2),), ()) == "node 0 has 1 free GPUs and 0 to share, 2 are wanted"
    assert held.free(0) == 1


def test_the_least_speed_over_its_gpus_is_a_jobs() -> None:
    # a holds both GPUs; b shares one of them, so a is as slow as there although it is alone on the other.
    plan = Plan({1: {"a": ((0, 2),), "b": ((0, 1),)}}, {"b": ("a",)})
    records = share(plan, [job("a", 100, 2), job("b", 50)])
    assert ends(records) == {"b": 101, "a": 151}
    assert {one.gpu_share for one in records.allocations if one.job_id == "a"} == {0.75, 1.0}


def test_a_guaranteed_job_is_never_slowed_down() -> None:
    # Two at 0.625 do 1.25 together: where the policy puts guaranteed jobs first, b is left a quarter.
    jobs = [job("a", guaranteed=True), job("b", 200)]
    first = share(GuaranteedPlan(BOTH, {"b": ("a",)}), jobs, cluster=ONE, colocation=ConstantSharing(0.625))
    assert ends(first) == {"a": 101, "b": 101 + 175}
    even = share(Plan(BOTH, {"b": ("a",)}), jobs, cluster=ONE, colocation=ConstantSharing(0.625))
    assert ends(even) == {"a": 161, "b": 161 + 100}


def test_a_job_to_which_a_guaranteed_one_leaves_nothing_stands_still_until_that_ends() -> None:
    # In turns two jobs do no more than one: b waits on its GPU for a's end at 101, and then takes its 30 s.
    jobs = [job("a", guaranteed=True), job("b", 30)]
    records = share(GuaranteedPlan(BOTH, {"b": ("a",)}), jobs, cluster=ONE, colocation=TimeSlicing())
    assert ends(records) == {"a": 101, "b": 131}
    stood = [(one.start_s, one.end_s, one.relative_speed) for one in records.allocations if one.job_id == "b"]
    assert stood == [(1, 101, 0.0), (101, 131, 1.0)]


def test_pair_speeds_conserve_work() -> None:
    fixed = Kind("fixed-duration", 0)
    table = PairTable({("t4", fixed, fixed): (0.8, 0.8)})
    records = share(Plan(BOTH, {"b": ("a",)}), [job("a"), job("b", 60)], cluster=ONE, colocation=table)
    assert ends(records) == {"b": 1 + 75, "a": 1 + 75 + 40}
    done = {"a": 0.0, "b": 0.0}
    for one in records.allocations:
        done[one.job_id] += (one.end_s - one.start_s) * one.relative_speed
    assert done == pytest.approx({"a": 100, "b": 60})


@pytest.mark.parametrize(
    ("steps", "beside", "most", "message"),
    [
        (BOTH, {"b": ("a",)}, 1, "job 'b' is to share GPUs, which engine.sharing.max_jobs does not allow"),
        ({1: {"b": ((0, 1),)}}, {"b": ("a",)}, 2, "job 'b' is to share GPUs with job 'a', which does not run"),
        (BOTH, {}, 2, "job 'b': node 0 has 0 free GPUs and 0 to share, 1 are wanted"),
        ({1: {"a": ((0, 1),)}, 2: {"b": ((0, 1),)}}, {}, 2, "job 'b': node 0 has 0 free GPUs and 0 to share"),
    ],
)
def test_what_cannot_be_shared_is_refused(steps, beside, most: int, message: str) -> None:
    with pytest.raises(InfeasibleDecisionError, match=message):
        share(Plan(steps, beside), [job("a"), job("b")], cluster=ONE, most=most)


def test_memory_must_suffice_for_all_on_a_gpu() -> None:
    app = two_type_application()
    app.memory = MemoryNeed(5000, 100)
    jobs = [JobSpec(name, 0, 1, application="toy", batch_size=16) for name in ("a", "b")]
    cluster = Cluster(Cluster.of(NodeGroup(1, 1)).nodes, {"t4": 12_000.0})
    message = r"job a \(toy\) with b needs 13,200 MB on a GPU of type t4, which has 12,000 MB"
    with pytest.raises(InfeasibleDecisionError, match=message):
        share(Plan(BOTH, {"b": ("a",)}), jobs, cluster=cluster, applications=Applications(app))


def test_a_job_that_fits_no_gpu_is_refused_without_sharing_too() -> None:
    app = two_type_application()
    app.memory = MemoryNeed(20_000, 0)
    cluster = Cluster(Cluster.of(NodeGroup(1, 1)).nodes, {"t4": 16_000.0})
    jobs = [JobSpec("a", 0, 1, application="toy", batch_size=16)]
    with pytest.raises(InfeasibleDecisionError, match="needs 20,000 MB"):
        run(Plan({1: {"a": ((0, 1),)}}), jobs, cluster=cluster, applications=Applications(app))


@pytest.mark.parametrize("seed", range(6))
def test_random_sharing_keeps_the_invariants_and_finishes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    jobs = [JobSpec(f"j{i}", i, int(rng.integers(1, 4)), duration_s=int(rng.integers(5, 60))) for i in range(12)]

    class Shuffles(Plan):
        """Places jobs at random beside whoever is there, and stops some."""

        def decide(self, view: View, rng) -> Decision:
            running = {one.id for one in view.jobs.values() if one.running}
            stop = [one for one in sorted(running) if rng.random() < 0.1]
            stay = running - set(stop)
            start = {}
            for one in view.jobs.values():
                node = int(rng.integers(0, 2))
                if one.id in running or sum(view.nodes[node].gpus for _ in start.values()) > 0:
                    continue
                on_node = [other for other in stay if view.jobs[other].allocation[0][0] == node]
                room = view.free[node] + sum(
                    view.jobs[other].num_gpus for other in on_node if not view.jobs[other].neighbours
                )
                if one.num_gpus <= room - (0 if view.free[node] >= one.num_gpus else view.free[node]):
                    start[one.id] = Place(((node, one.num_gpus),), on_node)
            return Decision.change(start, stop)

    records = share(Shuffles({}), jobs, cluster=Cluster.uniform(2, 3), most=2, delay_s=2)
    assert len(records.jobs) == 12
    assert any(one.neighbours for one in records.allocations)


class SlowerInPairs:
    """Three run undisturbed, two at a tenth of their speed."""

    def speeds(self, on_one_gpu, gpu_type: str) -> tuple[float, ...]:
        return (1.0 if len(on_one_gpu) == 3 else 0.1,) * len(on_one_gpu)


def test_a_job_past_its_end_by_rounding_ends_at_once_whatever_slows_it_down() -> None:
    # a and b end at 11, b by rounding of 10.6. As a goes first, b has 0.4 s too much when its speed falls to a tenth:
    # its end, sought at that speed, lies four seconds back.
    plan = Plan({1: dict.fromkeys("abc", ((0, 1),))}, {"b": ("a",), "c": ("a", "b")})
    jobs = [job("a", 10), job("b", 9.6), job("c", 100)]  # type: ignore[arg-type]
    records = share(plan, jobs, cluster=ONE, colocation=SlowerInPairs(), most=3)
    assert {name: ends(records)[name] for name in "ab"} == {"a": 11, "b": 11}
