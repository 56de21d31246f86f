"""The story of a job, on schedules worked by hand."""

import json

import pytest

import simsched as sim
from simsched.cli.main import cli
from simsched.errors import InputError
from simsched.results.stays import at, story


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


def test_a_job_waits_for_a_decision_where_these_are_made_at_intervals(tmp_path):
    found = cell(tmp_path, [("x", 0, 1, 5), ("a", 130, 8, 100)], {"name": "tiresias", "params": {"interval_s": 60}})
    assert passages(found, "a")[1:3] == [
        (130, 180, "waits", "no decision was due"),
        (180, 280, "starts", "on 0:4 1:4 (node:GPUs)"),
    ]


def test_a_job_that_yields_waits_again_for_one_that_came_later(tmp_path):
    found = cell(tmp_path, [("large", 0, 8, 300), ("small", 100, 1, 50)], {"name": "smallest-first"})
    assert passages(found, "large")[1:] == [
        (0, 100, "starts", "on 0:4 1:4 (node:GPUs)"),
        (100, 150, "waits", "no room: 7 GPUs free, 1 GPU held by jobs that came later"),
        (150, 350, "starts again", "on 0:4 1:4 (node:GPUs)"),
        (350, 350, "ends", ""),
    ]
    told = story(found, "large")
    assert [at(told, second).event for second in (0, 99, 100, 149, 150, 9999)] == [
        "starts", "starts", "waits", "waits", "starts again", "ends"
    ]  # fmt: skip
    with pytest.raises(InputError, match="before the job's submission"):
        at(told, -1)


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
