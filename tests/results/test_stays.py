"""Which job held which GPUs when, from tables written by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from simsched.results.stays import (
    HELD_COLUMNS,
    colour_groups,
    node_sizes,
    outages_told,
    placements,
    stays_of,
    waiting_by,
)


def held(*rows):
    """Return intervals of job, start, end, placement and whether it pauses."""
    return pd.DataFrame(rows, columns=list(HELD_COLUMNS))


@pytest.mark.parametrize(
    ("second", "begins"),
    [
        (("a", 50, 60, "0:2", False), [0]),
        (("a", 50, 60, "0:1", False), [0, 50]),  # other GPUs
        (("a", 51, 60, "0:2", False), [0, 51]),  # a gap
        (("a", 50, 60, "0:2", True), [0, 50]),  # a pause, and nobody says how many restarts there were
    ],
)
def test_a_placement_begins_with_other_gpus_after_a_gap_and_at_a_pause(second, begins):
    found = placements(held(("a", 0, 20, "0:2", True), ("a", 20, 50, "0:2", False), second), None)
    assert [one[2] for one in found] == begins
    assert [one[5] for one in found] == list(range(1, len(begins) + 1))


@pytest.mark.parametrize(("restarts", "begins"), [(0, [0]), (1, [0, 70]), (2, [0, 30, 70])])
def test_of_pauses_those_count_as_restarts_that_last_as_long_as_the_first(restarts, begins):
    rows = held(
        ("a", 0, 10, "0:1", True), ("a", 10, 30, "0:1", False),
        ("a", 30, 33, "0:1", True), ("a", 33, 70, "0:1", False),  # 3 s: a checkpoint, if one of the two is
        ("a", 70, 81, "0:1", True), ("a", 81, 90, "0:1", False),
    )  # fmt: skip
    assert [one[2] for one in placements(rows, {"a": restarts})] == begins


def test_pauses_are_measured_against_the_first_start_and_without_one_the_shortest_are_restarts():
    rows = [("a", 100, 110, "0:1", True), ("a", 110, 200, "0:1", False), ("a", 200, 230, "0:1", True),
            ("a", 230, 300, "0:1", False), ("a", 300, 309, "0:1", True), ("a", 309, 400, "0:1", False)]  # fmt: skip
    assert [one[2] for one in placements(held(*rows), {"a": 1})] == [100, 300]  # 9 s as the first 10 s, and not 30 s
    rows = [("a", 5.0, 20.0, "0:1", False), ("a", 20.0, 21.4, "0:1", True), ("a", 21.4, 30.0, "0:1", False),
            ("a", 30.0, 30.4, "0:1", True), ("a", 30.4, 40.0, "0:1", False)]  # fmt: skip
    assert [one[2] for one in placements(held(*rows), {"a": 1})] == [5, 30]


def test_placements_are_told_by_their_starts_with_when_they_make_progress():
    rows = held(("b", 0, 30, "0:1", True), ("b", 30, 60, "0:1", False), ("a", 10, 20, "1:2", False),
                ("c", 10, 40, "0:1", True))  # fmt: skip
    assert placements(rows, None) == [
        ("b", "0:1", 0, 30, 60, 1), ("a", "1:2", 10, 10, 20, 1), ("c", "0:1", 10, 40, 40, 1),
    ]  # fmt: skip


def test_jobs_lie_on_the_lowest_free_gpus_side_by_side_where_there_is_such_a_gap():
    allocations = held(
        ("a", 0, 10, "0:1", False), ("b", 0, 40, "0:1", False), ("c", 0, 20, "0:2", False),
        ("d", 10, 30, "0:2", False),  # the first GPU is free, and one more beyond the others: two single ones
        ("e", 20, 25, "0:2", False),  # where c was
        ("f", 30, 50, "1:1 0:1", False),
    )  # fmt: skip
    jobs = pd.DataFrame({"job_id": list("abcdef"), "end_time_s": [10, 40, 21, 30, 25, 50]})
    found = stays_of(allocations, jobs)
    assert [(one.job_id, one.node, one.first_gpu, one.gpus) for one in found] == [
        ("a", 0, 0, 1), ("b", 0, 1, 1), ("c", 0, 2, 2), ("d", 0, 0, 1), ("d", 0, 4, 1), ("e", 0, 2, 2),
        ("f", 1, 0, 1), ("f", 0, 0, 1),
    ]  # fmt: skip
    assert [one.job_id for one in found if not one.ended] == ["c"]
    assert [one.job_id for one in stays_of(allocations, jobs, nodes=1)] == list("abcddef")


def test_jobs_wait_while_they_are_there_and_hold_nothing():
    jobs = pd.DataFrame({"job_id": ["a", "b", "c"], "submit_time_s": [0, 10, 0], "end_time_s": [40, 40, 20]})
    allocations = held(("a", 10, 20, "0:1", False), ("b", 30, 40, "0:1", False), ("c", 0, 20, "0:1", False))
    found = waiting_by(jobs, allocations, {"a": "x", "b": "x", "c": "y"}, np.array([0.0, 20.0, 40.0]))
    # a waits from 0 to 10 and from 20 on, b from 10 to 30: 20 of the first 20 s, and 30 of the second.
    assert found.to_dict("list") == {"x": [1.0, 1.5], "y": [0.0, 0.0]}


def test_sizes_of_nodes_are_those_of_the_manifest():
    groups = [{"gpus_per_node": 4, "nodes": 2}, {"gpus_per_node": 1, "nodes": 1}]
    assert node_sizes(groups, []) == [4, 4, 1]
    assert node_sizes(None, [held(("a", 0, 1, "0:2 2:3", False)), held(("b", 0, 1, "0:3 3:1", False))]) == [3, 1, 3, 1]


def test_outages_are_told_by_kind():
    outages = pd.DataFrame(
        {"kind": ["off", "node failure", "off"], "start_s": [0, 0, 3600], "end_s": [1800, 36e5, 7200]}
    )
    assert outages_told(outages) == "node failure 1 time (1,000.0 node-hours), off 2 times (1.5 node-hours)"


def test_of_as_many_groups_as_colours_all_are_named():
    jobs = pd.DataFrame({"job_id": list("abcde"), "application": ["x"] * 5, "tenant": ["t", "t", "u", "v", ""]})
    assert colour_groups(jobs) == ("tenant", {"a": "t", "b": "t", "c": "u", "d": "v", "e": "none"})
    # The largest first, then by name: of at most two groups one is named and the others are one.
    assert colour_groups(jobs, most=2)[1] == {"a": "t", "b": "t", "c": "others", "d": "others", "e": "others"}
    assert colour_groups(jobs, most=4)[1]["d"] == "v"
    many = pd.DataFrame({"job_id": list("abcdefgh"), "application": list("stuvwxyz"), "tenant": ["t"] * 8})
    assert colour_groups(many)[1] == dict(zip("abcdefgh", [*"stuvwx", "others", "others"], strict=True))
    alike = many.assign(application="x")
    assert colour_groups(alike) == ("job", dict(zip("abcdefgh", "01234560", strict=True)))
