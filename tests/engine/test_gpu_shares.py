"""Parts of GPUs over simulated time, on cases worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st
from simsched_policies.sharing.fractional import Fractional, UsualJobs

from simsched.engine.errors import InfeasibleDecisionError, InvariantError
from simsched.engine.invariants import check_state
from simsched.engine.options import EngineOptions
from simsched.engine.records import MemoryRecorder
from simsched.engine.simulation import simulate
from simsched.engine.state import ClusterState
from simsched.errors import InputError
from simsched.experiment.grid import make_grid
from simsched.experiment.running.runner import run_grid
from simsched.experiment.validation import read_experiment
from simsched.model.cluster import Cluster
from simsched.model.colocation.contract import ConstantSharing
from simsched.model.job import JobSpec
from simsched.policy import Decision, Onto, Place, Policy
from simsched.results.reader import read_run
from simsched.testing.builders import Applications


def job(name: str, at_s: int, part: float, duration_s: int = 100, gpus: int = 1) -> JobSpec:
    return JobSpec(name, at_s, gpus, duration_s=duration_s, gpu_share=part)


def run(policy, jobs, cluster=None, *, shares: bool = True, most: int = 16) -> MemoryRecorder:
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
    recorder = run(Fractional(), [job("a", 0, 0.5), job("b", 0, 0.25), job("c", 0, 0.25)], Cluster.uniform(1, 1))
    assert starts(recorder) == {"a": 0, "b": 0, "c": 0}
    assert {row.gpu_share for row in recorder.allocations if row.job_id == "a"} == {0.5}
    assert {record.end_time_s for record in recorder.jobs} == {100}


def test_a_part_that_does_not_fit_waits_until_enough_is_left() -> None:
    jobs = [job("a", 0, 0.7, 100), job("b", 0, 0.3, 50), job("c", 0, 0.4)]
    assert starts(run(Fractional(), jobs, Cluster.uniform(1, 1))) == {"a": 0, "b": 0, "c": 100}


def test_best_fit_leaves_room_for_the_large_and_worst_fit_does_not() -> None:
    # The GPUs hold 0.6 and 0.5; best fit puts 0.4 onto the first, worst fit onto the second, where 0.1 is left then.
    jobs = [job("first", 0, 0.6), job("second", 0, 0.5), job("third", 1, 0.4), job("fourth", 2, 0.5)]
    assert starts(run(Fractional(rule="best-fit"), jobs)) == {"first": 0, "second": 0, "third": 1, "fourth": 2}
    assert starts(run(Fractional(rule="worst-fit"), jobs))["fourth"] == 100


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
    jobs = [job("p", 0, 0.3, 500), job("q", 0, 0.8, 5), job("r", 1, 0.2, 500)]
    jobs += [job(f"u{i}", 7, 0.7, 10) for i in range(4)]
    jobs += [job("s", 100, 0.1, 300), job("t", 101, 0.7, 10), job("v", 101, 0.7, 10)]
    assert starts(run(Fractional(rule="best-fit"), jobs))["v"] == 111
    assert starts(run(Fractional(rule="fgd"), jobs))["v"] == 101


def test_whole_gpus_are_shared_with_nobody() -> None:
    jobs = [job("part", 0, 0.1), job("whole", 0, 1, gpus=1), job("both", 1, 1, gpus=2), job("late", 2, 0.1, 10)]
    blocking = run(Fractional(), jobs)
    assert starts(blocking) == {"part": 0, "whole": 0, "both": 100, "late": 200}
    assert neighbours(blocking)["whole"] == set()
    assert starts(run(Fractional(backfill=True), jobs))["late"] == 2


def test_without_parts_every_job_gets_a_whole_gpu() -> None:
    jobs = [job("a", 0, 0.5), job("b", 0, 0.5), job("c", 0, 0.5)]
    recorder = run(Fractional(), jobs, shares=False, most=1)
    assert starts(recorder) == {"a": 0, "b": 0, "c": 100}
    assert {row.gpu_share for row in recorder.allocations} == {1}


class Beside(Policy):
    """Puts every job onto the GPU of the first."""

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
    jobs = [job("a", 0, 0.7), job("b", 0, 0.4)]
    with pytest.raises(InfeasibleDecisionError, match=r"0\.7 of GPU 0 of node 0 is taken, and 0\.4 is wanted"):
        run(Beside(onto=onto), jobs, Cluster.uniform(1, 1))


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
        run(Fractional(), [job("a", 0, part)])


PARTS = st.sampled_from([0.1, 0.2, 0.25, 0.3, 0.5, 0.7, 1.0])


@settings(max_examples=25)
@given(
    rows=st.lists(st.tuples(st.integers(0, 50), PARTS, st.integers(1, 40)), min_size=1, max_size=25),
    rule=st.sampled_from(["best-fit", "worst-fit", "first-fit", "fgd"]),
    backfill=st.booleans(),
)
def test_no_rule_ever_gives_more_than_a_gpu(rows, rule, backfill) -> None:
    rows = sorted(rows, key=lambda row: row[0])
    jobs = [job(f"j{i}", at, part, lasts) for i, (at, part, lasts) in enumerate(rows)]
    recorder = run(Fractional(rule=rule, backfill=backfill), jobs, Cluster.uniform(2, 2))
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
