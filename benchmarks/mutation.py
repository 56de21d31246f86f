"""Measures whether tests notice mistakes: mutates places drawn at random, runs the tests that cover each.

    pip install coverage
    python -m benchmarks.mutation --places 300 --seed 1

A place is a comparison, an arithmetic or boolean operator, a number, a returned value or a call that is dropped, in
`simsched/engine`, `simsched/policy` and `simsched/results`. For each the tests run that executed its line (found by
one run of the tests under coverage, kept in `out/mutation-coverage.json` until it is deleted; a line that runs when its
file is imported has the tests of the whole file), cheapest first; it is killed where any of them fails. Works on a copy
of the checkout, never on the checkout itself. Tests that start processes or build documents (`tests/cli`) are left out,
so the score is a lower bound.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("simsched/engine", "simsched/policy", "simsched/results")
SUITES = ("tests/unit", "tests/conformance", "tests/property", "tests/golden", "tests/validation")
COVERAGE = ROOT / "out" / "mutation-coverage.json"
COPIED = ("simsched", "policies", "tests", "experiments", "workloads", "traces", "benchmarks", "docs", "pyproject.toml")
# What every child would import again; none of it is mutated.
HEAVY = ("pytest", "numpy", "pandas", "pyarrow.parquet", "scipy.optimize", "numba", "pydantic")
#: What a worker says of a mutant.
_DEAD, _ALIVE, _UNSEEN = "killed\n", "survives\n", "no test runs it\n"
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


class Coverage(NamedTuple):
    """Which tests executed each line, by file and line (the line "" stands for the whole file), and seconds by test."""

    tests: dict[str, dict[str, list[str]]]
    seconds: dict[str, float]

    def of(self, mutant: Mutant) -> list[str]:
        """Return the tests of a mutant's line, cheapest first."""
        lines = self.tests.get(mutant.file, {})
        known = lines.get(str(mutant.line)) or lines.get("", [])
        return sorted(known, key=lambda test: (self.seconds.get(test, 0.0), test))


def mutants(file: Path) -> Iterator[Mutant]:
    """List the mutants of a file."""
    text = file.read_text(encoding="utf-8")
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    name = file.relative_to(ROOT).as_posix()

    def at(line: int, column: int) -> int:
        return starts[line - 1] + len(text[starts[line - 1] : starts[line]].encode()[:column].decode())

    def whole(node: ast.expr | ast.stmt, after: str) -> Mutant:
        begin = at(node.lineno, node.col_offset)
        end = at(node.end_lineno or 0, node.end_col_offset or 0)
        return Mutant(name, node.lineno, begin, end, text[begin:end], after)

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
            yield whole(node, f"({node.value} + 1)")
        elif isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
            yield whole(node.value, "None")
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield whole(node, "pass")


RECORDER = '''
import json, os, sys, time
import coverage, pytest

class Recorder:
    """Notes which test runs, for coverage, how long each takes, and which fail without any mutant."""

    def __init__(self, measured):
        self.measured, self.seconds, self.failed = measured, {}, set()

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed.add(report.nodeid)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item, nextitem):
        self.measured.switch_context(item.nodeid)
        begun = time.perf_counter()
        yield
        self.seconds[item.nodeid] = time.perf_counter() - begun
        self.measured.switch_context("")

measured = coverage.Coverage(source=sys.argv[2].split(","), data_file=None)
measured.start()
recorder = Recorder(measured)
pytest.main(["-q", "-n", "0", "-p", "no:cacheprovider", *sys.argv[3:]], plugins=[recorder])
measured.stop()
data = measured.get_data()
tests = {}
for file in data.measured_files():
    name = os.path.relpath(file)
    by_line, whole = {}, set()
    for line, found in data.contexts_by_lineno(file).items():
        known = sorted(test for test in found if test and test not in recorder.failed)
        whole.update(known)
        if "" not in found:
            by_line[str(line)] = known
    tests[name] = {**by_line, "": sorted(whole)}
with open(sys.argv[1], "w") as out:
    json.dump({"tests": tests, "seconds": recorder.seconds}, out)
'''


def _copy(what: Path, where: Path) -> None:
    if what.is_dir():
        shutil.copytree(what, where, ignore=shutil.ignore_patterns("*.pyc"))
    else:
        where.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(what, where)


def covering(copy: Path, workers: int) -> Coverage:
    """Return which tests execute each line; measured once and kept."""
    if not COVERAGE.is_file():
        files = sorted(
            test.relative_to(copy).as_posix() for suite in SUITES for test in (copy / suite).rglob("test_*.py")
        )
        parts = [copy.parent / f"coverage-{worker}.json" for worker in range(workers)]
        running = [
            subprocess.Popen(
                [sys.executable, "-c", RECORDER, str(part), ",".join(ROOMS), *files[worker::workers]], cwd=copy
            )
            for worker, part in enumerate(parts)
        ]
        for process in running:
            process.wait()
        tests: dict[str, dict[str, list[str]]] = {}
        seconds: dict[str, float] = {}
        for part in parts:
            found = json.loads(part.read_text(encoding="utf-8"))
            seconds |= found["seconds"]
            for file, lines in found["tests"].items():
                for line, names in lines.items():
                    tests.setdefault(file, {}).setdefault(line, []).extend(names)
        COVERAGE.parent.mkdir(exist_ok=True)
        COVERAGE.write_text(json.dumps({"tests": tests, "seconds": seconds}), encoding="utf-8")
    return Coverage(**json.loads(COVERAGE.read_text(encoding="utf-8")))


def killed(copy: Path, mutant: Mutant, tests: list[str], seconds: int) -> bool:
    """Return whether any of some tests notices a mutant; runs them in a process of their own."""
    file = copy / mutant.file
    text = file.read_text(encoding="utf-8")
    file.write_text(text[: mutant.begin] + mutant.after + text[mutant.end :], encoding="utf-8")
    try:
        child = os.fork()
        if child == 0:
            _run(copy, tests, seconds)
        return os.waitpid(child, 0)[1] != 0
    finally:
        file.write_text(text, encoding="utf-8")


def _run(copy: Path, tests: list[str], seconds: int) -> None:
    import pytest

    signal.alarm(seconds)  # a mutant that loops is ended, and counts as killed
    os.chdir(copy)
    silence = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silence, 1)
    os.dup2(silence, 2)
    sys.path[:0] = [str(copy), str(copy / "policies")]
    code = 1
    try:
        code = int(pytest.main(["-q", "-x", "-n", "0", "-p", "no:cacheprovider", *tests]))
    finally:
        os._exit(code)


def main() -> int:
    """Print what survives and the share that is killed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--places", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tests", type=int, default=40, help="at most so many tests for a place")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=120, help="a mutant that takes longer counts as killed")
    args = parser.parse_args()
    everywhere = [mutant for room in ROOMS for file in sorted((ROOT / room).rglob("*.py")) for mutant in mutants(file)]
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    chosen = random.Random(args.seed).sample(everywhere, min(args.places, len(everywhere)))
    with tempfile.TemporaryDirectory() as folder:
        copies = [Path(folder) / str(worker) / "copy" for worker in range(args.workers)]
        for copy in copies:
            for name in COPIED:
                _copy(ROOT / name, copy / name)
            (copy.parent / "shared").symlink_to(ROOT.parent / "shared")
        found = covering(copies[0], args.workers)
        for module in HEAVY:
            importlib.import_module(module)
        quickest = sorted(found.seconds, key=lambda test: found.seconds[test])[:5]
        if killed(copies[0], everywhere[0]._replace(after=everywhere[0].before), quickest, args.seconds):
            sys.exit("the tests fail without a mutant: run them by themselves first")
        readers = [
            _started(copy, chosen[worker :: args.workers], found, args.tests, args.seconds)
            for worker, copy in enumerate(copies)
        ]
        lines = [line for reader in readers for line in reader]
    dead, covered = lines.count(_DEAD), len(lines) - lines.count(_UNSEEN)
    print(f"{dead} of {len(chosen)} mutants killed ({dead / len(chosen):.1%}), {covered} covered")
    return 0


def _started(copy: Path, chosen: list[Mutant], found: Coverage, most: int, seconds: int) -> IO[str]:
    """Try some mutants in a process of their own; returns where it writes a line for each."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        with os.fdopen(writing, "w") as out:
            for mutant in chosen:
                tests = found.of(mutant)[:most]
                line = _UNSEEN if not tests else _DEAD if killed(copy, mutant, tests, seconds) else _ALIVE
                out.write(line)
                if line != _DEAD:
                    print(
                        f"{mutant.file}:{mutant.line}: {mutant.before[:60]!r} -> {mutant.after!r}: {line}",
                        end="",
                        flush=True,
                    )
        os._exit(0)
    os.close(writing)
    return os.fdopen(reading)


if __name__ == "__main__":
    sys.exit(main())
