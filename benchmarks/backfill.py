"""Measure backfill alone: a synthetic year of jobs on one pool of GPUs, a pass at every arrival and completion.

Run `python benchmarks/backfill.py [JOBS] [GPUS] [easy|conservative] [INTERVAL_S]`; prints one line of figures. With an
interval, passes are at most that often, as Slurm's are every 30 seconds.
"""

from __future__ import annotations

import heapq
import sys
import time

import numpy as np
from simsched_policies.production.slurm.backfill import Releases


def workload(jobs: int, gpus: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Draw submissions over a year, sizes, limits and run times that load the pool to 0.93, on busy and quiet days."""
    rng = np.random.default_rng(1)
    sizes = rng.choice([1, 2, 4, 8, 16, 64], size=jobs, p=[0.5, 0.1, 0.12, 0.2, 0.06, 0.02]).astype(np.int64)
    runs = rng.lognormal(7.5, 2.0, jobs).clip(1, 7 * 86400)
    for _ in range(20):
        runs = (runs * (0.93 * gpus * 365 * 86400 / float(sizes @ runs))).clip(1, 14 * 86400)
    runs = runs.astype(np.int64) + 1
    limits = (runs * rng.uniform(1, 5, jobs)).astype(np.int64) + 60
    days = rng.choice(365, jobs, p=rng.dirichlet(np.full(365, 8.0)))
    submit = np.sort(days * 86400 + rng.integers(0, 86400, jobs))
    return submit, sizes, limits, runs


def replay(jobs: int, gpus: int, kind: str, interval_s: int) -> tuple[int, float, int]:
    """Replay the jobs in order of submission; return passes, mean wait in seconds and the longest queue."""
    submit, sizes, limits, runs = workload(jobs, gpus)
    releases, free, done = Releases(4096), gpus, []
    waiting = np.empty(0, dtype=np.int64)
    arrived, passes, waited, longest, now, last, changed = 0, 0, 0.0, 0, 0, -interval_s, False
    while arrived < jobs or len(waiting) or done:
        times = [done[0][0]] if done else []
        times += [int(submit[arrived])] if arrived < jobs else []
        if len(waiting) and changed and last + interval_s > now:
            times.append(last + interval_s)
        now, changed = min(times), True
        while done and done[0][0] == now:
            _, end, size = heapq.heappop(done)
            releases.remove(end, size)
            free += size
        first = arrived
        while arrived < jobs and submit[arrived] == now:
            arrived += 1
        waiting = np.concatenate([waiting, np.arange(first, arrived)])
        longest = max(longest, len(waiting))
        if not len(waiting) or now < last + interval_s or free == 0:
            continue
        passes, last, changed = passes + 1, now, False
        if kind == "easy":
            starts = releases.easy(free, now, sizes[waiting], limits[waiting])
        else:
            starts = releases.conservative(free, now, sizes[waiting], limits[waiting]) == now
        for job in waiting[starts].tolist():
            size, end = int(sizes[job]), now + int(limits[job])
            releases.add(end, size)
            free -= size
            waited += now - int(submit[job])
            heapq.heappush(done, (now + int(runs[job]), end, size))
        waiting = waiting[~starts]
    return passes, waited / jobs, longest


def main() -> None:
    """Read the arguments, replay, print."""
    given = sys.argv[1:]
    jobs = int(given[0]) if given else 100_000
    gpus = int(given[1]) if len(given) > 1 else 16_000
    kind = given[2] if len(given) > 2 else "easy"
    interval_s = int(given[3]) if len(given) > 3 else 0
    replay(100, 64, kind, 0)
    begin = time.process_time()
    passes, wait, longest = replay(jobs, gpus, kind, interval_s)
    seconds = time.process_time() - begin
    print(
        f"{kind}: {jobs} jobs, {gpus} GPUs, {passes} passes, mean wait {wait:.0f} s, queue {longest}: {seconds:.1f} s"
    )


if __name__ == "__main__":
    main()
