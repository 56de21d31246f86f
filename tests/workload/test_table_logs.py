"""Logs of Kubernetes, Helios, Acme and Alibaba, on hand-written lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from simsched.errors import InputError
from simsched.workload.readers import read_trace
from simsched.workload.readers.log import Limits
from simsched.workload.readers.tables import ACME, HELIOS, KUBERNETES, LAYOUTS, OPENB_2023, PAI_2020, read_table
from simsched.workload.recipes.as_is import specs_of
from simsched.workload.write import write_trace_csv


def write(folder: Path, *lines: str) -> Path:
    path = folder / "log.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_pods_of_kubernetes_are_added_up_by_their_group(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "name,namespace,queue,priority_class,nvidia.com/gpu,created,started,finished,phase,pod_group",
        'w-0,nlp,main,high,8,2024-03-01T10:00:00Z,2024-03-01T10:01:00Z,2024-03-01T11:00:00Z,Succeeded,"train"',
        "w-1,nlp,main,high,8,2024-03-01T10:00:01Z,2024-03-01T10:02:00Z,2024-03-01T11:00:30Z,Failed,train",
        "ps,nlp,main,high,0,2024-03-01T10:00:00Z,2024-03-01T10:00:30Z,2024-03-01T12:00:00Z,Succeeded,train",
        "solo,cv,main,,1,2024-03-01T10:00:00Z,2024-03-01T10:00:05Z,2024-03-01T10:00:15Z,Succeeded,",
        "late,cv,main,,1,2024-03-01T10:00:00Z,,,Pending,",
    )
    found = read_table(path, KUBERNETES)
    assert found.table["job_id"].tolist() == ["train", "solo"]
    assert found.table["gpus"].tolist() == [16.0, 1.0]
    assert found.table["duration_s"].tolist() == [3570.0, 10.0]
    assert found.table["state"].tolist() == ["Failed", "Pass"]
    assert found.table["account"].tolist() == ["nlp", "cv"]
    assert found.table["qos"].tolist() == ["high", ""]
    assert found.waits_s.tolist() == [60, 5]
    assert dict(found.ignored) == {"parts of jobs that used no GPU": 1}
    assert [str(entry) for entry in found.left_out] == ["1 job: never started (line 6: late)"]


def test_helios_keeps_its_virtual_clusters(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue",
        "1,u1,vcA,8,48,1,COMPLETED,2020-04-01 00:00:00,2020-04-01 00:01:00,2020-04-01 01:01:00,3600,60",
        "2,u1,vcB,0,48,1,FAILED,2020-04-01 00:00:00,2020-04-01 00:01:00,2020-04-01 01:01:00,3600,60",
        "3,u2,vcB,4,24,1,CANCELLED,2020-04-01 00:00:00,2020-04-01 00:02:00,2020-04-01 00:01:00,0,0",
    )
    found = read_table(path, HELIOS, time_zone="Asia/Shanghai")
    assert found.table["account"].tolist() == ["vcA"]
    assert found.table["submit_s"].tolist() == [1585670400]
    assert found.table["queue"].tolist() == [""]  # the column of that name has seconds
    assert {entry.reason for entry in found.left_out} == {"used no GPU", "end before their start"}
    with pytest.raises(InputError, match="end before their start"):
        read_table(path, HELIOS, strict=True)


def test_acme_keeps_offsets_and_types_of_work(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue",
        "a,u,1,8,16,Eval,DONE,2023-03-01 08:00:00+08:00,2023-03-01 08:00:10+08:00,2023-03-01 08:00:20+08:00,10,10",
        "b,u,1,9999,16,Eval,,2023-03-01 00:00:00+00:00,2023-03-01 00:00:10+00:00,2023-03-01 00:00:20+00:00,10,10",
    )
    found = read_table(path, ACME, limits=Limits(2286))
    assert found.table["qos"].tolist() == ["Eval"]
    assert found.table["submit_s"].tolist() == [1677628800]
    assert found.jobs().columns["tenant"].tolist() == [""]
    assert [entry.reason for entry in found.left_out] == ["asked for more than the 2286 GPUs of the cluster"]


def test_a_table_of_durations_needs_no_start_and_one_of_starts_no_duration(tmp_path: Path) -> None:
    untimed = write(tmp_path, "# saved by hand", "gpu_num,submit_time,state,duration", "2,100,DONE,7.5", "1,200,DONE,")
    found = read_table(untimed, HELIOS)
    assert found.table["duration_s"].tolist() == [7.5]
    assert found.waits_s.tolist() == [0]
    assert [str(entry) for entry in found.left_out] == ["1 job: never started (line 4: line-4)"]
    timed = write(tmp_path, "gpu_num,submit_time,start_time,end_time", "2,100,150,180")
    assert read_table(timed, HELIOS).table["duration_s"].tolist() == [30]
    with pytest.raises(InputError, match="no column says how long jobs ran"):
        read_table(write(tmp_path, "gpu_num,submit_time,start_time", "2,100,150"), HELIOS)


def test_pai_has_no_header_and_counts_in_percent(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "j1,worker,2,Terminated,100.0,200.0,600,29,50,T4",
        "j1,ps,1,Terminated,90.0,210.0,600,29,,",
        "j2,worker,4,Failed,150.5,250.0,600,29,100,V100",
        "j3,worker,1,Running,150.0,,600,29,100,V100",
    )
    found = read_table(path, PAI_2020)
    assert found.table["job_id"].tolist() == ["j1", "j2"]
    assert found.table["gpus"].tolist() == [1.0, 4.0]
    assert found.table["duration_s"].tolist() == [100.0, 100.0]
    assert found.table["gpu_type"].tolist() == ["T4", "V100"]


def test_openb_keeps_fractions_of_a_gpu(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time",
        "p0,12000,16384,1,460,,LS,Succeeded,0,100,10",
        "p1,12000,16384,8,1000,V100M16|V100M32,LS,Failed,5,100,10",
        "p2,12000,16384,1,1000,,BE,Pending,5,100,",
    )
    found = read_table(path, OPENB_2023)
    assert found.table["gpus"].tolist() == [0.46, 8.0]
    assert found.jobs().columns["num_gpus"].tolist() == [1.0, 8.0]
    assert found.jobs().adjusted["asked for a part of a GPU, which policies that share none take for a whole one"] == 1


def test_a_missing_column_and_a_name_used_twice(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no column 'end_s'"):
        read_table(write(tmp_path, "name,gpus,created,started", "a,1,1,2"), KUBERNETES)
    rows = ("name,gpus,created,started,finished", "a,1,1,2,3", "a,1,1,2,3", "b,x,1,2,3")
    found = read_table(write(tmp_path, *rows), LAYOUTS["kubernetes"])
    assert [str(entry) for entry in found.left_out] == [
        "1 job: have the name of an earlier job (line 3: a)",
        "1 job: GPUs are not a number (line 4: b)",
    ]


def test_a_table_of_pods_is_a_trace_too(tmp_path: Path) -> None:
    path = tmp_path / "pods.csv"
    path.write_text(
        "name,namespace,gpus,created,started,finished,queue,priority,time_limit_s\n"
        "a,vision,2,2024-03-01T00:00:00Z,2024-03-01T00:01:00Z,2024-03-01T00:03:00Z,gold,7,600\n"
        "b,speech,1,2024-03-01T00:00:30Z,2024-03-01T00:00:30Z,2024-03-01T00:00:40Z,,0,\n"
    )
    trace = read_trace(path)
    assert trace.source == "kubernetes"
    assert trace.table["tenant"].tolist() == ["vision", "speech"]
    first, second = specs_of(trace.table)
    assert (first.queue, first.priority, first.time_limit_s, first.duration_s) == ("gold", 7, 600, 120)
    assert (second.queue, second.priority, second.time_limit_s) == ("", 0, None)
    written = tmp_path / "plain.csv"
    write_trace_csv(trace, written)
    assert specs_of(read_trace(written).table) == [first, second]
