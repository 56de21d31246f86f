"""Gandiva's nodes for jobs of one size: where new jobs go, and who moves, on cases worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from simsched_policies.sharing.gandiva import Gandiva

from simsched.engine.options import EngineOptions
from simsched.engine.records import MemoryRecorder
from simsched.engine.simulation import simulate
from simsched.model.cluster import Cluster
from simsched.model.job import JobSpec
from simsched.testing.builders import Applications, fresh_view

LONG_S = 600


def job(name: str, at_s: int, gpus: int, duration_s: int = LONG_S) -> JobSpec:
    return JobSpec(name, at_s, gpus, duration_s=duration_s)


def run(jobs: list[JobSpec], nodes: int, gpus: int, *, most: int = 1, **params) -> MemoryRecorder:
    recorder = MemoryRecorder()
    options = EngineOptions(restart_delay_s=0, max_jobs_per_gpu=most)
    cluster, policy = Cluster.uniform(nodes, gpus), Gandiva(**params)
    simulate(cluster, jobs, Applications(), policy, options, 1, recorder, check_invariants=True)
    return recorder


def places(recorder: MemoryRecorder, job_id: str) -> list[str]:
    """List where a job has run, in order, repetitions left out."""
    found: list[str] = []
    for row in recorder.allocations:
        if row.job_id == job_id and row.placement not in found[-1:]:
            found.append(row.placement)
    return found


def ends(recorder: MemoryRecorder) -> dict[str, float]:
    return {record.job_id: record.end_time_s for record in recorder.jobs}


def test_a_job_goes_to_a_node_of_its_size_before_an_empty_one_and_to_that_before_any_with_room() -> None:
    # a opens node 0, b node 1; c and d find nodes of their size. e, of 3 GPUs, opens node 2, and f finds room there.
    jobs = [job("a", 0, 1), job("b", 0, 2), job("c", 1, 1), job("d", 2, 2), job("e", 3, 3), job("f", 4, 1)]
    found = run([*jobs[:5], job("x", 3, 1), job("y", 3, 1), jobs[5]], nodes=3, gpus=4)
    first = {name: places(found, name)[0] for name in "abcdexyf"}
    assert first == {"a": "0:1", "b": "1:2", "c": "0:1", "d": "1:2", "e": "2:3", "x": "0:1", "y": "0:1", "f": "2:1"}


def test_of_two_nodes_of_its_size_a_job_takes_the_less_loaded() -> None:
    # From 100 on three GPUs of node 0 are held, and two of node 1.
    jobs = [job(name, 0, 1, 100 if name in "ag" else LONG_S) for name in "abcdefg"]
    found = run([*jobs, job("h", 200, 1)], nodes=2, gpus=4)
    assert [places(found, name)[0] for name in "abcdefgh"] == ["0:1"] * 4 + ["1:1"] * 4


def test_without_room_a_job_takes_turns_with_those_of_its_size_only() -> None:
    # a and c take turns on node 0 in slices of 60 s, and b is left in peace on node 1, whose other GPU idles.
    jobs = [job("a", 0, 2), job("b", 0, 1, 1200), job("c", 1, 2)]
    assert ends(run(jobs, nodes=2, gpus=2, packing=False)) == {"a": 1140, "b": 1200, "c": 1200}


def test_a_job_for_whose_size_no_node_is_kept_waits_in_the_queue() -> None:
    # b holds one of two GPUs until 600; c asks for both. Where nodes have no affinity b and c take turns.
    jobs = [job("b", 0, 1), job("c", 1, 2)]
    assert ends(run(jobs, nodes=1, gpus=2)) == {"b": 600, "c": 1200}
    assert ends(run(jobs, nodes=1, gpus=2, affinity=False)) == {"b": 1140, "c": 1200}


def test_room_goes_to_the_queue_before_those_who_wait_for_a_turn() -> None:
    # a and c take turns on node 0. When b ends at 300, d, which has queued since 2, gets node 1, and c moves there at
    # 400, when d is done and it is a's turn: c has run for 180 s by then, and a for 220.
    jobs = [job("a", 0, 4), job("b", 0, 2, 300), job("c", 1, 4), job("d", 2, 3, 100)]
    found = run(jobs, nodes=2, gpus=4, packing=False)
    assert places(found, "c") == ["0:4", "1:4"]
    assert ends(found) == {"a": 780, "b": 300, "c": 820, "d": 400}


def test_jobs_move_to_nodes_of_their_size_when_others_have_left() -> None:
    # c, of one GPU, finds room only beside b, of two. When d ends, node 0 has room for it.
    jobs = [job("a", 0, 1), job("d", 0, 1, 100), job("e", 0, 1), job("f", 0, 1), job("b", 0, 2), job("c", 1, 1)]
    found = run(jobs, nodes=2, gpus=4)
    assert places(found, "c") == ["1:1", "0:1"]
    assert places(run(jobs, nodes=2, gpus=4, migration=False), "c") == ["1:1"]


def test_a_node_is_emptied_from_three_quarters_free_on_and_its_job_prefers_its_own_size() -> None:
    # At 100 node 1 has three of four GPUs free. Node 0 is fuller, but node 2 is kept for jobs of one GPU.
    jobs = [job("a", 0, 3), job("b", 0, 1, 100), job("c", 0, 1), job("d", 0, 1, 100), job("e", 0, 1, 100)]
    jobs += [job("f", 1, 1), job("g", 1, 1)]
    found = run(jobs, nodes=3, gpus=4)
    assert places(found, "c") == ["1:1", "2:1"]
    assert places(run(jobs, nodes=3, gpus=4, sparse_share=1.0), "c") == ["1:1"]


def test_a_job_larger_than_a_node_takes_whole_nodes_kept_for_such_jobs() -> None:
    # a's third part, of one GPU, shares node 2 with b; c takes turns with the whole nodes of a.
    jobs = [job("a", 0, 5), job("b", 1, 1), job("c", 2, 2)]
    found = run(jobs, nodes=3, gpus=2, packing=False)
    assert places(found, "a") == ["0:2 1:2 2:1"]
    assert places(found, "b") == ["2:1"]
    assert places(found, "c")[0] in ("0:2", "1:2")
    assert ends(found)["b"] == 601


def test_a_job_whose_node_is_down_looks_for_another_home() -> None:
    view, _ = fresh_view(policy := Gandiva(), [job("a", 0, 2), job("b", 0, 1)], Cluster.uniform(2, 2), Applications())
    rng = np.random.default_rng(0)
    assert policy.decide(view, rng).allocations == {"a": ((0, 2),), "b": ((1, 1),)}
    view.arrived, view.up = (), [False, True]
    assert policy.decide(view, rng).allocations == {"b": ((1, 1),)}, "a queues: node 1 is kept for single GPUs"
    view.up = [True, True]
    assert policy.decide(view, rng).allocations == {"a": ((0, 2),), "b": ((1, 1),)}


@pytest.mark.parametrize("wrong", [{"trial_slices": 0}, {"sparse_share": 1.5}])
def test_parameters_out_of_range_are_refused(wrong) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Gandiva(**wrong)


def test_a_pair_gets_gpus_of_its_own_on_its_very_node() -> None:
    # At 120 a or b is put onto the GPU of the other, at half speed for either; at 200 c, their neighbour, is done.
    jobs = [job("a", 0, 1), job("b", 0, 1), job("c", 0, 1, 150)]
    found = run(jobs, nodes=1, gpus=2, most=2, trial_slices=60)
    shared = [row for row in found.allocations if row.neighbours]
    assert shared
    assert max(row.end_s for row in shared) == ends(found)["c"]
