"""The Standard Workload Format, read and written by its definition (Parallel Workloads Archive, version 2.2)."""

import gzip

import numpy as np
import pandas as pd
import pytest

from simsched.errors import InputError, InputWarning
from simsched.workload import in_gpus, swf_jobs, write_swf
from simsched.workload.readers import read_trace
from simsched.workload.trace import make_trace
from tests.trace_files import write

HEAD = """\
; Version: 2.2
; Computer: Made up
; UnixStartTime: 1000000000
; TimeZoneString: Europe/Berlin
; MaxNodes: 16
; MaxProcs: 64
; Queue: 0 interactive (jobs of people who wait)
; Queue: 1 batch
"""
#: Number, submit, wait, run, allocated, CPU, memory, asked, limit, memory asked, status, user, group, program, queue,
#: partition, before, think time.
JOBS = """\
1  0  10 100   8 90  -1  8 200 1024 1 3 2 7 1 -1 -1 -1
2  5 -1   50.5 4 -1  -1 -1  -1   -1 0 4 2 -1 0 -1 -1 -1
; a remark among the jobs
3 60   0  30   4 -1  -1  2  -1   -1 5 3 2 -1 1 -1 1 30
"""


def read(tmp_path, text, name="log.swf"):
    return read_trace(write(tmp_path, name, text))


def test_each_field_becomes_what_the_definition_says(tmp_path):
    trace = read(tmp_path, HEAD + JOBS)
    table = trace.table
    assert trace.source == "swf"
    assert trace.origin == pd.Timestamp("2001-09-09 01:46:40")  # the billionth second of Unix
    assert table["job_id"].tolist() == ["1", "2", "3"]
    assert table["submit_time_s"].tolist() == [0, 5, 60]
    assert table["duration_s"].tolist() == [100.0, 50.5, 30.0]
    assert table["num_gpus"].tolist() == [8, 4, 2]  # asked for, else allocated
    assert table["status"].tolist() == ["Pass", "Failed", "Killed"]
    assert table["time_limit_s"].tolist() == [200, 0, 0]
    assert table["memory_mib"].tolist() == [8, 0, 0]  # 1,024 KB on each of 8 processors
    assert (table["user"].tolist(), table["tenant"].tolist()) == (["3", "4", "3"], ["2", "2", "2"])
    assert table["queue"].tolist() == ["batch", "interactive", "batch"]
    assert table["after"].tolist() == ["", "", "1"]
    assert trace.unused == ("average CPU time", "executable", "think time")
    assert [count for what, count in trace.adjusted.items() if "different number of processors" in what] == [1]


def test_a_model_without_any_comment_is_told_by_its_eighteen_numbers(tmp_path):
    line = "1 7200 -1 60 -1 -1 -1 4 -1 -1 -1 -1 -1 -1 -1 -1 -1 -1\n"
    trace = read(tmp_path, line, "model.txt")
    assert (trace.source, trace.origin, trace.start_s) == ("swf", None, 7200)
    assert trace.table["status"].tolist() == [""]
    (tmp_path / "model.gz").write_bytes(gzip.compress(line.encode()))
    assert read_trace(tmp_path / "model.gz").source == "swf"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("9 1 5 0 -1 -1 -1 4 -1 -1 5 -1 -1 -1 -1 -1 -1 -1", "never started"),
        ("9 1 5 -1 4 -1 -1 4 -1 -1 1 -1 -1 -1 -1 -1 -1 -1", "run time is not recorded"),
        ("9 -1 5 10 4 -1 -1 4 -1 -1 1 -1 -1 -1 -1 -1 -1 -1", "submission is not recorded"),
        ("9 1 5 10 -1 -1 -1 -1 -1 -1 1 -1 -1 -1 -1 -1 -1 -1", "used no GPU"),
        ("9 1 5 10 65 -1 -1 65 -1 -1 1 -1 -1 -1 -1 -1 -1 -1", "asked for more than the 64 GPUs of the cluster"),
        ("1 1 5 10 4 -1 -1 4 -1 -1 1 -1 -1 -1 -1 -1 -1 -1", "have the name of an earlier job"),
        ("9 1 5 10 4 -1 -1 4 -1 -1 2 -1 -1 -1 -1 -1 -1 -1", "partial executions"),
        ("9 1 5 ten 4 -1 -1 4 -1 -1 1 -1 -1 -1 -1 -1 -1 -1", "a field is not a number"),
        ("9 1 5 inf 4 -1 -1 4 -1 -1 1 -1 -1 -1 -1 -1 -1 -1", "a field is not a number"),
        ("9 1 5 10 4", "line is cut short"),
    ],
)
def test_what_makes_no_job_is_left_out_with_its_reason(tmp_path, line, reason):
    trace = read(tmp_path, HEAD + JOBS + line + "\n")
    assert len(trace) == 3
    assert [(count, what.startswith(reason)) for what, count in trace.dropped.items()] == [(1, True)]


def test_a_job_that_follows_one_that_is_left_out_follows_none_and_that_is_told(tmp_path):
    trace = read(tmp_path, HEAD + JOBS.replace("5 3 2 -1 1 -1 1 30", "5 3 2 -1 1 -1 77 30"))
    assert "after" not in trace.table or (trace.table["after"] == "").all()
    assert [count for what, count in trace.adjusted.items() if "dependency is dropped" in what] == [1]


def test_a_file_without_jobs_or_with_a_wrong_start_is_refused(tmp_path):
    with pytest.raises(InputError, match="holds no job"):
        read(tmp_path, HEAD)
    with pytest.raises(InputError, match="UnixStartTime is 'yesterday'"):
        read(tmp_path, "; UnixStartTime: yesterday\n" + JOBS)


def test_what_is_written_is_as_the_definition_says(tmp_path):
    trace = read(tmp_path, HEAD + JOBS)
    write_swf(swf_jobs(trace), tmp_path / "out.swf", origin=trace.origin)
    lines = (tmp_path / "out.swf").read_text().splitlines()
    comments = [line for line in lines if line.startswith(";")]
    assert lines[: len(comments)] == comments
    assert {"; Version: 2.2", "; MaxJobs: 3", "; UnixStartTime: 1000000000", "; TimeZoneString: UTC"} <= set(comments)
    assert "; StartTime: Sun Sep 09 01:46:40 2001" in comments
    assert {"; Queue: 1 batch", "; Queue: 2 interactive"} <= set(comments)
    assert lines[len(comments) :] == [
        "1 0 -1 100 -1 -1 -1 8 200 1024 1 3 2 -1 1 -1 -1 -1",
        "2 5 -1 50.5 -1 -1 -1 4 -1 -1 0 4 2 -1 2 -1 -1 -1",
        "3 60 -1 30 -1 -1 -1 2 -1 -1 5 3 2 -1 1 -1 1 -1",
    ]


def test_a_round_trip_keeps_every_job(tmp_path):
    rng = np.random.default_rng(30)
    count = 200
    columns = {
        "submit_time_s": np.sort(rng.integers(0, 10_000, count)),
        "duration_s": rng.integers(0, 5_000, count).astype(float),
        "num_gpus": rng.integers(1, 65, count),
        "tenant": [f"team {one}" for one in rng.integers(0, 3, count)],
        "user": [f"u{one}" for one in rng.integers(0, 9, count)],
        "status": rng.choice(["Pass", "Failed", "Killed", ""], count),
        "queue": rng.choice(["short", "long", ""], count),
        "time_limit_s": rng.integers(0, 9, count) * 600.0,
    }
    trace = make_trace("made", "plain", columns, origin=pd.Timestamp("2024-05-06").to_pydatetime())
    write_swf(swf_jobs(trace), tmp_path / "a.swf.gz", origin=trace.origin)
    back = read_trace(tmp_path / "a.swf.gz")
    assert (len(back), back.origin, back.dropped) == (count, trace.origin, {})
    for name in ("submit_time_s", "duration_s", "num_gpus", "status", "queue", "time_limit_s"):
        assert back.table[name].tolist() == trace.table[name].tolist(), name
    for name in ("tenant", "user"):  # numbers for names: who is who stays, what they are called does not
        pairs = set(zip(trace.table[name], back.table[name], strict=True))
        assert len(pairs) == trace.table[name].nunique() == back.table[name].nunique()
    write_swf(swf_jobs(back), tmp_path / "b.swf.gz", origin=back.origin)
    assert (tmp_path / "b.swf.gz").read_bytes() == (tmp_path / "a.swf.gz").read_bytes()


def test_what_the_format_cannot_say_is_told(tmp_path):
    columns = {"submit_time_s": [0], "duration_s": [9.0], "num_gpus": [1], "priority": [3.0], "exclusive": [1]}
    with pytest.warns(InputWarning, match="no field for priority, exclusive"):
        swf_jobs(make_trace("told", "plain", columns))


def test_processors_are_counted_as_gpus_as_the_user_says(tmp_path):
    trace = in_gpus(read(tmp_path, HEAD + JOBS), 4)
    assert trace.table["num_gpus"].tolist() == [2, 1, 1]
    assert trace.table["gpu_share"].tolist() == [1.0, 1.0, 0.5]  # 8, 4 and 2 processors
    assert [count for what, count in trace.adjusted.items() if "not a whole number of GPUs" in what] == [1]
