"""What a stranger's policy does when it is imported and made happens in a process of its own, and is told in a line."""

import builtins
import os

import pytest

from simsched.api.checking import check, prepare
from simsched.errors import InputError, InputWarning
from simsched.experiment.running import reproduce
from simsched.experiment.running.runner import run_grid
from simsched.operators.log_input import OperatorLog
from simsched.operators.replays import ReplayPlan, run_replay
from simsched.results.reader import read_run
from simsched.workload.readers import read_trace

POLICY = """
import builtins, multiprocessing, os, signal, sys
from pathlib import Path
from simsched.policy import Decision, Policy

with Path(__file__).with_name("loaded").open("a") as log:
    print(multiprocessing.parent_process() is None, file=log)
{imported}

class Own(Policy):
    name = "own"

    def __init__(self, speed: float = 1.0):
        {made}

    def decide(self, view, rng):
        return Decision({{job: ((0, view.jobs[job].num_gpus),) for job in list(view.jobs)[:1]}})
"""
EXPERIMENT = """\
name: apart
cluster: {nodes: 1, gpus_per_node: 4}
workload: {path: jobs.csv, recipe: replay}
policies: [{name: fifo}, {name: 'own.py:Own', params: {speed: 2}}]
report: {plots: false}
"""
TRACE = "submit_time,num_gpus,duration\n0,1,100\n10,2,50\n"

pytestmark = pytest.mark.skipif(os.name == "nt", reason="POSIX signals")


@pytest.fixture
def write(tmp_path, monkeypatch):
    def writer(imported="", made="pass"):
        (tmp_path / "own.py").write_text(POLICY.format(imported=imported, made=made))
        return tmp_path

    monkeypatch.chdir(tmp_path)
    (tmp_path / "apart.yaml").write_text(EXPERIMENT)
    (tmp_path / "jobs.csv").write_text(TRACE)
    return writer


def test_the_command_itself_loads_nobodys_policy(write, simsched):
    folder = write()
    for command in ("validate", "run"):
        done = simsched(command, str(folder / "apart.yaml"))
        assert done.exit_code == 0, done.output
    assert set((folder / "loaded").read_text().split()) == {"False"}
    assert simsched("run", str(folder / "apart.yaml"), "--out", "here", "--in-process").exit_code == 0
    assert set((folder / "loaded").read_text().split()) == {"False", "True"}


def test_cells_are_the_same_wherever_they_are_made(write):
    write()
    apart, here = (prepare("apart.yaml", in_process=in_process) for in_process in (False, True))
    assert [(cell.name, cell.task.key, cell.task.about) for cell in apart.wanted] == [
        (cell.name, cell.task.key, cell.task.about) for cell in here.wanted
    ]
    assert [cell.task for cell in apart.wanted] == [cell.task for cell in here.wanted]


@pytest.mark.parametrize(
    ("where", "what", "said"),
    [
        ("imported", "os._exit(0)", "the process that checks it ended with exit code 0"),
        ("made", "os.kill(os.getpid(), signal.SIGKILL)", "the process that checks it was killed (SIGKILL)"),
        ("made", "raise type('Beyond', (BaseException,), {})('far')", "its code raises Beyond: far"),
        ("imported", "raise KeyboardInterrupt", "its code raises KeyboardInterrupt"),
    ],
)
def test_what_ends_or_breaks_the_process_is_an_error_of_the_policy(write, simsched, where, what, said):
    write(**{where: what})
    done = simsched("validate", "apart.yaml")
    assert done.exit_code == 2, done.output
    assert f"'own.py:Own': {said}" in done.stderr


def test_a_policy_that_cannot_be_made_in_time_is_given_up(write):
    write(made="\n        while True:\n            pass")
    with pytest.raises(InputError, match=r"'own\.py:Own': its code did not return within 1 s"):
        prepare("apart.yaml", limit_s=1)


def test_what_it_patches_stays_there(write):
    write(imported="builtins.patched_by_own = True")
    assert check("apart.yaml").total == 2
    assert not hasattr(builtins, "patched_by_own")


def test_what_a_trace_says_in_vain_is_told_from_there_too(write):
    folder = write()
    rows = "name,time,application,num_replicas,batch_size,duration\na,0,cifar10,1,128,50\n"
    (folder / "jobs.csv").write_text(rows)
    with pytest.warns(InputWarning, match="1 job with an application and a duration; the application counts"):
        check("apart.yaml", ["workload={path: jobs.csv}"])


def loaded_in_parent(folder):
    return "True" in (folder / "loaded").read_text().split()


def test_replays_of_a_log_load_it_there_too(write):
    folder = write()
    trace = read_trace(folder / "jobs.csv")
    log = OperatorLog(trace, None, "")
    plan = ReplayPlan(log, [{"nodes": 1, "gpus_per_node": 4}], f"{folder / 'own.py'}:Own", folder / "out")
    assert len(run_replay(plan, "replayed").cells) == 1
    assert not loaded_in_parent(folder)


def test_how_a_run_is_reproduced_is_found_without_loading_it_here(write, monkeypatch):
    folder = write()
    shipped = folder / "shipped.yaml"
    shipped.write_text(EXPERIMENT.replace("{name: 'own.py:Own', params: {speed: 2}}", "{name: las, label: other}"))
    grid = prepare(shipped, ["policies.other.name=own.py:Own"])
    run_grid(grid, folder / "out")
    monkeypatch.setattr(reproduce, "shipped_experiments", lambda: {"shipped": shipped})
    found = reproduce.reproduction_of(read_run(folder / "out" / grid.folder_name))
    assert found.command == "simsched run shipped -o policies.other.name=own.py:Own"
    assert not loaded_in_parent(folder)


def test_a_policy_that_an_option_takes_away_is_not_loaded(write, simsched):
    folder = write()
    done = simsched("run", "apart.yaml", "-o", "policies=[{name: fifo}]")
    assert done.exit_code == 0, done.output
    assert not (folder / "loaded").exists()
