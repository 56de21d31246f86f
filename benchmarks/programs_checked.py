"""Check every program against a second solver on random instances, and print its distance from the optimum.

Usage: python -m benchmarks.programs_checked [--instances N] [--program NAME]

Rates lie between a thousandth and a thousand steps per second, steps between one and a million; two of three instances
are degenerate in some way (rates of zero, jobs larger than the cluster, equal jobs, one job, one GPU type, a type
without GPUs, jobs without remaining work). The second solver is scipy's, given the formulas row by row
(`tests/validation/oracles/programs.py`). `worst` is the greatest relative difference of objectives, `apart` counts
instances with one above 1e-6; shares beyond a job's time or a type's GPUs by more than 2e-9 end the run.
"""

import argparse
import time

from simsched.threads import one_thread_each
from tests.validation.oracles.second_solver import COMPARED

#: The relative difference of objectives up to which two solvers agree.
MOST_APART = 1e-6


def main() -> int:
    """Print one line for each program; return 1 if one of them is not at its optimum."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=500)
    parser.add_argument("--program", choices=COMPARED)
    args = parser.parse_args()
    one_thread_each()
    print(f"{'program':26}{'instances':>10}{'apart':>7}{'worst':>9}{'seed':>6}{'CPU s':>8}")
    wrong = 0
    for name, compared in COMPARED.items():
        if args.program in (None, name):
            start_s = time.process_time()
            apart = [compared(seed) for seed in range(args.instances)]
            worst = max(range(args.instances), key=apart.__getitem__)
            many = sum(not one <= MOST_APART for one in apart)
            seconds = time.process_time() - start_s
            print(f"{name:26}{args.instances:10d}{many:7d}{apart[worst]:9.1e}{worst:6d}{seconds:8.1f}", flush=True)
            wrong += many
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
