"""Readers of traces of other clusters, on hand-written files in the published layouts."""

import pandas as pd
import pytest

from simsched.workload.readers import read_trace
from tests.trace_files import write


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
