"""Cells that fail in every way fail alone; what is damaged is noticed; what is wrong is said before anything runs."""

import json
import os
import sys

import pytest

from simsched.experiment.running import cell as cell_module
from simsched.results.reader import read_run

POLICY = '''
from dataclasses import dataclass
from typing import ClassVar
from simsched.policy import Decision, Policy

print("imported")

@dataclass
class Bad(Policy):
    """First come first served on node 0; misbehaves as `how` says."""

    name: ClassVar[str] = "bad"
    how: str = ""

    def decide(self, view, rng):
        print("deciding")
        if self.how == "close":
            raise GeneratorExit
        if self.how == "fill":
            self.filled = [bytearray(1 << 20) for _ in range(4000)]
        while self.how == "hang":
            pass
        return Decision({job: ((0, view.jobs[job].num_gpus),) for job in list(view.jobs)[:1]})
'''
EXPERIMENT = """\
name: bad
cluster: {{nodes: 1, gpus_per_node: 4}}
workload: {{path: jobs.csv, recipe: replay, sample: 5}}
policies: [{{name: 'bad.py:Bad', label: good}}, {{name: 'bad.py:Bad', label: bad, params: {{how: {how}}}}}]
report: {{plots: false}}
"""


@pytest.fixture
def bad(folder, simsched):
    def run(how, *arguments):
        (folder / "bad.py").write_text(POLICY)
        (folder / "bad.yaml").write_text(EXPERIMENT.format(how=how))
        return simsched("run", "bad.yaml", "--json", *arguments)

    return run


@pytest.mark.parametrize(
    ("how", "arguments", "said"),
    [
        ("close", ["-j", "1"], "bad, seed 1: GeneratorExit in policy 'bad' ("),
        pytest.param(
            "hang",
            ["-j", "1", "--timeout-per-decision", "0.2"],
            ": a decision lasted longer than 0.2 s",
            marks=pytest.mark.skipif(os.name == "nt", reason="POSIX signals"),
        ),
        pytest.param(
            "fill",
            ["-j", "1", "--memory-per-cell", "300"],
            "bad, seed 1: it needs more than the 300 MiB that --memory-per-cell allows",
            marks=pytest.mark.skipif(sys.platform != "linux", reason="Linux's limits"),
        ),
    ],
)
def test_a_cell_that_fails_fails_alone(bad, folder, how, arguments, said):
    done = bad(how, *arguments)
    assert said in done.stderr
    assert done.exit_code == 1
    assert json.loads(done.stdout)["cells"] == {"ran": 1, "reused": 0, "failed": ["bad, seed 1"]}
    index = json.loads((folder / "results/bad/run.json").read_text())
    assert [entry["policy"] for entry in index["cells"]] == ["good"]
    assert list(index["failed"]) == ["bad, seed 1"]
    assert len(read_run(folder / "results/bad").cells[0].jobs) == 5
    assert not list((folder / "results/bad/cells").glob(".tmp*"))


@pytest.fixture
def stored(folder, simsched):
    assert simsched("run", "tiny.yaml", "--in-process").exit_code == 0
    return sorted((folder / "results/tiny/cells").iterdir())


def flip(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["jobs.parquet", "summary.json"])
def test_a_flipped_bit_is_noticed_and_the_cell_run_again(stored, simsched, name):
    before = (stored[0] / name).read_bytes()
    flip(stored[0] / name, len(before) // 2)
    found = simsched("verify", "results/tiny")
    assert found.exit_code == 1
    assert f"{name} is not as it was written" in found.stdout
    assert "4 cells, 1 of them damaged" in found.stdout
    again = simsched("run", "tiny.yaml", "--in-process")
    assert f"{name} is not as it was written; the cell is run again" in again.stderr
    assert "(1 cell run, 3 reused)" in again.stdout
    assert (stored[0] / name).read_bytes() == before
    assert simsched("verify", "results/tiny").exit_code == 0


def test_a_missing_table_and_a_changed_manifest_are_noticed(stored, simsched):
    (stored[0] / "jobs.parquet").unlink()
    manifest = stored[1] / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"seed": ', '"seed": 4'))
    shown = simsched("show", "results/tiny")
    assert shown.exit_code == 2
    assert "is damaged: jobs.parquet is missing; run the experiment again" in shown.stderr
    removed = simsched("verify", "results/tiny", "--remove", "--yes")
    assert "4 cells, 2 of them damaged, 2 removed" in removed.stdout
    assert "(2 cells run, 2 reused)" in simsched("run", "tiny.yaml", "--in-process").stdout


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("policies=[{name: las, params: {quantum_s: 20}}]", "no longer than a restart"),
        ("policies=[{name: pollux}]", "has no model of batch sizes to adapt"),
        ("policies=[{name: yarn-cs, params: {capacities: {a: 1}}}]", "tenant '' has no share of the cluster"),
        ("engine.initial_nodes=0", "engine.initial_nodes: with 0 nodes there are 0 GPUs"),
        ("report.curves=none.csv", "report.curves: "),
        ("workload.path=/dev/null", "is neither a file nor a folder"),
        ("engine.restart_delay_s=10000000000000000000", "is too large; numbers go to"),
        ("policies.tiresias.params.interval_s=10000000000000000", "numbers go to"),
        ('policies.fifo.label="a\\u0007"', "must not contain control characters"),
    ],
)
def test_what_would_fail_later_is_refused_at_once(simsched, override, said):
    done = simsched("validate", "tiny.yaml", "-o", override)
    assert done.exit_code == 2, done.output
    assert said in done.stderr


def test_an_equal_share_of_unequal_gpus_is_refused(simsched):
    groups = "cluster={groups: [{nodes: 1, gpus_per_node: 4}, {nodes: 1, gpus_per_node: 4, gpu_type: v100}]}"
    done = simsched("validate", "tiny.yaml", "-o", groups, "-o", "finish_time_fairness={}")
    assert done.exit_code == 2
    assert "an equal share of GPUs of several types (t4, v100) is not defined" in done.stderr


def test_a_full_disk_is_no_internal_error(simsched, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device", "summary.json")

    monkeypatch.setattr(cell_module, "seal", full)
    done = simsched("run", "tiny.yaml", "--in-process")
    assert done.exit_code == 1
    assert "results cannot be written: [Errno 28] No space left on device: 'summary.json'" in done.stderr
    assert "internal" not in done.stderr
