"""Time grids of many cells: checking up to a million of them, and running a thousand of five jobs each.

Usage: python benchmarks/many_cells.py [--check CELLS] [--run CELLS] [--workers N]

Prints CPU and wall seconds and the largest memory of this process; workers have memory of their own.
"""

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from simsched.experiment import Grid, make_grid, read_experiment
from simsched.experiment.running import run_grid

TRACE = "submit_time,num_gpus,duration\n0,1,100\n10,2,50\n20,4,70\n30,1,40\n40,2,60\n"
EXPERIMENT = """\
name: many
cluster: {{nodes: 2, gpus_per_node: 4}}
workload: {{path: jobs.csv, recipe: replay}}
policies: [{{name: fifo}}, {{name: srtf}}]
seeds: {seeds}
sweep: {{engine.restart_delay_s: [{delays}]}}
report: {{plots: false}}
"""


def grid_of(folder: Path, cells: int) -> Grid:
    """Write an experiment of about so many cells, and make its grid."""
    seeds = min(max(cells // 20, 1), 10_000)
    delays = max(cells // (2 * seeds), 1)
    (folder / "jobs.csv").write_text(TRACE)
    path = folder / "many.yaml"
    path.write_text(EXPERIMENT.format(seeds=seeds, delays=", ".join(map(str, range(delays)))))
    return make_grid(read_experiment(path))


def timed(what: str, work: Callable[[], object]) -> None:
    """Do something and print what it cost."""
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    work()
    cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{what}: {cpu_s:.1f} s of CPU, {wall_s:.1f} s, up to {memory} MiB", flush=True)


def main() -> None:
    """Check and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", type=int, default=1_000_000)
    parser.add_argument("--run", type=int, default=1_000)
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if given.check:
            timed(f"checking {given.check} cells", lambda: grid_of(folder, given.check))
        if given.run:
            grid = grid_of(folder, given.run)
            timed(f"running {len(grid.cells)} cells", lambda: run_grid(grid, folder / "out", given.workers))


if __name__ == "__main__":
    main()
