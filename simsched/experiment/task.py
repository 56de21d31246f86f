"""The task of a cell: one value with all inputs of its simulation, and the key that follows from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any

from simsched.agent import AgentFactory, registry as agent_registry
from simsched.applications import ApplicationsOptions
from simsched.engine import EngineOptions, FailureOptions
from simsched.experiment.canonical import digest_of
from simsched.experiment.cuts import Cuts
from simsched.experiment.policy_params import full_params, input_files, make_policy
from simsched.experiment.sharing import SharingSpec
from simsched.experiment.tuning import TuningOptions
from simsched.model import Cluster, JobSpec
from simsched.policy import Policy, registry
from simsched.results import SUMMARY
from simsched.sources import Closure, closure_of

#: The module that runs a task.
RUNNER = "simsched.experiment.running.cell"
#: Code that runs after the tables and does not count: changed summaries of complete cells are recomputed.
_AFTERWARDS = (SUMMARY, "simsched.results.reader")


@dataclass(frozen=True)
class PolicyChoice:
    """The policy of a cell; relative files count from `folder`."""

    name: str
    folder: Path
    params: Mapping[str, Any] = field(default_factory=dict)
    diagnostics: tuple[str, ...] = ()

    def load(self) -> type[Policy]:
        """Load the policy's class."""
        return registry.load(self.name, folder=self.folder)

    def make(self) -> Policy:
        """Create the policy for one run."""
        return make_policy(self.load(), self.params, self.diagnostics)

    def canonical(self) -> tuple[type[Any], dict[str, Any]]:
        """Return its class with sources, all parameters and the content of input files."""
        return _meant(self.load(), self.params, self.diagnostics)


@dataclass(frozen=True)
class AgentChoice:
    """The agents that an experiment sets for a policy; relative files count from `folder`."""

    name: str
    folder: Path
    params: Mapping[str, Any] = field(default_factory=dict)

    def load(self) -> type[AgentFactory]:
        """Load the agents' class."""
        return agent_registry.load(self.name, folder=self.folder)

    def make(self) -> AgentFactory:
        """Create the agents for one run."""
        made: AgentFactory = make_policy(self.load(), self.params)  # type: ignore[arg-type]
        return made

    def canonical(self) -> tuple[type[Any], dict[str, Any]]:
        """Return its canonical form, as for a policy."""
        return _meant(self.load(), self.params)


def _meant(
    kind: type[Any], params: Mapping[str, Any], diagnostics: tuple[str, ...] = ()
) -> tuple[type[Any], dict[str, Any]]:
    files = {name: Path(path) for name, path in input_files(kind, params).items()}
    return kind, full_params(kind, params, diagnostics) | files


@dataclass(frozen=True)
class Task:
    """All inputs of one cell, as picklable plain values.

    `key` names the cell's folder and follows from the rest; `about` is the manifest's description. With `tuning`,
    `jobs` are its trials as known in advance. With `cuts` they run in shards, which enters the key if it can change
    results. `costs` are prices and power for the summary, where given.
    """

    policy: PolicyChoice
    cluster: Cluster
    jobs: Sequence[JobSpec]
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
    cuts: Cuts | None = field(default=None, compare=False)
    key: str = field(default="", compare=False)
    about: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)


@cache
def code() -> Closure:
    """Return the cached import closure of the function that runs a task."""
    return closure_of([RUNNER], without=_AFTERWARDS)


def digest_by_name(choice: PolicyChoice | AgentChoice) -> str:
    """Hash a choice with its class by name, which distinguishes choices within a process without reading sources."""
    kind, params = choice.canonical()
    return digest_of((kind.__module__, kind.__qualname__, params))


def key_of(task: Task, known: Mapping[str, str]) -> str:
    """Return a cell's key from its simulation's inputs and code; `known` holds digests of what is shared."""
    parts = {one.name: known.get(one.name) or digest_of(getattr(task, one.name)) for one in fields(task) if one.compare}
    if task.cuts is not None and task.cuts.warm_up_s:
        parts["cuts"] = digest_of(task.cuts)
    return digest_of({**parts, "code": known.get("code") or code().digest})[:20]
