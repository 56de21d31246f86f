import pytest

from simsched.errors import InputError
from simsched.experiment.grid import look_into, make_grid
from simsched.experiment.validation import read_experiment

TRACE = "submit_time,num_gpus,duration\n0,1,100\n10,2,50\n20,4,70\n"
EXPERIMENT = """\
name: tiny
cluster: {nodes: 2, gpus_per_node: 4}
workload: {path: jobs.csv, recipe: replay}
policies: [{name: fifo}, {name: tiresias}]
seeds: 2
"""
WORKLOAD = "name,time,application,num_replicas,batch_size\na-0,5,cifar10,2,256\n"


@pytest.fixture
def make(tmp_path):
    (tmp_path / "jobs.csv").write_text(TRACE)
    (tmp_path / "e.yaml").write_text(EXPERIMENT)

    def maker(*overrides, **how):
        return make_grid(read_experiment(tmp_path / "e.yaml", overrides), **how)

    return maker


def keys(grid):
    return [cell.task.key for cell in grid.cells]


def test_cells_come_point_by_point_then_policy_then_seed(make):
    grid = make("sweep={workload.load: [1, 2]}")
    assert [cell.name for cell in grid.cells[:5]] == [
        "fifo, seed 1, load=1",
        "fifo, seed 2, load=1",
        "tiresias, seed 1, load=1",
        "tiresias, seed 2, load=1",
        "fifo, seed 1, load=2",
    ]
    assert len(set(keys(grid))) == 8


def test_what_does_not_concern_a_policy_does_not_make_it_run_twice(make):
    grid = make("sweep={policies.tiresias.params.interval_s: [60, 120]}")
    assert len(grid.cells) == 8
    assert len(grid.tasks) == 6  # fifo once per seed


@pytest.mark.parametrize(
    "override",
    [
        "cluster.nodes=3",
        "cluster.gpu_type=v100",
        "engine.restart_delay_s=10",
        "workload.load=2",
        "seeds=[3, 4]",
        "policies.fifo.params.backfill=true",
        "policies.0.name=srtf",
    ],
)
def test_whatever_determines_a_cell_is_in_its_key(make, override):
    before, after = keys(make()), keys(make(override))
    assert set(before[:2]).isdisjoint(after[:2])


def test_a_written_default_is_the_default(make):
    assert keys(make()) == keys(make("policies.fifo.params.backfill=false"))


def test_every_file_of_a_folder_of_workloads_is_a_replication(make, tmp_path):
    folder = tmp_path / "lists"
    folder.mkdir()
    for number in (10, 2):
        (folder / f"workload-{number}.csv").write_text(WORKLOAD)
    grid = make(f"workload={{path: {folder}}}", "seeds=[0]")
    assert [(cell.label, cell.point) for cell in grid.cells] == [
        ("fifo", {"workload": "workload-2"}),
        ("tiresias", {"workload": "workload-2"}),
        ("fifo", {"workload": "workload-10"}),
        ("tiresias", {"workload": "workload-10"}),
    ]
    assert grid.cells[0].task.about["workload"]["name"] == "workload-2"
    assert grid.cells[0].task.jobs[0].id == "a-0"


def test_the_same_seed_gives_all_policies_the_same_jobs(make):
    grid = make("workload={jobs: 10, days: 28}", "cluster.nodes=16")
    jobs = {(cell.label, cell.seed): cell.task.jobs for cell in grid.cells}
    assert jobs["fifo", 1] == jobs["tiresias", 1]
    assert jobs["fifo", 1] != jobs["fifo", 2]
    fixed = make("workload={jobs: 10, days: 28, seed: 7}", "cluster.nodes=16")
    assert len({cell.task.jobs for cell in fixed.cells}) == 1


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("cluster={nodes: 1, gpus_per_node: 2}", "can never fit a cluster of 2"),
        ("workload.path=none.csv", "there is no file or folder"),
        ("applications.path=none", "there is no file or folder"),
        ("workload={jobs: 10}|cluster={gpu_type: v100}", "has no step times for GPUs of type v100, only for t4"),
        ("workload={path: list.csv}|cluster.gpu_type=v100", "cluster.gpu_type: cifar10 has no step times for GPUs"),
        ("workload={jobs: 1000000}", "1000000 jobs were requested"),
    ],
)
def test_data_that_cannot_be_run_are_refused_before_anything_runs(make, override, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list.csv").write_text(WORKLOAD)
    with pytest.raises(InputError, match=said):
        make(*override.split("|"))


def test_only_chosen_policies_are_wanted(make):
    chosen = make().select(["tiresias"])
    assert {cell.label for cell in chosen.wanted} == {"tiresias"}
    assert len(chosen.cells) == 4
    with pytest.raises(InputError, match="did you mean 'fifo'"):
        make().select(["fif"])


def test_an_unknown_policy_is_refused_before_a_cell_is_made(make):
    made = []
    with pytest.raises(InputError, match="did you mean 'fifo'"):
        make(labels=["fif"], progress=lambda done, total: made.append(done))
    assert made == []
    # One that only some points of a sweep have is known.
    swept = make("sweep={policies: [[{name: fifo}], [{name: tiresias}]]}", labels=["tiresias"])
    assert [cell.label for cell in swept.wanted] == ["tiresias", "tiresias"]


AGENTS = "from simsched.agent.fixed_agent import FixedBatch\nclass Mine(FixedBatch):\n    name = 'mine'\n"


def test_an_agent_named_by_its_file_is_looked_up_where_it_was_written(make, tmp_path, monkeypatch):
    (tmp_path / "agents.py").write_text(AGENTS)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "others.py").write_text(AGENTS + "    other = 1\n")
    monkeypatch.chdir(elsewhere)
    beside = make("seeds=1", "policies=[{name: fifo}]")
    text = (tmp_path / "e.yaml").read_text()
    (tmp_path / "e.yaml").write_text(text.replace("{name: fifo}", "{name: fifo, agent: {name: 'agents.py:Mine'}}"))
    written = make("seeds=1").cells[0].task
    given = make("seeds=1", "policies.fifo.agent.name=others.py:Mine").cells[0].task
    for task, name in ((written, "agents.py"), (given, "others.py")):
        assert task.agent.make().name == "mine"
        assert name in task.about["agent"]["source"]
    assert len({written.key, given.key, beside.cells[0].task.key}) == 3


@pytest.mark.parametrize(
    ("overrides", "cells", "looked_into"),
    [
        ([], 4, 4),
        (["seeds=10000"], 20_000, 2),
        (["workload={source: philly-generated, recipe: replay, days: 1}", "seeds=3", "cluster.nodes=64"], 6, 2),
    ],
    ids=["few", "many seeds", "generated"],
)
def test_an_experiment_is_looked_into_without_making_all_of_its_cells(make, tmp_path, overrides, cells, looked_into):
    total, made = look_into(read_experiment(tmp_path / "e.yaml", overrides))
    assert (total, len(made)) == (cells, looked_into)
    assert [cell.label for cell in made[:: len(made) // 2]] == ["fifo", "tiresias"]
    assert made[0].seed == 1


def test_a_year_to_sample_from_is_looked_into_by_its_first_weeks(make, tmp_path):
    year = ["workload={source: philly-generated, recipe: pollux, jobs: 5}", "cluster={nodes: 16, gpus_per_node: 4}"]
    _, made = look_into(read_experiment(tmp_path / "e.yaml", year))
    _, month = look_into(read_experiment(tmp_path / "e.yaml", [*year, "workload.days=28"]))
    assert made[0].task.jobs == month[0].task.jobs


def test_a_year_is_drawn_whole_where_its_first_weeks_hold_too_few_jobs(make, tmp_path):
    # Beside a hundredth of Philly's jobs there is one every ten minutes: some 4,000 in four weeks, 50,000 in a year.
    thin = ["workload={source: philly-generated, recipe: pollux, window_h: 24, scale: 0.01, jobs: 6000}"]
    thin += ["cluster={nodes: 16, gpus_per_node: 4}"]
    _, made = look_into(read_experiment(tmp_path / "e.yaml", thin))
    assert len(made[0].task.jobs) == 6000
    with pytest.raises(InputError, match="100000 jobs were requested"):
        look_into(read_experiment(tmp_path / "e.yaml", [*thin, "workload.jobs=100000"]))


def test_what_is_looked_into_is_checked(make, tmp_path):
    with pytest.raises(InputError, match="job 'job-2'"):
        look_into(read_experiment(tmp_path / "e.yaml", ["seeds=10000", "cluster.nodes=1", "cluster.gpus_per_node=2"]))
