"""Which job held which GPUs when, from tables written by hand."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import simsched as sim
from simsched.cli.main import cli
from simsched.errors import InputError
from simsched.results.rows import TABLES
from simsched.results.stays import (
    HELD_COLUMNS,
    at,
    colour_groups,
    node_sizes,
    outages_told,
    placements,
    stays_of,
    story,
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
    assert colour_groups(jobs) == (
        "tenant", {"a": "tenant t", "b": "tenant t", "c": "tenant u", "d": "tenant v", "e": "none"}
    )  # fmt: skip
    # The largest first, then by name: of at most two groups one is named and the others are one.
    assert colour_groups(jobs, most=2)[1] == {"a": "tenant t", "b": "tenant t", **dict.fromkeys("cde", "others")}
    assert colour_groups(jobs, most=4)[1]["d"] == "tenant v"
    assert colour_groups(jobs.assign(application=list("xxxyz")), most=3)[0] == "application"
    many = pd.DataFrame({"job_id": list("abcdefgh"), "application": list("stuvwxyz"), "tenant": ["t"] * 8})
    assert colour_groups(many)[1] == dict(zip("abcdefgh", [*"stuvwx", "others", "others"], strict=True))
    alike = many.assign(application="x")
    assert colour_groups(alike) == ("job", dict(zip("abcdefgh", "01234560", strict=True)))


def cell(folder, rows, *policies):
    """Run jobs, given as name, submission, GPUs and seconds, on two nodes of four GPUs."""
    lines = ["job_id,submit_time,num_gpus,duration", *(",".join(map(str, row)) for row in rows)]
    (folder / "jobs.csv").write_text("\n".join(lines) + "\n")
    run = sim.run(
        {
            "name": "told",
            "cluster": {"nodes": 2, "gpus_per_node": 4},
            "engine": {"restart_delay_s": 0},
            "workload": {"path": str(folder / "jobs.csv"), "recipe": "replay"},
            "policies": list(policies),
            "seeds": [1],
            "report": {"plots": False},
        },
        out=folder,
        in_process=True,
    )
    return run.run.cells[0]


def passages(cell, job):
    return [(one.time_s, one.until_s, one.event, one.why) for one in story(cell, job)]


def test_a_job_waits_for_room_and_is_overtaken(tmp_path):
    """a and b leave one GPU to c, which asks for all; d comes later and runs from the end of a to that of b."""
    found = cell(
        tmp_path,
        [("a", 0, 4, 600), ("b", 0, 3, 900), ("c", 60, 8, 100), ("d", 120, 2, 300)],
        {"name": "fifo", "params": {"backfill": True}},
    )
    assert passages(found, "c") == [
        (60, 60, "submitted", "asks for 8 GPUs"),
        (60, 900, "waits", "no room: 1 GPU free, 0 GPUs held by jobs that came later"),
        (900, 1000, "starts", "on 0:4 1:4 (node:GPUs)"),
        (1000, 1000, "ends", ""),
    ]
    assert passages(found, "a")[1] == (0, 600, "starts", "on 0:4 (node:GPUs)")


def test_a_job_waits_where_there_is_room_but_not_on_one_node_or_not_for_it(tmp_path):
    """x and y leave a GPU on each node; z wants two on one node, and w behind it is blocked."""
    found = cell(
        tmp_path,
        [("x", 0, 3, 600), ("y", 0, 3, 900), ("z", 10, 2, 50), ("w", 20, 1, 50)],
        {"name": "fifo", "params": {"placement": "consolidated"}},
    )
    split = "not on one node: 2 GPUs free, at most 1 on one, 0 GPUs held by jobs that came later"
    assert passages(found, "z")[1] == (10, 600, "waits", split)
    held_back = "the policy lets it wait: 2 GPUs free, 0 GPUs held by jobs that came later"
    assert passages(found, "w")[1] == (20, 600, "waits", held_back)


def test_a_job_that_yields_waits_again_for_one_that_came_later(tmp_path):
    found = cell(tmp_path, [("large", 0, 8, 300), ("small", 100, 1, 50)], {"name": "smallest-first"})
    assert passages(found, "large")[1:] == [
        (0, 100, "starts", "on 0:4 1:4 (node:GPUs)"),
        (100, 150, "waits", "no room: 7 GPUs free, 1 GPU held by jobs that came later"),
        (150, 350, "starts again", "on 0:4 1:4 (node:GPUs)"),
        (350, 350, "ends", ""),
    ]


def test_the_command_tells_a_story_of_the_cell_that_is_meant(tmp_path):
    from click.testing import CliRunner

    found = cell(tmp_path, [("a", 0, 8, 60), ("b", 0, 8, 60)], {"name": "fifo"}, {"name": "las"})
    folder = str(found.folder.parents[1])

    def why(*words):
        return CliRunner().invoke(cli, ["why", folder, *words])

    done = why("--job", "b", "--policy", "fifo")
    assert done.exit_code == 0, done.output
    assert done.output.splitlines() == [
        "b (fifo, seed 1)",
        "     0:00:00  submitted asks for 8 GPUs",
        "     0:00:00  waits no room: 0 GPUs free, 0 GPUs held by jobs that came later (until 0:01:00)",
        "     0:01:00  starts on 0:4 1:4 (node:GPUs) (until 0:02:00)",
        "     0:02:00  ends",
    ]
    (told,) = json.loads(why("--job", "b", "--policy", "fifo", "--at", "30", "--json").stdout)["story"]
    assert (told["event"], told["time_s"], told["until_s"]) == ("waits", 0, 60)
    refused = why("--job", "b")
    assert (refused.exit_code, "fifo, seed 1, las, seed 1" in refused.output) == (2, True)
    missing = why("--job", "c", "--policy", "fifo")
    assert (missing.exit_code, "no job 'c'" in missing.output) == (2, True)


GROUPS = [{"gpu_type": "t4", "nodes": 2, "gpus_per_node": 4}, {"gpu_type": "v100", "nodes": 1, "gpus_per_node": 2}]
JOBS = [("early", 0, 100, 8, 0, ""), ("job", 10, 70, 4, 0, "Killed"), ("late", 20, 60, 2, 0, ""),
        ("same", 10, 60, 1, 0, "")]  # fmt: skip
HELD = [
    ("early", 0, 10, "0:4"), ("early", 10, 30, "0:4 1:2"), ("late", 20, 40, "1:2"), ("same", 20, 60, "2:1"),
    ("job", 50, 70, "0:4"),
]  # fmt: skip


class FakeCell:
    """A cell with tables at hand."""

    folder, manifest = Path("cell"), {"cluster": GROUPS}

    def __init__(self, reasons=(), outages=()):
        def frame(rows, *columns):
            return pd.DataFrame(list(rows), columns=list(columns))

        self.tables = {
            "jobs": frame(JOBS, "job_id", "submit_time_s", "end_time_s", "num_gpus", "restarts", "status"),
            "allocations": frame(HELD, "job_id", "start_s", "end_s", "placement").assign(restarting=False),
            "rounds": frame([(time,) for time in (0, 15, 20, 20, 30, 40, 50)], "time_s"),
            "reasons": frame(reasons, "job_id", "time_s", "why", "detail", "rank", "score"),
            "outages": frame(outages, "node", "start_s", "end_s"),
        }

    def table(self, name, columns):
        assert set(columns) <= set(TABLES[name].record._fields)
        return self.tables[name][list(columns)]


def passages_of(cell):
    return [(one.time_s, one.until_s, one.event, one.why) for one in story(cell, "job")]


def test_a_job_waits_for_a_decision_then_for_gpus_of_one_type_then_by_the_policys_will():
    # At 15 two GPUs of node 1 and both V100s are free; at 20 they go, one of them to a job that came with it; at 30
    # node 0 is free, at 40 node 1 too: there is room from then on.
    assert passages_of(FakeCell()) == [
        (10, 10, "submitted", "asks for 4 GPUs"),
        (10, 15, "waits", "no decision was due"),
        (15, 30, "waits", "no room: 2 GPUs free, 0 GPUs held by jobs that came later"),
        (30, 50, "waits", "the policy lets it wait: 6 GPUs free, 2 GPUs held by jobs that came later"),
        (50, 70, "starts", "on 0:4 (node:GPUs)"),
        (70, 70, "ends", "as Killed"),
    ]


def test_gpus_of_a_node_that_is_out_of_order_are_not_free_from_its_begin_to_its_end():
    assert passages_of(FakeCell(outages=[(0, 30, 40)]))[2:4] == [
        (15, 40, "waits", "no room: 2 GPUs free, 0 GPUs held by jobs that came later"),
        (40, 50, "waits", "the policy lets it wait: 8 GPUs free, 0 GPUs held by jobs that came later"),
    ]
    # One that ends as a decision is made, and one that begins after the last, change nothing.
    assert passages_of(FakeCell(outages=[(0, 10, 15), (0, 12, 14), (1, 41, 50)])) == passages_of(FakeCell())


def test_what_the_policy_said_stands_in_place_of_what_is_seen():
    said = [("job", 15, "behind", "3 before it", 4, "0.5"), ("job", 20, "behind", "2 before it", 3, "0.4"),
            ("late", 30, "odd", "", 1, "")]  # fmt: skip
    found = story(FakeCell(reasons=said), "job")
    assert [(one.time_s, one.why, one.rank, one.score) for one in found[2:4]] == [
        (15, "behind: 3 before it", 4, "0.5"),
        (30, "the policy lets it wait: 6 GPUs free, 2 GPUs held by jobs that came later", 0, ""),
    ]
    bare = story(FakeCell(reasons=[("job", 15, "quota", "", 1, "")]), "job")
    assert (bare[2].why, bare[2].until_s) == ("quota", 20)


def test_a_second_belongs_to_the_last_passage_that_has_begun():
    told = story(FakeCell(), "job")
    assert [at(told, second).event for second in (10, 14, 50, 69, 70, 9999)] == [
        "waits", "waits", "starts", "starts", "ends", "ends"
    ]  # fmt: skip
    with pytest.raises(InputError, match="9 s is before the job's submission; from 10 s on"):
        at(told, 9)
    with pytest.raises(InputError, match="no job 'jobs' has finished; did you mean 'job'"):
        story(FakeCell(), "jobs")
