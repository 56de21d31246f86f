"""What an attack found, where nothing else would notice that it has come back."""

import errno
import os
import tomllib
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from matplotlib.figure import Figure

from simsched import files
from simsched.errors import InputError
from simsched.experiment.grid import make_grid
from simsched.experiment.running.runner import run_grid
from simsched.experiment.running.store import Store
from simsched.experiment.validation import read_experiment
from simsched.report.figures import save
from simsched.results import integrity
from simsched.results.fairness import read_fairness
from simsched.results.reader import read_table

ROOT = Path(__file__).resolve().parents[2]
EXPERIMENT = """\
name: tiny
cluster: {nodes: 1, gpus_per_node: 4}
workload: {path: jobs.csv, recipe: replay}
policies: [{name: 'fragile.py:Fragile'}]
report: {plots: false}
"""
FRAGILE = """
from pathlib import Path
from simsched.policy import Decision, Policy

class Fragile(Policy):
    name = "fragile"

    def decide(self, view, rng):
        if Path(__file__).with_name("break").exists():
            raise RuntimeError("broken")
        return Decision({job: ((0, view.jobs[job].num_gpus),) for job in list(view.jobs)[:1]})
"""


@pytest.fixture
def make(tmp_path):
    (tmp_path / "jobs.csv").write_text("submit_time,num_gpus,duration\n0,1,100\n10,2,50\n")
    (tmp_path / "fragile.py").write_text(FRAGILE)
    (tmp_path / "e.yaml").write_text(EXPERIMENT)
    return lambda: make_grid(read_experiment(tmp_path / "e.yaml"))


def test_a_cell_that_failed_is_tried_again_by_the_next_run(make, tmp_path):
    (tmp_path / "break").touch()
    first = run_grid(make(), tmp_path / "out")
    (failure,) = first.failures
    assert failure.message.startswith("RuntimeError in policy 'fragile' (")
    assert failure.message.endswith("): broken")
    (tmp_path / "break").unlink()
    second = run_grid(make(), tmp_path / "out")
    assert (second.ran, second.reused, second.failures) == (1, 0, ())


def test_a_flipped_bit_in_a_page_is_noticed_by_whoever_reads_the_table(make, tmp_path):
    run_grid(make(), tmp_path / "out")
    cell = next((tmp_path / "out/tiny/cells").iterdir())
    path = cell / "allocations.parquet"
    column = pq.ParquetFile(path).metadata.row_group(0).column(1)
    content = bytearray(path.read_bytes())
    content[column.data_page_offset + column.total_compressed_size - 1] ^= 1  # the last byte of the column's page
    path.write_bytes(content)
    with pytest.raises(InputError, match="cannot be read as Parquet"):
        read_table(cell, "allocations")


def test_a_cell_is_on_disk_before_it_gets_its_name(make, tmp_path, monkeypatch):
    synced = []

    def note(paths):
        synced.extend((path.name, path.exists()) for path in paths)
        files.sync_all(paths)

    monkeypatch.setattr(integrity, "sync_all", note)
    run_grid(make(), tmp_path / "out", in_process=True)
    names = [name for name, there in synced if there]
    tables = ["allocations.parquet", "jobs.parquet", "rounds.parquet"]
    assert names[:5] == [*tables, "summary.json", "manifest.json"]
    assert names[5].startswith(".tmp-")
    assert Store(tmp_path / "out/tiny").has(next((tmp_path / "out/tiny/cells").iterdir()).name)


def test_a_file_that_cannot_be_put_on_disk_is_reported_among_others(tmp_path, monkeypatch):
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(name)
    real = os.fsync

    def refuse(descriptor):
        if os.fstat(descriptor).st_ino == (tmp_path / "b").stat().st_ino:
            raise OSError(errno.EIO, "Input/output error")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match=r"b'$"):
        files.sync_all([tmp_path / "a", tmp_path / "b", tmp_path / "c", tmp_path])
    files.sync_all([])


def test_no_cell_of_a_sheet_is_a_formula(tmp_path):
    table = pd.DataFrame({"policy": ["=1+1", "+a", "-b", "@c", "plain"], "mean": [-1.0, 2.0, 3.0, 4.0, 5.0]})
    save(Figure(), table, tmp_path, "bars", ())
    saved = pd.read_csv(tmp_path / "bars.csv")
    assert saved["policy"].tolist() == ["'=1+1", "'+a", "'-b", "'@c", "plain"]
    assert saved["mean"].tolist() == table["mean"].tolist()


def test_only_the_housekeeping_of_pytest_is_spared():
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    first, *spared = options["filterwarnings"]
    assert first == "error"
    assert all(line.endswith((":pytest.PytestCacheWarning", ":pytest.PytestWarning")) for line in spared)
    assert {line.split(":")[1] for line in spared} >= {"could not create cache path", "\\(rm_rf\\)"}


@pytest.mark.parametrize("number", ["1e308", "inf", "-1e16", "x"])
def test_ratios_beyond_all_reach_are_refused(tmp_path, number):
    path = tmp_path / "rho.csv"
    path.write_text(f"job_id,contention,solo_s,rho\na,1,100,{number}\n")
    with pytest.raises(InputError, match="its column 'rho' holds what is not a number in reach"):
        read_fairness(path)
    path.write_text("job_id,contention,solo_s,rho\na,1,100,1.5\n")
    assert list(read_fairness(path)["rho"]) == [1.5]
