"""Run a grid of many tiny cells over dask with several worker processes, one of which is killed on the way.

Usage: python benchmarks/dask_cells.py [--cells N] [--workers N] [--no-kill]

Scheduler and workers are processes of their own, so that the memory printed is that of the process that a user starts,
as sampled. Prints each time the number of workers as the user is told it, what a cell took, and how long after the kill
the last of the cells was done that the killed worker had at that moment.
"""

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from many_cells import grid_of

from simsched.experiment import GridCell
from simsched.experiment.running import Silence, run_grid


class Clock(Silence):
    """Prints the number of workers, and kills one when a third of the cells are done."""

    def __init__(self, address: str, cells: int, *, kill: bool) -> None:
        """Look at the scheduler at `address`."""
        from distributed import Client

        self._client = Client(address)
        self._kill_at = cells // 3 if kill else -1
        self._begin = time.perf_counter()
        self._done = 0
        self._lost: set[str] = set()
        self._killed_s = 0.0

    def wait_for(self, workers: int) -> None:
        """Wait until so many workers are there."""
        self._client.wait_for_workers(workers)

    def close(self) -> None:
        """Leave the scheduler."""
        self._client.close()

    def workers(self, number: int) -> None:
        """Print what the user is told."""
        print(f"{time.perf_counter() - self._begin:7.1f} s: {number} workers, {self._done} cells done", flush=True)

    def finished(self, cell: GridCell, wall_s: float) -> None:
        """Count a cell, and note when the last one that was on the killed worker is done."""
        self._done += 1
        if self._done == self._kill_at:
            self._kill()
        if cell.task.key in self._lost:
            self._lost.discard(cell.task.key)
            if not self._lost:
                waited = time.perf_counter() - self._killed_s
                print(f"the last cell of the killed worker was done {waited:.1f} s after the kill", flush=True)

    def _kill(self) -> None:
        processing: dict[str, Any] = {worker: list(keys) for worker, keys in self._client.processing().items()}
        worker = max(processing, key=lambda name: len(processing[name]))
        pid = self._client.run(os.getpid, workers=[worker])[worker]
        self._lost = set(map(str, processing[worker]))
        self._killed_s = time.perf_counter()
        os.kill(pid, signal.SIGKILL)
        print(f"killed the worker {worker}, which had {len(self._lost)} cells", flush=True)


def started(folder: Path, workers: int) -> tuple[str, list[subprocess.Popen[bytes]]]:
    """Start a scheduler and workers of one thread each; returns the address, and the processes to stop."""
    file = folder / "scheduler.json"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0", "--scheduler-file", str(file)]
    scheduler = subprocess.Popen([*command, "--host", "127.0.0.1", "--no-dashboard"], **quiet)  # type: ignore[call-overload]
    while not file.is_file() or not file.read_text().strip():
        time.sleep(0.2)
    address = json.loads(file.read_text())["address"]
    command = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nworkers", str(workers)]
    own = subprocess.Popen([*command, "--nthreads", "1", "--no-dashboard"], **quiet)  # type: ignore[call-overload]
    return address, [own, scheduler]


def main() -> None:
    """Run the grid and print what it cost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=2_000)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--no-kill", dest="kill", action="store_false", help="let all workers live")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        grid = grid_of(folder, given.cells)
        address, processes = started(folder, given.workers)
        try:
            heard = Clock(address, len(grid.cells), kill=given.kill)
            heard.wait_for(given.workers)
            wall_s, cpu_s = time.perf_counter(), time.process_time()
            result = run_grid(grid, folder / "out", listener=heard, dask=address)
            wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
            heard.close()
        finally:
            for process in processes:
                process.terminate()
                process.wait()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{result.ran} cells over {given.workers} workers: {wall_s:.1f} s, {len(result.failures)} failed")
    print(f"the parent took {1000 * cpu_s / given.cells:.1f} ms of CPU a cell, and up to {memory} MiB")
    if result.failures:
        print(f"the first failure: {result.failures[0].message}")


if __name__ == "__main__":
    main()
