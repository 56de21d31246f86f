"""Lists of outages, and the published fault trace as one."""

import json
from pathlib import Path

import pytest

from simsched.errors import InputError
from simsched.model.outages import Outage
from simsched.workload.outages import merged, read_fault_trace, read_outages, write_outages


def written(tmp_path, text):
    path = tmp_path / "outages.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_what_is_written_is_read_back(tmp_path):
    outages = (Outage(1, 0, 3600.5), Outage(0, 60, 120))
    assert read_outages(written(tmp_path, write_outages(outages)), 2) == outages


@pytest.mark.parametrize(
    ("rows", "line", "said"),
    [
        ("0,10,20\n0,15,30", 3, "overlaps the one in line 2"),
        ("0,20,10", 2, "up again at 10 s, before it goes down at 20 s"),
        ("4,10,20", 2, "there is no node 4; the nodes are 0 to 3"),
        ("rack-1,10,20", 2, "not a node with two times"),
        ("0,10,", 2, "not a node with two times"),
    ],
)
def test_one_clear_message_each(tmp_path, rows, line, said):
    path = written(tmp_path, f"node,down,up\n{rows}\n")
    with pytest.raises(InputError) as caught:
        read_outages(path, 4)
    (problem,) = caught.value.problems
    assert said in problem.message
    assert (problem.where, problem.line) == (str(path), line)


def test_other_columns_are_refused(tmp_path):
    with pytest.raises(InputError, match="columns 'down', 'up' are missing"):
        read_outages(written(tmp_path, "node,start,end\n0,1,2\n"))


def test_a_list_may_say_of_what_kind_an_outage_is(tmp_path):
    path = written(tmp_path, "node,down,up,kind\n0,1,2,maintenance\n1,1,2,\n")
    assert [outage.kind for outage in read_outages(path)] == ["maintenance", "outage"]


def event(node, day, kind, what="GPU"):
    return {"node_id": node, "event_time": day, "event_type": f"fault_{kind}", "fault_type": {"Class": what}}


def test_faults_of_one_node_that_overlap_are_one_outage(tmp_path):
    path = tmp_path / "faults.json"
    events = [
        event("b", 1.0, "start"), event("a", 1.5, "start"), event("b", 2.0, "start", "NIC"), event("b", 2.5, "end"),
        event("b", 3.0, "end", "NIC"), event("a", 3.5, "end"),
    ]  # fmt: skip
    path.write_text(json.dumps(events), encoding="utf-8")
    day = 86_400
    assert read_fault_trace(path)[0].up_s == 1.5 * day
    with pytest.raises(InputError, match="faults of 2 nodes, the cluster has 1"):
        read_outages(path, 1)
    assert merged(read_fault_trace(path)) == (Outage(0, 0, 2 * day), Outage(1, 0.5 * day, 2.5 * day))


@pytest.mark.parametrize("text", ["[{}]", "{", json.dumps([event("a", 1.0, "end")])])
def test_a_file_that_is_no_fault_trace_is_refused(tmp_path, text):
    path = tmp_path / "faults.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=r"is not a fault trace|is not JSON"):
        read_fault_trace(Path(path))
