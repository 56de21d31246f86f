"""What the commands of Slurm would print of the reference cluster: logs, nodes, partitions, limits and the queue.

Written from the manuals of sacct, scontrol, sacctmgr, squeue and slurm.conf. A log covers a window: a job is in it if
it was there at some time of the window, and what lies after the window's end is not known.

    python -m tests.validation.oracles.slurm_texts FOLDER [--seed 1] [--days 21]
    python -m tests.validation.oracles.slurm_texts traces/slurm-sample --seed 4 --days 14 --small  # the log that ships
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.validation.oracles.slurm_cluster import (
    BF_MAX_JOB_TEST,
    BF_WINDOW_S,
    DAY_S,
    QUEUE_DEPTH,
    REFERENCE,
    SMALL,
    Cluster,
    Job,
    Kind,
    Site,
)
from tests.validation.oracles.slurm_jobs import LOAD, SMALL_LOAD, draw_jobs

DAY_ZERO = datetime(2024, 3, 4, tzinfo=UTC)
#: Days before the window, in which the cluster fills.
WARM_DAYS = 5
FIELDS = (
    "JobID|Submit|Eligible|Start|End|ElapsedRaw|State|ReqTRES|AllocTRES|Timelimit|Partition|QOS|Account|User|NNodes"
    "|NCPUS|NodeList"
)


def clock(second: int) -> str:
    """Write a second as Slurm does."""
    return (DAY_ZERO + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%S")


def spell(seconds: int) -> str:
    """Write a duration as days-hours:minutes:seconds."""
    days, rest = divmod(seconds, DAY_S)
    text = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days}-{text}" if days else text


def names_of(site: Site) -> list[str]:
    """Name the nodes in their order."""
    return [f"{kind.name}{i:02d}" for kind in site.kinds for i in range(1, kind.nodes + 1)]


def tres(site: Site, job: Job) -> str:
    """Write what a job asks for on all its nodes."""
    kinds = next(one.kinds for one in site.partitions if one.name == job.partition)
    gpu_type = next(one.gpu_type for one in site.kinds if one.name == kinds[0])
    return (
        f"billing={job.all_gpus},cpu={job.cpus * job.nodes},gres/gpu:{gpu_type}={job.all_gpus},"
        f"gres/gpu={job.all_gpus},mem={job.memory_mb * job.nodes}M,node={job.nodes}"
    )


def sacct(site: Site, jobs: Sequence[Job], begin_s: int, end_s: int) -> str:
    """Write the accounting of a window."""
    names, lines = names_of(site), [FIELDS]
    for job in jobs:
        start_s, stop_s = job.start_s, job.end_s
        if job.submit_s > end_s or (stop_s is not None and stop_s < begin_s):
            continue
        started = start_s is not None and start_s <= end_s
        ended = started and stop_s is not None and stop_s <= end_s
        state = "PENDING" if not started else "RUNNING" if not ended else "COMPLETED"
        if ended and job.run_s > job.limit_s:
            state = "TIMEOUT"
        start, stop = (clock(start_s or 0) if started else "Unknown", clock(stop_s or 0) if ended else "Unknown")
        elapsed = min(stop_s or end_s, end_s) - (start_s or 0) if started else 0
        at = ",".join(names[i] for i in job.held) if started else "None assigned"
        asked = tres(site, job)
        lines.append(
            f"{job.id}|{clock(job.submit_s)}|{clock(job.submit_s)}|{start}|{stop}|{elapsed}|{state}|{asked}"
            f"|{asked if started else ''}|{spell(job.limit_s)}|{job.partition}|{job.qos}|{job.account}|{job.user}"
            f"|{job.nodes}|{job.cpus * job.nodes}|{at}"
        )
    return "\n".join(lines) + "\n"


def _weight(site: Site, kind: Kind, number: int) -> int:
    place = sum(one.nodes for one in site.kinds[: site.kinds.index(kind)]) + number - 1
    return 1 + 9 * (place % 2) if site.rules.nodes == "weight" else 1


def _partitions(site: Site, kind: Kind) -> str:
    return ",".join(one.name for one in site.partitions if kind.name in one.kinds)


def show_node(site: Site) -> str:
    """Write `scontrol show node`."""
    return "\n".join(
        f"NodeName={kind.name}{i:02d} Arch=x86_64 CoresPerSocket={kind.cpus // 2}\n"
        f"   CPUAlloc=0 CPUEfctv={kind.cpus} CPUTot={kind.cpus} CPULoad=0.00\n"
        f"   Gres=gpu:{kind.gpu_type}:{kind.gpus}\n   RealMemory={kind.memory_mb} AllocMem=0 Sockets=2 Boards=1\n"
        f"   State=IDLE ThreadsPerCore=1 Weight={_weight(site, kind, i)} Owner=N/A\n"
        f"   Partitions={_partitions(site, kind)}\n"
        f"   CfgTRES=cpu={kind.cpus},mem={kind.memory_mb}M,billing={kind.cpus},gres/gpu={kind.gpus},"
        f"gres/gpu:{kind.gpu_type}={kind.gpus}\n"
        for kind in site.kinds
        for i in range(1, kind.nodes + 1)
    )


def _range(site: Site, kinds: Sequence[str]) -> str:
    return ",".join(f"{one.name}[01-{one.nodes:02d}]" for one in site.kinds if one.name in kinds)


def slurm_conf(site: Site) -> str:
    """Write slurm.conf."""
    rules = site.rules
    every = f"bf_interval={rules.interval_s}," if rules.interval_s else ""
    lines = [
        "ClusterName=reference",
        f"SchedulerType=sched/{'builtin' if rules.protects == 'off' else 'backfill'}",
        f"SchedulerParameters={every}bf_resolution={rules.resolution_s},"
        f"bf_window={BF_WINDOW_S // 60},bf_max_job_test={BF_MAX_JOB_TEST},default_queue_depth={QUEUE_DEPTH}",
        "PriorityType=priority/multifactor",
        "PriorityWeightQOS=100000",
        *([f"PriorityWeightAge={rules.age}"] if rules.age else []),
        *([f"PriorityWeightFairshare={rules.fair_share}"] if rules.fair_share else []),
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_CPU_Memory",
        "GresTypes=gpu",
        "AccountingStorageEnforce=limits,qos",
    ]
    lines += [
        f"NodeName={_range(site, (kind.name,))} CPUs={kind.cpus} RealMemory={kind.memory_mb} "
        f"Gres=gpu:{kind.gpu_type}:{kind.gpus} State=UNKNOWN"
        for kind in site.kinds
    ]
    lines += [
        f"PartitionName={one.name} Nodes={_range(site, one.kinds)} MaxTime={spell(one.max_time_s)} "
        f"PriorityTier={one.tier} PriorityJobFactor=1 State=UP"
        for one in site.partitions
    ]
    return "\n".join(lines) + "\n"


def show_partition(site: Site) -> str:
    """Write `scontrol show partition`."""
    return "\n".join(
        f"PartitionName={one.name}\n   AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL\n   AllocNodes=ALL Default=NO "
        f"QoS=N/A\n   DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO\n"
        f"   MaxNodes=UNLIMITED MaxTime={spell(one.max_time_s)} MinNodes=0 LLN=NO\n   Nodes={_range(site, one.kinds)}\n"
        f"   PriorityJobFactor=1 PriorityTier={one.tier} RootOnly=NO ReqResv=NO OverSubscribe=NO\n"
        f"   PreemptMode=OFF State=UP TotalNodes={sum(kind.nodes for kind in site.kinds if kind.name in one.kinds)}\n"
        for one in site.partitions
    )


def show_qos(site: Site) -> str:
    """Write `sacctmgr show qos -P format=Name,Priority,Preempt,PreemptMode,GrpTRES,MaxTRESPU,MaxJobsPU,MaxSubmitPU`."""
    cap = "" if site.cap is None else f"gres/gpu={site.cap}"
    rows = [f"{name}|{priority}||cluster||{cap}||" for name, priority in site.qos]
    return "\n".join(["Name|Priority|Preempt|PreemptMode|GrpTRES|MaxTRESPU|MaxJobsPU|MaxSubmitPU", *rows]) + "\n"


def show_assoc(jobs: Sequence[Job]) -> str:
    """Write `sacctmgr show assoc -P` without limits."""
    head = "Cluster|Account|User|Partition|ParentName|Share|GrpTRES|MaxTRES|GrpJobs|MaxJobs|QOS"
    accounts = sorted({job.account for job in jobs})
    users = sorted({(job.account, job.user) for job in jobs})
    rows = ["reference|root||||1|||||normal"]
    rows += [f"reference|{name}|||root|1|||||high,normal" for name in accounts]
    rows += [f"reference|{account}|{user}|||1|||||high,normal" for account, user in users]
    return "\n".join([head, *rows]) + "\n"


def squeue(site: Site, jobs: Sequence[Job], now_s: int) -> str:
    """Write `squeue --json` at a moment; a waiting job's start is what backfill last planned."""
    zero, names, found = int(DAY_ZERO.timestamp()), names_of(site), []
    for job in jobs:
        if job.submit_s > now_s or (job.end_s is not None and job.end_s <= now_s):
            continue
        runs = job.start_s is not None and job.start_s <= now_s
        start_s = job.start_s if runs else job.planned_s
        found.append(
            {
                "job_id": job.id, "user_name": job.user, "account": job.account, "partition": job.partition,
                "qos": job.qos, "job_state": ["RUNNING" if runs else "PENDING"],
                "submit_time": _number(zero + job.submit_s), "eligible_time": _number(zero + job.submit_s),
                "start_time": _number(zero + start_s if start_s is not None else 0),
                "time_limit": _number(job.limit_s // 60), "node_count": _number(job.nodes),
                "cpus": _number(job.cpus * job.nodes), "tres_req_str": tres(site, job),
                "tres_alloc_str": tres(site, job) if runs else "",
                "nodes": ",".join(names[i] for i in job.held) if runs else "",
            }
        )  # fmt: skip
    meta = {"Slurm": {"version": {"major": "23", "micro": "1", "minor": "11"}}}
    last = {"set": True, "infinite": False, "number": zero + now_s}
    return json.dumps({"meta": meta, "jobs": found, "last_update": last}, indent=1) + "\n"


def _number(value: int) -> dict[str, object]:
    return {"set": True, "infinite": False, "number": value}


def write_all(
    folder: Path,
    site: Site,
    jobs: Sequence[Job],
    days: float,
    queue_days: float | None = None,
    warm_days: int = WARM_DAYS,
) -> None:
    """Write the log of `days` after the warm-up, the configuration, and the queue of a moment (its end by default)."""
    folder.mkdir(parents=True, exist_ok=True)
    begin_s, end_s = warm_days * DAY_S, int((warm_days + days) * DAY_S)
    now_s = end_s if queue_days is None else int((warm_days + queue_days) * DAY_S)
    cluster = Cluster(site, jobs)
    queue = squeue(site, cluster.run(now_s), now_s)
    truth = cluster.run()
    texts = {
        "log.txt": sacct(site, truth, begin_s, end_s),
        "cluster.txt": show_node(site),
        "slurm.conf": slurm_conf(site),
        "partitions.txt": show_partition(site),
        "qos.txt": show_qos(site),
        "assoc.txt": show_assoc(jobs),
        "squeue.json": queue,
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")


def main() -> None:
    """Write the files of a seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--days", type=float, default=21)
    parser.add_argument("--small", action="store_true", help="the log that ships, of a small cluster")
    given = parser.parse_args()
    site, load = (SMALL, SMALL_LOAD) if given.small else (REFERENCE, LOAD)
    jobs = draw_jobs(site, given.seed, WARM_DAYS + given.days, load)
    write_all(given.folder, site, jobs, given.days, 9.75 if given.small else None)
    for name in ("log.txt", "squeue.json") if given.small else ():
        text = (given.folder / name).read_bytes()
        (given.folder / name).unlink()
        (given.folder / f"{name}.gz").write_bytes(gzip.compress(text, mtime=0))


if __name__ == "__main__":
    main()
