"""The task of a cell: one value with all inputs of its simulation, and the key that follows from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

from simsched.agent import AGENTS
from simsched.applications import ApplicationsOptions
from simsched.engine import PROCESSES, EngineOptions, FailureOptions
from simsched.experiment.canonical import digest_of
from simsched.experiment.cuts import Cuts
from simsched.experiment.policy_params import converted, full_params, input_files, make_policy
from simsched.experiment.sharing import SharingSpec
from simsched.experiment.tuning import TuningOptions
from simsched.model import Cluster, JobSpec
from simsched.plugins import Kind
from simsched.policy import POLICIES
from simsched.sources import code


@dataclass(frozen=True)
class Chosen:
    """A plugin of a cell with its parameters; relative files count from `folder`."""

    kind: ClassVar[Kind]
    name: str
    folder: Path
    params: Mapping[str, Any] = field(default_factory=dict)
    diagnostics: tuple[str, ...] = ()

    def load(self) -> type[Any]:
        """Load its class, or its function."""
        return self.kind.load(self.name, folder=self.folder)

    def make(self) -> Any:
        """Create it for one run."""
        return make_policy(self.load(), self.params, self.diagnostics)

    def canonical(self) -> tuple[type[Any], dict[str, Any]]:
        """Return its class with sources, all parameters and the content of input files."""
        plugin = self.load()
        files = {name: Path(path) for name, path in input_files(plugin, self.params).items()}
        return plugin, full_params(plugin, self.params, self.diagnostics) | files


class PolicyChoice(Chosen):
    """The policy of a cell."""

    kind = POLICIES


class AgentChoice(Chosen):
    """The agents that an experiment sets for a policy."""

    kind = AGENTS


class ProcessChoice(Chosen):
    """A process beside the cluster."""

    kind = PROCESSES

    def make(self) -> tuple[type[Any], dict[str, Any]]:
        """Return it with its parameters, for a simulation to start."""
        return self.load(), converted(self.load(), self.params)


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
    processes: tuple[ProcessChoice, ...] = ()
    cuts: Cuts | None = field(default=None, compare=False)
    key: str = field(default="", compare=False)
    about: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def plugins(self) -> tuple[Chosen, ...]:
        """The policy, then the agents that the experiment sets, then the processes."""
        return (self.policy, *(() if self.agent is None else (self.agent,)), *self.processes)


def digest_by_name(choice: Chosen) -> str:
    """Hash a choice with its class by name, which distinguishes choices within a process without reading sources."""
    kind, params = choice.canonical()
    return digest_of((kind.__module__, kind.__qualname__, params))


def key_of(task: Task, known: Mapping[str, str]) -> str:
    """Return a cell's key from its simulation's inputs and code; `known` holds digests of what is shared."""
    parts = {one.name: known.get(one.name) or digest_of(getattr(task, one.name)) for one in fields(task) if one.compare}
    if task.cuts is not None and task.cuts.warm_up_s:
        parts["cuts"] = digest_of(task.cuts)
    return digest_of({**parts, "code": known.get("code") or code().digest})[:20]
