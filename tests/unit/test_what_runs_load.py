"""What a run loads, and by which definitions it computes."""

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from simsched.results import definition
from simsched.results.metric import Columns, means_by

RESULTS = Path(definition.__file__).parent
SCRIPT = """
import sys
import simsched.execution.runner
from simsched_policies.fifo import Fifo
heavy = ("numba", "scipy.optimize", "scipy.stats", "scipy.signal", "matplotlib")
print([name for name in heavy if name in sys.modules])
"""


def test_a_run_loads_no_compiler_and_no_optimiser_unless_it_needs_them():
    """They are 110 MiB, which every worker of a sweep would hold."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr


def imports_of(name):
    tree = ast.parse((RESULTS / f"{name}.py").read_text())
    modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {module.rpartition(".")[2] for module in modules if module.startswith("simsched.results.")}


def test_every_module_that_computes_metrics_is_part_of_the_definition_of_a_summary():
    waiting, found = ["metrics"], set()
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += imports_of(name)
    assert found <= set(definition._MODULES)


@pytest.mark.parametrize("values", [[7, 1, 5, 3], [0.1, 1e16, -1e16, 0.3]], ids=["whole", "fractions"])
def test_means_by_name_are_those_of_pandas_to_the_last_bit(values):
    names = ["b", "a", "b", "b"]
    table = pd.DataFrame({"name": names, "value": values})
    found = means_by(np.array(names, dtype=object), table["value"].to_numpy())
    assert found == table.groupby("name")["value"].mean().to_dict()
    columns = Columns.of(table)
    assert (len(columns), "value" in columns, "other" in columns) == (4, True, False)
