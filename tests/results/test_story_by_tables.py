"""A job's story from tables written by hand: two types, an outage, decisions at the edges of a wait."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from simsched.errors import InputError
from simsched.results.rows import TABLES
from simsched.results.stays import at, story

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


def passages(cell):
    return [(one.time_s, one.until_s, one.event, one.why) for one in story(cell, "job")]


def test_a_job_waits_for_a_decision_then_for_gpus_of_one_type_then_by_the_policys_will():
    # At 15 two GPUs of node 1 and both V100s are free; at 20 they go, one of them to a job that came with it; at 30
    # node 0 is free, at 40 node 1 too: there is room from then on.
    assert passages(FakeCell()) == [
        (10, 10, "submitted", "asks for 4 GPUs"),
        (10, 15, "waits", "no decision was due"),
        (15, 30, "waits", "no room: 2 GPUs free, 0 GPUs held by jobs that came later"),
        (30, 50, "waits", "the policy lets it wait: 6 GPUs free, 2 GPUs held by jobs that came later"),
        (50, 70, "starts", "on 0:4 (node:GPUs)"),
        (70, 70, "ends", "as Killed"),
    ]


def test_gpus_of_a_node_that_is_out_of_order_are_not_free_from_its_begin_to_its_end():
    assert passages(FakeCell(outages=[(0, 30, 40)]))[2:4] == [
        (15, 40, "waits", "no room: 2 GPUs free, 0 GPUs held by jobs that came later"),
        (40, 50, "waits", "the policy lets it wait: 8 GPUs free, 0 GPUs held by jobs that came later"),
    ]
    # One that ends as a decision is made, and one that begins after the last, change nothing.
    assert passages(FakeCell(outages=[(0, 10, 15), (0, 12, 14), (1, 41, 50)])) == passages(FakeCell())


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
    assert [at(told, second).event for second in (10, 14, 50, 70)] == ["waits", "waits", "starts", "ends"]
    with pytest.raises(InputError, match="9 s is before the job's submission; from 10 s on"):
        at(told, 9)
    with pytest.raises(InputError, match="no job 'jobs' has finished; did you mean 'job'"):
        story(FakeCell(), "jobs")
