"""Commands of the manual whose paths count from the current folder, against experiments that lie elsewhere."""

from __future__ import annotations

import pytest

from simsched.experiment.validation import read_experiment

pytestmark = pytest.mark.usefixtures("in_this_process")

POLICY = """
from simsched.policy import Decision, Policy, Triggers


class Mine(Policy):
    name = "mine"
    rigid = True

    @property
    def triggers(self):
        return Triggers.on_events()

    def decide(self, view, rng):
        return Decision()
"""
TRACE = "submit_time,num_gpus,duration\n0,1,60\n30,2,90\n"


def test_a_policy_named_on_the_command_line_is_looked_for_in_the_current_folder(simsched, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(POLICY)
    done = simsched("validate", "quickstart", "-o", "seeds=1", "-o", 'policies=[{name: "mine.py:Mine"}]')
    assert done.exit_code == 0, done.output
    assert simsched(
        "validate", "quickstart", "-o", "seeds=1", "-o", "policies.0.name=mine.py:Mine", "-o", "policies.0.params={}"
    )
    missing = simsched("validate", "quickstart", "-o", "seeds=1", "-o", 'policies=[{name: "gone.py:Mine"}]')
    assert missing.exit_code == 2


def test_a_source_may_be_a_file_in_the_current_folder(simsched, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "philly.csv").write_text(TRACE)
    done = simsched(
        "run", "quickstart", "-o", "workload.source=philly.csv", "-o", "workload.recipe=replay",
        "-o", "policies=[{name: fifo}]", "-o", "seeds=1", "-j", "1", "--no-plots",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert simsched("validate", "quickstart", "-o", "workload.source=phily.csv").exit_code == 2


def test_a_generated_trace_goes_where_out_says(simsched, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = simsched("trace", "generate", "--days", "1", "--seed", "95", "--out", "a.csv")
    assert done.exit_code == 0, done.output
    assert simsched("trace", "generate", "b.csv", "--days", "1", "--seed", "95").exit_code == 0
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    assert simsched("trace", "generate", "--days", "1").exit_code == 2
    assert simsched("trace", "generate", "c.csv", "--out", "d.csv").exit_code == 2


def test_a_policy_in_a_file_is_called_by_its_name(tmp_path):
    (tmp_path / "mine.py").write_text(POLICY)
    (tmp_path / "mine.yaml").write_text("{name: mine, policies: [{name: 'mine.py:Mine'}, {name: fifo}]}")
    assert [one.shown_as for one in read_experiment(tmp_path / "mine.yaml").spec.policies] == ["mine", "fifo"]


def test_a_replay_of_a_shipped_experiment_replays_the_whole_trace_unless_told_otherwise(tmp_path):
    (tmp_path / "mine.yaml").write_text(
        "{name: mine, policies: [{name: fifo}], workload: {source: t.csv, recipe: pollux, jobs: 160}}"
    )
    (tmp_path / "t.csv").write_text(TRACE)
    jobs = [
        read_experiment(tmp_path / "mine.yaml", options).spec.workload.jobs
        for options in ([], ["workload.recipe=replay"], ["workload.recipe=replay", "workload.jobs=1"])
    ]
    assert jobs == [160, None, 1]
