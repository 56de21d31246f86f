"""Runs one cell from its task to its folder, in this process or another."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from simsched.agent.agent import AgentFactory
from simsched.applications.catalogue import catalogue
from simsched.applications.duration_by_type import with_speeds
from simsched.closed_loop.hyperparameter_tuning import TrialApplications, Tuner
from simsched.engine.errors import EngineError
from simsched.engine.simulation import simulate
from simsched.errors import InputError
from simsched.execution.manifest import cell_manifest
from simsched.execution.store import Store
from simsched.experiment.grid import Task
from simsched.experiment.physics import colocation_of
from simsched.experiment.policy_params import make_policy
from simsched.model.application import ApplicationSource
from simsched.policy import Policy, registry
from simsched.results.reader import MANIFEST_FILE, SUMMARY_FILE
from simsched.results.schema import FAILURES, FINE_TIME, SHARING, TABLES
from simsched.results.summary import summarise_folder
from simsched.results.trials import TRIALS_FILE, write_trials
from simsched.results.writer import TableWriter, write_json

#: Called now and then with the simulated second and the number of finished jobs.
ProgressCallback = Callable[[float, int], None]


class CellError(Exception):
    """A cell could not be run to its end; `kind` is the class of what happened, the message says the rest."""

    def __init__(self, kind: str, message: str) -> None:
        """Keep kind and message, both plain text, so that the error can cross from one process to another."""
        super().__init__(kind, message)
        self.kind = kind
        self.message = message


def run_cell(
    task: Task, folder: Path, environment: Mapping[str, Any], progress: ProgressCallback | None = None
) -> float:
    """Simulate a cell and put its results below `folder`; returns the seconds that it took.

    The cell's own folder appears whole or not at all. Raises `CellError` where the policy or the engine fails, and
    `InputError` where results cannot be written.
    """
    store = Store(folder)
    staged = store.begin(task.key)
    try:
        wall_s, cpu_s = time.perf_counter(), time.process_time()
        agents = _simulate(task, staged.path, progress)
        gpus, price = task.cluster.total_gpus, task.node_price_per_h
        write_json(staged.path / SUMMARY_FILE, summarise_folder(staged.path, gpus, node_price_per_h=price))
        wall_s, cpu_s = time.perf_counter() - wall_s, time.process_time() - cpu_s
        write_json(staged.path / MANIFEST_FILE, cell_manifest(task, agents, environment, wall_s, cpu_s))
    except BaseException:
        store.discard(staged)
        raise
    store.publish(staged, task.key)
    return wall_s


def _simulate(task: Task, temporary: Path, progress: ProgressCallback | None) -> Mapping[str, str]:
    applications = with_speeds(catalogue(task.applications), task.gpu_speed, task.cluster)
    kind = registry.load(task.policy, folder=task.policy_folder)
    try:
        policy = make_policy(kind, task.params, task.diagnostics)
        agents = None if task.agent is None else task.agent.make(task.policy_folder)
        used = _run(task, policy, agents, applications, temporary, progress)
        write_artifacts(policy, temporary)
    except (InputError, Cancelled):
        raise
    except EngineError as error:
        raise CellError(type(error).__name__, str(error)) from error
    except OSError as error:
        raise CellError(type(error).__name__, f"results cannot be written: {error}") from error
    except Exception as error:  # a stranger's policy may raise anything; its own traceback is shown with --debug
        raise CellError(type(error).__name__, f"{type(error).__name__} in policy '{task.policy}': {error}") from error
    return used


def _run(
    task: Task,
    policy: Policy,
    agents: AgentFactory | None,
    applications: ApplicationSource,
    temporary: Path,
    progress: ProgressCallback | None,
) -> Mapping[str, str]:
    """Simulate the jobs of a task, or hyper-parameter tuning that makes them as it goes."""
    tuner = None if task.tuning is None else Tuner(task.tuning, task.seed)
    source = applications if tuner is None else TrialApplications(applications)
    jobs, reply = (task.jobs, None) if tuner is None else (tuner.first(), tuner.on_finish)
    with TableWriter(temporary, features=_features(task)) as writer:
        used = simulate(
            task.cluster,
            jobs,
            source,
            policy,
            task.engine,
            task.seed,
            writer,
            progress,
            agents=agents,
            colocation=colocation_of(task.sharing),
            on_finish=reply,
            failures=task.failures,
        )
    if tuner is not None:
        write_trials(temporary, tuner.trials())
    return used


def _features(task: Task) -> set[str]:
    """Return the features of the engine that show in the tables."""
    options = task.engine
    found = {SHARING} if options.max_jobs_per_gpu > 1 else set()
    found |= set() if task.failures is None else {FAILURES}
    return found | ({FINE_TIME} if options.tick_s != 1 else set())


def write_artifacts(policy: Policy, folder: Path) -> None:
    """Write what a policy leaves for later beside the tables; `ValueError` for a name that is no file's of its own."""
    leave = getattr(policy, "artifacts", dict)  # a policy need not be a subclass of Policy
    for name, text in sorted(leave().items()):
        taken = {MANIFEST_FILE, SUMMARY_FILE, TRIALS_FILE, *(table.file for table in TABLES.values())}
        if not name or name in taken or name.startswith(".") or Path(name).name != name:
            message = f"an artifact cannot be called '{name}'"
            raise ValueError(message)
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


class Cancelled(Exception):  # noqa: N818 (not a failure: the user has stopped the run)
    """The run is being stopped; the cell ends as soon as it notices."""
