"""Run random traces on the engine and on independent replays of published simulators, and compare.

Usage: python benchmarks/random_replays.py muri DATA [--seeds FROM TO]
       python benchmarks/random_replays.py shockwave DATA [--seeds FROM TO]
       python benchmarks/random_replays.py tiresias DATA [--seeds FROM TO]
       python benchmarks/random_replays.py pollux DATA [--seeds FROM TO]

DATA is the folder with the data of Shockwave's artifact, 120-jobs.trace and tacc_throughputs.json: a trace has jobs
drawn from these, at other times, some of them simultaneous, and random shares. For `pollux` it is the folder of the
artifact's measurements. Traces for `muri` and `tiresias` are synthetic. Prints what differs, and how many traces were
compared.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from simsched.errors import InputError
from tests.validation import (
    muri_cases as muri,
    pollux_cases as pollux,
    shockwave_cases as shockwave,
    tiresias_cases as tiresias,
)


def muri_differs(rng: random.Random, data: Path, folder: Path) -> list[str] | None:
    """Return the policies under which the jobs of a random trace do not end at the times of the independent replay.

    None if the trace is refused because two jobs arrive within 1e-9 of each other.
    """
    trace = folder / "trace.csv"
    muri.write_trace(rng, trace, rng.choice([20, 40, 80, 150]))
    try:
        found = muri.ends_by_simsched(trace, folder / "out", tuple(muri.REPLAYS))
    except InputError as error:
        if "within 1e-09" not in str(error):
            raise
        return None
    return [label for label in muri.REPLAYS if found[label] != muri.ends_by_oracle(trace, label)]


def shockwave_differs(rng: random.Random, data: Path, folder: Path) -> list[str] | None:
    """Return what differs from the independent replay for a random trace under random shares: times, ratios, rounds.

    None if there is nothing to compare, according to `shockwave_cases.differs`.
    """
    nodes = rng.choice([1, 2, 4, 8])
    lines = [line.split("\t") for line in (data / "120-jobs.trace").read_text().splitlines()]
    picks = [list(rng.choice(lines)) for _ in range(rng.choice([5, 15, 30, 60]))]
    picks, arrival_s = [cells for cells in picks if int(cells[6]) <= 4 * nodes], 0.0
    for index, cells in enumerate(picks):
        if index and rng.random() >= 0.2:
            arrival_s += round(rng.expovariate(1 / rng.choice([30, 300, 3000])), rng.choice([0, 0, 2]))
        cells[11] = f"{arrival_s:g}" if arrival_s % 1 else str(int(arrival_s))
    trace = folder / "random.trace"
    trace.write_text("\n".join("\t".join(cells) for cells in picks) + "\n")
    return shockwave.differs(rng, trace, data / "tacc_throughputs.json", 4 * nodes, folder)


def tiresias_differs(rng: random.Random, data: Path, folder: Path) -> list[str] | None:
    """Return the schedules of Tiresias's simulator under which a job of a random trace differs."""
    gpus = rng.choice([2, 4, 8, 16, 32])
    rows = tiresias.random_rows(rng, gpus, rng.choice([5, 10, 40, 100]))
    placer = rng.choice(tiresias.PLACERS)
    return [schedule for schedule in tiresias.SCHEDULES if tiresias.differs(rows, gpus, schedule, placer)]


def pollux_differs(rng: random.Random, data: Path, folder: Path) -> list[str] | None:
    """Return the policies under which a job of a random workload does not complete at the oracle's second."""
    case = pollux.Case.drawn(rng, data, folder)
    return [policy for policy in pollux.POLICIES if case.differs(policy)]


DIFFERS: dict[str, Callable[[random.Random, Path, Path], list[str] | None]] = {
    "muri": muri_differs,
    "shockwave": shockwave_differs,
    "tiresias": tiresias_differs,
    "pollux": pollux_differs,
}


def main() -> int:
    """Compare trace by trace; exit 1 if any differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("artifact", choices=DIFFERS)
    parser.add_argument("data", type=Path)
    parser.add_argument("--seeds", type=int, nargs=2, default=[0, 10], metavar=("FROM", "TO"))
    args = parser.parse_args()
    compared = differing = 0
    for seed in range(*args.seeds):
        with tempfile.TemporaryDirectory() as folder:
            found = DIFFERS[args.artifact](random.Random(seed), args.data, Path(folder))
        compared += found is not None
        if found:
            differing += 1
            print(f"seed {seed}: {', '.join(found)}", flush=True)
    print(f"{differing} of {compared} traces differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
