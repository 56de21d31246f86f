"""Why ElasticFlow is behind EDF where deadlines are loose: what changes when one suspected cause is taken away.

    python benchmarks/deadline_causes.py [FACTOR] [LISTS]

The first lists of elasticflow/deadlines, with deadlines of FACTOR (1.25) times the time alone, as they are; without the
few ImageNet trainings; twice as dense; with restarts that cost nothing; and with plans that keep no restart in reserve.
A line for each: the deadlines met under ElasticFlow, EDF, and EDF that scales its jobs, and in brackets the share of
the work of all jobs, GPUs asked for times seconds alone, that the jobs in time were.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from simsched_policies.deadlines.edf import Edf
from simsched_policies.deadlines.elasticflow import ElasticFlow

from simsched.api import simulate
from simsched.applications import catalogue
from simsched.experiment import with_deadlines
from simsched.model import Cluster, JobSpec
from simsched.policy import Policy
from simsched.workload.readers import read_workload

TRAININGS = Path(__file__).parent / "trainings"
CLUSTER = Cluster.uniform(16, 4, "t4")
POLICIES: dict[str, Callable[[], Policy]] = {
    "elasticflow": ElasticFlow,
    "edf": Edf,
    "edf-elastic": lambda: Edf(elastic=True),
}
IN_HASTE: dict[str, Callable[[], Policy]] = {"elasticflow": lambda: ElasticFlow(spare_restarts=0)}


def show(
    title: str, lists: list[list[JobSpec]], policies: dict[str, Callable[[], Policy]], restart_delay_s: float = 30
) -> None:
    """Print the deadlines met of some lists of jobs under some policies."""
    found = []
    jobs = sum(len(one) for one in lists)
    work = sum(job.num_gpus * (job.deadline_s or 0) for one in lists for job in one)
    for name, policy in policies.items():
        met = met_work = 0.0
        for one in lists:
            done = simulate(
                jobs=one, policy=policy(), cluster=CLUSTER, applications=catalogue(), restart_delay_s=restart_delay_s
            ).jobs
            in_time = done[done["jct_s"] <= done["deadline_s"]]
            met += len(in_time)
            met_work += float((in_time["num_gpus"] * in_time["deadline_s"]).sum())
        found.append(f"{name} {met / jobs:6.1%} ({met_work / work:4.0%})")
    print(f"{title:<24}", *found, sep="  ", flush=True)


def main() -> None:
    """Print a line for each cause."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("factor", type=float, nargs="?", default=1.25)
    parser.add_argument("lists", type=int, nargs="?", default=3)
    chosen = parser.parse_args()
    lists = [
        with_deadlines(read_workload(path), catalogue(), CLUSTER, chosen.factor, 1.0, 1)
        for path in sorted(TRAININGS.glob("*.csv"))[: chosen.lists]
    ]
    small = [[job for job in one if job.application != "imagenet"] for one in lists]
    dense = [[replace(job, submit_time_s=job.submit_time_s // 2) for job in one] for one in small]
    show("as they are", lists, POLICIES)
    show("without ImageNet", small, POLICIES)
    show("and twice as dense", dense, POLICIES)
    show("restarts for nothing", lists, POLICIES, 0)
    show("plans without reserve", lists, IN_HASTE)


if __name__ == "__main__":
    main()
