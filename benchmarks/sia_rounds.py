"""Time the rounds of Sia, Pollux and Gavel on the heterogeneous cluster of Sia's evaluation.

Usage: python benchmarks/sia_rounds.py [--hours H] [--seed N] [--policy NAME ...]

24 T4, 24 RTX 2080 Ti and 16 A100, Philly's mix, the first H hours. A round is a decision of the policy with a job in
the system; for Gavel, whose rounds last 360 s, only decisions that start a round count. CPU milliseconds, one thread.
Published (Sia, SOSP'23, section 5.6): median and 95th percentile of 96 and 426 ms for Sia, 2,200 and 4,800 for Pollux,
13 and 28 for Gavel.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from simsched_policies.adaptive.pollux import Pollux
from simsched_policies.adaptive.sia import Sia
from simsched_policies.rounds.gavel.throughput import MaxThroughput

from simsched.applications import ApplicationsOptions, catalogue, initial_batch_sizes, tuned_configurations
from simsched.engine import EngineOptions, MemoryRecorder, simulate
from simsched.model import Cluster, NodeGroup
from simsched.policy import Decision, Policy, View
from simsched.threads import one_thread_each
from simsched.workload import WorkloadOptions, make_workload

POLICIES: dict[str, Callable[[], Policy]] = {"sia": Sia, "pollux": lambda: Pollux(fairness=-1), "gavel": MaxThroughput}
PUBLISHED_MS = {"sia": (96, 426), "pollux": (2200, 4800), "gavel": (13, 28)}
#: Gavel's round, in seconds.
ROUND_S = 360
GROUPS = (NodeGroup(6, 4, "t4"), NodeGroup(3, 8, "rtx"), NodeGroup(2, 8, "a100"))


class EnoughError(Exception):
    """The hours are over."""


def rounds_ms(name: str, hours: float, seed: int) -> list[float]:
    """Return the CPU milliseconds of the rounds of a policy in the first hours."""
    policy, taken = POLICIES[name](), []
    decide: Any = policy.decide

    def timed(view: View, rng: np.random.Generator) -> Decision:
        if view.now_s > hours * 3600:
            raise EnoughError
        begun = time.process_time()
        decision: Decision = decide(view, rng)
        seconds = time.process_time() - begun
        begins = name != "gavel" or decision.wake_at_s == view.now_s + ROUND_S
        if view.jobs and begins:
            taken.append(1000 * seconds)
        return decision

    policy.decide = timed  # type: ignore[method-assign]
    apps = catalogue(ApplicationsOptions(extra_types="sia"))
    options = WorkloadOptions(recipe="sia", mix="philly", max_gpus=16)
    known = apps.applications
    jobs = make_workload(options, seed, tuned_configurations(known), initial_batch_sizes(known))
    with suppress(EnoughError):
        simulate(Cluster.of(*GROUPS), jobs, apps, policy, EngineOptions(restart_delay_s=30), seed, MemoryRecorder())
    return taken


def main() -> None:
    """Print a row for each policy, the published milliseconds in brackets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--policy", nargs="+", choices=sorted(POLICIES), default=list(POLICIES))
    given = parser.parse_args()
    one_thread_each()
    print("policy rounds median_ms p95_ms")
    for name in given.policy:
        taken = rounds_ms(name, given.hours, given.seed)
        (median, late), (published, published_late) = np.percentile(taken, [50, 95]), PUBLISHED_MS[name]
        print(f"{name} {len(taken)} {median:.1f} ({published}) {late:.1f} ({published_late})", flush=True)


if __name__ == "__main__":
    main()
