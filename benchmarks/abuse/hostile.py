"""Malicious policies: each loses its own cells, in time and with safe text, and no others."""

import json
import random
import shutil
import subprocess
from pathlib import Path

from benchmarks.abuse.command import TRACE, run
from benchmarks.abuse.fuzz import fault
from benchmarks.abuse.tries import Ending
from simsched.results import read_run

_GOOD = """
from simsched.policy import Decision, Policy

class Good(Policy):
    "First come, first served on node 0."

    name = "good"

    def decide(self, view, rng):
        return Decision({job: ((0, view.jobs[job].num_gpus),) for job in list(view.jobs)[:1]})
"""
_HOSTILE = """
import atexit, builtins, collections, ctypes, decimal, gc, json, locale, logging, math, os, random, resource, signal
import socket, subprocess, sys, tempfile, threading, time, warnings
import numpy as np
from simsched.policy import Decision, Policy, Triggers
{imported}

class Beyond(BaseException):
    pass

class Mute(Exception):
    def __str__(self):
        raise RuntimeError("no text")

class Hostile(Policy):
    "Means badly: {about}."

    name = "hostile"
    calls = 0

    def __init__(self):
        {made}

    def good(self, view):
        return Decision({{job: ((0, view.jobs[job].num_gpus),) for job in list(view.jobs)[:1]}})

    def decide(self, view, rng):
        Hostile.calls += 1
        first = next(iter(view.jobs), None)
{body}
        return self.good(view)
"""
_EXPERIMENT = """\
name: hostile
cluster: {nodes: 2, gpus_per_node: 4}
workload: {path: jobs.csv, recipe: replay, sample: 8}
engine: {node_start_s: 60}
policies:
  - {name: 'good.py:Good', label: before}
  - {name: 'bad.py:Hostile', label: bad}
  - {name: 'good.py:Good', label: after, engine: {restart_delay_s: 7}}
report: {plots: false}
"""
_CELL_S = 8

#: What a policy does at each decision, by name.
# ruff: noqa: E501 - each policy is a line
POLICIES = {
    "raises": "raise RuntimeError('x')",
    "raises a lone surrogate": "raise RuntimeError('\\ud800')",
    "raises control characters": "raise RuntimeError('\\x1b[2J\\x07\\r')",
    "raises ten million characters": "raise RuntimeError('x' * 10_000_000)",
    "raises what has no text": "raise Mute",
    "raises a BaseException": "raise Beyond('y')",
    "raises KeyboardInterrupt": "raise KeyboardInterrupt",
    "raises SystemExit 0": "sys.exit(0)",
    "raises GeneratorExit": "raise GeneratorExit",
    "raises StopIteration": "raise StopIteration",
    "raises MemoryError": "raise MemoryError",
    "raises an exception group": "raise ExceptionGroup('g', [ValueError('a'), ExceptionGroup('h', [KeyError('b')])])",
    "raises with a circle of causes": "a = ValueError(); b = ValueError(); a.__cause__ = b; b.__cause__ = a; raise a",
    "raises an InputError": "from simsched.errors import input_error; raise input_error('x', 'y', 'z')",
    "raises a BrokenPipeError": "raise BrokenPipeError",
    "raises an OSError of a full disk": "raise OSError(28, 'No space left on device')",
    "raises what cannot be pickled": "raise type('Local', (Exception,), {'__reduce__': lambda self: 1 / 0})('p')",
    "ends its process with 0": "os._exit(0)",
    "ends its process with 7": "os._exit(7)",
    "kills its process": "os.kill(os.getpid(), signal.SIGKILL)",
    "terminates its process": "os.kill(os.getpid(), signal.SIGTERM)",
    "aborts": "os.abort()",
    "reads memory that is not there": "ctypes.string_at(0)",
    "stops its process": "os.kill(os.getpid(), signal.SIGSTOP)",
    "recurses": "return self.decide(view, rng)",
    "hangs": "while True: pass",
    "sleeps for a day": "time.sleep(86400)",
    "hangs and catches everything": "\\nwhile True:\\n    try:\\n        time.sleep(0.01)\\n    except BaseException:\\n        pass",
    "hangs and ignores signals": "[signal.signal(s, signal.SIG_IGN) for s in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM)]\\nwhile True: pass",
    "hangs in C": "sum(range(10**13))",
    "waits for input": "sys.stdin.read(); os.read(0, 1)",
    "waits for a lock": "lock = threading.Lock(); lock.acquire(); lock.acquire()",
    "leaves a thread": "threading.Thread(target=time.sleep, args=(86400,)).start()",
    "leaves a daemon thread that spins": "threading.Thread(target=lambda: [None for _ in iter(int, 1)], daemon=True).start()",
    "leaves a process": "Hostile.calls == 1 and subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])",
    "forks": "Hostile.calls == 1 and os.fork()",
    "hangs at exit": "atexit.register(time.sleep, 86400)",
    "raises at exit": "atexit.register(lambda: 1 / 0)",
    "changes the folder": "os.chdir('/')",
    "clears the environment": "os.environ.clear()",
    "sets the hash seed and the temporary folder": "os.environ.update(PYTHONHASHSEED='1', TMPDIR='/nowhere'); tempfile.tempdir = '/nowhere'",
    "clears sys.modules": "[sys.modules.pop(n) for n in list(sys.modules) if n.startswith('simsched')]",
    "clears sys.path": "sys.path.clear()",
    "patches sum": "builtins.sum = lambda *a, **k: 1 / 0",
    "patches sorted and len": "builtins.sorted = lambda *a, **k: []",
    "patches open": "builtins.open = lambda *a, **k: 1 / 0",
    "patches numpy": "np.mean = np.sum = np.array = lambda *a, **k: 1 / 0",
    "patches json": "json.dumps = lambda *a, **k: '{'",
    "patches time": "time.time = time.monotonic = time.perf_counter = lambda: float('nan')",
    "patches the engine": "import simsched.engine.simulation as e; e.simulate = None",
    "patches the ledger": "import simsched.engine.ledger as e; [setattr(e, n, None) for n in dir(e) if not n.startswith('__')]",
    "seeds the global generators": "random.seed(1); np.random.seed(1)",
    "has numpy raise": "np.seterr(all='raise')",
    "makes warnings errors": "warnings.simplefilter('error'); warnings.warn('w')",
    "switches collection off and makes circles": "gc.disable(); a = []; a.append(a)",
    "sets the precision of decimals": "decimal.getcontext().prec = 1",
    "sets the recursion limit": "sys.setrecursionlimit(60)",
    "limits its own memory": "resource.setrlimit(resource.RLIMIT_AS, (1 << 20, 1 << 20))",
    "limits its own files": "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))",
    "closes all files": "os.closerange(3, 4096)",
    "closes the standard files": "os.closerange(0, 3)",
    "replaces stdout": "sys.stdout = sys.stderr = None",
    "prints a megabyte": "sys.stdout.write('x' * (1 << 20)); sys.stderr.write('y' * (1 << 20))",
    "writes to the descriptors": "os.write(1, b'{\\x00\\xff'); os.write(2, b'\\x1b[2J')",
    "sets a trace function": "sys.settrace(lambda *a: 1 / 0)",
    "sets an excepthook that raises": "sys.excepthook = lambda *a: 1 / 0; raise RuntimeError('z')",
    "gives nodes that are not there": "return Decision({first: ((99, 1),)} if first else {})",
    "gives parts of GPUs as floats": "return Decision({job: ((0, float(view.jobs[job].num_gpus)),) for job in list(view.jobs)[:1]})",
    "gives negative GPUs": "return Decision({first: ((0, -1),)} if first else {})",
    "gives NaN and infinity": "return Decision({first: ((float('nan'), float('inf')),)} if first else {})",
    "gives jobs that are not there": "return Decision({'nobody': ((0, 1),)})",
    "gives texts": "return Decision({first: (('0', '1'),)} if first else {})",
    "decides nothing": "return None",
    "gives a number": "return 7",
    "gives an endless mapping": "return Decision(collections.defaultdict(lambda: ((0, 1),), {object(): ((0, 1),)}))",
    "starves everybody": "return Decision({})",
    "wakes at once for ever": "return Decision({}, wake_at_s=view.now_s)",
    "wakes every second for ever": "return Decision({}, wake_at_s=view.now_s + 1)",
    "wakes at NaN": "return Decision({}, wake_at_s=float('nan'))",
    "wakes in the past": "return Decision({}, wake_at_s=-1)",
    "stops and starts": "d = self.good(view) if Hostile.calls % 2 else Decision({}); return Decision(d.allocations, wake_at_s=view.now_s + 1)",
    "flips nodes": "return Decision({}, nodes=(0, 1) if Hostile.calls % 2 else (), wake_at_s=view.now_s + 1)",
    "changes the view": "view.jobs.clear()",
    "sets attributes of the view": "view.now_s = -1e9",
    "eats memory": "Hostile.eaten = [bytearray(1 << 24) for _ in range(40)]",
    "removes its own source": "os.path.exists(__file__) and os.rename(__file__, __file__ + '.gone')",
}  # fmt: skip
#: What a policy does when its file is imported or when it is constructed; no cells run then.
LOADED = {
    "ends its process with 0": "os._exit(0)",
    "kills its process": "os.kill(os.getpid(), signal.SIGKILL)",
    "raises a BaseException": "raise type('Beyond', (BaseException,), {})('y')",
    "raises KeyboardInterrupt": "raise KeyboardInterrupt",
    "hangs": "exec('while True: pass')",
    "recurses": "exec('def f(): f()\\nf()')",
    "patches json and numpy": "json.loads = np.array = np.zeros = lambda *a, **k: 1 / 0",
    "patches sorted and open": "builtins.sorted = builtins.open = lambda *a, **k: []",
    "closes all files": "os.closerange(3, 4096)",
}
_AT = {"when imported": "imported", "when made": "made"}
NAMES = (*POLICIES, *(f"{name} {when}" for when in _AT for name in LOADED))


def prepare(folder: Path) -> None:
    """Run the good cells alone, as a reference."""
    (folder / "jobs.csv").write_text(TRACE)
    (folder / "good.py").write_text(_GOOD)
    (folder / "hostile.yaml").write_text(_EXPERIMENT.replace("  - {name: 'bad.py:Hostile', label: bad}\n", ""))
    done = run(folder, "run", "hostile.yaml", "--out", "alone", "-j", "1", "--json")
    if done.returncode:
        raise ValueError(f"the good policy alone: {done.stderr}")
    (folder / "alone.json").write_text(json.dumps(_ends(folder / "alone/hostile")))
    (folder / "hostile.yaml").write_text(_EXPERIMENT)


def attempt(folder: Path, chance: random.Random, name: str) -> Ending:
    """Run a policy between two good cells."""
    (folder / "bad.py").write_text(_source(name))
    shutil.rmtree(folder / "out", ignore_errors=True)
    workers = chance.choice(("1", "2"))
    arguments = ("run", "hostile.yaml", "--out", "out", "-j", workers, "--json", "--timeout-per-cell", str(_CELL_S))
    try:
        done = run(folder, *arguments, "--memory-per-cell", "400", seconds=6 * _CELL_S)
    except subprocess.TimeoutExpired:
        return Ending("", f"{name}: the run does not end")
    if wrong := fault(done):
        return Ending("", f"{name}: {wrong}")
    if name not in POLICIES and done.returncode == 2:
        refused = "simsched: " in done.stderr and not (folder / "out").exists()
        return Ending("refused with a message, before any cell", "" if refused else f"{name}: {done.stderr[-300:]}")
    expected = json.loads((folder / "alone.json").read_text())
    try:
        found = _ends(folder / "out/hostile")
        failed = json.loads(done.stdout)["cells"]["failed"]
    except (OSError, ValueError, KeyError) as error:
        return Ending("", f"{name}: {error!r}, exit code {done.returncode}: {done.stderr[-300:]}")
    if any(found.get(cell) != digests for cell, digests in expected.items()):
        return Ending("", f"{name}: cells of the good policy are lost or others: {done.stderr[-300:]}")
    if any(one != "bad, seed 1" for one in failed):
        return Ending("", f"{name}: cells of others fail: {failed}")
    if bool(failed) != (done.returncode == 1):
        return Ending("", f"{name}: exit code {done.returncode}, failed: {failed}")
    return Ending("lost its own cell, with a message" if failed else "harmed nobody, its cell ran")


def _source(name: str) -> str:
    """Write the policy of a name: what it does at each decision, on import or on construction."""
    parts = {"imported": "", "made": "pass"}
    for when, part in _AT.items():
        if name.endswith(when):
            parts[part] = LOADED[name.removesuffix(when).strip()]
    body = "\n".join(f"        {line}" for line in POLICIES.get(name, "pass").replace("\\n", "\n").split("\n"))
    return _HOSTILE.format(about=name, body=body, **parts)


def _ends(results: Path) -> dict[str, list[float]]:
    """Return when the jobs of each cell of the good policy ended, by label."""
    cells = read_run(results).cells
    return {cell.policy: list(map(float, cell.jobs["end_time_s"])) for cell in cells if cell.policy != "bad"}
