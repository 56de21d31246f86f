"""Measures whether tests notice mistakes: mutates places drawn at random, runs the tests that cover each.

    python -m benchmarks.mutation --places 300 --seed 1

A place is a comparison, an arithmetic or boolean operator, a number, a returned value or a call that is dropped, in
`simsched/engine`, `simsched/policy` and `simsched/results`. For each the tests run that executed its line (found by one
run of every test file under coverage, kept in `out/mutation-coverage.json`); it is killed where any of them fails.
Works on a copy of the checkout, never on the checkout itself.
"""

from __future__ import annotations

import argparse
import ast
import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("simsched/engine", "simsched/policy", "simsched/results")
COVERAGE = ROOT / "out" / "mutation-coverage.json"
SWAPS = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==", ast.Is: "is not",
    ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in", ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*",
    ast.FloorDiv: "*", ast.Mod: "*", ast.And: "or", ast.Or: "and",
}  # fmt: skip
SIGNS = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.Is: "is",
    ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in", ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/",
    ast.FloorDiv: "//", ast.Mod: "%", ast.And: "and", ast.Or: "or",
}  # fmt: skip


class Mutant(NamedTuple):
    """A change of a file: what stands between two offsets, and what takes its place."""

    file: str
    line: int
    begin: int
    end: int
    before: str
    after: str


def mutants(file: Path) -> Iterator[Mutant]:
    """List the mutants of a file."""
    text = file.read_text(encoding="utf-8")
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    name = file.relative_to(ROOT).as_posix()

    def at(line: int, column: int) -> int:
        return starts[line - 1] + len(text[starts[line - 1] : starts[line]].encode()[:column].decode())

    def between(left: ast.expr, right: ast.expr, kind: type[ast.AST]) -> Iterator[Mutant]:
        begin, end = at(left.end_lineno or 0, left.end_col_offset or 0), at(right.lineno, right.col_offset)
        place = text.find(SIGNS[kind], begin, end)
        if place >= 0:
            sign = SIGNS[kind]
            yield Mutant(name, left.end_lineno or 0, place, place + len(sign), sign, SWAPS[kind])

    tree = ast.parse(text)
    hidden = {
        id(part) for node in ast.walk(tree) if isinstance(node, ast.AnnAssign | ast.arg) for part in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in hidden:
            continue
        if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
            yield from between(node.left, node.comparators[0], type(node.ops[0]))
        elif isinstance(node, ast.BinOp) and type(node.op) in SWAPS:
            yield from between(node.left, node.right, type(node.op))
        elif isinstance(node, ast.BoolOp):
            yield from between(node.values[0], node.values[1], type(node.op))
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float) and node.end_col_offset is not None:
            begin, end = at(node.lineno, node.col_offset), at(node.lineno, node.end_col_offset)
            yield Mutant(name, node.lineno, begin, end, text[begin:end], f"({node.value} + 1)")
        elif isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
            begin, end = (
                at(node.value.lineno, node.value.col_offset),
                at(node.value.end_lineno or 0, node.value.end_col_offset or 0),
            )
            yield Mutant(name, node.lineno, begin, end, text[begin:end], "None")
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            begin, end = at(node.lineno, node.col_offset), at(node.end_lineno or 0, node.end_col_offset or 0)
            yield Mutant(name, node.lineno, begin, end, text[begin:end], "pass")


def covering(copy: Path) -> dict[str, dict[str, list[str]]]:
    """Return the test files that execute each line, by file and line; measured once and kept."""
    if COVERAGE.is_file():
        found: dict[str, dict[str, list[str]]] = json.loads(COVERAGE.read_text(encoding="utf-8"))
        return found
    lines: dict[str, dict[str, list[str]]] = {}
    for test in sorted((copy / "tests").rglob("test_*.py")):
        name = test.relative_to(copy).as_posix()
        if name.startswith(("tests/cli", "tests/architecture")):
            continue  # they start processes, or look at imports only
        data = copy / ".coverage"
        data.unlink(missing_ok=True)
        command = [
            sys.executable,
            "-m",
            "coverage",
            "run",
            f"--source={','.join(ROOMS)}",
            "-m",
            "pytest",
            "-q",
            "-n",
            "0",
            name,
        ]
        subprocess.run(command, cwd=copy, capture_output=True, check=False)
        report = copy / "coverage.json"
        subprocess.run(
            [sys.executable, "-m", "coverage", "json", "-q", "-o", str(report)],
            cwd=copy,
            capture_output=True,
            check=False,
        )
        if not report.is_file():
            continue
        for file, content in json.loads(report.read_text(encoding="utf-8"))["files"].items():
            for line in content["executed_lines"]:
                lines.setdefault(file, {}).setdefault(str(line), []).append(name)
        report.unlink()
    COVERAGE.parent.mkdir(exist_ok=True)
    COVERAGE.write_text(json.dumps(lines), encoding="utf-8")
    return lines


def killed(copy: Path, mutant: Mutant, tests: list[str], seconds: float) -> bool:
    """Return whether any of some tests notices a mutant."""
    file = copy / mutant.file
    text = file.read_text(encoding="utf-8")
    file.write_text(text[: mutant.begin] + mutant.after + text[mutant.end :], encoding="utf-8")
    try:
        command = [sys.executable, "-B", "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", *tests]
        return subprocess.run(command, cwd=copy, capture_output=True, timeout=seconds, check=False).returncode != 0
    except subprocess.TimeoutExpired:
        return True
    finally:
        file.write_text(text, encoding="utf-8")


def main() -> int:
    """Print what survives and the share that is killed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--places", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tests", type=int, default=6, help="at most so many test files for a place, unit tests first")
    parser.add_argument("--seconds", type=float, default=300, help="a mutant that takes longer counts as killed")
    args = parser.parse_args()
    everywhere = [mutant for room in ROOMS for file in sorted((ROOT / room).rglob("*.py")) for mutant in mutants(file)]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        shutil.copytree(ROOT, copy, ignore=shutil.ignore_patterns(".git", ".venv", "out", "results", ".hypothesis"))
        lines = covering(copy)
        noticed = covered = 0
        chosen = random.Random(args.seed).sample(everywhere, min(args.places, len(everywhere)))
        for number, mutant in enumerate(chosen, start=1):
            known = lines.get(mutant.file, {}).get(str(mutant.line), [])
            tests = sorted(known, key=lambda name: (not name.startswith("tests/unit"), name))[: args.tests]
            covered += bool(tests)
            dead = bool(tests) and killed(copy, mutant, tests, args.seconds)
            noticed += dead
            if not dead:
                said = "no test runs it" if not tests else "survives"
                print(f"{mutant.file}:{mutant.line}: {mutant.before[:60]!r} -> {mutant.after!r}: {said}", flush=True)
            if number % 25 == 0:
                print(f"{noticed} of {number} killed ({noticed / number:.0%})", file=sys.stderr, flush=True)
        print(f"{noticed} of {len(chosen)} mutants killed ({noticed / len(chosen):.1%}), {covered} covered")
    return 0


if __name__ == "__main__":
    sys.exit(main())
