"""Nothing between a seed and a table chooses its code by processor."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("model", "agent", "policy", "toolkit", "engine", "workload", "results", "experiment")
#: What numpy leaves to BLAS, to LAPACK or to the processor's own instructions; `simsched.arithmetic` has its equals.
DISPATCHED = {
    "arccos", "arcsin", "arctan", "arctanh", "cbrt", "convolve", "correlate", "cos", "cosh", "dot", "einsum", "exp",
    "exp2", "expm1", "float_power", "geomspace", "inner", "linalg", "log", "log10", "log1p", "log2", "logspace",
    "matmul", "polyfit", "power", "sin", "sinh", "tan", "tanh", "tensordot", "vdot",
}  # fmt: skip
#: The only parts of scipy in these rooms: HiGHS, the assignment problem, a bracketed root (none of them calls BLAS),
#: sparse matrices, Qhull's triangulation, and distributions.
SCIPY = {
    "scipy.optimize": {"Bounds", "LinearConstraint", "brentq", "linear_sum_assignment", "linprog", "milp"},
    "scipy.sparse": {"coo_array", "csr_array"},
    "scipy.spatial": {"Delaunay", "QhullError"},
    "scipy.special": {"chdtri", "ndtri", "stdtr", "stdtrit"},
    "scipy.stats": {"hypergeom"},
    "scipy.stats.qmc": {"Sobol"},
    "scipy": {"sparse"},
}
#: Where `@` multiplies scipy's sparse matrices, whose loops are its own.
SPARSE = {"simsched/toolkit/programs/problem.py"}


#: What is in every source that breaks the rule; most have nothing of it, and need not be parsed.
SUSPECT = re.compile(rf"\S[ \t]*@|@[\s=]|\.dot\b|scipy|\bnp\s*\.\s*({'|'.join(sorted(DISPATCHED))})\b")


def breaches(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source if SUSPECT.search(source) else "")):
        if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.MatMult):
            yield f"line {node.lineno}: @"
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "np":
            if node.attr in DISPATCHED:
                yield f"line {node.lineno}: np.{node.attr}"
        elif isinstance(node, ast.Attribute) and node.attr == "dot":
            yield f"line {node.lineno}: .dot"
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "scipy":
            for name in node.names:
                if name.name not in SCIPY.get(node.module or "", ()):
                    yield f"line {node.lineno}: {node.module}.{name.name}"
        if isinstance(node, ast.Import) and any(name.name.split(".")[0] == "scipy" for name in node.names):
            yield f"line {node.lineno}: import scipy"


@pytest.mark.parametrize("folder", [*(f"simsched/{room}" for room in ROOMS), "policies/simsched_policies"])
def test_no_code_is_chosen_by_processor(folder: str) -> None:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    for path in files:
        found = list(breaches(path.read_text(encoding="utf-8")))
        if path.relative_to(ROOT).as_posix() in SPARSE:
            found = [breach for breach in found if not breach.endswith("@")]
        assert not found, f"{path}: {found}; simsched.arithmetic has functions that are the same everywhere"


@pytest.mark.parametrize(
    "source",
    [
        "a @ b",
        "a@b",
        "(a\n@ b)",
        "a @= b",
        "np.exp(x)",
        "x.dot(y)",
        "from scipy.optimize import nnls",
        "np.linalg.lstsq(a, b)",
    ],
)
def test_the_rule_finds_what_breaks_it(source: str) -> None:
    assert list(breaches(source))
