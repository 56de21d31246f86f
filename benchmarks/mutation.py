"""Measures whether tests notice mistakes: mutates places drawn at random, runs the tests that cover each.

    python -m benchmarks.mutation --places 300 --seed 1

A place is a comparison, an arithmetic or boolean operator, a number, a returned value or a dropped call, in the engine
and in what it and policies may import (`--rooms` names others, or folders and files in them). For each the tests run
that executed its line (found by one run of the tests, kept in `out/mutation-coverage.json` until it is deleted, which
needs Python 3.12; a line that runs only when its file is imported has the tests of the file, or of its folder), the
most discriminating first; it is killed if any of them fails. Works on a copy of the checkout, never on the checkout
itself. Tests that start processes or build documents (`tests/cli`) are left out, so the score is a lower bound.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import gc
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate, islice
from pathlib import Path
from py_compile import PycInvalidationMode
from types import CodeType, FunctionType
from typing import IO, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
#: The declaration of which rooms each room may import.
ARROWS = ROOT / "tests" / "architecture" / "test_imports.py"
SUITES = ("tests/unit", "tests/conformance", "tests/property", "tests/golden", "tests/validation")
COVERAGE = ROOT / "out" / "mutation-coverage.json"
COPIED = ("simsched", "policies", "tests", "experiments", "workloads", "traces", "benchmarks", "docs", "pyproject.toml")
#: The number of tests to try, regardless of their duration; quick ones take less than this many seconds.
LEAST_TESTS, QUICK_S = 5, 1.0
#: The number of cheap tests to try, whatever they test.
MOST_CHEAP = 100
#: A worker's verdict on a mutant.
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
    """A change of a file: the text between two offsets, and its replacement."""

    file: str
    line: int
    begin: int
    end: int
    before: str
    after: str

    def applied(self, text: str) -> str:
        """Return the text of the file with the change; line numbers are unchanged."""
        return text[: self.begin] + self.after + "\n" * self.before.count("\n") + text[self.end :]


class Coverage(NamedTuple):
    """Which tests executed each line, by file and line (the line "" stands for the whole file), and seconds by test."""

    tests: dict[str, dict[str, list[str]]]
    seconds: dict[str, float]

    def of(self, mutant: Mutant) -> list[str]:
        """Return the tests of a mutant's line, those first that also run the lines around it, which tell cases apart.

        The two cheapest of each line, if quick, the nearest lines first; then the cheapest of all, as nobody sees the
        lines of compiled kernels; then the cheapest of each file of tests, the second of each, and so on.
        """
        folder = mutant.file.rpartition("/")[0] + "/"
        beside = set[str]().union(*(lines[""] for file, lines in self.tests.items() if file.startswith(folder)))
        lines = self.tests.get(mutant.file, {"": sorted(beside)})
        known = lines.get(str(mutant.line)) or lines.get("", [])
        cheapest = sorted(known, key=lambda test: (self.seconds[test], test))
        quick = {test for test in cheapest if self.seconds[test] < QUICK_S}
        found: dict[str, None] = {}
        for near in sorted((int(line) for line in lines if line), key=lambda line: abs(line - mutant.line)):
            here = quick.intersection(lines[str(near)]).difference(found)
            found |= dict.fromkeys(islice((test for test in cheapest if test in here), 2))
        found |= dict.fromkeys(cheapest[:MOST_CHEAP])
        before = Counter[str]()
        place: dict[str, tuple[int, float, str]] = {}
        for test in cheapest:
            file = test.partition("::")[0]
            place[test] = before[file], self.seconds[test], test
            before[file] += 1
        return list(found | dict.fromkeys(sorted(place, key=lambda test: place[test])))


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
import pytest
from simsched.jit import _Later

class Recorder:
    """Notes which lines of the house each test runs, how long it takes, and which fail without any mutant."""

    def __init__(self):
        self.names, self.seconds, self.failed, self.tests, self.here = [], [], set(), {}, set()
        self.house = os.path.join(os.getcwd(), "simsched", "")
        sys.monitoring.use_tool_id(sys.monitoring.COVERAGE_ID, "mutation")
        sys.monitoring.register_callback(sys.monitoring.COVERAGE_ID, sys.monitoring.events.LINE, self.line)
        sys.monitoring.set_events(sys.monitoring.COVERAGE_ID, sys.monitoring.events.LINE)
        run = _Later.__call__
        _Later.__call__ = lambda kernel, *values: self.line(kernel._function.__code__) and run(kernel, *values)

    def line(self, code, number=0):
        """Note a line, or with 0 a compiled kernel, whose lines nobody sees."""
        if code.co_filename.startswith(self.house):
            self.here.add((code.co_filename, number or code.co_firstlineno))
        return sys.monitoring.DISABLE  # until the next test

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed.add(report.nodeid)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item, nextitem):
        self.here.clear()
        sys.monitoring.restart_events()
        begun = time.perf_counter()
        yield
        self.seconds.append(time.perf_counter() - begun)
        for file, number in self.here if item.nodeid not in self.failed else ():
            self.tests.setdefault(os.path.relpath(file), {}).setdefault(number, []).append(len(self.names))
        self.names.append(item.nodeid)

recorder = Recorder()
if pytest.main(["-q", "-n", "0", "-p", "no:cacheprovider", *sys.argv[2:]], plugins=[recorder]) > 1:
    sys.exit("the tests could not be run")
sys.monitoring.set_events(sys.monitoring.COVERAGE_ID, 0)
with open(sys.argv[1], "w") as out:
    json.dump({"names": recorder.names, "seconds": recorder.seconds, "tests": recorder.tests}, out)
'''


def rooms() -> dict[str, bool]:
    """Return the rooms, and for each whether the engine or policies depend on it."""
    body = ast.parse(ARROWS.read_text(encoding="utf-8")).body
    arrows = next(ast.literal_eval(one.value) for one in body if ast.unparse(one).startswith("MAY_IMPORT = "))
    policies = arrows.pop("simsched_policies")
    return {room: room in {"engine"} | arrows["engine"] | policies for room in sorted(arrows)}


def _copy(what: Path, where: Path) -> None:
    if what.is_dir():
        shutil.copytree(what, where, ignore=shutil.ignore_patterns("*.pyc"))
    else:
        where.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(what, where)


def covering(copy: Path, workers: int) -> Coverage:
    """Return which tests execute each line; measured once and cached."""
    if not COVERAGE.is_file():
        if not hasattr(sys, "monitoring"):
            sys.exit("which tests run which lines is measured under Python 3.12 or later")
        files = sorted(
            test.relative_to(copy).as_posix() for suite in SUITES for test in (copy / suite).rglob("test_*.py")
        )
        parts = [copy.parent / f"coverage-{worker}.json" for worker in range(workers)]
        running = [
            subprocess.Popen([sys.executable, "-c", RECORDER, str(part), *files[worker::workers]], cwd=copy)
            for worker, part in enumerate(parts)
        ]
        if {process.wait() for process in running} != {0}:
            sys.exit("which tests run which lines could not be measured")
        COVERAGE.parent.mkdir(exist_ok=True)
        COVERAGE.write_text(f"[{','.join(part.read_text(encoding='utf-8') for part in parts)}]", encoding="utf-8")
    tests: dict[str, dict[str, list[str]]] = {}
    seconds: dict[str, float] = {}
    for part in json.loads(COVERAGE.read_text(encoding="utf-8")):
        names = part["names"]
        seconds |= dict(zip(names, part["seconds"], strict=True))
        for file, lines in part["tests"].items():
            known = tests.setdefault(file, {})
            for line, places in lines.items():
                known.setdefault(line, []).extend(names[place] for place in places)
    for known in tests.values():
        known[""] = sorted(set().union(*known.values()))
    return Coverage(tests, seconds)


def killed(copy: Path, mutant: Mutant, tests: list[str], seconds: float) -> bool:
    """Return whether any of some tests notices a mutant; runs them in a new process, which imports the file."""
    file = copy / mutant.file
    text = file.read_text(encoding="utf-8")
    file.write_text(mutant.applied(text), encoding="utf-8")
    paths = os.pathsep.join((str(copy), str(copy / "policies")))
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", *tests]
    with subprocess.Popen(
        command, cwd=copy, env=os.environ | {"PYTHONPATH": paths}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            return process.wait(timeout=seconds) != 0
        except subprocess.TimeoutExpired:
            process.kill()
            return True  # a mutant with an endless loop
        finally:
            file.write_text(text, encoding="utf-8")


class Trials:
    """The tests, collected once: a mutant is tried on some of them in a fork, where functions are given its code.

    A mutant of what runs when its file is imported, and one that no test of a fork notices, is tried in a new process.
    """

    def __init__(self, copies: list[Path], chosen: list[Mutant], found: Coverage, seconds: float) -> None:
        self._copies, self._chosen, self._found, self._seconds = copies, chosen, found, seconds
        self._items: dict[str, pytest.Item] = {}
        self._functions: list[FunctionType] = []
        #: Whether tests pass in a fork without any mutant.
        self._sound: dict[str, bool] = {}
        #: The verdict on each mutant.
        self.lines: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try the mutants in place of running the tests."""
        self._items = {item.nodeid: item for item in session.items}
        room = str(self._copies[0] / "simsched")
        functions = (one for one in gc.get_objects() if type(one) is FunctionType)
        self._functions = [one for one in functions if one.__code__.co_filename.startswith(room)]
        gc.freeze()  # collections in forks would copy all of it
        workers = len(self._copies)
        readers = [self._started(copy, self._chosen[place::workers]) for place, copy in enumerate(self._copies)]
        for reader in readers:
            with reader:
                self.lines += reader
            os.wait()
        return True

    def _started(self, copy: Path, chosen: list[Mutant]) -> IO[str]:
        """Try some mutants in a process of their own; returns where it writes a line for each."""
        reading, writing = os.pipe()
        if os.fork() == 0:
            with os.fdopen(writing, "w") as out:
                for number, mutant in enumerate(chosen, start=1):
                    line = self._tried(copy, mutant)
                    out.write(line)
                    if line != _DEAD:
                        said = f"{mutant.file}:{mutant.line}: {mutant.before[:60]!r} -> {mutant.after!r}: {line}"
                        print(f"{number}: {said}", end="", file=sys.__stdout__, flush=True)
            os._exit(0)
        os.close(writing)
        return os.fdopen(reading)

    def _tried(self, copy: Path, mutant: Mutant) -> str:
        known = [test for test in self._found.of(mutant) if test in self._items and self._sound.get(test, True)]
        spent = accumulate(self._found.seconds[test] for test in known)
        tests = [test for place, (test, sum_s) in enumerate(zip(known, spent, strict=True))
                 if place < LEAST_TESTS or sum_s <= self._seconds]  # fmt: skip
        if not tests:
            return _UNSEEN
        exchanged = exchanges(self._copies[0] / mutant.file, mutant, self._functions)
        failing = self._failing(tests, exchanged) if exchanged else None
        if failing is None:
            return _DEAD if killed(copy, mutant, tests, 120 + 5 * self._seconds) else _ALIVE
        if failing not in self._sound:
            self._sound[failing] = self._failing([failing], []) is None
        return _DEAD if self._sound[failing] else self._tried(copy, mutant)

    def _failing(self, tests: list[str], exchanged: list[tuple[FunctionType, CodeType]]) -> str | None:
        """Return the first test that fails or takes too long with changed functions; runs in a fork."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            self._run(tests, exchanged, writing)
        os.close(writing)
        with os.fdopen(reading) as begun:
            last = begun.read().splitlines()[-1]
        os.waitpid(child, 0)
        return last or None

    def _run(self, tests: list[str], exchanged: list[tuple[FunctionType, CodeType]], out: int) -> None:
        try:
            silence = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silence, 1)
            os.dup2(silence, 2)
            for function, code in exchanged:
                function.__code__ = code
            for test in tests:
                os.write(out, f"{test}\n".encode())
                signal.alarm(30 + 5 * int(self._found.seconds[test]))
                item = self._items[test]
                item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
                if item.session.testsfailed:
                    os._exit(1)
            os.write(out, b"\n")
        finally:
            os._exit(1)


def exchanges(path: Path, mutant: Mutant, functions: list[FunctionType]) -> list[tuple[FunctionType, CodeType]]:
    """Return the functions that a mutant changes, each with its new code; none if it changes what runs on import."""
    text = (ROOT / mutant.file).read_text(encoding="utf-8")
    before, after = (dict(_codes(compile(one, str(path), "exec"), (0,))) for one in (text, mutant.applied(text)))
    changed = [key for key in before if key in after and _alone(before[key]) != _alone(after[key])]
    if len(changed) != 1:
        return []
    around = [key for key in (changed[0][:end] for end in range(1, len(changed[0]) + 1)) if before[key].co_flags & 1]
    new = {(code.co_qualname, code.co_firstlineno): after[key] for key in around if (code := before[key])}
    found = [(one, new.get((one.__code__.co_qualname, one.__code__.co_firstlineno))) for one in functions
             if one.__code__.co_filename == str(path)]  # fmt: skip
    pairs = [(one, code) for one, code in found if code is not None]
    outermost = {one.__code__.co_qualname for one, _ in pairs} & {before[key].co_qualname for key in around[:1]}
    same = all(one.__code__.co_freevars == code.co_freevars for one, code in pairs)
    return pairs if outermost and same else []


def _codes(code: CodeType, place: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], CodeType]]:
    """Yield a code object and its nested ones, by position."""
    yield place, code
    for number, one in enumerate(one for one in code.co_consts if isinstance(one, CodeType)):
        yield from _codes(one, (*place, number))


def _alone(code: CodeType) -> tuple[bytes, str, tuple[str, ...]]:
    """Return the behaviour of a code object, without nested ones and line numbers."""
    return code.co_code, repr([one for one in code.co_consts if not isinstance(one, CodeType)]), code.co_names


def main() -> int:
    """Print what survives and the share that is killed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--places", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=30, help="at most so many seconds of tests for a place")
    parser.add_argument("--workers", type=int, default=2)
    below = [room for room, is_below in rooms().items() if is_below]
    parser.add_argument(
        "--rooms", nargs="+", default=below, metavar="ROOM", help="or toolkit/rounds, model/capacity.py"
    )
    args = parser.parse_args()
    paths = {room: ROOT / "simsched" / room for room in args.rooms}
    for room in (room for room, path in paths.items() if not path.exists()):
        parser.error(f"there is no '{room}' in simsched")
    files = [file for path in paths.values() for file in ([path] if path.is_file() else sorted(path.rglob("*.py")))]
    everywhere = [mutant for file in files for mutant in mutants(file)]
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    chosen = random.Random(args.seed).sample(everywhere, min(args.places, len(everywhere)))
    with tempfile.TemporaryDirectory() as folder:
        copies = [Path(folder).resolve() / str(worker) / "copy" for worker in range(args.workers)]
        for copy in copies:
            for name in COPIED:
                _copy(ROOT / name, copy / name)
            (copy.parent / "shared").symlink_to(ROOT.parent / "shared")
            compileall.compile_dir(copy / "simsched", quiet=2, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
        found = covering(copies[0], args.workers)
        trials = Trials(copies, chosen, found, args.seconds)
        os.chdir(copies[0])
        sys.path[:0] = [str(copies[0]), str(copies[0] / "policies")]
        options = ("-q", "-n", "0", "-p", "no:cacheprovider", "--capture=no", f"--basetemp={folder}/tests")
        pytest.main([*options, *SUITES], plugins=[trials])
    tried = [mutant for worker in range(args.workers) for mutant in chosen[worker :: args.workers]]
    places = Counter(mutant.file.split("/")[1] for mutant in tried)
    noticed = Counter(one.file.split("/")[1] for one, line in zip(tried, trials.lines, strict=True) if line == _DEAD)
    print(", ".join(f"{room} {noticed[room]} of {count}" for room, count in sorted(places.items())))
    dead, covered = trials.lines.count(_DEAD), len(trials.lines) - trials.lines.count(_UNSEEN)
    print(f"{dead} of {len(chosen)} mutants killed ({dead / len(chosen):.1%}), {covered} covered")
    return 0


if __name__ == "__main__":
    sys.exit(main())
