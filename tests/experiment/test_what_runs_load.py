"""What a run loads, and by which definitions it computes."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from simsched.results import metric
from simsched.results.metric import Columns, means_by

#: Libraries that take long to load or much memory, and that a command should load only where it needs them.
HEAVY = ("highspy", "matplotlib", "networkx", "numba", "optuna", "pandas", "rich", "scipy")
RUN = """
import sys, tempfile
from pathlib import Path
from simsched.experiment.running.runner import run_grid
from simsched.experiment.grid import make_grid
from simsched.experiment.results_name import find_experiment
from simsched.experiment.validation import read_experiment
experiment = read_experiment(find_experiment("tiresias/worked-example"), ["seeds=1"])
with tempfile.TemporaryDirectory() as folder:
    assert run_grid(make_grid(experiment), Path(folder)).ran
print(sorted(set(sys.argv[1:]) & set(sys.modules)))
"""
VALIDATE = """
import sys
from simsched.cli.main import cli
print(sorted(set(sys.argv[1:]) & set(sys.modules)))
cli(["validate", "quickstart", "-o", "seeds=10000"], standalone_mode=False)
print(sorted(set(sys.argv[1:]) & set(sys.modules)))
from simsched import sources
print(sources.code.cache_info().misses, "sources")
"""


def loaded_by(script, *names):
    """Run a script in a process of its own; returns what it prints of the libraries that are then loaded."""
    done = subprocess.run([sys.executable, "-c", script, *names], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_run_loads_no_compiler_no_optimiser_and_no_pandas_unless_it_needs_them():
    """They are 150 MiB, which every worker of a sweep would hold, and most of the time in which a worker starts."""
    assert loaded_by(RUN, *HEAVY) == ["[]"]


def test_the_command_begins_with_next_to_nothing_and_validate_loads_only_what_reads_experiments():
    before, _, after, read = loaded_by(VALIDATE, *HEAVY, "numpy", "pyarrow", "pydantic", "yaml")
    assert before == "[]"
    assert after == "['numpy', 'pydantic', 'yaml']"
    assert read == "0 sources", "keys need the sources, a check needs no keys"


def test_a_list_of_policies_loads_them_without_their_solvers_and_kernels():
    script = "import sys; from simsched.cli.main import cli; cli(['list', 'policies', '--json'], standalone_mode=False)"
    last = loaded_by(f"{script}; print(sorted(set(sys.argv[1:]) & set(sys.modules)))", *HEAVY, "pyarrow")[-1]
    assert last == "[]"


@pytest.mark.parametrize("values", [[7, 1, 5, 3], [0.1, 1e16, -1e16, 0.3]], ids=["whole", "fractions"])
def test_means_by_name_are_those_of_pandas_to_the_last_bit(values, monkeypatch):
    monkeypatch.setattr(metric, "_AT_ONCE", 3)
    names = ["b", "a", "b", "b"]
    table = pd.DataFrame({"name": names, "value": values})
    found = means_by(np.array(names, dtype=object), table["value"].to_numpy())
    assert found == table.groupby("name")["value"].mean().to_dict()
    columns = Columns.of(table)
    assert (len(columns), "value" in columns, "other" in columns) == (4, True, False)
