"""Readers of traces, on hand-written files in the published layouts."""

import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from simsched.errors import InputError
from simsched.workload.readers import read_trace
from simsched.workload.readers.plain import OPTIONAL, REQUIRED
from simsched.workload.trace import COLUMNS, make_trace
from simsched.workload.write import write_trace_csv

ROOT = Path(__file__).resolve().parents[2]


def attempt(start, end, *machines):
    detail = [{"ip": ip, "gpus": [f"gpu{i}" for i in range(gpus)]} for ip, gpus in machines]
    return {"start_time": start, "end_time": end, "detail": detail}


def record(job, submitted, attempts, status="Pass"):
    return {
        "status": status, "vc": "6214e9", "jobid": job, "attempts": attempts, "submitted_time": submitted,
        "user": "ce2f4c",
    }  # fmt: skip


def write(folder, name, text):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def write_log(folder, *records):
    return write(folder, "cluster_job_log", json.dumps(records))


def problems_of(path, layout="auto"):
    with pytest.raises(InputError) as caught:
        read_trace(path, layout)
    return [str(problem) for problem in caught.value.problems]


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
        ({"submitted_time": "yesterday"}, "record 1 (a): submitted_time 'yesterday' is no time"),
        ({"status": "Done"}, "record 1 (a): status 'Done' is none of Pass, Killed, Failed"),
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


def test_a_folder_of_itp_clusters_is_one_trace_on_one_clock(tmp_path):
    write(tmp_path, "cluster01.csv", "job_id,submission_time,duration,num_gpu\nx,100,700,8\ny,400,600,1\n")
    write(tmp_path, "cluster02.csv", "job_id,submission_time,duration,num_gpu\nx,250,900,64\n")
    trace = read_trace(tmp_path)
    assert trace.source == "itp"
    assert trace.origin is None
    assert trace.table["job_id"].tolist() == ["cluster01/x", "cluster02/x", "cluster01/y"]
    assert trace.table["submit_time_s"].tolist() == [0, 150, 300]
    assert trace.table["tenant"].tolist() == ["cluster01", "cluster02", "cluster01"]


def test_helios_drops_cpu_jobs_and_jobs_that_never_started(tmp_path):
    path = write(
        tmp_path,
        "cluster_log.csv",
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
        "1,u1,vcA,8,64,1,COMPLETED,2020-04-01 00:00:10,2020-04-01 00:01:00,2020-04-01 00:03:00,120,50\n"
        "2,u2,vcA,0,64,1,COMPLETED,2020-04-01 00:00:11,2020-04-01 00:01:00,2020-04-01 00:03:00,120,49\n"
        "3,u2,vcB,1,4,1,CANCELLED,2020-04-01 00:00:12,None,None,,\n"
        "4,u3,vcB,2,8,1,NODE_FAIL,2020-04-01 00:00:15,2020-04-01 00:00:16,2020-04-01 00:00:20,4,1\n",
    )
    trace = read_trace(path)
    assert trace.source == "helios"
    assert trace.table["job_id"].tolist() == ["1", "4"]
    assert trace.table["submit_time_s"].tolist() == [0, 5]
    assert trace.table["duration_s"].tolist() == [120.0, 4.0]
    assert trace.table["status"].tolist() == ["Pass", "Failed"]
    assert trace.table["tenant"].tolist() == ["vcA", "vcB"]
    assert dict(trace.dropped) == {"used no GPU": 1, "never started": 1}
    assert trace.examples["never started"] == ((4, "3"),)


def test_acme_times_with_an_offset_become_utc(tmp_path):
    path = write(
        tmp_path,
        "trace_seren.csv",
        "job_id,user,gpu_num,state,submit_time,duration\na,u,8,COMPLETED,2023-03-01 08:00:00+08:00,10\n",
    )
    trace = read_trace(path)
    assert trace.origin == pd.Timestamp("2023-03-01 00:00:00")
    assert trace.table["duration_s"].tolist() == [10.0]
    assert trace.table["tenant"].tolist() == [""]


def test_alibaba_pods_round_shares_of_a_gpu_up_and_say_so(tmp_path):
    path = write(
        tmp_path,
        "openb_pod_list.csv",
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
        "p0,12000,16384,1,1000,,LS,Running,50,1050,60\n"
        "p1,6000,12288,1,460,,LS,Succeeded,40,140,41\n"
        "p2,6000,12288,0,0,,BE,Succeeded,40,140,41\n"
        "p3,6000,12288,8,1000,,LS,Pending,70,900,\n",
    )
    trace = read_trace(path)
    assert trace.source == "alibaba-openb"
    assert trace.table["job_id"].tolist() == ["p1", "p0"]
    assert trace.table["num_gpus"].tolist() == [1, 1]
    assert trace.table["gpu_share"].tolist() == [0.46, 1.0]
    assert trace.gpu_time_s.tolist() == pytest.approx([0.46 * 99, 990])
    assert trace.table["duration_s"].tolist() == [99.0, 990.0]
    assert trace.table["status"].tolist() == ["Pass", ""]
    assert dict(trace.dropped) == {"used no GPU": 1, "never started": 1}
    assert dict(trace.adjusted) == {"asked for a part of a GPU, which is a whole one to policies that share none": 1}
    assert trace.table["tenant"].tolist() == ["LS", "LS"]
    assert (trace.origin, trace.start_s) == (None, 40)


PAI_ROWS = (
    "j1,worker,2,Terminated,100,400,600,30,50,V100\n"
    "j1,ps,1,Terminated,90,410,600,30,,MISC\n"
    "j1,evaluator,1,Failed,110,500,600,30,25,V100\n"
    "j2,worker,1,Terminated,300,,600,30,100,V100\n"
    "j3,worker,4,Running,60,70,600,30,200,V100\n"
)
PAI_HEADER = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n"


@pytest.mark.parametrize(("header", "layout"), [(PAI_HEADER, "auto"), ("", "alibaba-pai"), ("", "auto")])
def test_pai_tasks_add_up_to_jobs_with_or_without_a_header(tmp_path, header, layout):
    trace = read_trace(write(tmp_path, "pai_task_table.csv", header + PAI_ROWS), layout)
    # j1: 2 x 50 % + 25 % of a GPU, from 100 to 500; its parameter server used none. j3: 4 x 200 %.
    assert trace.table["job_id"].tolist() == ["j3", "j1"]
    assert trace.table["num_gpus"].tolist() == [8, 2]
    assert trace.table["submit_time_s"].tolist() == [0, 40]
    assert trace.table["duration_s"].tolist() == [10.0, 400.0]
    assert trace.table["status"].tolist() == ["", "Failed"]
    assert dict(trace.dropped) == {"end is not recorded": 1, "parts of jobs that used no GPU": 1}


def test_plain_csv_reads_seconds_and_optional_columns(tmp_path):
    path = write(
        tmp_path,
        "mine.csv",
        "# simsched-trace 1\n# made by hand\n"
        "submit_time,num_gpus,duration,job_id,tenant,status,application,batch_size\n"
        "50,4,100.5,b,research,Killed,cifar10,512\n10,1,7,a,,,fixed-duration,0\n",
    )
    trace = read_trace(path)
    assert trace.source == "plain"
    assert trace.table["job_id"].tolist() == ["a", "b"]
    assert trace.table["submit_time_s"].tolist() == [0, 40]
    assert trace.table["duration_s"].tolist() == [7.0, 100.5]
    assert trace.table["application"].tolist() == ["fixed-duration", "cifar10"]
    assert trace.table["batch_size"].tolist() == [0, 512]
    assert list(trace.table.columns) == list(COLUMNS)


def test_plain_csv_reads_timestamps_and_compressed_files(tmp_path):
    path = tmp_path / "mine.csv.gz"
    path.write_bytes(
        gzip.compress(b"submit_time,num_gpus,duration\n2024-05-01T10:00:30,1,5\n2024-05-01T10:00:00,1,5\n")
    )
    trace = read_trace(path)
    assert trace.origin == pd.Timestamp("2024-05-01 10:00:00")
    assert trace.table["submit_time_s"].tolist() == [0, 30]


def test_a_file_saved_by_a_spreadsheet_is_read(tmp_path):
    path = tmp_path / "excel.csv"
    path.write_bytes(b"\xef\xbb\xbf# simsched-trace 1\r\nsubmit_time, num_gpus ,duration\r\n5,1,9\r\n")
    assert read_trace(path).table["duration_s"].tolist() == [9.0]
    path.write_bytes(b"\xef\xbb\xbfsubmit_time,num_gpus,duration\r\n5,1,9\r\n")
    assert read_trace(path).table["num_gpus"].tolist() == [1]


def test_seconds_count_from_midnight_of_the_file_not_from_the_first_job(tmp_path):
    trace = read_trace(write(tmp_path, "t.csv", "submit_time,num_gpus,duration\n7200,1,60\n90000,1,60\n"))
    assert trace.table["submit_time_s"].tolist() == [0, 82800]
    assert trace.second_of_day().tolist() == [7200, 3600]


def test_the_example_and_the_columns_of_the_manual_are_those_of_the_reader(tmp_path):
    manual = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    section = manual.split("## Trace CSV, version 1")[1].split("## ")[0]
    example = section.split("```csv\n")[1].split("```")[0]
    trace = read_trace(write(tmp_path, "example.csv", example))
    assert trace.table["duration_s"].tolist() == [1800.0, 86400.0, 5400.5]
    assert all(f"`{column}`" in section for column in (*REQUIRED, *OPTIONAL))


def test_plain_csv_reports_every_wrong_cell_with_line_and_column(tmp_path):
    path = write(
        tmp_path,
        "bad.csv",
        "submit_time,num_gpus,duration,job_id,status\n1,2,-3,a,Pass\n\n2,0,4,a,Pass\n-3,1.5,x,b,Passed\n,1,nan,c,\n",
    )
    assert problems_of(path) == [
        f"{path}:{problem}; mend the line, or leave it out"
        for problem in (
            "2: column 'duration': '-3' is below 0",
            "4: column 'num_gpus': '0' is below 1",
            "4: column 'job_id': 'a' names an earlier row too",
            "5: column 'submit_time': '-3' is below 0",
            "5: column 'duration': 'x' is no number",
            "5: column 'num_gpus': '1.5' is no whole number",
            "5: column 'status': 'Passed' is none of Pass, Killed, Failed",
            "6: column 'submit_time': is missing",
            "6: column 'duration': 'nan' is missing",
        )
    ]


def test_a_file_of_nothing_but_errors_reports_twenty_and_counts_the_rest(tmp_path):
    path = write(tmp_path, "bad.csv", "submit_time,num_gpus,duration\n" + "1,0,1\n" * 57)
    problems = problems_of(path)
    assert len(problems) == 21
    assert problems[-1] == f"{path}: and 37 more problems of this kind"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is empty"),
        ("submit_time,num_gpus,duration\n", "holds a header and no job"),
        ("submit_time,num_gpus,duration\n1,2,3\n1,2,3,4\n", ":3: has 4 fields, and the header has 3"),
        ('submit_time,num_gpus,duration\n1,2,3\n1,"2,3\n1,2,3\n', ":3: a quote that begins here is never closed"),
        ("submit_time,num_gpus,duration\n1,2,1e30\n", ":2: column 'duration': '1e30' is above 1e+10; mend the line"),
        ("submit_tme,num_gpus,duration\n1,2,3\n", ":1: column 'submit_time' is missing; rename 'submit_tme' (needed: "),
        ("submit_time,num_gpus\n1,2\n", ":1: column 'duration' is missing; add it (needed: submit_time, num_gpus, dur"),
        ("Submit_Time,Num_GPUs,Duration\n1,2,3\n", "'duration' are missing; rename 'Submit_Time'"),
        ("submit_time;num_gpus;duration\n1;2;3\n", ":1: its columns are separated by semicolons; write commas instead"),
        ("submit_time\tnum_gpus\tduration\n1\t2\t3\n", "separated by tabs"),
        ("s\0u\0b\0m\0i\0t\0\n", ":1: the file is no UTF-8 text; save it as CSV or JSON in UTF-8"),
        ("timestamp,duration,gpu_time\n2017-10-09 06:13:00,1,2\n", "nearest is 'philly-csv'"),
        ("submit_time,num_gpus,duration,tennant\n1,2,3,a\n", "column 'tennant' is unknown; did you mean 'tenant'?"),
        ("# simsched-trace 9\nsubmit_time,num_gpus,duration\n1,2,3\n", "says 'simsched-trace 9'"),
        (
            "name,time,application,num_replicas,batch_size\na,1,ncf,1,256\n",
            "a list of jobs (workload CSV), not a trace",
        ),
        ("timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 06:13:0", ":2: column 'duration': is missing"),
        ("once upon a time\n", "no trace format begins like this: 'once upon a time'"),
        ('{"a": 1}', "no trace format begins like this"),
    ],
)
def test_files_that_are_no_trace_are_refused_in_one_message(tmp_path, text, said):
    assert any(said in problem for problem in problems_of(write(tmp_path, "bad.csv", text)))


def test_missing_files_damaged_archives_and_unknown_formats_are_refused(tmp_path):
    assert "there is no such file" in problems_of(tmp_path / "none.csv")[0]
    assert "holds no CSV file" in problems_of(tmp_path)[0]
    damaged = tmp_path / "cut.csv.gz"
    damaged.write_bytes(gzip.compress(b"submit_time,num_gpus,duration\n1,1,1\n" * 500)[:60])
    assert "cut short or damaged" in problems_of(damaged)[0]
    assert "did you mean 'philly-json'?" in problems_of(damaged, "phily-json")[0]


def test_a_csv_that_is_no_utf8_text_is_refused(tmp_path):
    path = tmp_path / "latin.csv"
    path.write_bytes("submit_time,num_gpus,duration,user\n1,1,1,Jos\xe9\n".encode("latin-1"))
    assert "is no UTF-8 text" in problems_of(path)[0]


def test_make_trace_checks_tables_made_in_python():
    with pytest.raises(InputError, match="row 2: column 'num_gpus' is 0, below 1"):
        make_trace("t", "test", {"submit_time_s": [0, 1], "num_gpus": [1, 0], "duration_s": [1, 1]})
    with pytest.raises(InputError, match="row 1: column 'duration_s' has no number"):
        make_trace("t", "test", {"submit_time_s": [0, 1], "num_gpus": [1, 1], "duration_s": [np.nan, 1]})
    with pytest.raises(InputError, match="holds no job that ran"):
        make_trace("t", "test", {"submit_time_s": [], "num_gpus": [], "duration_s": []})


def test_a_written_trace_reads_back_the_same(tmp_path):
    columns = {
        "submit_time_s": [3, 90000, 3], "num_gpus": [1, 8, 2], "duration_s": [1.5, 2e6, 0], "user": ["", "u", "v"],
        "attempts": [1, 3, 2], "job_id": ["p", "q", "r"],
    }  # fmt: skip
    for name, origin in (("a.csv", None), ("b.csv.gz", pd.Timestamp("2020-02-28 12:00:00"))):
        trace = make_trace("t", "test", columns, origin=origin)
        write_trace_csv(trace, tmp_path / name)
        again = read_trace(tmp_path / name)
        assert again.origin == trace.origin
        unordered = [column for column in COLUMNS if column != "row"]
        pd.testing.assert_frame_equal(again.table[unordered], trace.table[unordered])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "b.csv.gz"]


def test_writing_where_one_may_not_is_refused(tmp_path):
    trace = make_trace("t", "test", {"submit_time_s": [0], "num_gpus": [1], "duration_s": [1]})
    with pytest.raises(InputError, match="cannot be written"):
        write_trace_csv(trace, tmp_path / "nowhere" / "t.csv")
