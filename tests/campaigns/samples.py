"""A small valid file of every format that simsched reads, and how to read it."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simsched.model.colocation import TEMPLATE
from simsched.workload import read_fault_trace, read_outages
from simsched.workload.readers import read_nodes

_TRACE = ("trace", "info", "{file}", "--no-plots", "--json")
_LIST = ("workload", "describe", "{file}", "--json")


@dataclass(frozen=True)
class Sample:
    """A valid file, and the command that reads it, or a function if no command reads it directly."""

    name: str
    file: str
    text: str
    command: tuple[str, ...] = ()
    function: Callable[[Path], Any] | None = None


def _attempt(start: str, end: str, gpus: int) -> dict[str, Any]:
    machines = [{"ip": "m1", "gpus": [f"gpu{i}" for i in range(gpus)]}]
    return {"start_time": start, "end_time": end, "detail": machines}


_PHILLY = json.dumps(
    [
        {
            "status": status,
            "vc": "6214e9",
            "jobid": f"job{i}",
            "user": "ce2f4c",
            "submitted_time": f"2017-10-07 01:0{i}:00",
            "attempts": [_attempt(f"2017-10-07 02:0{i}:00", f"2017-10-07 03:0{i}:30", 1 + i)],
        }
        for i, status in enumerate(("Pass", "Killed", "Failed", "Pass"))
    ]
)
_SACCT = (
    "JobID|User|Account|Partition|QOS|Submit|Eligible|Start|End|Elapsed|Timelimit|ReqTRES|AllocTRES|State|NodeList\n"
)
_SACCT += "".join(
    f"{i}|ann|vision|gpu|normal|2024-03-01T10:0{i}:00|2024-03-01T10:0{i}:00|2024-03-01T10:1{i}:00|2024-03-01T11:1{i}:00|"
    f"01:00:00|1-02:00:00|cpu=8,gres/gpu=2,mem=64G,node=1|cpu=8,gres/gpu:a100=2,gres/gpu=2,node=1|COMPLETED|g0{i}\n"
    for i in range(1, 5)
)
_HELIOS = "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n" + "".join(
    f"{i},u{i},vc{i % 2},{i},8,1,COMPLETED,2020-04-01 00:00:1{i},2020-04-01 00:01:00,2020-04-01 00:03:0{i},12{i},50\n"
    for i in range(1, 5)
)
_ACME = "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue\n" + "".join(
    f"{i},u,1,{i},16,Eval,COMPLETED,2023-03-01 08:00:0{i}+08:00,2023-03-01 08:00:10+08:00,"
    f"2023-03-01 08:01:0{i}+08:00,{50 + i},10\n"
    for i in range(1, 5)
)
_OPENB = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
    + "".join(f"p{i},6000,12288,1,{460 + 100 * i},,LS,Succeeded,{40 * i},{900 + i},{40 * i + 5}\n" for i in range(1, 5))
)
_PAI = "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type\n" + "".join(
    f"j{i},worker,{i},Terminated,{100 * i},{400 + 100 * i},600,30,50,V100\n" for i in range(1, 5)
)
_KUBERNETES = "name,namespace,queue,priority_class,nvidia.com/gpu,created,started,finished,phase,pod_group\n" + "".join(
    f"w{i},nlp,main,high,{i},2024-03-01T10:00:0{i}Z,2024-03-01T10:01:00Z,2024-03-01T11:00:0{i}Z,Succeeded,g{i}\n"
    for i in range(1, 5)
)
_MURI = (
    "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,resource_time_0,"
    "resource_time_1,resource_time_2,priority\n0,8,0,2000,vgg16,16,400000,0,200,80,70,60,0\n"
    "1,8,10000,1500,resnet18,128,1350000,10000,900,720,110,70,1\n2,16,20000,1000,bert,4,200000,10000,200,1,170,20,0\n"
)
_SHOCKWAVE = (
    "LM (batch size 10)\ttrain\tdata\t--steps\t1\t36000\t1\tgns\t1\t-1.000000\t900\t0\n"
    "ResNet-18 (batch size 32)\ttrain\tdata\t--steps\t1\t120000\t2\taccordion\t1\t-1.000000\t900\t40\n"
    "ResNet-50 (batch size 64)\ttrain\tdata\t--steps\t1\t28000\t1\tstatic\t1\t-1.000000\t900\t300\n"
)
_GAVEL = "".join(
    f"LM (batch size {10 * i})\ttrain %s\tdata\t--steps\t1\t{1000 * i}\t1\t1.0\t-1.0\t{60 * i}\n" for i in (1, 2, 4)
)
_SCONTROL = "".join(
    f"NodeName=g0{i} CPUTot=64 RealMemory=1000\n   Gres=gpu:a100:8(S:0-1) State=IDLE Partitions=gpu,long\n\n"
    for i in range(1, 4)
)
_SINFO = (
    "NODELIST|PARTITION|GRES|CPUS|MEMORY|STATE\ng[1-2]|gpu*|gpu:v100:4|32|500|idle\ng3|long|gpu:v100:4|32|500|idle\n"
)
_FAULTS = json.dumps(
    [
        {"node_id": node, "event_time": day, "event_type": f"fault_{kind}", "fault_type": {"Class": "GPU"}}
        for node, day, kind in (("b", 1.0, "start"), ("a", 1.5, "start"), ("b", 2.5, "end"), ("a", 3.5, "end"))
    ]
)
_PLAIN = "submit_time,num_gpus,duration,tenant,user,status\n" + "".join(
    f"{40 * i},{i},{100 + i},t{i % 2},u,Pass\n" for i in range(1, 6)
)
_CLOCK = "submit_time,num_gpus,duration\n" + "".join(
    f"2024-03-01T10:00:0{i}+01:00,{i},{100 + i}\n" for i in range(1, 5)
)
_WORKLOAD = "name,time,application,num_replicas,batch_size,tenant\n" + "".join(
    f"j{i},{60 * i},cifar10,{i},128,a\n" for i in range(1, 5)
)
_PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
_PODS += "p0,4000,15258,0,0,\np1,4000,15258,1,500,\np2,8000,999,2,1000,\n"
_NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,96000,393216,8,large\nn1,96000,393216,2,small\n"

SAMPLES = (
    Sample("philly-json", "cluster_job_log", _PHILLY, _TRACE),
    Sample(
        "philly-csv",
        "philly.csv",
        "timestamp,duration,num_gpus,gpu_time,cluster\n"
        + "".join(f"2017-10-0{i} 07:01:55,{60 * i}.0,{i},{60 * i * i}.0,11cb48\n" for i in range(1, 5)),
        _TRACE,
    ),
    Sample(
        "itp",
        "cluster01.csv",
        "job_id,submission_time,duration,num_gpu\n" + "".join(f"x{i},{100 * i},{700 + i},{i}\n" for i in range(1, 5)),
        _TRACE,
    ),
    Sample("slurm", "sacct.txt", _SACCT, _TRACE),
    Sample("helios", "helios.csv", _HELIOS, _TRACE),
    Sample("acme", "acme.csv", _ACME, _TRACE),
    Sample("alibaba-openb", "openb.csv", _OPENB, _TRACE),
    Sample("alibaba-pai", "pai.csv", _PAI, _TRACE),
    Sample("kubernetes", "pods.csv", _KUBERNETES, _TRACE),
    Sample("plain", "plain.csv", _PLAIN, _TRACE),
    Sample("plain with offsets", "clock.csv", _CLOCK, _TRACE),
    Sample("workload CSV", "workload.csv", _WORKLOAD, _LIST),
    Sample("muri", "muri.csv", _MURI, _LIST),
    Sample("shockwave", "shockwave.trace", _SHOCKWAVE, _LIST),
    Sample("gavel", "gavel.trace", _GAVEL, _LIST),
    Sample("scontrol", "nodes.txt", _SCONTROL, function=read_nodes),
    Sample("sinfo", "nodes.txt", _SINFO, function=read_nodes),
    Sample(
        "outages", "outages.csv", "node,down,up\n0,100,400\n1,300,350\n", function=lambda path: read_outages(path, 4)
    ),
    Sample("faults", "faults.json", _FAULTS, function=read_fault_trace),
    Sample("pairs", "pairs.csv", TEMPLATE, ("validate", "{experiment}")),
    Sample("pods", "pods.csv", _PODS, ("pack", "{file}", "nodes.csv", "--no-plots", "--seeds", "1", "--json")),
    Sample("nodes", "nodes.csv", _NODES, ("pack", "pods.csv", "{file}", "--no-plots", "--seeds", "1", "--json")),
)
#: Accompanying files, for commands that need more than one.
BESIDE = {"pods.csv": _PODS, "nodes.csv": _NODES, "jobs.csv": _PLAIN}
EXPERIMENT = """\
name: mutants
cluster: {{nodes: 2, gpus_per_node: 8, gpu_type: v100}}
workload: {{path: jobs.csv, recipe: replay}}
engine: {{sharing: {{max_jobs: 2, model: pairs, pairs_path: {file!r}, default_speed: 0.8}}}}
policies: [{{name: gandiva}}]
"""
