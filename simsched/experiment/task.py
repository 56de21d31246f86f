"""The task of a cell: one value that holds everything its simulation is given, and the key that follows from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

from simsched.agent import AgentFactory, registry as agent_registry
from simsched.applications import ApplicationsOptions
from simsched.engine import EngineOptions, FailureOptions
from simsched.experiment.canonical import digest_of
from simsched.experiment.closed_loop.hyperparameter_tuning import TuningOptions
from simsched.experiment.policy_params import full_params, input_files, make_policy
from simsched.experiment.sharing import SharingSpec
from simsched.model import Cluster, JobSpec
from simsched.policy import Policy, registry
from simsched.results import SUMMARY
from simsched.sources import Closure, closure_of

#: The module that runs a task.
RUNNER = "simsched.experiment.running.cell"
#: What comes after the tables, and does not count: the summaries of complete cells are renewed where it has changed.
_AFTERWARDS = (SUMMARY, "simsched.results.reader")


@dataclass(frozen=True)
class PolicyChoice:
    """The policy of a cell; a relative file counts from `folder`."""

    name: str
    folder: Path
    params: Mapping[str, Any] = field(default_factory=dict)
    diagnostics: tuple[str, ...] = ()

    def load(self) -> type[Policy]:
        """Find the class of the policy."""
        return registry.load(self.name, folder=self.folder)

    def make(self) -> Policy:
        """Make the policy of one run."""
        return make_policy(self.load(), self.params, self.diagnostics)

    def canonical(self) -> object:
        """Return what it stands for: a class with its sources, all parameters, and the content of files they name."""
        return _meant(self.load(), self.params, self.diagnostics)


@dataclass(frozen=True)
class AgentChoice:
    """The agents that an experiment names for a policy, instead of its own; a relative file counts from `folder`."""

    name: str
    folder: Path
    params: Mapping[str, Any] = field(default_factory=dict)

    def load(self) -> type[AgentFactory]:
        """Find the class of the agents."""
        return agent_registry.load(self.name, folder=self.folder)

    def make(self) -> AgentFactory:
        """Make the agents of one run."""
        made: AgentFactory = make_policy(self.load(), self.params)  # type: ignore[arg-type]
        return made

    def canonical(self) -> object:
        """Return what it stands for, as for a policy."""
        return _meant(self.load(), self.params)


def _meant(kind: type[Any], params: Mapping[str, Any], diagnostics: tuple[str, ...] = ()) -> object:
    files = {name: Path(path) for name, path in input_files(kind, params).items()}
    return kind, full_params(kind, params, diagnostics) | files


@dataclass(frozen=True)
class Task:
    """All that is needed to run one cell, as plain values that can be sent to another process.

    `key` names the cell's folder and follows from the others; `about` is what its manifest says of them. With
    hyper-parameter `tuning`, `jobs` are its trials as far as they are known beforehand. `costs` are the prices and the
    power by which its summary counts, each where the experiment has it.
    """

    policy: PolicyChoice
    cluster: Cluster
    jobs: tuple[JobSpec, ...]
    applications: ApplicationsOptions
    engine: EngineOptions
    seed: int
    tuning: TuningOptions | None = None
    agent: AgentChoice | None = None
    sharing: SharingSpec | None = None
    failures: FailureOptions | None = None
    gpu_speed: Mapping[str, float] = field(default_factory=dict)
    losses: bool = False
    costs: Mapping[str, Any] = field(default_factory=dict)
    key: str = field(default="", compare=False)
    about: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)


@cache
def code() -> Closure:
    """Return what the function that runs a task depends on, found once in a process."""
    return closure_of([RUNNER], without=_AFTERWARDS)


def key_of(task: Task, known: Mapping[str, str]) -> str:
    """Name a cell by all that its simulation is given and the code that runs it.

    `known` are digests of some fields by name, for what several tasks have in common.
    """
    parts = {one.name: known.get(one.name) or digest_of(getattr(task, one.name)) for one in fields(task) if one.compare}
    return digest_of({**parts, "code": code().digest})[:20]
