"""A cell's key: everything that its simulation is given counts, and all code that runs it, and nothing else."""

import dataclasses
import shutil
from collections.abc import Mapping

import numpy as np
import pytest

from simsched import sources
from simsched.experiment import task as task_module
from simsched.experiment.grid import look_into, make_grid
from simsched.experiment.task import AgentChoice, PolicyChoice, Task, canonical, digest_of, key_of
from simsched.experiment.validation import read_experiment
from simsched.model.cluster import Cluster, Node
from simsched.model.job import JobRequest, JobSpec
from simsched.paths import data_folder
from simsched.sources import Code, code

TRACE = "submit_time,num_gpus,duration\n0,1,100\n10,2,50\n20,4,70\n"
EXPERIMENT = """\
name: tiny
cluster: {nodes: 2, gpus_per_node: 4}
workload: {path: jobs.csv, recipe: replay}
policies: [{name: fifo}, {name: 'mine.py:Mine', params: {path: pool.csv}}]
"""
POLICY = """
from typing import Annotated
from simsched.policy import INPUT_FILE, Decision, Policy

class Mine(Policy):
    name = "mine"

    def __init__(self, path: Annotated[str, INPUT_FILE] = "", patience: float = 1.0) -> None:
        self.patience = patience

    def decide(self, view, rng):
        return Decision({})
"""


@pytest.fixture
def make(tmp_path):
    (tmp_path / "jobs.csv").write_text(TRACE)
    (tmp_path / "mine.py").write_text(POLICY)
    (tmp_path / "pool.csv").write_text("1,2\n")
    (tmp_path / "e.yaml").write_text(EXPERIMENT)

    def maker(*overrides):
        grid = make_grid(read_experiment(tmp_path / "e.yaml", overrides))
        return {cell.policy.rpartition(":")[2]: cell.task for cell in grid.cells}

    return maker


def plainly_changed(value):
    """Yield values that are like another and not equal to it."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield value + 1
    elif isinstance(value, str):
        yield value + "x"
    elif value is None:
        yield 7
    elif isinstance(value, Mapping):
        yield {**value, "another": 1.0}
    elif isinstance(value, tuple):
        yield (*value, *(value[-1:] or (1,)))
        if value:
            yield value[:-1]
    else:
        pytest.fail(f"{value!r} is of a kind that this test does not know how to change")


def test_every_field_of_a_task_counts_but_those_that_follow_from_the_others(make):
    before = make()["fifo"]
    assert before.key == key_of(before, {})
    fields = {field.name: field.compare for field in dataclasses.fields(Task)}
    assert [name for name, compared in fields.items() if not compared] == ["cuts", "key", "about"]
    others = {
        "policy": PolicyChoice("srtf", before.policy.folder),
        "cluster": dataclasses.replace(before.cluster, memory_mb={"t4": 1000.0}),
        "jobs": (dataclasses.replace(before.jobs[0], weight=2.0), *before.jobs[1:]),
        "agent": AgentChoice("goodput", before.policy.folder),
        "sharing": before.sharing.model_copy(update={"switch_s": 7.0}),
    }
    for name in (name for name, compared in fields.items() if compared):
        value = getattr(before, name)
        if name in others:
            values = [others[name]]
        elif dataclasses.is_dataclass(value):
            values = [other for _, other in changed_options(value)]
        else:
            values = list(plainly_changed(value))
        assert values
        keys = {before.key, *(key_of(dataclasses.replace(before, **{name: other}), {}) for other in values)}
        assert len(keys) == 1 + len(values), name


def changed_options(options):
    """Change the fields of options one by one, past their checks: what counts is the key."""
    for field in dataclasses.fields(options):
        for other in plainly_changed(getattr(options, field.name)):
            if field.name == "path":  # names a file, which must be there
                continue
            copy = dataclasses.replace(options)
            object.__setattr__(copy, field.name, other)
            yield field.name, copy


def test_a_field_that_is_added_counts_by_itself():
    before = dataclasses.make_dataclass("Options", [("a", int, 1)], frozen=True)
    after = dataclasses.make_dataclass("Options", [("a", int, 1), ("b", int, 2)], frozen=True)
    assert canonical(before()) == "Options(a)(1,)"
    assert canonical(after()) == "Options(a,b)(1, 2)"


def test_equal_values_have_one_form_and_others_another():
    job = JobSpec("a", 0, 1, duration_s=5)
    assert canonical([job]) == canonical((dataclasses.replace(job),))
    assert canonical({"b": 1, "a": (0.1,)}) == "{'a':[0.1],'b':1}" == canonical({"a": [0.1], "b": 1})
    assert canonical({3, 1}) == "<1,3>"
    texts = [canonical(one) for one in (1, 1.0, True, "1", None, (1,), {1}, b"1", JobRequest("a", 0, 1), job, 1e-320)]
    assert len(set(texts)) == len(texts)
    assert canonical(0.1 + 0.2) == "0.30000000000000004"
    with pytest.raises(TypeError, match="no canonical form"):
        canonical(object())


def test_numbers_of_numpy_are_numbers():
    assert canonical(Node(np.int64(0), 4)) == canonical(Node(0, 4))
    assert canonical(Node(0, 4)).endswith("(0, 4, 't4', [], '', None, None, [])")
    assert canonical(np.array([1.5, 2.0])) == "array [1.5,2.0]"


def test_the_memory_of_gpus_counts_and_the_spelling_of_a_cluster_does_not():
    nodes = (Node(0, 4), Node(1, 4))
    assert digest_of(Cluster(nodes)) == digest_of(Cluster.uniform(2, 4))
    assert digest_of(Cluster(nodes, {"t4": 16384.0})) != digest_of(Cluster(nodes, {"t4": 1000.0}))


def test_jobs_count_by_their_content_and_not_by_their_file_or_its_reader(make, tmp_path, monkeypatch):
    before = {name: task.key for name, task in make().items()}
    (tmp_path / "moved.csv").write_text(TRACE)
    assert {name: task.key for name, task in make(f"workload.path={tmp_path}/moved.csv").items()} == before
    (tmp_path / "jobs.csv").write_text(TRACE.replace("100", "101"))
    assert {task.key for task in make().values()}.isdisjoint(before.values())


def test_applications_count_by_the_content_of_their_files(make, tmp_path):
    copies = [tmp_path / "apps", tmp_path / "others"]
    for copied in copies:
        shutil.copytree(data_folder("workloads") / "applications", copied)
    one, other = (make(f"applications.path={copied}")["fifo"].key for copied in copies)
    assert one == other
    with (copies[1] / "ncf.yaml").open("a") as file:
        file.write("# changed\n")
    assert make(f"applications.path={copies[1]}")["fifo"].key != one


def test_shipped_applications_count_with_the_code_that_names_their_folder(tmp_path, monkeypatch):
    copied = tmp_path / "workloads"
    shutil.copytree(data_folder("workloads"), copied)
    monkeypatch.setattr(sources, "data_folder", lambda name: {"workloads": copied}[name])
    before = code.__wrapped__()
    (copied / "README.md").write_text("another page\n")
    assert code.__wrapped__().digest == before.digest
    with (copied / "applications" / "ncf.yaml").open("a") as file:
        file.write("# changed\n")
    assert code.__wrapped__().digest != before.digest


def test_a_policy_counts_by_its_sources_its_parameters_and_the_files_they_name(make, tmp_path):
    keys = [make()["Mine"].key]
    (tmp_path / "pool.csv").rename(tmp_path / "same.csv")
    assert make("policies.1.params.path=" + str(tmp_path / "same.csv"))["Mine"].key == keys[0]
    (tmp_path / "pool.csv").write_text("1,3\n")
    keys.append(make()["Mine"].key)
    (tmp_path / "mine.py").write_text(POLICY + "# changed\n")
    keys.append(make()["Mine"].key)
    assert make("policies.1.params.patience=1.0")["Mine"].key == keys[-1]
    keys.append(make("policies.1.params.patience=2.0")["Mine"].key)
    assert len(set(keys)) == 4


def test_all_python_files_of_simsched_count_and_nothing_else_in_its_folder(tmp_path, monkeypatch):
    package = tmp_path / "simsched"
    (package / "engine").mkdir(parents=True)
    (package / "engine" / "ledger.py").write_text("x = 1\n")
    monkeypatch.setattr(sources, "_SIMSCHED", package)
    before = code.__wrapped__().digest
    (package / "engine" / "ledger.pyc").write_bytes(b"cached")
    assert code.__wrapped__().digest == before
    (package / "engine" / "ledger.py").write_text("x = 2\n")
    assert code.__wrapped__().digest != before


def test_declared_libraries_count_by_version(make, monkeypatch):
    assert {"numpy", "scipy", "numba", "pyarrow", "pyyaml"} <= code().libraries.keys()
    before = make()["fifo"].key
    other = Code(code().modules, {**code().libraries, "numba": "0.0.1"})
    monkeypatch.setattr(task_module, "code", lambda: other)
    assert make()["fifo"].key != before


def test_the_names_of_an_experiment_do_not_count(make):
    before = {name: task.key for name, task in make().items()}
    after = make("name=other", "description=x", "policies.fifo.label=F", "report.plots=false", "seeds=[1]")
    assert {name: task.key for name, task in after.items()} == before
    assert {task.about["experiment"] for task in after.values()} == {"other"}


def test_a_check_tells_apart_the_cells_that_a_run_tells_apart(tmp_path):
    """Labels, and values that a policy has anyway, make no other cell; other files and parameters do."""
    (tmp_path / "jobs.csv").write_text(TRACE)
    (tmp_path / "mine.py").write_text(POLICY)
    for name, text in {"a": "one", "b": "one", "c": "two"}.items():
        (tmp_path / f"{name}.csv").write_text(text)
    entries = [
        {"label": label, "name": "mine.py:Mine", "params": params}
        for label, params in {
            "1": {"path": "a.csv"}, "2": {"path": "b.csv"}, "3": {"path": "c.csv"},
            "4": {"path": "a.csv", "patience": 1.0},
            "5": {"path": "a.csv", "patience": 2.0},
        }.items()
    ]  # fmt: skip
    named = [line for line in EXPERIMENT.splitlines() if not line.startswith("policies")]
    (tmp_path / "e.yaml").write_text("\n".join([*named, "seeds: [1]", f"policies: {entries}"]))
    read = read_experiment(tmp_path / "e.yaml")

    def groups(cells):
        keys = [cell.task.key for cell in cells]
        return [keys.index(key) for key in keys]

    assert groups(look_into(read)[1]) == groups(make_grid(read).cells) == [0, 0, 2, 0, 4]
