"""Placement on as few nodes as possible, by hand."""

import numpy as np
import pytest
from simsched_policies.queues.by_key import Fifo

from simsched.model.cluster import Cluster
from simsched.model.job import JobSpec
from simsched.model.placement import Allocation, gpus_of
from simsched.policy import Reasons
from simsched.testing.builders import Applications, fresh_view
from simsched.toolkit.consolidated import place_consolidated


def place(held: dict[str, Allocation], counts: dict[str, int], *, firm: str, still: str = "", nodes: int = 2):
    """Place jobs on nodes of four GPUs; those in `still` may not move."""
    jobs = [JobSpec(name, 0, 1, duration_s=60) for name in counts]
    view, known = fresh_view(Fifo(), jobs, Cluster.uniform(nodes, 4), Applications())
    for name, allocation in held.items():
        known[name].allocation = allocation
    return place_consolidated(counts, view, set(firm), lambda name: name not in still)


def test_a_job_that_keeps_its_size_stays_and_others_fill_the_fullest_node():
    placed = place({"a": ((0, 2),)}, {"a": 2, "b": 2, "c": 4}, firm="abc")
    assert placed == {"a": ((0, 2),), "b": ((0, 2),), "c": ((1, 4),)}


def test_the_largest_is_placed_first():
    assert place({}, {"a": 2, "b": 4}, firm="ab") == {"b": ((0, 4),), "a": ((1, 2),)}


def test_others_move_for_one_that_finds_no_room_on_one_node():
    held = {"a": ((0, 2),), "b": ((1, 2),)}
    assert place(held, {"a": 2, "b": 2, "c": 4}, firm="abc") == {"a": ((1, 2),), "b": ((1, 2),), "c": ((0, 4),)}
    assert place(held, {"a": 2, "b": 2, "c": 4}, firm="abc", still="a") == {
        "a": ((0, 2),),
        "b": ((0, 2),),
        "c": ((1, 4),),
    }
    assert place(held, {"a": 2, "b": 2, "c": 4}, firm="abc", still="ab")["c"] == ((0, 2), (1, 2)), "scattered"


def test_the_fullest_node_that_can_hold_a_job_gets_it_and_the_least_is_given_up():
    assert place({"a": ((1, 2),)}, {"a": 2, "b": 2}, firm="ab") == {"a": ((1, 2),), "b": ((1, 2),)}
    # One GPU moves for c rather than three.
    held = {"a": ((0, 3),), "b": ((1, 1),)}
    assert place(held, {"a": 3, "b": 1, "c": 4}, firm="abc") == {"a": ((0, 3),), "b": ((0, 1),), "c": ((1, 4),)}
    # Of seven GPUs four take a node of their own, and three the fuller of the others.
    held = {"a": ((1, 1),)}
    assert place(held, {"a": 1, "b": 7}, firm="ab", nodes=3) == {"a": ((1, 1),), "b": ((0, 4), (1, 3))}
    # Nobody moves for others who would then be without room: c is scattered.
    held = {"a": ((0, 2),), "b": ((1, 2),), "d": ((2, 2),)}
    placed = place(held, {"a": 2, "b": 2, "d": 2, "c": 6}, firm="abcd", nodes=3)
    assert {name: gpus_of(at) for name, at in placed.items()} == {"a": 2, "b": 2, "d": 2, "c": 6}
    assert len(placed["c"]) == 2


def test_it_is_said_who_gets_no_gpu():
    jobs = [JobSpec(name, 0, 1, duration_s=60) for name in "abc"]
    view, _ = fresh_view(Fifo(), jobs, Cluster.uniform(1, 4), Applications())
    view.reasons = Reasons()
    assert place_consolidated({"a": 1, "b": 0, "c": 3}, view, {"c"}, lambda _: True) == {"c": ((0, 3),), "a": ((0, 1),)}
    assert list(view.reasons.waits) == ["b"]


def test_jobs_that_are_not_firm_give_way():
    held = {"a": ((0, 2),), "b": ((1, 2),)}
    assert place(held, {"a": 2, "b": 2, "c": 4}, firm="ac") == {"a": ((0, 2),), "c": ((1, 4),), "b": ((0, 2),)}


def test_a_scattered_job_is_gathered_if_it_may_move():
    held = {"a": ((0, 1), (1, 1))}
    assert place(held, {"a": 2}, firm="a") == {"a": ((0, 2),)}
    assert place(held, {"a": 2}, firm="a", still="a") == held
    assert place(held, {"a": 2}, firm="") == held


@pytest.mark.parametrize("seed", range(5))
def test_powers_of_two_that_fit_in_number_are_all_consolidated(seed: int):
    rng = np.random.default_rng(seed)
    free, counts = 32, {}
    while free:
        counts[f"{len(counts)}"] = gpus = min(1 << int(rng.integers(0, 4)), 1 << free.bit_length() - 1)
        free -= gpus
    names = list(counts)
    half = {name: counts[name] for name in names[::2]}
    before = place({}, half, firm="".join(half), nodes=8)
    view_counts = {**counts}
    jobs = [JobSpec(name, 0, 1, duration_s=60) for name in names]
    view, known = fresh_view(Fifo(), jobs, Cluster.uniform(8, 4), Applications())
    for name, allocation in before.items():
        known[name].allocation = allocation
    placed = place_consolidated(view_counts, view, set(names), lambda _: True)
    assert {name: gpus_of(held) for name, held in placed.items()} == counts
    assert all(len(held) == -(-gpus_of(held) // 4) for held in placed.values())
    for node in range(8):
        assert sum(gpus for held in placed.values() for at, gpus in held if at == node) <= 4
