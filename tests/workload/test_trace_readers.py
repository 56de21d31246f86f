"""Readers of traces of other clusters, on hand-written files in the published layouts."""

import json

import pandas as pd
import pytest

from simsched.model import Cluster, NodeGroup
from simsched.workload import demand_on
from simsched.workload.readers import read_trace
from tests.trace_files import problems_of, write


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
    assert dict(trace.adjusted) == {"asked for a part of a GPU, which policies that share none take for a whole one": 1}
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


def test_what_a_trace_demands_of_each_type_is_compared_with_what_is_there(tmp_path):
    """One node of 8 A100, two of 8 H100: from 0 to 7220 s, 20 s to 7220 s the longest job."""
    path = write(
        tmp_path,
        "t.csv",
        "job_id,submit_time,num_gpus,duration,gpu_types,num_nodes\n"
        "a,0,1,3600,a100,0\nb,10,8,3600,a100,0\nc,20,16,7200,a100|h100,2\n"
        "d,30,64,100,,0\ne,40,4,100,v100,0\nf,50,9,100,,1\ng,60,9,100,,1\n",
    )
    found = demand_on(read_trace(path), Cluster.of(NodeGroup(1, 8, "a100"), NodeGroup(2, 8, "h100")).nodes)
    a100, either, v100, every = found["types"]
    assert (a100["gpu_types"], a100["gpus"], a100["jobs"], a100["gpu_hours"]) == ("a100", 8, 2, 9.0)
    assert (a100["in_all"], a100["at_once"]) == (9 / 8, 9 / 8)
    assert a100["busy"] == pytest.approx(9 * 3600 / (8 * 7220))
    assert (either["gpu_types"], either["gpus"], either["in_all"]) == ("a100|h100", 24, 16 / 24)
    assert (v100["gpus"], v100["in_all"], v100["at_once"], v100["busy"]) == (0, None, None, None)
    assert (every["gpus"], every["in_all"], every["at_once"]) == (24, 111 / 24, 111 / 24)
    assert found["never"] == [
        {"wants": "9 GPUs on each of 1 node", "jobs": 2, "examples": ["f", "g"]},
        {"wants": "4 GPUs of type v100", "jobs": 1, "examples": ["e"]},
        {"wants": "64 GPUs", "jobs": 1, "examples": ["d"]},
    ]


def test_jobs_that_follow_each_other_are_not_at_once(tmp_path):
    path = write(tmp_path, "t.csv", "submit_time,num_gpus,duration\n0,4,100\n100,4,100\n")
    (every,) = demand_on(read_trace(path), Cluster.uniform(1, 4, "t4").nodes)["types"]
    assert (every["in_all"], every["at_once"], every["busy"]) == (2.0, 1.0, 1.0)


def test_types_that_pods_ask_for_count_in_a_replay(tmp_path):
    head = "name,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
    path = write(
        tmp_path, "pods.csv", f"{head}p0,1,1000,T4|P100,LS,Succeeded,50,1050,60\np1,1,1000,,LS,Succeeded,60,90,60\n"
    )
    assert read_trace(path).table["gpu_types"].tolist() == ["T4|P100", ""]


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
