"""Whether Optimus falls behind fair sharing because trainings differ in length: the same jobs, more and more alike.

    python benchmarks/optimus_lengths.py [LISTS]

The first lists of elasticflow/deadlines, which have no jobs of less than eight minutes, under `optimus` and
`fair-share`, both every 600 s, on 16 nodes of 4 T4: as they are, without the ImageNet trainings, which are three
quarters of the work of some lists, and those of CIFAR-10 alone, which are all of one application, on 8 nodes; these
also with restarts that cost nothing. A line for each: mean JCT under Optimus over that under fair sharing, by list.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection
from pathlib import Path

from simsched_policies.adaptive.optimus import Optimus
from simsched_policies.queues.fair_share import FairShare

from simsched.api import simulate
from simsched.applications import catalogue
from simsched.model import Cluster
from simsched.policy import Policy
from simsched.workload.readers import read_workload

TRAININGS = Path(__file__).parent / "trainings"
ALL = ("imagenet", "yolov3", "bert", "deepspeech2", "cifar10")


def show(title: str, paths: list[Path], kept: Collection[str], nodes: int, restart_delay_s: float = 30) -> None:
    """Print the ratio of each list."""

    def mean_s(path: Path, policy: Policy) -> float:
        jobs = [job for job in read_workload(path) if job.application in kept]
        cluster = Cluster.uniform(nodes, 4, "t4")
        found = simulate(
            jobs=jobs, policy=policy, cluster=cluster, applications=catalogue(), restart_delay_s=restart_delay_s
        )
        return float(found.jobs["jct_s"].mean())

    ratios = [mean_s(path, Optimus(interval_s=600)) / mean_s(path, FairShare(interval_s=600)) for path in paths]
    print(f"{title:<28}", *(f"{ratio:.2f}" for ratio in ratios), sep="  ", flush=True)


def main() -> None:
    """Print a line for each choice of jobs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lists", type=int, nargs="?", default=5)
    paths = sorted(TRAININGS.glob("*.csv"))[: parser.parse_args().lists]
    show("as they are", paths, ALL, 16)
    show("without ImageNet", paths, ALL[1:], 16)
    show("CIFAR-10 alone", paths, ALL[4:], 8)
    show("and restarts for nothing", paths, ALL[4:], 8, 0)


if __name__ == "__main__":
    main()
