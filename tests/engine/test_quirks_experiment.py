"""The experiment on habits of the published simulator, and the policy that brings them back."""

import sys
from pathlib import Path

import pytest

from simsched.applications.catalogue import ApplicationCatalogue
from simsched.engine.options import EngineOptions
from simsched.engine.records import MemoryRecorder
from simsched.engine.simulation import simulate
from simsched.experiment.validation import read_experiment
from simsched.model.cluster import Cluster
from simsched.model.job import JobSpec
from simsched.paths import data_folder
from simsched.policy import registry

FOLDER = data_folder("experiments") / "validation"
REPLAYS = Path(__file__).resolve().parents[2] / "tests" / "validation" / "replays"


def quirky(**params):
    return registry.load("quirks.py:QuirkyPollux", folder=REPLAYS)(**params)


@pytest.mark.parametrize("name", ["quirks", "fitted", "pollux-osdi21"])
def test_the_experiments_are_valid(name):
    assert read_experiment(FOLDER / f"{name}.yaml").spec.policies


def test_rows_go_to_the_job_of_the_same_rank():
    renamed = sys.modules[type(quirky()).__module__]._renamed
    # b has left; c and a have changed places, so c's row is handed to a, and a's to c.
    assert renamed(["a", "b", "c"], ["c", "a", "d"]) == ["c", "b", "a"]
    assert renamed(["a", "b"], ["a", "b", "new"]) == ["a", "b"]


@pytest.mark.parametrize(
    "params", [{"match_rows": "position"}, {"fill_idle": False}, {"fair_share": "several"}, {"method": "genetic"}]
)
def test_with_any_habit_all_jobs_finish(params):
    jobs = [JobSpec(f"j{i}", 40 * i, 1, "ncf" if i % 2 else "cifar10", 32768 if i % 2 else 128) for i in range(4)]
    recorder = MemoryRecorder()
    simulate(Cluster.uniform(2, 4), jobs, ApplicationCatalogue.load(), quirky(**params), EngineOptions(), 1, recorder)
    assert sorted(job.job_id for job in recorder.jobs) == ["j0", "j1", "j2", "j3"]
