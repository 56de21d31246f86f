"""GPUs that several jobs hold: who gets which, how fast jobs are, and what is refused; cases worked by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from simsched_policies.sharing.fractional import Fractional, UsualJobs

from simsched.engine.errors import InfeasibleDecisionError, InvariantError
from simsched.engine.holders import Holders
from simsched.engine.invariants import check_state
from simsched.engine.options import EngineOptions
from simsched.engine.records import MemoryRecorder
from simsched.engine.simulation import simulate
from simsched.engine.state import ClusterState
from simsched.errors import InputError
from simsched.experiment.grid import make_grid
from simsched.experiment.running.runner import run_grid
from simsched.experiment.validation import read_experiment
from simsched.model.application import MemoryNeed
from simsched.model.cluster import Cluster, NodeGroup
from simsched.model.colocation import Guarantee
from simsched.model.colocation.contract import ConstantSharing, TimeSlicing
from simsched.model.colocation.pairs import Kind, PairTable
from simsched.model.job import JobSpec
from simsched.model.placement import Allocation
from simsched.policy import Decision, Onto, Place, Policy, Traits, Triggers, View
from simsched.results.reader import read_run
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


def parted(name: str, at_s: int, part: float, duration_s: int = 100, gpus: int = 1) -> JobSpec:
    return JobSpec(name, at_s, gpus, duration_s=duration_s, gpu_share=part)


def run_parts(policy, jobs, cluster=None, *, shares: bool = True, most: int = 16) -> MemoryRecorder:
    recorder = MemoryRecorder()
    options = EngineOptions(restart_delay_s=0, max_jobs_per_gpu=most, gpu_shares=shares)
    cluster = cluster or Cluster.uniform(1, 2)
    model = ConstantSharing(1.0)
    simulate(cluster, jobs, Applications(), policy, options, 1, recorder, colocation=model, check_invariants=True)
    return recorder


def starts(recorder: MemoryRecorder) -> dict[str, float]:
    return {record.job_id: record.end_time_s - record.held_s for record in recorder.jobs}


def neighbours(recorder: MemoryRecorder) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for row in recorder.allocations:
        found.setdefault(row.job_id, set()).update(filter(None, row.neighbours.split()))
    return found


def test_parts_that_add_up_to_one_gpu_run_beside_each_other_at_full_speed() -> None:
    recorder = run_parts(
        Fractional(),
        [parted("a", 0, 0.5), parted("b", 0, 0.25), parted("c", 0, 0.25)],
        Cluster.uniform(1, 1),
    )
    assert starts(recorder) == {"a": 0, "b": 0, "c": 0}
    assert {row.gpu_share for row in recorder.allocations if row.job_id == "a"} == {0.5}
    assert {record.end_time_s for record in recorder.jobs} == {100}


def test_a_part_that_does_not_fit_waits_until_enough_is_left() -> None:
    jobs = [parted("a", 0, 0.7, 100), parted("b", 0, 0.3, 50), parted("c", 0, 0.4)]
    assert starts(run_parts(Fractional(), jobs, Cluster.uniform(1, 1))) == {"a": 0, "b": 0, "c": 100}


def test_best_fit_leaves_room_for_the_large_and_worst_fit_does_not() -> None:
    # The GPUs hold 0.6 and 0.5; best fit puts 0.4 onto the first, worst fit onto the second, where 0.1 is left then.
    jobs = [
        parted("first", 0, 0.6),
        parted("second", 0, 0.5),
        parted("third", 1, 0.4),
        parted("fourth", 2, 0.5),
    ]
    assert starts(run_parts(Fractional(rule="best-fit"), jobs)) == {"first": 0, "second": 0, "third": 1, "fourth": 2}
    assert starts(run_parts(Fractional(rule="worst-fit"), jobs))["fourth"] == 100


def test_fragmentation_is_what_usual_jobs_cannot_use() -> None:
    usual = UsualJobs()
    for gpus, part in ((1, 0.5), (1, 0.5), (1, 0.5), (2, 1.0)):
        usual.note(gpus, part)
    assert list(usual.classes()) == [(1, 0.5, 0.75), (2, 1.0, 0.25)]
    # Three in four want half a GPU and cannot use the 0.3; the fourth needs two whole ones and can use nothing.
    assert usual.unusable([1.0, 0.3], 2) == pytest.approx(0.75 * 0.3 + 0.25 * 1.3)
    assert usual.growth([1.0, 0.7], [0.7], 0.4, 2) == pytest.approx(0.75 * 0.3 + 0.25 * 1.3 - 0.25 * 1.7)


def test_fgd_keeps_room_for_the_usual_where_best_fit_does_not() -> None:
    # At 100 the GPUs have 0.7 and 0.8 left, and most jobs so far wanted 0.7. Best fit puts 0.1 onto the first, where
    # 0.6 is left then, and FGD onto the second.
    jobs = [parted("p", 0, 0.3, 500), parted("q", 0, 0.8, 5), parted("r", 1, 0.2, 500)]
    jobs += [parted(f"u{i}", 7, 0.7, 10) for i in range(4)]
    jobs += [parted("s", 100, 0.1, 300), parted("t", 101, 0.7, 10), parted("v", 101, 0.7, 10)]
    assert starts(run_parts(Fractional(rule="best-fit"), jobs))["v"] == 111
    assert starts(run_parts(Fractional(rule="fgd"), jobs))["v"] == 101


def test_whole_gpus_are_shared_with_nobody() -> None:
    jobs = [
        parted("part", 0, 0.1),
        parted("whole", 0, 1, gpus=1),
        parted("both", 1, 1, gpus=2),
        parted("late", 2, 0.1, 10),
    ]
    blocking = run_parts(Fractional(), jobs)
    assert starts(blocking) == {"part": 0, "whole": 0, "both": 100, "late": 200}
    assert neighbours(blocking)["whole"] == set()
    assert starts(run_parts(Fractional(backfill=True), jobs))["late"] == 2


def test_without_parts_every_job_gets_a_whole_gpu() -> None:
    jobs = [parted("a", 0, 0.5), parted("b", 0, 0.5), parted("c", 0, 0.5)]
    recorder = run_parts(Fractional(), jobs, shares=False, most=1)
    assert starts(recorder) == {"a": 0, "b": 0, "c": 100}
    assert {row.gpu_share for row in recorder.allocations} == {1}


class Beside(Policy):
    """Puts every part onto the GPU of the first."""

    name = "beside"

    def __init__(self, *, onto: bool) -> None:
        self._onto = onto

    def decide(self, view, rng):
        first, *rest = view.jobs
        beside = () if self._onto else tuple(view.jobs)
        place = Place(((0, 1),), beside, more=(Onto(first),) if self._onto else ())
        return Decision({first: ((0, 1),), **dict.fromkeys(rest, place)})


@pytest.mark.parametrize("onto", [True, False])
def test_parts_over_a_whole_gpu_are_refused_with_both_numbers(onto: bool) -> None:
    jobs = [parted("a", 0, 0.7), parted("b", 0, 0.4)]
    with pytest.raises(InfeasibleDecisionError, match=r"0\.7 of GPU 0 of node 0 is taken, and 0\.4 is wanted"):
        run_parts(Beside(onto=onto), jobs, Cluster.uniform(1, 1))


def test_an_invariant_counts_the_parts() -> None:
    cluster = ClusterState(Cluster.uniform(1, 1), None, 4)
    occupancy = cluster.occupancy
    assert occupancy is not None
    for name in "ab":
        cluster.take(name, ((0, 1),), ("a",))
    occupancy.share_of = lambda job_id: 0.75
    with pytest.raises(InvariantError, match=r"INV-8: 1\.5 of GPU 0 of node 0 is taken"):
        check_state(cluster, {}, 0, 0)


@pytest.mark.parametrize("part", [0.0, 1.5])
def test_parts_that_are_none_are_refused(part: float) -> None:
    with pytest.raises(InputError, match="of each GPU; ask for more than 0 and at most 1"):
        run_parts(Fractional(), [parted("a", 0, part)])


PARTS = st.sampled_from([0.1, 0.2, 0.25, 0.3, 0.5, 0.7, 1.0])


@settings(max_examples=25)
@given(
    rows=st.lists(st.tuples(st.integers(0, 50), PARTS, st.integers(1, 40)), min_size=1, max_size=25),
    rule=st.sampled_from(["best-fit", "worst-fit", "first-fit", "fgd"]),
    backfill=st.booleans(),
)
def test_no_rule_ever_gives_more_than_a_gpu(rows, rule, backfill) -> None:
    rows = sorted(rows, key=lambda row: row[0])
    jobs = [parted(f"j{i}", at, part, lasts) for i, (at, part, lasts) in enumerate(rows)]
    recorder = run_parts(Fractional(rule=rule, backfill=backfill), jobs, Cluster.uniform(2, 2))
    assert {record.held_s for record in recorder.jobs} <= {lasts for _, _, lasts in rows}
    if not backfill:
        first = starts(recorder)
        assert [first[one.id] for one in jobs] == sorted(first[one.id] for one in jobs)


def test_metrics_of_a_run_count_the_parts(tmp_path) -> None:
    (tmp_path / "jobs.csv").write_text(
        "submit_time,num_gpus,duration,gpu_share\n0,1,100,0.5\n0,1,100,0.25\n0,1,100,1\n"
    )
    (tmp_path / "e.yaml").write_text(
        "name: parts\ncluster: {nodes: 1, gpus_per_node: 2}\n"
        "workload: {path: jobs.csv, recipe: replay}\n"
        "engine: {restart_delay_s: 0, sharing: {max_jobs: 4, model: shares}}\n"
        "policies: [{name: fractional}]\n"
    )
    result = run_grid(make_grid(read_experiment(tmp_path / "e.yaml", [])), tmp_path / "results", 1)
    (cell,) = read_run(result.folder).cells
    assert cell.summary["gpu_utilisation"] == pytest.approx(1.75 / 2)
    assert "speed_per_gpu" not in cell.summary
    assert sorted(cell.table("allocations", ["gpu_share"])["gpu_share"]) == [0.25, 0.5, 1]
