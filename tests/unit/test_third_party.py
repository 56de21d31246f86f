"""What a policy replaces in modules that are not its own is put back when its block ends, and named."""

from __future__ import annotations

import json
import sys
import warnings

import numpy as np
import pytest

from simsched.documents import yaml_lines
from simsched.experiment import running
from simsched.experiment.running import cell as cell_module
from simsched.experiment.running.store import Store
from simsched.experiment.running.third_party import Restored, _functions

GOOD = """
import scipy.optimize
from simsched.policy import Decision, Policy

class Good(Policy):
    name = "good"

    def decide(self, view, rng):
        scipy.optimize.linprog([1.0], bounds=[(0, 1)])
        return Decision({job: ((0, view.jobs[job].num_gpus),) for job in list(view.jobs)[:1]})
"""


@pytest.fixture(autouse=True)
def _own_snapshot(monkeypatch):
    monkeypatch.setattr(Restored, "any_in_process", False)
    _functions.cache_clear()
    yield
    _functions.cache_clear()


def test_what_is_replaced_is_put_back_and_named(monkeypatch):
    before = {"dumps": json.dumps, "has": Store.has, "limit": sys.getrecursionlimit(), "errors": np.geterr()}
    filters, block = [*warnings.filters], Restored()
    with block:
        monkeypatch.setattr(json, "dumps", None)
        monkeypatch.setattr(Store, "has", None)
        json.of_its_own = len
        sys.setrecursionlimit(before["limit"] - 1)
        np.seterr(all="raise")
        warnings.simplefilter("error")
    assert {"dumps": json.dumps, "has": Store.has, "limit": sys.getrecursionlimit(), "errors": np.geterr()} == before
    assert warnings.filters == filters
    assert block.said == "; its code had replaced Store.has, json.dumps, the recursion limit"
    assert Restored.any_in_process
    del json.of_its_own


def test_many_names_are_counted(monkeypatch):
    block = Restored()
    with block:
        for name in ("array", "zeros", "ones", "sum", "mean", "max", "min", "sort", "dot", "cumsum"):
            monkeypatch.setattr(np, name, None)
    assert block.said.startswith("; its code had replaced numpy.array, numpy.cumsum, numpy.dot")
    assert block.said.endswith(" and 2 more")


def test_a_policy_that_replaces_nothing_leaves_its_process_as_it_was(tmp_path, monkeypatch):
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "jobs.csv").write_text("submit_time,num_gpus,duration\n0,1,100\n10,2,50\n")
    (tmp_path / "e.yaml").write_text(
        "{name: e, cluster: {nodes: 1, gpus_per_node: 4}, workload: {path: jobs.csv, recipe: replay},"
        " policies: [{name: 'good.py:Good'}]}"
    )
    grid = running.prepare_grid(yaml_lines.load(tmp_path / "e.yaml"), in_process=True)
    entered = []
    monkeypatch.setattr(cell_module, "parent_process", lambda: entered.append(True) or True)  # as in a worker
    assert running.run_grid(grid, tmp_path / "out", in_process=True).ran == 1
    assert entered
    assert not Restored.any_in_process
