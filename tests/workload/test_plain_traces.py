"""Plain CSV traces: read, checked, refused and written."""

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from simsched.errors import InputError
from simsched.workload.readers import read_trace
from simsched.workload.readers.plain import OPTIONAL, REQUIRED
from simsched.workload.shapes import SHAPE_COLUMNS
from simsched.workload.trace import COLUMNS, make_trace
from simsched.workload.write import write_trace_csv
from tests.trace_files import problems_of, write

ROOT = Path(__file__).resolve().parents[2]


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
    assert list(trace.table.columns) == [name for name in COLUMNS if name not in SHAPE_COLUMNS]


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
        f"{path}:{problem}; correct the line, or leave it out"
        for problem in (
            "2: column 'duration': '-3' is below 0",
            "4: column 'num_gpus': '0' is below 1",
            "4: column 'job_id': 'a' also names an earlier row",
            "5: column 'submit_time': '-3' is below 0",
            "5: column 'duration': 'x' is not a number",
            "5: column 'num_gpus': '1.5' is not a whole number",
            "5: column 'status': 'Passed' is not one of Pass, Killed, Failed",
            "6: column 'submit_time': is missing",
            "6: column 'duration': 'nan' is missing",
        )
    ]


def test_errors_of_one_kind_are_one_line_with_a_count(tmp_path):
    path = write(tmp_path, "bad.csv", "submit_time,num_gpus,duration\n" + "1,0,1\n" * 57 + "1,1,-1\n")
    assert problems_of(path) == [
        f"{path}:2: column 'num_gpus': '0' is below 1, and so in 56 more lines (3, 4, 5, ...); "
        "correct the line, or leave it out",
        f"{path}:59: column 'duration': '-1' is below 0; correct the line, or leave it out",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is empty"),
        ("submit_time,num_gpus,duration\n", "holds a header and no job"),
        ("submit_time,num_gpus,duration\n1,2,3\n1,2,3,4\n", ":3: has 4 fields, and the header has 3"),
        ('submit_time,num_gpus,duration\n1,2,3\n1,"2,3\n1,2,3\n', ":3: a quote that begins here is never closed"),
        ("submit_time,num_gpus,duration\n1,2,1e30\n", ":2: column 'duration': '1e30' is above 1e+10; correct the line"),
        ("submit_tme,num_gpus,duration\n1,2,3\n", ":1: column 'submit_time' is missing; rename 'submit_tme' (needed: "),
        ("submit_time,num_gpus\n1,2\n", ":1: column 'duration' is missing; add it (needed: submit_time, num_gpus, dur"),
        ("Submit_Time,Num_GPUs,Duration\n1,2,3\n", "'duration' are missing; rename 'Submit_Time'"),
        ("submit_time;num_gpus;duration\n1;2;3\n", ":1: its columns are separated by semicolons; write commas instead"),
        ("submit_time\tnum_gpus\tduration\n1\t2\t3\n", "separated by tabs"),
        ("s\0u\0b\0m\0i\0t\0\n", ":1: the file is not UTF-8 text; save it as CSV or JSON in UTF-8"),
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
    assert "is not UTF-8 text" in problems_of(path)[0]


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
        unordered = [column for column in trace.table if column != "row"]
        pd.testing.assert_frame_equal(again.table[unordered], trace.table[unordered])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv", "b.csv.gz"]


def test_writing_where_one_may_not_is_refused(tmp_path):
    trace = make_trace("t", "test", {"submit_time_s": [0], "num_gpus": [1], "duration_s": [1]})
    with pytest.raises(InputError, match="cannot be written"):
        write_trace_csv(trace, tmp_path / "nowhere" / "t.csv")
