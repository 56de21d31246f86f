"""Print how far schedules are from the lower bounds, by offered load.

Usage: python benchmarks/bound_gap.py [--jobs N] [--gpus N] [--seed N] [--sigma S]

Jobs of 1 to 32 GPUs (shares 25, 20, 20, 15, 10, 10 %) with log-normal durations (median 1 h, sigma 1.8) arrive as a
Poisson process. They run under preemptive greedy lists, which may move jobs for free: least remaining time first, and
the best of those ordered by remaining time x GPUs^b. `simple` is the largest of three bounds: the jobs' own durations,
the single fast machine, and mean busy times without a cap on rates; `prices` is `simsched.bounds`.
"""

from __future__ import annotations

import argparse
import heapq
import time

import numpy as np

from simsched.bounds import RelaxedJobs, Speeds, lower_bound, problem_of, relaxed_jobs

WIDTHS, SHARES = (1, 2, 4, 8, 16, 32), (0.25, 0.2, 0.2, 0.15, 0.1, 0.1)
LOADS = (0.5, 0.8, 0.95, 1.1)
EXPONENTS = np.arange(-0.5, 1.01, 0.125)


def draw(jobs: int, gpus: int, load: float, sigma: float, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return releases, widths and durations in whole seconds."""
    rng = np.random.default_rng(seed)
    widths = rng.choice(WIDTHS, jobs, p=SHARES)
    durations = np.maximum(1, np.round(rng.lognormal(np.log(3600), sigma, jobs))).astype(int)
    release = np.floor(np.cumsum(rng.exponential((widths * durations).mean() / (gpus * load), jobs))).astype(int)
    return release - release[0], widths, durations


def greedy_flow(release: np.ndarray, widths: np.ndarray, durations: np.ndarray, gpus: int, exponent: float) -> float:
    """Return the mean flow time of a preemptive list by remaining time x GPUs^exponent, decided at each event."""
    left, weight = durations.astype(float), widths**exponent
    active: list[int] = []
    now, coming, total, count = 0.0, 0, 0.0, len(release)
    while active or coming < count:
        if not active:
            now = max(now, float(release[coming]))
        while coming < count and release[coming] <= now:
            active.append(coming)
            coming += 1
        active.sort(key=lambda job: left[job] * weight[job])
        free, running = gpus, []
        for job in active:
            if widths[job] <= free:
                free -= widths[job]
                running.append(job)
                if not free:
                    break
        span = min(left[job] for job in running)
        if coming < count:
            span = min(span, release[coming] - now)
        now += span
        for job in running:
            left[job] -= span
            if left[job] <= 0:
                total += now - release[job]
                active.remove(job)
    return total / count


def simple_bound(release: np.ndarray, widths: np.ndarray, durations: np.ndarray, gpus: int) -> float:
    """Return the best of three simple lower bounds of the mean flow time."""
    area = widths * durations / gpus
    fast, busy = _one_machine(release, area, remaining=True)[0], _one_machine(release, area, remaining=False)[1]
    own = durations.mean()
    return float(max(own, fast, busy + own / 2))


def _one_machine(release: np.ndarray, area: np.ndarray, *, remaining: bool) -> tuple[float, float]:
    """Return mean flow time and mean busy time since release of the fast machine."""
    left, queue, now, coming, flow, busy = area.astype(float), [], 0.0, 0, 0.0, 0.0
    count = len(release)
    while queue or coming < count:
        if not queue:
            now = max(now, float(release[coming]))
        while coming < count and release[coming] <= now:
            heapq.heappush(queue, (area[coming], coming))
            coming += 1
        _, job = queue[0]
        span = left[job] if coming == count else min(left[job], release[coming] - now)
        busy += span / area[job] * (now + span / 2 - release[job])
        now, left[job] = now + span, left[job] - span
        if left[job] <= 1e-12 * area[job]:
            heapq.heappop(queue)
            flow += now - release[job]
        elif remaining:
            heapq.heapreplace(queue, (left[job], job))
    return flow / count, busy / count


def rigid(release: np.ndarray, widths: np.ndarray, durations: np.ndarray, gpus: int) -> RelaxedJobs:
    """Return the jobs as `simsched.bounds` takes them."""
    speeds = [Speeds(((int(width), 1.0),)) for width in widths]
    return relaxed_jobs(release.tolist(), durations.astype(float).tolist(), speeds, gpus)


def print_gaps(args: argparse.Namespace) -> None:
    """Print a row for each load, in percent above the bounds."""
    print("load  SRPT/simple  SRPT/prices  best list/prices  (exponent)  seconds")
    for load in LOADS:
        jobs = draw(args.jobs, args.gpus, load, args.sigma, args.seed)
        simple = simple_bound(*jobs, args.gpus)
        began = time.process_time()
        found = lower_bound(rigid(*jobs, args.gpus))
        took_s = time.process_time() - began
        assert problem_of(found.to_json()) == ""
        bound = found.flow_sum / args.jobs
        flows = {float(b): greedy_flow(*jobs, args.gpus, b) for b in EXPONENTS}
        best = min(flows, key=flows.__getitem__)
        shares = (flows[0.0] / simple, flows[0.0] / bound, flows[best] / bound)
        first, second, third = (f"{100 * (share - 1):.2f} %" for share in shares)
        print(f"{load:<5} {first:>11}  {second:>11}  {third:>16}  {best:>10}  {took_s:7.1f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=4000)
    parser.add_argument("--gpus", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sigma", type=float, default=1.8)
    print_gaps(parser.parse_args())
