"""Processes of users in an experiment: found, checked, swept, overridden, hashed, run and refused."""

from pathlib import Path

import pytest
from simsched_policies.queues.by_key import Fifo

from simsched.api.stepping import drive_task
from simsched.engine import MemoryRecorder
from simsched.errors import InputError
from simsched.experiment.grid import look_into, make_grid
from simsched.experiment.running.pool import code_of
from simsched.experiment.validation import read_experiment
from simsched.results import read_run

pytestmark = pytest.mark.usefixtures("in_this_process")

PROCESSES = """
from typing import Annotated
from simsched.policy import INPUT_FILE

def storm(site, nodes: int = 1, prices: Annotated[str, INPUT_FILE] = ""):
    yield site.timeout(30)
    for node in site.nodes[:nodes]:
        site.fail(node, for_s=50)

class Storm:
    def __init__(self, site, nodes: int):
        self.site, self.left = site, nodes
        if nodes > 9:
            raise ValueError("nodes are too many")

    def send(self, value):
        if not self.left:
            raise StopIteration
        self.left -= 1
        return self.site.timeout(5)

    def throw(self, error):
        raise error

class Half:
    def send(self, value):
        return None

def plain(site):
    return 3
"""
EXPERIMENT = """\
name: tiny
cluster: {nodes: 2, gpus_per_node: 4}
workload: {path: jobs.csv, recipe: replay}
engine: {restart_delay_s: 0}
policies: [fifo]
processes:
  - mine.py:storm
  - {use: "mine.py:Storm", params: {nodes: 3}}
report: {plots: false}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "jobs.csv").write_text("submit_time,num_gpus,duration\n0,4,100\n0,4,70\n")
    (tmp_path / "mine.py").write_text(PROCESSES)
    (tmp_path / "prices.csv").write_text("1\n")
    (tmp_path / "e.yaml").write_text(EXPERIMENT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def cells(*overrides):
    return make_grid(read_experiment(Path("e.yaml"), overrides)).cells


def ends(folder):
    run = read_run(folder / "results" / "tiny")
    return [cell.table("jobs")["end_time_s"].tolist() for cell in run.cells]


@pytest.mark.parametrize("how", [(), ("--in-process",)])
def test_processes_run_swept_and_overridden(folder, simsched, how):
    """Jobs of 100 and 70 s lose 30 s; one begins again at 70 s on the other's node, or both at 80 s."""
    text = EXPERIMENT + "sweep: {processes.0.params.nodes: [0, 1, 2]}\n"
    (folder / "e.yaml").write_text(text)
    done = simsched("run", "e.yaml", "-o", "processes.1.params.nodes=2", "--name", "tiny", *how)
    assert done.exit_code == 0, done.output
    assert ends(folder) == [[70, 100], [70, 170], [150, 180]]
    run = read_run(folder / "results" / "tiny")
    assert run.cells[2].table("outages")[["node", "start_s", "end_s", "kind"]].values.tolist() == [
        [0, 30, 80, "storm"],
        [1, 30, 80, "storm"],
    ]
    about = run.cells[2].manifest["processes"]
    assert [(one["name"], one["params"]) for one in about] == [
        ("mine.py:storm", {"nodes": 2, "prices": ""}),
        ("mine.py:Storm", {"nodes": 2}),
    ]
    assert (
        list(about[0]["source"]) == ["mine.py", "simsched.keys", "simsched.policy"] or "mine.py" in about[0]["source"]
    )


def test_a_key_covers_code_parameters_files_and_order(folder):
    def key(*overrides):
        (cell,) = cells(*overrides)
        return cell.task.key

    keys = [key(), key("processes=[]"), key("processes.0.params.nodes=2"), key("processes.1.params.nodes=4")]
    assert key("processes.0.params.nodes=1") == keys[0]
    keys.append(key('processes=[{use: "mine.py:Storm", params: {nodes: 3}}, "mine.py:storm"]'))
    keys.append(key("processes.0.params.prices=prices.csv"))
    (folder / "prices.csv").write_text("2\n")
    keys.append(key("processes.0.params.prices=prices.csv"))
    (folder / "mine.py").write_text(PROCESSES + "# changed\n")
    keys.append(key())
    assert len(set(keys)) == len(keys)


def test_a_check_tells_cells_apart_by_their_processes(folder):
    text = EXPERIMENT + "sweep: {processes.0.params.nodes: [1, 2]}\n"
    (folder / "e.yaml").write_text(text)
    one, two = look_into(read_experiment(Path("e.yaml")))[1]
    assert one.task.key != two.task.key


def test_a_worker_serves_the_code_of_processes(folder):
    (cell,) = cells()
    assert [name for name, _ in code_of(cell.task)] == ["mine.py:storm", "mine.py:Storm"]


def test_a_simulation_that_is_driven_runs_them_too(folder):
    (cell,) = cells()
    recorder, policy = MemoryRecorder(), Fifo()
    drive_task(cell.task, policy, recorder).run(policy)
    assert [(one.node, one.kind) for one in recorder.outages] == [(0, "storm")]


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["processes.0.params.node=2"], "processes.0.params.node: the process 'mine.py:storm' has no such parameter; "
         "did you mean 'nodes'?"),
        (["processes.0.params.site=2"], "the process 'mine.py:storm' has no such parameter"),
        (["processes.0.params.nodes=two"], "processes.0.params.nodes: must be a whole number"),
        (["processes.1.params={}"], "processes.1.params: the process 'mine.py:Storm' needs the parameter 'nodes'"),
        (["processes=[mine.py:strom]"], "processes.0.use: 'mine.py:strom': 'mine.py' has no process 'strom'; did you "
         "mean 'storm'?"),
        (["processes=[mine.py:plain]"], "this is no process; write a function with `yield`, or a class"),
        (["processes=[mine.py:Half]"], "the class lacks throw; write"),
        (["processes=[storm]"], "there is no such process; name it as path/to/file.py:NAME or package.module:NAME"),
        (["processes=[{name: storm}]"], "processes.0.use: is missing"),
        (["shards.parts=2"], "shards: cannot be combined with 'processes', which may submit jobs and stop nodes at any "
         "time; leave out 'shards' or 'processes'"),
        (["finish_time_fairness={}"], "finish_time_fairness: cannot be combined with 'processes'"),
        (["losses=true"], "losses: cannot be combined with 'processes'"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_place_and_remedy(folder, overrides, said):
    with pytest.raises(InputError) as raised:
        read_experiment(Path("e.yaml"), overrides)
    assert said in str(raised.value)
    assert str(raised.value).startswith(f"-o {overrides[0]}: ")


def test_all_processes_are_named_by_a_star_and_some_by_their_use(folder):
    (cell,) = cells("processes.*.params.nodes=7", "processes.mine.py:Storm.params.nodes=8")
    assert [dict(one.params) for one in cell.task.processes] == [{"nodes": 7}, {"nodes": 8}]
    with pytest.raises(
        InputError, match=r"no process of this experiment is called '2'; known: mine\.py:Storm, mine\.py:s"
    ):
        cells("processes.2.params.nodes=7")


def test_a_key_of_the_file_is_named_with_its_line(folder):
    (folder / "e.yaml").write_text(EXPERIMENT.replace("workload: {path: jobs.csv, recipe: replay}", "tuning: {}"))
    with pytest.raises(InputError, match=r"e\.yaml:3: tuning: cannot be combined with 'processes'"):
        read_experiment(Path("e.yaml"))


def test_an_error_in_a_constructor_names_process_and_line(folder, simsched):
    done = simsched("run", "e.yaml", "--in-process", "-o", "processes.1.params.nodes=10")
    assert done.exit_code == 1
    line = PROCESSES.splitlines().index('            raise ValueError("nodes are too many")') + 1
    assert f"process 'Storm' at t=0 s ({folder}/mine.py:{line}): ValueError: nodes are too many" in done.output


def test_bounds_refuse_what_ran_beside_processes(folder, simsched):
    done = simsched("bound", "e.yaml")
    assert "No bound for jobs, seed 1: processes have no bound, as they may submit" in done.output
    assert simsched("run", "e.yaml", "--in-process").exit_code == 0
    done = simsched("bound", "results/tiny")
    assert done.exit_code == 2
    assert "processes: have no bound, as they may submit" in done.output


def ran(simsched, name, *options):
    arguments = ("-o", "policies=[fifo]", "-o", "sweep={}", "-o", "report.plots=false", "--name", name)
    done = simsched("run", f"processes/{name}", "--in-process", *arguments, *options)
    assert done.exit_code == 0, done.output
    assert f"the process {'user' if name == 'resubmit' else name}, no sharing" in done.output
    (cell,) = read_run(Path("results", name)).cells
    return cell


def test_the_shipped_storm_breaks_nodes_for_three_hours(folder, simsched):
    outages = ran(simsched, "storm", "-o", "workload.jobs=10").table("outages")
    assert outages["start_s"].tolist() == [14400 + 1800 * k for k in range(6) for _ in range(4)]
    assert set(outages["end_s"] - outages["start_s"]) == {1800}
    assert set(outages["kind"]) == {"storm"}


def test_the_shipped_users_withdraw_what_has_not_begun_in_time_and_ask_for_half(folder, simsched):
    jobs = ran(simsched, "resubmit").table("jobs")
    of_users = jobs[jobs["user"].str.startswith("user")]
    withdrawn = of_users[of_users["status"] == "Cancelled"]
    assert len(withdrawn) > 10
    assert (withdrawn["jct_s"] == 1800).all()
    assert len(of_users) - len(withdrawn) == 8 * 6
    for _, own in of_users.groupby("user"):
        asked = own.sort_values("submit_time_s")
        after = zip(asked["status"], asked["num_gpus"], asked["num_gpus"][1:], strict=False)
        assert all(then == (gpus // 2 if status == "Cancelled" else 8) for status, gpus, then in after)


def test_the_shipped_autoscaler_rents_by_the_price_of_the_hour(folder, simsched):
    cell = ran(simsched, "autoscale", "-o", "workload.jobs=20", "-o", "processes.0.params.most_price=1")
    outages = cell.table("outages")
    off = outages[outages["start_s"] == 5 * 3600]
    assert (sorted(off["node"]), set(off["end_s"])) == (
        list(range(4, 16)),
        {min(23 * 3600 + 120, cell.table("jobs")["end_time_s"].max())},
    )


def test_a_run_of_which_one_point_is_left_is_drawn(folder, simsched):
    """Cells of one point alone are named by their policies."""
    text = EXPERIMENT.replace("[fifo]", "[fifo, las]") + "sweep: {processes.1.params.nodes: [3, 10]}\n"
    (folder / "e.yaml").write_text(text)
    done = simsched("run", "e.yaml", "--in-process", "-o", "report.plots=true")
    assert done.exit_code == 1
    assert "nodes are too many" in done.output
    assert "internal error" not in done.output
