"""`seeds: auto` adds seeds until comparisons are decided; `compare --plan-seeds` says how many a run will need."""

from __future__ import annotations

import json

import pytest

import simsched as sim
from simsched.experiment.validation import read_experiment

pytestmark = pytest.mark.usefixtures("in_this_process")

ADDED = """\
name: added
cluster: {nodes: 2, gpus_per_node: 4}
workload: {recipe: log-normal, jobs: 40, median_s: 200, mean_s: 600, mean_gpus: 2, widest: 8, offered_load: 1.5}
policies: [{name: fifo}, {name: srtf}, {name: fifo, label: again}]
seeds: auto
sequential: {most_seeds: 12}
"""


@pytest.fixture
def added(folder, simsched):
    (folder / "added.yaml").write_text(ADDED)

    def play(*options, code=0):
        done = simsched("run", "added.yaml", "-j", "1", "--no-plots", *options)
        assert done.exit_code == code, done.output
        return done

    return play


def test_seeds_are_added_until_all_is_decided(folder, added):
    done = added("-o", "sequential.margin=0")  # which no two policies are alike by, not even fifo and itself
    assert "8 seeds: " in done.stderr
    lines = done.stdout.splitlines()
    assert any(line.startswith("srtf † / fifo: 0.") and line.endswith(", lower") for line in lines)
    assert "again / fifo: 1.000 (1.000 to 1.000), alike" in lines
    used = {cell["seed"] for cell in json.loads((folder / "results/added--margin=0/run.json").read_text())["cells"]}
    assert used in (set(range(1, 9)), set(range(1, 13)))


def test_the_budget_ends_it(folder, added):
    done = added("-o", "sequential={most_seeds: 3, metric: queueing_mean_s}")
    assert "Seeds were added until decided: 3 of at most 3 (looks at 3;" in done.stdout
    content = json.loads(added("-o", "sequential={most_seeds: 3}", "--json").stdout)
    assert content["seeds_added"]["seeds"] == 3
    assert {one["verdict"] for one in content["seeds_added"]["decisions"]} <= {"lower", "higher", "alike", "open"}


def test_python_adds_seeds_too(folder, added):
    few = sim.run("added.yaml", {"sequential.most_seeds": 2}, out="own")
    assert {cell.seed for cell in few.run.cells} == {1, 2}
    more = sim.run(
        "added.yaml", {"sequential": {"most_seeds": 9, "margin": 0, "metric": "restarts_per_job"}}, out="own"
    )
    assert {cell.seed for cell in more.run.cells} == set(range(1, 10)), "a ratio of nothing stays open"


def test_listed_seeds_add_nothing(folder):
    (folder / "added.yaml").write_text(ADDED)
    spec = read_experiment(folder / "added.yaml", ["seeds=3"]).spec
    assert spec.seeds == (1, 2, 3)
    assert spec.sequential is not None
    assert not spec.sequential.added
    assert read_experiment(folder / "added.yaml").spec.seeds == tuple(range(1, 9))
    assert read_experiment(folder / "added.yaml").spec.sequential.added


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("sequential.metric=jct_men_s", "did you mean 'jct_mean_s'"),
        ("sequential.most_seeds=1", "sequential.most_seeds"),
        ("sequential=3", "sequential"),
        ("seeds=automatic", "seeds"),
    ],
)
def test_a_rule_that_is_none_is_refused(folder, added, change, said):
    assert said in added("-o", change, code=2).stderr


def test_a_pilot_says_how_many_seeds_are_needed(folder, simsched):
    simsched("run", "tiny.yaml", "-j", "1")
    done = simsched("compare", "results/tiny", "--plan-seeds", "--difference", "0.1")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[2].startswith("tiresias / fifo")
    assert "for a difference of 10 %: -o seeds=" in done.stdout
    (found,) = json.loads(simsched("compare", "results/tiny", "--plan-seeds", "--json").stdout)
    assert found["seeds"] == 2
    assert found["needed"] is None or found["needed"] > 2
    assert simsched("compare", "nowhere", "--plan-seeds").exit_code == 2
