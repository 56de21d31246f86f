"""Compare simsched with AccaSim and with textbook Python code on the same jobs, and time traces and commands.

Usage: python benchmarks/compare.py [--jobs N] [--accasim PYTHON] [--curve JOBS ...] [--commands] [--philly FILE]
                                    [--write]

The jobs arrive at 64 nodes of 8 GPUs at load 0.85, and may spread over nodes. Each line measures a separate process,
with those that it starts, from the start of Python to its results on disk: user and system CPU, and largest memory of
one. AccaSim is not a dependency: PYTHON is an interpreter that has it (`pip install accasim`), by default this one;
without AccaSim its lines are left out. The curves are those of simsched on 2,000 nodes; `--commands` times whole
commands, with the fits of one separately, and with Philly's published trace a replay of it. `--write` writes the output
to docs/performance.md and its figure.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from calendar import timegm
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import process_time_ns, strptime
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
NODES, PER_NODE, LOAD = 64, 8, 0.85
CURVE_NODES = 2_000
CONSERVATIVE = "conservative"
SIZES, SHARES = (1, 2, 4, 8, 16, 32), (0.4, 0.2, 0.15, 0.15, 0.07, 0.03)
PAGE, FIGURE = ROOT / "docs/performance.md", ROOT / "docs/figures/trace-scale.png"
ACCASIM = """\
import collections, collections.abc, sys
for name in ("Mapping", "MutableMapping", "Iterable", "Sequence", "Callable"):  # it is of Python 3.9 and before
    setattr(collections, name, getattr(collections.abc, name))
from accasim.base.allocator_class import FirstFit
from accasim.base.scheduler_class import EASYBackfilling, FirstInFirstOut
from accasim.base.simulator_class import Simulator
if __name__ == "__main__":
    policy, workload, system, out = sys.argv[1:]
    dispatcher = {"FIFO": FirstInFirstOut, "EASY": EASYBackfilling}[policy](FirstFit())
    Simulator(workload, system, dispatcher, RESULTS_FOLDER_PATH=out, statistics_output=False, show_statistics=False,
              LOG_LEVEL="ERROR").start_simulation()
"""
#: Starts a process from a small one, since a child's peak memory includes that of the process that it was forked from.
#: Orphans of the process become children of the small one (option 36 of Linux's prctl), which waits for them too.
LAUNCHER = """\
import ctypes, json, os, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
child = os.fork()
if not child:
    said = os.open("said.txt", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.dup2(said, 1)
    os.dup2(said, 2)
    os.execv(sys.argv[1], sys.argv[1:])
cpu_s, kib, failed = 0.0, 0, True
try:
    while True:
        process, status, used = os.wait4(-1, 0)
        cpu_s, kib = cpu_s + used.ru_utime + used.ru_stime, max(kib, used.ru_maxrss)
        failed = status != 0 if process == child else failed
except ChildProcessError:
    print(json.dumps([cpu_s, kib]))
    sys.exit(failed)
"""
#: The input of the commands: 100 cells of few jobs.
CELLS = """\
cluster: {nodes: 16, gpus_per_node: 8, gpu_type: t4}
workload: {recipe: log-normal, jobs: 60, median_s: 600, mean_s: 3000, mean_gpus: 3, widest: 16, offered_load: 1.2}
engine: {restart_delay_s: 0}
policies: [fifo, srtf, tiresias, las, sjf]
report: {plots: false}
"""
RUNS, SEEDS = 20, 20


@dataclass(frozen=True)
class Measured:
    """The cost of a process, and the ends of its jobs by number if requested."""

    cpu_s: float
    mib: float
    ends_s: dict[int, int] = field(default_factory=dict)


def draw(jobs: int, nodes: int, seed: int = 1) -> list[tuple[int, int, int, int]]:
    """Draw jobs: submission, GPUs, duration and the user's estimate, one to three times as long."""
    rng = np.random.default_rng(seed)
    gpus = rng.choice(SIZES, jobs, p=SHARES)
    runs_s = np.clip(rng.lognormal(7, 1.5, jobs), 10, 5 * 86_400).astype(int)
    estimates_s = np.ceil(runs_s * (1 + 2 * rng.random(jobs))).astype(int)
    gaps_s = rng.exponential((gpus * runs_s).sum() / (LOAD * nodes * PER_NODE) / jobs, jobs)
    columns = (np.cumsum(gaps_s).astype(int), gpus, runs_s, estimates_s)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def measured(command: list[str], folder: Path) -> tuple[float, float]:
    """Run a command and return its CPU seconds and largest memory in MiB."""
    environment = {**os.environ, "SIMSCHED_CHECK_INVARIANTS": "0"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    launch = [sys.executable, "-I", "-S", "-c", LAUNCHER, *command]
    done = subprocess.run(launch, cwd=folder, env=environment, stdout=subprocess.PIPE, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{(folder / 'said.txt').read_text()}")
    cpu_s, kib = json.loads(done.stdout)
    return cpu_s, kib / 1024


def simsched(policy: str, nodes: int, folder: Path) -> Measured:
    """Run simsched on the trace in a folder."""
    return Measured(*measured([sys.executable, __file__, "--one", policy, "--nodes", str(nodes)], folder))


def with_ends(found: Measured, folder: Path) -> Measured:
    """Return the cost of a run of simsched, with the ends of its jobs."""
    from simsched.results import read_table

    jobs = read_table(folder, "jobs", ["job_id", "end_time_s"])
    ends = zip(jobs["job_id"].str.removeprefix("job-").astype(int), jobs["end_time_s"].astype(int), strict=True)
    return replace(found, ends_s=dict(ends))


def one(policy: str, nodes: int) -> None:
    """Replay `trace.csv` in this process, set up as by the command, and write the tables next to it."""
    from simsched.threads import memory_given_back, one_thread_each

    one_thread_each()
    memory_given_back()
    from simsched_policies.production.slurm.options import Backfill
    from simsched_policies.production.slurm.policy import SlurmBackfill
    from simsched_policies.queues.by_key import Fifo

    from simsched.applications import ApplicationsOptions, catalogue
    from simsched.engine import EngineOptions, simulate
    from simsched.model import Cluster
    from simsched.results import TableWriter
    from simsched.workload import WorkloadOptions, make_workload

    jobs = make_workload(WorkloadOptions(source="trace.csv", recipe="replay"), 1)
    kind = "conservative" if policy == CONSERVATIVE else "easy"
    made = Fifo() if policy == "FIFO" else SlurmBackfill(Backfill(kind, max_jobs=10**9, window_s=10**9))
    with TableWriter(Path()) as writer:
        options, known = EngineOptions(restart_delay_s=0), catalogue(ApplicationsOptions())
        simulate(Cluster.uniform(nodes, PER_NODE), jobs, known, made, options, 1, writer)


def accasim(python: str, policy: str, folder: Path) -> Measured:
    """Run AccaSim on the workload in a folder."""
    out = folder / f"accasim-{policy}"
    out.mkdir()
    taken = measured([python, "accasim_run.py", policy, "workload.swf", "system.json", str(out)], folder)
    ends = {}
    (plan,) = out.iterdir()
    for line in plan.read_text().splitlines():  # number;user;...;end;...
        parts = line.split(";")
        ends[int(parts[0]) - 1] = timegm(strptime(parts[-6], "%Y-%m-%d %H:%M:%S"))
    return Measured(*taken, ends)


def textbook(policy: str, folder: Path) -> Measured:
    """Run the textbook's rules on the jobs in a folder, in a process that only counts GPUs."""
    taken = measured([sys.executable, __file__, "--textbook", policy], folder)
    return Measured(*taken, dict(enumerate(json.loads((folder / "ends.json").read_text()))))


def in_textbook(policy: str) -> None:
    """Replay `jobs.json` by the textbook in this process."""
    sys.path.insert(0, str(ROOT))
    from tests.validation.oracles.easy import Job, textbook_easy

    jobs = [Job(*job) for job in json.loads(Path("jobs.json").read_text())]
    ends_s = textbook_easy(jobs, NODES * PER_NODE, backfill=policy == "EASY")
    Path("ends.json").write_text(json.dumps(ends_s))


def write_trace(jobs: list[tuple[int, int, int, int]], folder: Path) -> None:
    """Write the jobs as simsched reads them."""
    rows = "".join(f"job-{n},{','.join(map(str, job))}\n" for n, job in enumerate(jobs))
    (folder / "trace.csv").write_text("job_id,submit_time,num_gpus,duration,time_limit_s\n" + rows)


def write_inputs(jobs: list[tuple[int, int, int, int]], folder: Path) -> None:
    """Write the jobs as each of the three reads them."""
    write_trace(jobs, folder)
    (folder / "jobs.json").write_text(json.dumps(jobs))
    swf = "{} {} -1 {} {} -1 -1 {} {} -1 1 1 1 1 1 1 -1 -1\n"
    lines = (swf.format(n, at, lasts, gpus, gpus, said) for n, (at, gpus, lasts, said) in enumerate(jobs, start=1))
    (folder / "workload.swf").write_text("".join(lines))
    (folder / "accasim_run.py").write_text(ACCASIM)
    system = {"groups": {"g0": {"core": PER_NODE}}, "resources": {"g0": NODES}, "start_time": 0}
    (folder / "system.json").write_text(json.dumps({**system, "equivalence": {"processor": {"core": 1}}}))


def has_accasim(python: str) -> bool:
    """Return whether an interpreter has AccaSim."""
    looks = "import importlib.util, sys; sys.exit(importlib.util.find_spec('accasim') is None)"
    return subprocess.run([python, "-c", looks], check=False).returncode == 0


def against_others(jobs: int, python: str, folder: Path) -> str:
    """Return the table of costs, and how many jobs end as under simsched."""
    drawn = draw(jobs, NODES)
    first_s = drawn[0][0]  # simsched counts from the first submission
    write_inputs([(at - first_s, *rest) for at, *rest in drawn], folder)  # type: ignore[misc]
    lines = ["| | policy | CPU (s) | memory (MiB) | jobs with the same end |", "|---|---|---:|---:|---:|"]
    for policy in ("FIFO", "EASY"):
        found = {"simsched": with_ends(simsched(policy, NODES, folder), folder)}
        if has_accasim(python):
            found["AccaSim"] = accasim(python, policy, folder)
        found["textbook, counts only"] = textbook(policy, folder)
        ours = found["simsched"].ends_s
        for name, other in found.items():
            same = sum(other.ends_s.get(n) == end for n, end in ours.items())
            equal = "" if name == "simsched" else f"{same:,} of {len(ours):,}"
            lines.append(f"| {name} | {policy} | {other.cpu_s:.1f} | {other.mib:.0f} | {equal} |")
            print(lines[-1], file=sys.stderr, flush=True)
    plan = simsched(CONSERVATIVE, NODES, folder)
    lines.append(f"| simsched | {CONSERVATIVE} backfill | {plan.cpu_s:.1f} | {plan.mib:.0f} |  |")
    return "\n".join(lines)


def in_fits() -> None:
    """Print the CPU times of the fits of the workload above in this process, each the least of three."""
    import importlib

    import simsched

    module = importlib.import_module("simsched.agent.fit")  # the package's door has a function of that name
    fit, given = module.fit, []

    def noted(profile: dict[Any, Any], **more: Any) -> Any:
        given.append((dict(profile), more))
        return fit(profile, **more)

    module.fit = noted
    with tempfile.TemporaryDirectory() as out:
        simsched.run("quickstart", {"seeds": 1, "report.plots": False}, policies=["pollux"], out=out, in_process=True)
    taken_ms = []
    for profile, more in given:
        times_ns = []
        for _ in range(3):
            begin_ns = process_time_ns()
            fit(profile, **more)
            times_ns.append(process_time_ns() - begin_ns)
        taken_ms.append(min(times_ns) / 1e6)
    mean_ms, median_ms = float(np.mean(taken_ms)), float(np.median(taken_ms))
    said = f"The workload under Pollux makes {len(given):,} fits, with a mean of {mean_ms:.2f} ms and a median of"
    Path("fits.txt").write_text(f"{said} {median_ms:.2f} ms of CPU each.")


def whole_commands(folder: Path, philly: Path | None) -> str:
    """Return the table of costs of whole commands, each with cached bytecode and compiled kernels."""
    command = str(Path(sys.executable).with_name("simsched"))
    for number in range(RUNS):
        seeds = list(range(SEEDS * number, SEEDS * (number + 1)))
        (folder / f"run-{number}.yaml").write_text(f"name: run-{number}\nseeds: {seeds}\n{CELLS}")
        measured([command, "run", f"run-{number}.yaml", "--out", "runs"], folder)
    measured([command, "report", "runs/run-0"], folder)
    on_one = "run quickstart --policy pollux -o seeds=1 --no-plots -j 1"
    measured([command, *on_one.split(), "-o", "workload.jobs=5", "--name", "first"], folder)
    lines = ["| command | what it does | CPU (s) | memory (MiB) |", "|---|---|---:|---:|"]
    for text, said in {
        "list policies": "shows all policies",
        "validate quickstart": "checks 48 cells",
        f"{on_one} --name one": "160 jobs under Pollux",
        "plot results/one --figure bars": "draws a figure",
        "report runs -j 1": f"{RUNS} runs of {5 * SEEDS} cells",
        "run philly-full --policy Tiresias-L -o workload.path=PHILLY --no-plots -j 1": "82,247 jobs under Tiresias-L",
    }.items():
        if "PHILLY" in text and philly is None:
            continue
        given = [command, *text.replace("PHILLY", str(philly)).split()]
        if given[1] in ("list", "validate", "plot"):
            measured(given, folder)
        taken = Measured(*measured(given, folder))
        lines.append(f"| `simsched {text}` | {said} | {taken.cpu_s:.2f} | {taken.mib:.0f} |")
        print(lines[-1], file=sys.stderr, flush=True)
    measured([sys.executable, __file__, "--fits"], folder)
    return "\n".join([*lines, "", (folder / "fits.txt").read_text()])


def curves(sizes: list[int], folder: Path) -> tuple[str, list[tuple[int, str, Measured]]]:
    """Return the table of longer traces, and its figures."""
    rows = []
    for jobs in sizes:
        write_trace(draw(jobs, CURVE_NODES), folder)
        rows += [(jobs, policy, simsched(policy, CURVE_NODES, folder)) for policy in ("FIFO", "EASY")]
    lines = ["| jobs | policy | CPU (s) | per job (µs) | memory (MiB) |", "|---:|---|---:|---:|---:|"]
    lines += [
        f"| {jobs:,} | {policy} | {one.cpu_s:.1f} | {1e6 * one.cpu_s / jobs:.0f} | {one.mib:.0f} |"
        for jobs, policy, one in rows
    ]
    return "\n".join(lines), rows


def plot(rows: list[tuple[int, str, Measured]]) -> None:
    """Draw CPU time, beside a proportional line, and memory against jobs."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for policy in ("FIFO", "EASY"):
        own = [(jobs, one) for jobs, name, one in rows if name == policy]
        left.loglog([jobs for jobs, _ in own], [one.cpu_s for _, one in own], "o-", label=policy)
        right.semilogx([jobs for jobs, _ in own], [one.mib for _, one in own], "o-", label=policy)
    sizes = sorted({jobs for jobs, _, _ in rows})
    last_s = max(one.cpu_s for jobs, _, one in rows if jobs == sizes[-1])
    left.loglog(sizes, [last_s * jobs / sizes[-1] for jobs in sizes], ":", color="0.4", label="in proportion")
    left.set(xlabel="jobs", ylabel="CPU time of one core (s)")
    right.set(xlabel="jobs", ylabel="largest memory (MiB)", ylim=(0, None))
    left.legend(frameon=False)
    figure.savefig(FIGURE, dpi=150, metadata={"Software": None})


def page(table: str, curve: str, commands: str, jobs: int, sizes: list[int]) -> str:
    """Return the page of these tables."""
    python, cores = platform.python_version(), os.cpu_count()
    return f"""# Performance

Measured on one machine ({platform.machine()}, {cores} cores, Python {python}) by

    python benchmarks/compare.py --accasim PYTHON --curve {" ".join(map(str, sizes))} --commands --philly PHILLY --write

PYTHON is an interpreter with AccaSim 1.1.3, and PHILLY is Philly's published trace. Each row is a separate
process, from the start of Python to the results on disk, on one core. Times on a shared machine vary; ratios within one
run do not.

## The same jobs

The workload has {jobs:,} jobs, which may spread over nodes, on {NODES} nodes of {PER_NODE} GPUs at load {LOAD}:

{table}

The last column counts jobs that end at the same second as under simsched. AccaSim's EASY differs; a likely reason, not
tested here, is that it does not protect its one reservation. The textbook program is
`tests/validation/oracles/easy.py`, written from the definition, and only counts GPUs: it has no placement, no tables
and no other policy.

## Longer traces

The same kind of jobs on {CURVE_NODES:,} nodes:

{curve}

![CPU time and memory against the number of jobs](figures/trace-scale.png)

## Whole commands

These runs use cached bytecode and compiled kernels; the CPU time covers all processes of a command, the memory is that
of the largest:

{commands}
"""


def main() -> None:
    """Print the tables, and write the page if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--accasim", metavar="PYTHON", default=sys.executable)
    parser.add_argument("--curve", type=int, nargs="*", default=[], metavar="JOBS")
    parser.add_argument("--commands", action="store_true", help="time whole commands too")
    parser.add_argument("--philly", type=Path, metavar="FILE", help="Philly's published trace, for one more command")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--one", metavar="POLICY", help=argparse.SUPPRESS)
    parser.add_argument("--textbook", metavar="POLICY", help=argparse.SUPPRESS)
    parser.add_argument("--fits", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--nodes", type=int, default=NODES, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.write and not (given.curve and given.commands and given.philly):
        parser.error("--write needs --curve, --commands and --philly")
    if given.fits:
        in_fits()
        return
    if given.one or given.textbook:
        one(given.one, given.nodes) if given.one else in_textbook(given.textbook)
        return
    python = str(Path(given.accasim).absolute())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_inputs(draw(300, NODES), folder)
        simsched(CONSERVATIVE, NODES, folder)  # compiles missing kernels
        table = against_others(given.jobs, python, folder)
        curve, rows = curves(given.curve, folder)
        commands = whole_commands(folder, given.philly and given.philly.absolute()) if given.commands else ""
    print("\n\n".join(part for part, made in ((table, True), (curve, rows), (commands, commands)) if made))
    if given.write:
        plot(rows)
        PAGE.write_text(page(table, curve, commands, given.jobs, given.curve), encoding="utf-8")


if __name__ == "__main__":
    main()
