"""Readers of the Philly log and its CSV, on hand-written files."""

import json

import pandas as pd
import pytest

from simsched.workload.readers import read_trace
from tests.trace_files import problems_of, write


def attempt(start, end, *machines):
    detail = [{"ip": ip, "gpus": [f"gpu{i}" for i in range(gpus)]} for ip, gpus in machines]
    return {"start_time": start, "end_time": end, "detail": detail}


def record(job, submitted, attempts, status="Pass"):
    return {
        "status": status, "vc": "6214e9", "jobid": job, "attempts": attempts, "submitted_time": submitted,
        "user": "ce2f4c",
    }  # fmt: skip


def write_log(folder, *records):
    return write(folder, "cluster_job_log", json.dumps(records))


def test_philly_log_sums_attempts_with_both_times_and_sorts_by_submission(tmp_path):
    # Attempts of 43 s and 100 s count; those without a start or an end do not.
    late = record(
        "late",
        "2017-10-07 03:00:00",
        [
            attempt("2017-10-07 03:07:23", "None", ("m146", 1)),
            attempt("2017-10-07 03:11:14", "2017-10-07 03:11:57", ("m2", 1)),
            attempt("2017-10-07 03:20:00", "2017-10-07 03:21:40", ("m2", 1)),
            attempt("None", "2017-10-07 03:15:12", ("m153", 1)),
        ],
    )
    early = record("early", "2017-10-07 01:11:39", [attempt("2017-10-07 02:00:00", "2017-10-07 03:00:00", ("m47", 8))])
    trace = read_trace(write_log(tmp_path, late, early))
    assert trace.source == "philly-json"
    assert trace.origin == pd.Timestamp("2017-10-07 01:11:39")
    assert trace.table["job_id"].tolist() == ["early", "late"]
    assert trace.table["submit_time_s"].tolist() == [0, 6501]
    assert trace.table["duration_s"].tolist() == [3600.0, 143.0]
    assert trace.table["num_gpus"].tolist() == [8, 1]
    assert trace.table["attempts"].tolist() == [1, 4]
    assert trace.table["row"].tolist() == [1, 0]
    assert trace.table["tenant"].tolist() == ["6214e9", "6214e9"]


def test_philly_log_counts_gpus_of_the_first_attempt_that_lists_any_and_a_repeated_machine_each_time(tmp_path):
    job = record(
        "a",
        "2017-10-07 01:00:00",
        [
            attempt("2017-10-07 01:00:00", "2017-10-07 01:00:10"),
            attempt("2017-10-07 01:01:00", "2017-10-07 01:01:10", ("m223", 1), ("m223", 1), ("m5", 2)),
            attempt("2017-10-07 01:02:00", "2017-10-07 01:02:10", ("m1", 8)),
        ],
    )
    trace = read_trace(write_log(tmp_path, job))
    assert trace.table["num_gpus"].tolist() == [4]
    assert trace.table["duration_s"].tolist() == [30.0]


def test_philly_log_leaves_out_and_counts_what_never_ran(tmp_path):
    ran = attempt("2017-10-07 01:00:00", "2017-10-07 01:00:00", ("m1", 1))
    trace = read_trace(
        write_log(
            tmp_path,
            record("ran", "2017-10-07 01:00:00", [ran]),
            record("killed before", "2017-10-07 01:00:00", [], "Killed"),
            record("no end", "2017-10-07 01:00:00", [attempt("2017-10-07 01:00:00", "None", ("m1", 1))]),
            record("no gpu", "2017-10-07 01:00:00", [attempt("2017-10-07 01:00:00", "2017-10-07 01:00:09")]),
            record("no submission", "None", [ran]),
        )
    )
    assert trace.table["job_id"].tolist() == ["ran"]
    assert dict(trace.dropped) == {
        "never started": 1,
        "no attempt with both a start and an end": 1,
        "no GPU listed": 1,
        "submission not recorded": 1,
    }


def test_philly_log_of_jobs_that_never_ran_is_refused_with_the_reason(tmp_path):
    path = write_log(tmp_path, record("a", "2017-10-07 01:00:00", []))
    assert problems_of(path) == [f"{path}: holds no job that ran; left out: 1 never started"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"submitted_time": "yesterday"}, "record 1 (a): submitted_time 'yesterday' is not a time"),
        ({"status": "Done"}, "record 1 (a): status 'Done' is not one of Pass, Killed, Failed"),
        (
            {"attempts": [attempt("2017-10-07 02:00:00", "2017-10-07 01:00:00", ("m1", 1))]},
            "record 1 (a): an attempt ends (2017-10-07 01:00:00) before it starts (2017-10-07 02:00:00)",
        ),
        ({"attempts": [{"start_time": "None"}]}, "record 1: key 'end_time' is missing"),
        ({"attempts": 7}, "record 1: is not a job with attempts"),
    ],
)
def test_philly_log_names_the_record_at_fault(tmp_path, change, said):
    good = record("a", "2017-10-07 01:00:00", [attempt("2017-10-07 01:00:00", "2017-10-07 01:00:10", ("m1", 1))])
    (problem,) = problems_of(write_log(tmp_path, good | change))
    assert said in problem


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.99])
def test_truncated_philly_log_gives_one_clear_message(tmp_path, keep):
    whole = json.dumps([record(str(i), "2017-10-07 01:00:00", []) for i in range(20)])
    (problem,) = problems_of(write(tmp_path, "log.json", whole[: int(keep * len(whole))]))
    assert "cut short" in problem


def test_philly_csv_keeps_the_place_in_the_file_beside_the_sorted_order(tmp_path):
    path = write(
        tmp_path,
        "philly.csv",
        "timestamp,duration,num_gpus,gpu_time,cluster\n"
        "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n"
        "2017-10-09 06:13:03,2951.0,2,5902.0,6214e9\n"
        "2017-10-09 06:13:03,30.0,1,30.0,6214e9\n\n",
    )
    trace = read_trace(path)
    assert trace.source == "philly-csv"
    assert trace.table["submit_time_s"].tolist() == [0, 0, 2932]
    assert trace.table["row"].tolist() == [1, 2, 0]
    assert trace.table["job_id"].tolist() == ["job-0", "job-1", "job-2"]
    assert trace.gpu_time_s.tolist() == [5902.0, 30.0, 66.0]
    assert trace.second_of_day().tolist() == [22383, 22383, 25315]
    assert set(trace.table["status"]) == {"Pass"}
