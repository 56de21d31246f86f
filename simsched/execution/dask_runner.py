"""Runs cells on a dask cluster, for sweeps beyond one machine.

Every worker must have simsched installed in the same version, and see the results folder under the same path.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from simsched.errors import input_error
from simsched.execution.manifest import describe_environment
from simsched.execution.outcome import Outcome, WorkerDiedError, run_to_outcome, say_nothing
from simsched.experiment.grid import GridCell


def run_on_dask(address: str, missing: Sequence[GridCell], folder: Path) -> Iterator[tuple[GridCell, Outcome]]:
    """Run cells on the scheduler at `address` and yield them as they finish.

    Raises `InputError` where the optional dependency is missing or nobody answers at the address, and
    `WorkerDiedError` where workers died over a cell.
    """
    try:
        from distributed import Client, as_completed
        from distributed.scheduler import KilledWorker
    except ImportError:
        remedy = "install it with pip install 'simsched[dask]'"
        raise input_error("--dask", "the package 'distributed' is not installed", remedy) from None
    try:
        client = Client(address, timeout="10s")
    except (OSError, ValueError, TimeoutError) as error:
        raise input_error("--dask", f"no dask scheduler answers at '{address}': {error}", "start one first") from None
    environment = describe_environment()
    with client:
        futures = {
            client.submit(
                run_to_outcome, cell.task, folder.resolve(), environment, say_nothing, key=cell.task.key
            ): cell
            for cell in missing
        }
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except KilledWorker as error:
            message = f"dask workers died: {error}"
            raise WorkerDiedError(message) from error
