"""Time Sia's program on growing clusters: `python benchmarks/sia.py [GPUS ...]`.

Half of the GPUs are T4, the rest RTX and A100 in equal parts, in nodes of 4, 8 and 8. There is one job for every two
GPUs, as adaptive as the policy allows, with goodputs drawn from a seed; CPU seconds of building and solving one round.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from simsched.threads import one_thread_each
from simsched.toolkit.programs import choose, configurations, offers_of, restart_factor, values

SEEDS = (1, 2, 3)


def round_of(gpus: int, seed: int) -> tuple[float, float, int, int]:
    """Return the CPU seconds of building and of solving one round, its offers and the jobs that got GPUs."""
    rng = np.random.default_rng(seed)
    groups = {"a100": (gpus // 32, 8), "rtx": (gpus // 32, 8), "t4": (gpus // 8, 4)}
    types = {name: index for index, name in enumerate(sorted(groups))}
    kinds = configurations(groups)
    type_of = np.array([types[kind.gpu_type] for kind in kinds])
    size = np.array([kind.gpus for kind in kinds])
    begun = time.process_time()
    rows = []
    for _ in range(gpus // 2):
        speed, scaling, most = rng.uniform(0.5, 4.0, len(types)), rng.uniform(0.4, 1.0), 2 ** int(rng.integers(0, 7))
        allowed = np.flatnonzero(size <= most)
        goodputs = speed[type_of[allowed]] * size[allowed] ** scaling
        factor = restart_factor(float(rng.uniform(60, 36_000)), int(rng.integers(0, 5)), 30.0)
        worth = values(goodputs, size[allowed], int(rng.integers(-1, len(allowed))), factor)
        rows.append((type_of[allowed].tolist(), size[allowed].tolist(), worth.tolist()))
    offers = offers_of(rows)
    built = time.process_time()
    room = np.array([groups[name][0] * groups[name][1] for name in sorted(groups)])
    chosen = choose(offers, room, len(rows))
    return built - begun, time.process_time() - built, len(offers.job), int((chosen >= 0).sum())


def main() -> None:
    """Print a line for each size of cluster and seed."""
    one_thread_each()
    print("GPUs  seed  offers  served  build_s  solve_s")
    for gpus in [int(word) for word in sys.argv[1:]] or [64, 256, 512, 1024, 2048]:
        for seed in SEEDS:
            build_s, solve_s, offers, served = round_of(gpus, seed)
            print(f"{gpus:4d}  {seed:4d}  {offers:6d}  {served:6d}  {build_s:7.3f}  {solve_s:7.3f}", flush=True)


if __name__ == "__main__":
    main()
