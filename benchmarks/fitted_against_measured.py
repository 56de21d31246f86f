"""Run the same job lists on fitted applications and on the measurements they were fitted to, and compare mean JCT.

Usage: python benchmarks/fitted_against_measured.py TRACES PHILLY [--seeds 101-116] [--pollux-seeds N]

TRACES is the folder of measurements, PHILLY the CSV of Philly's jobs that the job lists are drawn from
(docs/validation.md and docs/shipped-applications.md). Each row compares, by workload, runs in which the step times
given to the policy (decisions) and those at which jobs train (physics) are fitted or measured, with runs on
measurements alone. It shows the mean ratio with the 95 % interval of Student's t over workloads.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import numpy as np
from simsched_policies.adaptive.optimus import Optimus
from simsched_policies.adaptive.pollux import Pollux
from simsched_policies.queues.tiresias import Tiresias

from simsched.applications import ApplicationCatalogue, initial_batch_sizes, tuned_configurations
from simsched.engine import EngineOptions, MemoryRecorder, simulate
from simsched.model import Application, BatchChoice, Cluster, JobSpec, Running, Site, StepTime
from simsched.results import estimate
from simsched.workload.readers import read_trace
from simsched.workload.recipes import PolluxRecipe, draw_workload

POLICIES = {"tiresias": Tiresias, "optimus": Optimus, "pollux": Pollux}
FITTED, MEASURED = "fitted", "measured"


class Split:
    """An application that gives policies other step times and remaining iterations than those at which it trains."""

    def __init__(self, decisions: Application, physics: Application) -> None:
        """Take the values given to policies from `decisions`, all others from `physics`."""
        self._decisions, self._physics = decisions, physics

    def __getattr__(self, name: str) -> object:
        """Delegate everything not defined here to the physics."""
        return getattr(self._physics, name)

    def step_time(self, site: Site, local_bsz: int) -> StepTime:
        """Return the step time given to policies."""
        return self._decisions.step_time(site, local_bsz)

    def iterations(self, batch_size: float, epoch: int) -> float:
        """Return the iterations given to policies."""
        return self._decisions.iterations(batch_size, epoch)

    def run(self, site: Site, batch: BatchChoice, epoch: int) -> Running:
        """Return how the job trains."""
        return self._physics.run(site, batch, epoch)


def row_of(policy: str, decisions: str, physics: str, ratios: Sequence[float]) -> str:
    """Return a row of a Markdown table: mean JCT of each workload, by what is fitted, over that on measurements."""
    found, worst = estimate(ratios), max(ratios, key=lambda ratio: abs(ratio - 1)) - 1
    wide = math.nan if found.half_width is None else found.half_width
    return f"| {policy} | {decisions} | {physics} | {found.n} | {found.mean - 1:+.1%} ±{wide:.1%} | {worst:+.1%} |"


def mean_jct_s(jobs: Sequence[JobSpec], applications: ApplicationCatalogue, policy: str) -> float:
    """Run a workload on the published cluster, under the policy's defaults and seed 1."""
    recorder = MemoryRecorder()
    simulate(Cluster.uniform(), jobs, applications, POLICIES[policy](), EngineOptions(), 1, recorder)
    return float(np.mean([job.jct_s for job in recorder.jobs]))


def mixed(
    fitted: Mapping[str, Application], measured: Mapping[str, Application], decisions: str, physics: str
) -> ApplicationCatalogue:
    """Combine two catalogues of the same names."""
    known = {FITTED: fitted, MEASURED: measured}
    if decisions == physics:
        return ApplicationCatalogue(known[decisions], decisions)
    split = {name: cast(Application, Split(known[decisions][name], known[physics][name])) for name in measured}
    return ApplicationCatalogue(split, f"decisions {decisions}, physics {physics}")


def ways(policy: str) -> list[tuple[str, str]]:
    """List what may be fitted: only Optimus receives step times separate from those of its jobs."""
    both = [(FITTED, FITTED)]
    return [*both, (FITTED, MEASURED), (MEASURED, FITTED)] if policy == "optimus" else both


def seeds_of(text: str) -> list[int]:
    """Read '101-116' or '1,2,6'."""
    parts = [part.split("-") for part in text.split(",")]
    return [seed for part in parts for seed in range(int(part[0]), int(part[-1]) + 1)]


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=Path)
    parser.add_argument("philly", type=Path)
    parser.add_argument("--seeds", type=seeds_of, default=seeds_of("101-116"))
    parser.add_argument("--pollux-seeds", type=int, default=6, help="under Pollux, only so many of the workloads")
    args = parser.parse_args()
    measured = ApplicationCatalogue.load(args.traces, bounds="pollux-osdi21").applications
    shipped = ApplicationCatalogue.load(None).applications
    fitted = {name: shipped[name] for name in measured}
    jobs = draw(args.philly, measured, args.seeds)
    print("| policy | decisions | physics | workloads | mean JCT relative to measured | largest deviation |")
    print("|---|---|---|---:|---:|---:|")
    for policy in ("pollux", "tiresias", "optimus"):
        chosen = args.seeds[: args.pollux_seeds] if policy == "pollux" else args.seeds
        began = time.process_time()
        truth = ApplicationCatalogue(measured, MEASURED)
        base = {seed: mean_jct_s(jobs[seed], truth, policy) for seed in chosen}
        for decisions, physics in ways(policy):
            known = mixed(fitted, measured, decisions, physics)
            ratios = [mean_jct_s(jobs[seed], known, policy) / base[seed] for seed in chosen]
            print(row_of(policy, decisions, physics, ratios), flush=True)
        print(f"{policy}: {time.process_time() - began:.0f} s of CPU", file=sys.stderr)
    return 0


def draw(philly: Path, measured: Mapping[str, Application], seeds: Sequence[int]) -> dict[int, list[JobSpec]]:
    """Draw the job lists by Pollux's recipe: load 1, tuned configurations, computed from the measurements."""
    trace, tuned, initial = read_trace(philly), tuned_configurations(measured), initial_batch_sizes(measured)
    return {seed: draw_workload(trace, PolluxRecipe(configs="tuned"), seed, tuned, initial) for seed in seeds}


if __name__ == "__main__":
    sys.exit(main())
