"""Cells run on a dask cluster as they do in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from simsched.errors import InputError
from simsched.experiment.grid import GridCell, make_grid
from simsched.experiment.running.pool import Silence
from simsched.experiment.running.runner import run_grid
from simsched.experiment.validation import read_experiment
from simsched.results.reader import read_run

distributed = pytest.importorskip("distributed", reason="needs the extra 'dask'")

EXPERIMENT = """
name: tiny
cluster: {nodes: 2, gpus_per_node: 4}
workload: {recipe: replay, jobs: 12, max_gpus: 4, until_s: 4000}
policies: [{name: fifo}, {name: srtf}]
seeds: 1
"""


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.yaml"
    path.write_text(EXPERIMENT, encoding="utf-8")
    return path


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_a_dask_cluster_gives_the_same_tables(experiment: Path, tmp_path: Path) -> None:
    grid = make_grid(read_experiment(experiment, ()))
    run_grid(grid, tmp_path / "here")
    with distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as cluster:
        result = run_grid(grid, tmp_path / "there", dask=cluster.scheduler_address)
    assert (result.ran, result.failures) == (2, ())
    pairs = zip(read_run(tmp_path / "here" / "tiny").cells, read_run(tmp_path / "there" / "tiny").cells, strict=True)
    for here, there in pairs:
        for table in ("jobs", "allocations", "rounds"):
            files = [cell.folder / f"{table}.parquet" for cell in (here, there)]
            assert files[0].read_bytes() == files[1].read_bytes()


DEADLY = """
import os, pathlib, signal
from simsched_policies.queues.by_key import Fifo

class Deadly(Fifo):
    \"\"\"Kills the process in which it is used first.\"\"\"

    name = "deadly"

    def decide(self, view, rng):
        try:
            (pathlib.Path(__file__).parent / "killed").touch(exist_ok=False)
        except FileExistsError:
            return super().decide(view, rng)
        os.kill(os.getpid(), signal.SIGKILL)
"""


class Counter(Silence):
    """Keeps the numbers of workers that it is told."""

    def __init__(self) -> None:
        self.told: list[int] = []

    def workers(self, number: int) -> None:
        self.told.append(number)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_the_cells_of_a_worker_that_is_lost_go_to_another(tmp_path: Path) -> None:
    (tmp_path / "deadly.py").write_text(DEADLY, encoding="utf-8")
    path = tmp_path / "tiny.yaml"
    path.write_text(EXPERIMENT.replace("{name: fifo}, {name: srtf}", "{name: 'deadly.py:Deadly'}, {name: fifo}"))
    heard = Counter()
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50
    ) as cluster:
        result = run_grid(
            make_grid(read_experiment(path, ())), tmp_path, listener=heard, dask=cluster.scheduler_address
        )
    assert (tmp_path / "killed").is_file()
    assert (result.ran, result.failures) == (2, ())
    assert heard.told[0] == 2


class Cutter(Counter):
    """Cuts the connection to the scheduler when the first cell is done."""

    def finished(self, cell: GridCell, wall_s: float) -> None:
        client = distributed.default_client()
        if client.scheduler_comm is not None and not self.told[1:]:
            self.told.append(0)
            client.loop.add_callback(client.scheduler_comm.comm.abort)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_cells_are_sent_again_where_the_connection_to_the_scheduler_is_lost(experiment: Path, tmp_path: Path) -> None:
    grid = make_grid(read_experiment(experiment, ["seeds=4"]))
    heard = Cutter()
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
    ) as cluster:
        result = run_grid(grid, tmp_path, listener=heard, dask=cluster.scheduler_address)
    assert heard.told[1:] == [0]
    assert (result.ran, result.failures) == (8, ())


def test_nobody_at_the_address_is_said_clearly(experiment: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no dask scheduler answers at 'nonsense://nowhere'"):
        run_grid(make_grid(read_experiment(experiment, ())), tmp_path, dask="nonsense://nowhere")
