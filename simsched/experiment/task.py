"""The task of a cell, one value with all inputs of its simulation, and the key that follows from its canonical form.

Equal values have equal canonical text, whatever their objects. A dataclass, named tuple or section is represented by
its class and all compared fields, a path or field marked `INPUT_FILE` by its content, and a plugin's class or function
by its sources. A method `canonical` returns a substitute.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field, fields, replace
from enum import Enum
from functools import lru_cache
from itertools import repeat
from operator import attrgetter
from pathlib import Path
from types import FunctionType
from typing import Any, ClassVar, cast, get_args, get_type_hints

import numpy as np
from pydantic import BaseModel

from simsched.agent import AGENTS
from simsched.applications import ApplicationsOptions
from simsched.engine import PROCESSES, SEMANTICS, EngineOptions, FailureOptions
from simsched.experiment.cluster import ClusterSpec, market_of, prices_of
from simsched.experiment.cuts import Cuts
from simsched.experiment.policy_params import converted, full_params, input_files, make_policy
from simsched.experiment.spec import SharingSpec
from simsched.experiment.tuning import TuningOptions
from simsched.keys import INPUT_FILE
from simsched.model import Cluster, JobSpec
from simsched.plugins import Kind
from simsched.policy import POLICIES, Policy
from simsched.policy.signals import known_by
from simsched.results.rows import SCHEMA_VERSION
from simsched.sources import code, content_of, plugin_code

#: Types whose `repr` is canonical; a float's has all digits.
_PLAIN = frozenset({type(None), bool, int, float, str, bytes})


def digest_of(value: Any) -> str:
    """Hash the canonical form of a value, in 64 hexadecimal digits.

    Raises `TypeError` for a value without one, and `InputError` for an unreadable input file.
    """
    found = hashlib.sha256()
    for piece in _listed(value) if type(value) in (tuple, list) else (canonical(value),):
        found.update(piece.encode())
    return found.hexdigest()


def canonical(value: Any) -> str:
    """Return a value's canonical form; raises as `digest_of` does."""
    kind = type(value)
    if kind in _PLAIN:
        return repr(value)
    if isinstance(value, type | FunctionType):
        return f"class {value.__qualname__} {plugin_code(cast('type[Any]', value)).digest}"
    if hasattr(value, "canonical"):
        return f"{kind.__qualname__}:{canonical(value.canonical())}"
    if isinstance(value, Path):
        return f"content {content_of(value)}"
    if isinstance(value, Enum):
        return f"{kind.__qualname__}.{value.name}"
    form = _form_of(cast("Hashable", kind))
    if form is not None:
        return _fields(form, value)
    if isinstance(value, tuple | list):
        return "".join(_listed(value))
    if isinstance(value, Mapping):
        return f"{{{','.join(sorted(f'{canonical(key)}:{canonical(one)}' for key, one in value.items()))}}}"
    if isinstance(value, Set):
        return f"<{','.join(sorted(map(canonical, value)))}>"
    if isinstance(value, np.generic):
        return canonical(value.item())
    if isinstance(value, np.ndarray):
        return f"array {canonical(value.tolist())}"
    raise TypeError(f"a value of {kind.__module__}.{kind.__qualname__} has no canonical form; make it a dataclass")


def canonical_rows(kind: type[Any], columns: Mapping[str, Iterable[Any]], rest: Mapping[str, Any]) -> Iterator[str]:
    """Yield the forms of values of a class that names no files, from columns of fields; other fields hold `rest`.

    Takes a quarter of the time of calling `canonical` for each.
    """
    form = _form_of(cast("Hashable", kind))
    assert form is not None
    told = [map(_told, columns[name]) if name in columns else repeat(_told(rest[name])) for name in form.names]
    for values in zip(*told, strict=False):
        yield f"{form.head}({', '.join(values)})"


def _listed(values: Iterable[Any]) -> Iterator[str]:
    """Yield the form of a list in pieces, since a million jobs would take a gigabyte."""
    before = "["
    for one in values:
        yield before + canonical(one)
        before = ","
    yield "[]" if before == "[" else "]"


@dataclasses.dataclass(frozen=True)
class _Form:
    """How to write the values of a class: its name, its fields, a getter of all, and those that name files."""

    head: str
    names: tuple[str, ...]
    read: Callable[[Any], tuple[Any, ...]]
    files: frozenset[int]


def _fields(form: _Form, value: Any) -> str:
    values = form.read(value)
    if form.files:
        values = tuple(
            Path(one) if place in form.files and one is not None else one for place, one in enumerate(values)
        )
    # One call per field would dominate the time for a million jobs.
    told = [repr(one) if type(one) in _PLAIN else canonical(one) for one in values]
    return f"{form.head}({', '.join(told)}{',' * (len(values) == 1)})"


def _told(value: Any) -> str:
    return repr(value) if type(value) in _PLAIN else canonical(value)


@lru_cache(maxsize=256)
def _form_of(kind: Any) -> _Form | None:
    if dataclasses.is_dataclass(kind):
        names: Iterable[str] = (one.name for one in dataclasses.fields(kind) if one.compare)
    elif issubclass(kind, BaseModel):
        names = kind.model_fields
    elif issubclass(kind, tuple) and hasattr(kind, "_fields"):
        names = kind._fields
    else:
        return None
    names = tuple(names)
    hints = get_type_hints(kind, include_extras=True)
    files = frozenset(place for place, name in enumerate(names) if INPUT_FILE in get_args(hints[name]))
    return _Form(f"{kind.__qualname__}({','.join(names)})", names, _reader(names), files)


def _reader(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple(getattr(value, name) for name in names)


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


def groups_of(cluster: Cluster) -> list[dict[str, Any]]:
    """Describe a cluster as groups of consecutive equal nodes."""
    runs = itertools.groupby(cluster.nodes, key=lambda node: (node.gpus, node.gpu_type))
    return [{"nodes": len(list(run)), "gpus_per_node": gpus, "gpu_type": kind} for (gpus, kind), run in runs]


def costs_of(spec: ClusterSpec) -> dict[str, Any]:
    """Return the prices and the power of a cluster, if given."""
    prices = {"node_price_per_h": spec.node_price_per_h, "gpu_price_per_h": spec.gpu_price_per_h or None}
    market = market_of(spec)
    costs: dict[str, Any] = {
        **prices,
        "power": spec.drawn_w(),
        "market": None if market is None else prices_of(market),
        "bill_s": spec.bill_s,
    }
    return {name: cost for name, cost in costs.items() if cost is not None}


@dataclass(frozen=True)
class Choice:
    """A plugin of a cell: digest, manifest entry and libraries."""

    digest: str
    about: Mapping[str, Any]
    libraries: Mapping[str, str]

    @classmethod
    def of(cls, choice: Chosen) -> Choice:
        """Load a choice's class or function and read its sources and input files."""
        kind: type[Any] = choice.load()
        added = plugin_code(kind)
        files = {name: content_of(Path(path)) for name, path in sorted(input_files(kind, choice.params).items())}
        about = {
            "name": choice.name,
            "class": kind.__qualname__,
            "params": full_params(kind, choice.params, choice.diagnostics),
            "source": dict(sorted(added.modules.items())),
        }
        return cls(digest_of(choice), about | ({"files": files} if files else {}), added.libraries)


def about_task(task: Task, made: Policy, plugins: Sequence[Choice], digests: Mapping[str, str]) -> dict[str, Any]:
    """Describe a task with the policy `made` and its `plugins`; `digests` are those of its jobs and applications."""
    policy, *others = plugins
    libraries = dict(code().libraries)
    for one in plugins:
        libraries |= one.libraries
    about: dict[str, Any] = {
        "seed": task.seed,
        "policy": {name: policy.about[name] for name in ("name", "class", "params")},
        "policy_source": policy.about["source"],
        "policy_needs": sorted(signal.name for signal in made.signals),
        "policy_knows": known_by(made.signals),
        "policy_rigid": made.rigid,
        "diagnostics": list(task.policy.diagnostics),
        "cluster": groups_of(task.cluster),
        "gpu_memory_mb": dict(sorted(task.cluster.memory_mb.items())),
        "engine": asdict(task.engine),
        "engine_semantics": SEMANTICS,
        "jobs": len(task.jobs),
        "jobs_hash": digests["jobs"],
        "applications": asdict(task.applications),
        "applications_hash": digests["applications"],
        "code_hash": code().digest,
        "libraries": dict(sorted(libraries.items())),
        "results_schema": SCHEMA_VERSION,
        **task.costs,
    }
    if made.follows:
        about["policy_follows"] = made.follows
    if "files" in policy.about:
        about["policy_files"] = policy.about["files"]
    if task.agent is not None:
        about["agent"] = others.pop(0).about
    if others:
        about["processes"] = [one.about for one in others]
    return about | _conditions(task)


def _conditions(task: Task) -> dict[str, Any]:
    """Describe the optional parts of a task."""
    about: dict[str, Any] = {}
    if task.cluster.levels:
        about["topology"] = [level.described() for level in task.cluster.levels]
    if task.cluster.within:
        about["tiers"] = [asdict(tier) for tier in task.cluster.within]
    if task.gpu_speed:
        about["gpu_speed"] = dict(task.gpu_speed)
    if task.losses:
        about["losses"] = True
    if task.tuning is not None:
        about["tuning"] = asdict(task.tuning)
    sharing, failures = task.sharing, task.failures
    if sharing is not None and sharing.max_jobs > 1:
        about["sharing"] = sharing.model_dump(exclude={"pairs_path"})
        if sharing.pairs_path is not None:
            about["sharing"]["pairs"] = content_of(Path(sharing.pairs_path))
    if failures is not None:
        about["failures"] = asdict(replace(failures, market=None)) | {
            "outages": digest_of(failures.outages),
            "listed_outages": len(failures.outages),
        }
    return about
