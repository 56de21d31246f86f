"""Which job held which GPUs when, from tables written by hand."""

from __future__ import annotations

import pandas as pd
import pytest

from simsched.results.stays import HELD_COLUMNS, colour_groups, node_sizes, outages_told, placements


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


def test_sizes_of_nodes_are_those_of_the_manifest():
    groups = [{"gpus_per_node": 4, "nodes": 2}, {"gpus_per_node": 1, "nodes": 1}]
    assert node_sizes(groups, []) == [4, 4, 1]
    assert node_sizes(None, [held(("a", 0, 1, "0:2 2:3", False)), held(("b", 0, 1, "0:3", False))]) == [3, 1, 3]


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
