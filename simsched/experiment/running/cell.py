"""Runs one cell from its task to its folder, and tells how it ended."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache, singledispatch
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import parent_process
from pathlib import Path
from traceback import format_exc
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from simsched.applications import catalogue
from simsched.arithmetic import Series, exp, log
from simsched.engine import EngineError, features_of, simulate
from simsched.errors import InputError, safe_text, said
from simsched.experiment.physics import applications_of, settings_of
from simsched.experiment.running.limits import Limits, TimedPolicy, limited_memory
from simsched.experiment.running.store import OWN_FILES, Store
from simsched.experiment.task import Task
from simsched.experiment.tuning import TrialApplications, Tuner
from simsched.model import Application, ApplicationSource, JobSpec
from simsched.model.application import LossCurve
from simsched.model.job import values_of
from simsched.plugins import place_of, quiet_stdout
from simsched.policy import Policy
from simsched.results import Feature, TableWriter, summarise_folder
from simsched.results.integrity import SUMMARY_FILE, seal
from simsched.results.metric import LossTable, Power
from simsched.results.quality import write_losses
from simsched.results.sheets import write_trials
from simsched.results.writer import json_text
from simsched.stops import exit_code_of
from simsched.version import __version__

NO_LIMITS = Limits()
#: Result tables by name, as the writer holds them.
ResultTables = Mapping[str, Any]
_NO_TABLES: ResultTables = MappingProxyType({})


@dataclass(frozen=True)
class Filled:
    """The extra content of a cell: agent classes by application, short tables, and these as files by name.

    `about` goes into the manifest.
    """

    agents: Mapping[str, str]
    tables: ResultTables
    contents: Mapping[str, bytes]
    about: Mapping[str, Any] = field(default_factory=dict)


#: Called periodically with the simulated second and the number of finished jobs.
ProgressCallback = Callable[[float, int], None]


class CellError(Exception):
    """A cell failed; `kind` is the class of the error."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(kind, message)
        self.kind = kind
        self.message = message


def run_cell(
    task: Task,
    folder: Path,
    progress: ProgressCallback | None = None,
    limits: Limits = NO_LIMITS,
) -> float:
    """Simulate a cell and write its results below `folder`, whole or not at all; returns the seconds taken.

    Raises `CellError` if policy, engine or a limit fails it, and `InputError` if results cannot be written.
    """
    return write_cell(task, folder, lambda path: _simulate(task, path, progress, limits), limits)


def write_cell(task: Task, folder: Path, fill: Callable[[Path], Filled], limits: Limits = NO_LIMITS) -> float:
    """Have `fill` write the tables of a cell, then write what derives from them; returns and raises as `run_cell`."""
    with Store(folder).staged(task.key) as path:
        try:
            wall_s, cpu_s = time.perf_counter(), time.process_time()
            with limited_memory(limits):
                done = fill(path)
                summary = json_text(_summary(path, task.about, done.tables)).encode()
            wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
            manifest = {**_manifest(task, done.agents, wall_s, cpu_s), **done.about}
            seal(path, manifest, {**done.contents, SUMMARY_FILE: summary})
        except MemoryError as error:
            raise CellError("MemoryError", _out_of_memory(limits)) from error
        except OSError as error:
            raise CellError(type(error).__name__, f"results cannot be written: {error}") from error
    return wall_s


def _manifest(task: Task, agents: Mapping[str, str], wall_s: float, cpu_s: float) -> dict[str, Any]:
    """Describe a finished cell; only the manifest holds wall-clock times."""
    return {
        **task.about,
        "cell": task.key,
        "agents": dict(agents),
        "environment": describe_environment(),
        "timing": {"wall_s": round(wall_s, 3), "cpu_s": round(cpu_s, 3)},
    }


_PACKAGES = ("numpy", "scipy", "numba", "pandas", "pyarrow")


@cache
def describe_environment() -> dict[str, Any]:
    """Describe what this process runs: versions, platform, and the git commit of a checkout."""
    return {
        "simsched": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "git_commit": _git_commit(Path(__file__).resolve().parents[3]),
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _git_commit(checkout: Path) -> str:
    """Return the commit, with `+` if files differ from it; empty without checkout or commits."""
    if not (checkout / ".git").exists():
        return ""
    commit = _git(checkout, "rev-parse", "HEAD")
    changed = _git(checkout, "status", "--porcelain", "--untracked-files=no") if commit else ""
    return f"{commit}+" if changed else commit


def _git(checkout: Path, *arguments: str) -> str:
    command = ["git", "-C", str(checkout), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _summary(folder: Path, about: Mapping[str, Any], at_hand: ResultTables = _NO_TABLES) -> dict[str, float]:
    """Summarise a cell whose manifest is `about`, taking the tables `at_hand` from memory."""
    groups = about["cluster"]
    gpus = sum(group["nodes"] * group["gpus_per_node"] for group in groups)
    power = Power.of(groups, about["power"]) if "power" in about else None
    price = about.get("node_price_per_h")
    prices = about.get("gpu_price_per_h", {})
    by_node: list[float | Series] = []
    if prices:
        by_node = [prices[group["gpu_type"]] for group in groups for _ in range(group["nodes"])]
    sizes = [group["gpus_per_node"] for group in groups for _ in range(group["nodes"])]
    for one in about.get("market", ()):
        values = [price / sizes[len(by_node)] for price in one["values"]]
        by_node += [Series(one["step_s"], values, bill_s=about.get("bill_s", 0.0))] * one["nodes"]
    return summarise_folder(
        folder, gpus, node_price_per_h=price, power=power, gpu_price_per_h=by_node, groups=groups, at_hand=at_hand
    )


def _out_of_memory(limits: Limits) -> str:
    if limits.memory_mib is None:
        return "it ran out of memory"
    return f"it needs more than the {limits.memory_mib} MiB that --memory-per-cell allows"


def _simulate(task: Task, folder: Path, progress: ProgressCallback | None, limits: Limits) -> Filled:
    """Run the policy of a task in the engine, and write the tables."""
    applications = applications_of(task)
    with blamed(task):
        policy: Policy = task.policy.make()
        if limits.decision_s is not None:
            policy = cast("Policy", TimedPolicy(policy, limits.decision_s))
        tuner = None if task.tuning is None else Tuner(task.tuning, task.seed)
        applications = applications if tuner is None else TrialApplications(applications)
        jobs = tuple(task.jobs) if tuner is None else tuner.first()
        with table_writer(task, folder) as writer, _original_only():
            agents = simulate(
                task.cluster,
                jobs,
                applications,
                policy,
                task.engine,
                task.seed,
                writer,
                progress=progress,
                **settings_of(task),
                processes=[one.make() for one in task.processes] if tuner is None else tuner.processes(jobs),
            )
        if tuner is not None:
            write_trials(folder, tuner.trials())
        if task.losses:
            write_losses(folder, loss_tables(jobs, applications))
        write_artifacts(policy, folder)
    return Filled(agents, writer.short, writer.contents)


@contextlib.contextmanager
def blamed(task: Task) -> Iterator[None]:
    """Turn what a task's policy or the engine raises in the block into a `CellError` that names the place."""
    try:
        with quiet_stdout():
            yield
    except (InputError, MemoryError):
        raise
    except EngineError as error:
        raise CellError(type(error).__name__, str(error)) from error
    except BaseException as error:  # third-party code may raise any
        if raised_by_user(error):
            raise
        kind = task.policy.load()
        place = place_of(error, kind)
        if isinstance(error, OSError) and not place:  # the tables cannot be written
            raise
        where = f"policy '{kind.name}'" + (f" ({place})" if place else "")
        message = f"{type(error).__name__} in {where}: {said(error)}"
        raise CellError(type(error).__name__, message) from error


def raised_by_user(error: BaseException) -> bool:
    """Return whether an error is the user's interrupt; a worker ignores those, so there only a policy raises it."""
    is_worker = parent_process() is not None and signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    return exit_code_of(error) > 0 and not is_worker


def table_writer(task: Task, folder: Path) -> TableWriter:
    """Return a writer of the tables of a task."""
    source = catalogue(task.applications)
    plans = any(source.has_plans(name) for name in sorted(set(values_of(task.jobs, "application"))))
    features = features_of(task.cluster, task.jobs, task.engine, task.failures, plans=plans)
    if task.processes:  # which may stop nodes, and submit jobs with all that a job may have
        features |= {Feature.FAILURES, Feature.DEADLINES, Feature.QUEUES, Feature.PLANS}
    return TableWriter(folder, features=features, keep_short=True)


def write_artifacts(policy: Policy, folder: Path) -> None:
    """Write a policy's artifacts next to the tables; raises `ValueError` for a bad or reserved file name."""
    for name, text in sorted(policy.artifacts().items()):
        if not name or name in OWN_FILES or name.startswith(".") or Path(name).name != name:
            raise ValueError(f"an artifact cannot be called '{name}'")
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


@contextlib.contextmanager
def _original_only() -> Iterator[None]:
    """End any copy of this process that a policy forked when the block ends, as it would write the same files."""
    process = os.getpid()
    try:
        yield
    finally:
        if os.getpid() != process:
            os._exit(0)


_POINTS = 400


def loss_tables(jobs: Sequence[JobSpec], applications: ApplicationSource) -> dict[str, LossTable]:
    """Return a loss table for each of the jobs' applications with a loss curve."""
    found: dict[str, LossTable] = {}
    for job in {job.request.application: job for job in jobs}.values():
        app = applications.for_job(job.request, job.truth)
        if app.loss_curve is not None:
            found[app.name] = loss_table(app, app.loss_curve)
    return found


def loss_table(app: Application, curve: LossCurve) -> LossTable:
    """Return the losses of a full training, from 1 to 0, at points denser at the start."""
    epochs = exp(np.linspace(0, log(1.0 + app.epochs), _POINTS)) - 1.0
    losses = curve.at(epochs)
    ends = [0.0, *(app.epoch_end(epoch) for epoch in range(app.epochs))]
    progress = np.interp(epochs, np.arange(app.epochs + 1.0), ends)
    normalised = (losses - losses[-1]) / (losses[0] - losses[-1])
    return LossTable(tuple(progress.tolist()), tuple(normalised.tolist()))


#: Creates the cell of a task by the task's class: a simulation, unless the module of the class registers another
#: function.
make_cell = singledispatch(run_cell)


@dataclass(frozen=True)
class Outcome:
    """How a cell ended: its seconds, or why it failed.

    `died` if its process vanished.
    """

    wall_s: float = 0.0
    error: str = ""
    traceback: str = ""
    died: bool = False

    def packed(self) -> bytes:
        """Serialise to plain numbers and text."""
        return json.dumps(asdict(self)).encode("ascii")

    @staticmethod
    def unpacked(content: bytes) -> Outcome | None:
        """Deserialise what `packed` wrote, None for anything else."""
        try:
            values = json.loads(content)
            types = {field.name: type(field.default) for field in fields(Outcome)}
            fits = values.keys() == types.keys() and all(type(values[name]) is kind for name, kind in types.items())
            return Outcome(**values) if fits else None
        except (ValueError, AttributeError, RecursionError):
            return None


def say_nothing(now_s: float, finished_jobs: int) -> None:
    """Ignore progress."""


def run_to_outcome(
    task: Task,
    folder: Path,
    report: Callable[[float, int], None],
    limits: Limits = NO_LIMITS,
) -> Outcome:
    """Make a cell; errors become an outcome with safe text, except interrupts."""
    return outcome_of(lambda: make_cell(task, folder, report, limits))


def outcome_of(work: Callable[[], float]) -> Outcome:
    """Create a cell and return the seconds taken; otherwise as `run_to_outcome`."""
    try:
        return Outcome(wall_s=work())
    except CellError as error:
        return failed(error.message)
    except InputError as error:
        return failed(said(error))
    except BaseException as error:
        if raised_by_user(error):
            raise
        return failed(f"internal error: {type(error).__name__}: {said(error)}")


def failed(message: str) -> Outcome:
    """Return the outcome of a cell that failed with the current exception."""
    trace = "its traceback cannot be shown"
    with contextlib.suppress(Exception):  # an exception's own methods may raise
        trace = format_exc()
    return Outcome(error=safe_text(message), traceback=safe_text(trace))
