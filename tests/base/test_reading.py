"""The door through which users' files are read: what is refused before it can hang, fill the memory or be misread."""

import gzip
import os
import warnings
from pathlib import Path

import pytest

from simsched import reading
from simsched.documents import yaml_lines
from simsched.errors import InputError, InputWarning, tell
from simsched.operators.log_input import cluster_groups
from simsched.workload.outages import read_fault_trace, read_outages
from simsched.workload.readers import head_of, read_trace
from simsched.workload.readers.slurm_nodes import expand_nodes

ROWS = "submit_time,num_gpus,duration\n" + "0,1,100\n" * 4


def refused(call, *arguments):
    with pytest.raises(InputError) as caught:
        call(*arguments)
    return str(caught.value)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="a system without named pipes")
@pytest.mark.parametrize(
    "call", [read_trace, head_of, read_outages, cluster_groups, yaml_lines.load, reading.read_json, reading.read_text]
)
def test_a_pipe_is_refused_at_once_and_not_waited_for(tmp_path, call):
    pipe = tmp_path / "jobs.csv"
    os.mkfifo(pipe)
    assert f"{pipe}: is neither a file nor a folder" in refused(call, pipe)


def test_folders_and_missing_files_are_named(tmp_path):
    assert "is a folder, not a file; name a file in it" in refused(reading.read_text, tmp_path)
    assert "there is no such file" in refused(reading.read_text, tmp_path / "none")
    assert "cannot be read" in refused(reading.read_text, Path("a\0b"))


def test_an_archive_that_holds_much_more_than_its_size_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "FREE_BYTES", 1000)
    path = tmp_path / "jobs.csv.gz"
    path.write_bytes(gzip.compress((ROWS + "0,1,100\n" * 50_000).encode()))  # 8 bytes a line become 0.008
    assert path.stat().st_size * reading.MOST_EXPANSION < 400_000
    assert "decompressed" in refused(read_trace, path)
    monkeypatch.setattr(reading, "FREE_BYTES", 1 << 20)
    assert len(read_trace(path)) == 50_004


def test_a_document_has_a_size(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("[1, 2]")
    assert reading.read_text(path, 6) == "[1, 2]"
    assert "holds more than 0 MiB" in refused(reading.read_text, path, 5)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 200_000, "is nested deeper than 50 levels"),
        ("[" * 51 + "]" * 51, "is nested deeper than 50 levels"),
        ('{"a": NaN}', "holds NaN, which is not a finite number"),
        ("[-Infinity]", "holds -Infinity, which is not a finite number"),
        ("[1e999]", "holds 1e999, which is not a finite number"),
        ("[" + "9" * 301 + "]", "has more than 300 digits"),
        ('{"a": 1, "b": 2, "a": 3}', "gives the key 'a' twice"),
        ('{"a": 1,\n "b" 2}', "a.json:2: is not JSON, or cut short or damaged at column 6"),
    ],
)
def test_json_that_is_none_or_too_much(tmp_path, text, said):
    path = tmp_path / "a.json"
    path.write_text(text)
    assert said in refused(reading.read_json, path)


def test_json_may_nest_to_the_limit(tmp_path):
    path = tmp_path / "a.json"
    path.write_text("[" * 50 + "]" * 50)
    assert reading.read_json(path)


@pytest.mark.parametrize("size", [1, reading.MOST_LOOKED_INTO])
def test_brackets_without_end_are_no_philly_log(tmp_path, size):
    path = tmp_path / "log.json"
    path.write_text(" " * size + "[" * 200_000)
    assert "is nested deeper than 50 levels" in refused(read_trace, path, "philly-json")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b,a\n1,2,3\n", "t.csv:1: column 'a' stands twice in the header, as number 1 and 3"),
        ("a,c\n1,2\n", "t.csv:1: column 'b' is missing"),
        ("a,b\n1,2\n1,2,3\n", "t.csv:3: has 3 fields, and the header has 2"),
        ("a,b\n1\n", "t.csv:2: has 1 fields, and the header has 2"),
        ("a,b," + ",".join(f"c{i}" for i in range(999)) + "\n", "has 1001 columns, and 1000 is the most"),
        ("", "the file is empty"),
        ('a,b\n"1,2\n', "is no CSV from here on"),
    ],
)
def test_records_of_a_table(tmp_path, text, said):
    path = tmp_path / "t.csv"
    path.write_text(text)
    assert said in refused(list, reading.read_records(path, ("a", "b")))


def test_records_have_lines_and_unknown_columns_are_told(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("\ufeffa, b,colour\n1,2,red\n\n3,4,\n", encoding="utf-8")
    with pytest.warns(InputWarning, match=r"t.csv: column 'colour' is not known here and not used$") as told:
        rows = list(reading.read_records(path, ("a",), ("b",)))
    assert [(line, row["b"]) for line, row in rows] == [(2, "2"), (4, "4")]
    assert len(told) == 1


def test_a_misspelt_column_is_told_with_the_name_that_was_meant():
    with pytest.warns(InputWarning, match=r"'colour' is not known here and not used; did you mean 'color'\?"):
        assert reading.unused("t.csv", ["a", "colour", "b"], ("a", "color"), ("b",)) == ("colour", "b")


def test_what_is_told_is_told_once():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            tell("t.csv", "told in a test")
    assert [str(one.message) for one in caught] == ["t.csv: told in a test"]


NODES = ["n[1-99999999]", "n[1-300][1-300]", "n" + "[1-2]" * 20, "n" + "[1]" * 2000, "n[" + "9" * 5000 + "]"]


@pytest.mark.parametrize("text", NODES, ids=range(len(NODES)))
def test_a_list_of_nodes_has_an_end(text):
    assert "stands for more than 65536 nodes" in refused(expand_nodes, text)


@pytest.mark.parametrize("time", ["1e999", '"inf"', '"nan"', "1e300", "null", "[]"])
def test_a_fault_has_a_time(tmp_path, time):
    path = tmp_path / "f.json"
    path.write_text(f'[{{"node_id": "a", "event_time": {time}, "event_type": "fault_start", "fault_type": "x"}}]')
    assert "f.json" in refused(read_fault_trace, path)


@pytest.mark.parametrize("row", ["0,0,inf", "0,0,nan", "0,-inf,5", "0,nan,5", "0,0,1e308"])
def test_an_outage_has_an_end(tmp_path, row):
    path = tmp_path / "o.csv"
    path.write_text(f"node,down,up\n{row}\n")
    assert "o.csv:2: node 0 is up again" in refused(read_outages, path)


@pytest.mark.parametrize(
    "text", ["", "nan", "inf", "-inf", "1e400", "٣", "1_000", "0x10", "9" * 5000, "1,5", "one", None, "1 2", "2e0e0"]
)
def test_what_is_no_number_is_refused_with_a_remedy(text):
    for parser, kind in ((reading.number, "a number"), (reading.whole_number, "a whole number from 0")):
        with pytest.raises(ValueError, match="give a") as raised:
            parser(text, "column 'gpus'", most=10)
        assert str(raised.value) == f"column 'gpus' is '{str(text)[:40]}'; give {kind} up to 10"


def test_numbers_keep_to_their_range():
    assert [reading.number(text, "x") for text in (" 1.5 ", "+2", "-.5e1", "3.")] == [1.5, 2.0, -5.0, 3.0]
    assert (reading.whole_number("7", "x"), reading.whole_number("-7", "x", least=-9)) == (7, -7)
    for text in ("-1", "11", "1.5"):
        with pytest.raises(ValueError, match="give a whole number from 0 up to 10"):
            reading.whole_number(text, "x", most=10)
    with pytest.raises(ValueError, match="give a number from 0"):
        reading.number("-0.1", "x", least=0)
