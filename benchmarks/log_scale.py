"""Time the reading of generated `sacct -P` logs, and `simsched calibrate` on them.

Usage: python -m benchmarks.log_scale LINES... [--calibrate]

The logs have the features of real ones: steps, arrays, requeued jobs, reused job ids, jobs that never started, are
still running, or end before they start, truncated lines, and timestamps of a zone with summer time. Every line is
measured in a separate process: the CPU time of all processes that it starts, the memory of the largest.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.compare import measured

HEADER = "JobID|User|Account|Partition|QOS|Submit|Eligible|Start|End|ElapsedRaw|TimelimitRaw|ReqTRES|AllocTRES|State"
HEADER += "|Priority|NodeList"
SIZES, SHARES = (0, 1, 2, 4, 8, 16, 64), (0.1, 0.5, 0.12, 0.1, 0.13, 0.04, 0.01)
STATES, OF_STATES = ("COMPLETED", "FAILED", "CANCELLED by 1001", "TIMEOUT"), (0.7, 0.15, 0.1, 0.05)
JOBS_A_DAY = 2740
ZONE = "Europe/Berlin"


def write_log(path: Path, lines: int, seed: int = 1) -> int:
    """Write a log of this many lines below its header; return how many of them are jobs."""
    rng = np.random.default_rng(seed)
    jobs = lines  # more than enough: some have several lines
    gpus = rng.choice(SIZES, size=jobs, p=SHARES).tolist()
    submits = (1_700_000_000 + np.cumsum(rng.exponential(86400 / JOBS_A_DAY, size=jobs))).astype("int64")
    waits = rng.exponential(1800, size=jobs).astype("int64")
    lasts = np.clip(rng.lognormal(7.5, 1.6, size=jobs), 10, 5 * 86400).astype("int64")
    moments = [_texts(submits), _texts(submits + 5), _texts(submits + 5 + waits), _texts(submits + 5 + waits + lasts)]
    states = rng.choice(STATES, size=jobs, p=OF_STATES).tolist()
    fate = rng.random(jobs).tolist()
    users, nodes = rng.integers(0, 300, size=jobs).tolist(), rng.integers(1, 2000, size=jobs).tolist()
    written = 0
    with path.open("w", encoding="utf-8") as file:
        file.write(HEADER + "\n")
        for job in range(jobs):
            times = [texts[job] for texts in moments]
            tres = f"billing=8,cpu={8 * gpus[job] or 4},mem=64G,node={-(-gpus[job] // 8) or 1}"
            tres += f",gres/gpu:a100={gpus[job]},gres/gpu={gpus[job]}" if gpus[job] else ""
            name = f"{job // 5 * 5 + 100_000}_{job % 5}" if fate[job] < 0.2 else f"{job + 100_000}"
            state, elapsed = states[job], int(lasts[job])
            rows = [(name, times, elapsed, state)]
            if fate[job] > 0.998:
                rows = [(name, [*times[:2], "Unknown", "Unknown"], 0, "PENDING")]
            elif fate[job] > 0.997:
                rows = [(name, [*times[:2], times[3], times[2]], 0, state)]
            elif fate[job] > 0.99:
                rows.insert(0, (name, [*times[:2], times[1], times[2]], int(waits[job]), "NODE_FAIL"))
            elif fate[job] > 0.9:
                rows += [(f"{name}.{step}", times, elapsed, "COMPLETED") for step in ("batch", "extern")]
            user, node = users[job], nodes[job]
            for one, stamps, seconds, final in rows:
                cells = (one, f"user{user}", f"lab{user % 12}", f"part{user % 4}", "normal", *stamps, f"{seconds}",
                         f"{(seconds // 60 + 60) * 2}", tres, tres, final, f"{user * 100}", f"g{node:04d}")  # fmt: skip
                text = "|".join(cells)
                file.write((text[:60] if fate[job] < 1e-4 else text) + "\n")
                written += 1
                if written == lines:
                    return job + 1
    return jobs


def _texts(seconds: np.ndarray) -> list[str]:
    """Format seconds as sacct does, with a common width."""
    local = seconds + 3600
    return np.datetime_as_string(local.astype("datetime64[s]")).tolist()


def calibrate(path: Path) -> str:
    """Run the command in this process."""
    from click.testing import CliRunner

    from simsched.cli import cli

    with tempfile.TemporaryDirectory() as out:
        words = ["calibrate", str(path), "--policy", "slurm-backfill", "--time-zone", ZONE, "--out", out]
        done = CliRunner().invoke(cli, words, prog_name="simsched")
    return done.output.splitlines()[-1] if done.exit_code else "calibrated"


def read(path: Path) -> str:
    """Read a log and count its jobs."""
    from simsched.workload.readers import read_sacct

    return f"{len(read_sacct(path, time_zone=ZONE))} jobs"


TASKS = {"read": read, "calibrate": calibrate}


def main() -> None:
    """Write a log of each size and measure it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lines", nargs="*", type=int, default=[10_000, 100_000])
    parser.add_argument("--calibrate", action="store_true", help="Run `simsched calibrate` too.")
    parser.add_argument("--one", nargs=2, metavar=("FILE", "TASK"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(TASKS[given.one[1]](Path(given.one[0])))
        return
    with tempfile.TemporaryDirectory() as folder:
        for lines in given.lines:
            path = Path(folder) / "sacct.txt"
            jobs = write_log(path, lines)
            print(f"{lines} lines, {jobs} jobs, {path.stat().st_size / 2**20:.0f} MiB", flush=True)
            for task in TASKS if given.calibrate else ("read",):
                began_s = time.perf_counter()
                cpu_s, mib = measured([sys.executable, __file__, "--one", str(path.resolve()), task], Path(folder))
                said = (Path(folder) / "said.txt").read_text().splitlines()[-1]
                wall_s = time.perf_counter() - began_s
                print(f"{task:>9}  {cpu_s:7.1f} s CPU  {wall_s:7.1f} s  {mib:6.0f} MiB  {said}", flush=True)


if __name__ == "__main__":
    main()
