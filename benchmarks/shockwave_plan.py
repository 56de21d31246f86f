"""Compare an independent plan of Shockwave's with the published run: `python -m benchmarks.shockwave_plan FOLDER`.

FOLDER holds the published trace and rates (`120-jobs.trace`, `tacc_throughputs.json`). Plans and mechanism are those of
the tests, on 32 GPUs; `simsched run shockwave/table` gives the results of simsched's plan.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from simsched.threads import one_thread_each
from tests.validation.oracles.shockwave_plan import Planner, Setting
from tests.validation.oracles.shockwave_replay import read, replay

#: Makespan and mean completion time in seconds, worst finish-time fairness, share of jobs above 1.1.
PUBLISHED = (24_197.0, 9_958.0, 1.784, 0.05)


def main() -> None:
    """Run the trace and print the results next to the published ones."""
    one_thread_each()
    folder, begun = Path(sys.argv[1]), time.process_time()
    jobs, regimes = read(folder / "120-jobs.trace", folder / "tacc_throughputs.json")
    planner = Planner(regimes, Setting(32, gap=1e-3))
    outcome = replay(jobs, regimes, lambda *_: {}, choose=planner)
    seconds = time.process_time() - begun
    ratios = list(outcome.rho.values())
    unfair = sum(ratio > 1.1 for ratio in ratios) / len(ratios)
    figures = (outcome.makespan_s, sum(outcome.jct_s.values()) / len(ratios), max(ratios), unfair)
    names = ("makespan_s", "mean_jct_s", "worst_rho", "unfair")
    for name, figure, published in zip(names, figures, PUBLISHED, strict=True):
        print(f"{name:12} {figure:10.3f}  published {published:10.3f}")
    print(f"{planner.plans} plans, {planner.fair_plans} of them fair, {seconds:.1f} s of CPU")


if __name__ == "__main__":
    main()
