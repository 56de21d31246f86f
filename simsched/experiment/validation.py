"""Reads an experiment and reports all its errors before anything runs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import ValidationError

from simsched.agent import AGENTS
from simsched.documents import Document, Draft, KeyPath, draft_of, keys_at, problems_of, yaml_lines
from simsched.engine import PROCESSES
from simsched.errors import InputError, Problem, nearest, nearest_to_last
from simsched.experiment.checks import idle_keys, without_idle
from simsched.experiment.policy_params import input_files, isolated, parameter_problems
from simsched.experiment.spec import ExperimentSpec, with_first_seeds
from simsched.model.cluster import TENANTS_PARAMETER
from simsched.plugins import Kind, parameters
from simsched.policy import POLICIES, Policy
from simsched.results import find_metric
from simsched.results.sheets import read_curves

_NOT_SWEPT = (
    "name",
    "description",
    "seeds",
    "sweep",
    "diagnostics",
    "published",
    "published_source",
    "published_by",
    "report",
    "finish_time_fairness",
    "sequential",
)


#: The most points of a sweep.
MOST_POINTS = 20_000


@dataclass(frozen=True)
class Point:
    """One combination of swept values and its experiment."""

    values: Mapping[str, Any]
    spec: ExperimentSpec


@dataclass(frozen=True)
class Experiment:
    """A checked experiment: its file, and one resolved specification per point.

    `policies` maps policy names, as written, to classes; `folders` gives the folders that paths in names of policies,
    agents and processes count from; `changed` lists the `key=value` options applied.
    """

    file: Path
    spec: ExperimentSpec
    points: Sequence[Point]
    policies: Mapping[str, type[Policy]]
    folders: Mapping[str, Path] = field(default_factory=dict)
    changed: tuple[str, ...] = ()


def read_experiment(path: Path, overrides: Sequence[str] = ()) -> Experiment:
    """Read an experiment file with `key=value` overrides; raises `InputError` as `check_experiment` does."""
    return check_experiment(yaml_lines.load(path), overrides)


def check_experiment(document: Document, overrides: Sequence[str] = ()) -> Experiment:
    """Check an experiment's document with `key=value` overrides.

    Raises `InputError` with all problems (YAML, keys, types, ranges, policies, parameters), each with line or override.
    """
    draft = draft_of(document, overrides)
    draft.refuse_special_files()
    found = _Plugins()
    spec, problems = _checked(draft, found)
    problems += _label_problems(draft)
    if spec is None or problems:
        raise InputError(*_in_order(problems))
    spec = without_idle(draft, spec)
    problems = [
        *_cross_problems(draft, spec), *_curve_problems(draft, spec), *found.diagnostics_problems(draft, spec),
        *idle_keys(draft, spec),
    ]  # fmt: skip
    points, more = _points(draft, found)
    if problems or more:
        raise InputError(*_in_order([*problems, *more]))
    classes, folders = MappingProxyType(found.policies), MappingProxyType(found.folders)
    return Experiment(Path(document.file), spec, points, classes, folders, tuple(overrides))


def foreign_code(document: Document, overrides: Sequence[str] = ()) -> tuple[str, ...]:
    """List a document's policies, agents and processes that do not ship with simsched, without loading them, sorted."""
    try:
        data = draft_of(document, overrides).data
    except InputError:  # raised again by the document's check
        return ()
    sweep = data.get("sweep")
    swept = sweep.items() if isinstance(sweep, dict) else ()
    named = [values for key, values in (*data.items(), *swept) if key.startswith(("policies", "processes"))]
    kinds = (POLICIES, AGENTS, PROCESSES)
    return tuple(sorted(name for name in {*_texts(named)} if any(kind.is_foreign(name) for kind in kinds)))


def _texts(value: object, key: str = "") -> Iterator[str]:
    """Yield the text under keys `name` and `use` and in lists, as in a sweep."""
    if isinstance(value, str) and key in ("", "name", "use"):
        yield value
    elif isinstance(value, dict):
        for inner, held in value.items():
            yield from _texts(held, inner)
    elif isinstance(value, list):
        for held in value:
            yield from _texts(held)


def _in_order(problems: Sequence[Problem]) -> list[Problem]:
    return sorted(dict.fromkeys(problems), key=lambda problem: problem.line)


def _checked(draft: Draft, plugins: _Plugins) -> tuple[ExperimentSpec | None, list[Problem]]:
    """Return the experiment unless its structure is wrong, and its problems with structure and plugins."""
    of_plugins = list(plugins.problems(draft))  # first, as it completes the draft
    spec, problems = _structured(draft)
    return spec, [*problems, *of_plugins]


def _structured(draft: Draft) -> tuple[ExperimentSpec | None, list[Problem]]:
    try:
        return ExperimentSpec.model_validate_json(json.dumps(with_first_seeds(draft.data)), strict=True), []
    except ValidationError as error:
        return None, problems_of(error, draft, ExperimentSpec)


def _refused(draft: Draft, key: KeyPath, call: Callable[..., Any], *values: Any) -> Iterator[Problem]:
    """Yield what a call refuses about the value of a key."""
    try:
        call(*values)
    except InputError as error:
        for problem in error.problems:
            yield draft.problem(key, problem.message, problem.remedy)


class _Plugins:
    """Loads each policy, agent and process of an experiment once."""

    def __init__(self) -> None:
        self.policies: dict[str, type[Policy]] = {}
        self.folders: dict[str, Path] = {}
        self._loaded: dict[tuple[str, str], type[Any] | InputError] = {}

    def problems(self, draft: Draft) -> Iterator[Problem]:
        """Yield unknown policies, agents and processes, and their wrong parameters."""
        for index, entry in _entries(draft, "policies"):
            if draft.data.get("isolated") is True:
                entry |= isolated(entry, draft.folder_of(("policies", index, "name")))
            name, place = str(entry.get("name")), ("policies", index)
            policy = yield from self._load(draft, POLICIES, (*place, "name"), entry)
            if policy is not None:
                self.policies[name] = policy
                if ":" in name and entry.get("label") is None:
                    entry["label"] = policy.name  # tables show its name, never its path
                yield from _param_problems(draft, POLICIES, (*place, "name"), entry, policy)
                unread = draft.data.get("tenants") and not policy.traits.reads_tenants
                if unread and any(one.name == TENANTS_PARAMETER for one in parameters(policy)):
                    message = f"the policy '{name}' has a parameter 'tenants' that the section does not set"
                    remedy = "declare traits = Traits(reads_tenants=True) in its class"
                    yield draft.problem((*place, "name"), message, remedy)
            if isinstance(entry.get("agent"), dict):
                yield from self._problems_of(draft, AGENTS, (*place, "agent", "name"), entry["agent"])
        for index, entry in _entries(draft, "processes"):
            yield from self._problems_of(draft, PROCESSES, ("processes", index, "use"), entry)

    def _problems_of(self, draft: Draft, kind: Kind, key: KeyPath, entry: dict[str, Any]) -> Iterator[Problem]:
        plugin = yield from self._load(draft, kind, key, entry)
        if plugin is not None:
            yield from _param_problems(draft, kind, key, entry, plugin)

    def _load(
        self, draft: Draft, kind: Kind, key: KeyPath, entry: dict[str, Any]
    ) -> Generator[Problem, None, type[Any] | None]:
        """Load the plugin that an entry names under a key; yield problems and return None if that fails."""
        name = entry.get(str(key[-1]))
        if not isinstance(name, str) or not name:
            return None
        if (kind.noun, name) not in self._loaded:
            folder = self.folders.setdefault(name, draft.folder_of(key))
            try:
                self._loaded[kind.noun, name] = kind.load(name, folder=folder)
            except InputError as error:
                self._loaded[kind.noun, name] = error
        found = self._loaded[kind.noun, name]
        if not isinstance(found, InputError):
            return found
        for problem in found.problems:
            yield draft.problem(key, f"'{name}': {problem.message}", problem.remedy)
        return None

    def diagnostics_problems(self, draft: Draft, spec: ExperimentSpec) -> Iterator[Problem]:
        """Reject diagnostics that no policy of the experiment records."""
        if spec.diagnostics and not any(policy.traits.diagnostics for policy in self.policies.values()):
            names = ", ".join(sorted(self.policies))
            yield draft.problem(("diagnostics",), f"none of these policies records extra diagnostics: {names}")


def _param_problems(
    draft: Draft, kind: Kind, key: KeyPath, entry: dict[str, Any], plugin: type[Any]
) -> Iterator[Problem]:
    """Yield wrong parameters of the plugin that an entry names under a key; make the paths of input files absolute."""
    params = entry.get("params", {})
    if not isinstance(params, dict):
        return
    place = (*key[:-1], "params")
    for parameter in input_files(plugin, params):
        draft.resolve_file((*place, parameter))
    diagnostics = _diagnostics_of(draft) if kind is POLICIES else ()
    for inner, message, remedy in parameter_problems(plugin, entry[str(key[-1])], params, diagnostics, noun=kind.noun):
        yield draft.problem((*(place if "params" in entry else key), *inner), message, remedy)


def _entries(draft: Draft, section: str) -> Iterator[tuple[int, dict[str, Any]]]:
    listed = draft.data.get(section)
    if isinstance(listed, list):
        yield from ((index, entry) for index, entry in enumerate(listed) if isinstance(entry, dict))


def _diagnostics_of(draft: Draft) -> list[str]:
    diagnostics = draft.data.get("diagnostics", [])
    return [name for name in diagnostics if isinstance(name, str)] if isinstance(diagnostics, list) else []


def _label_problems(draft: Draft) -> Iterator[Problem]:
    first: dict[str, int] = {}
    for index, entry in _entries(draft, "policies"):
        label = entry.get("label") or entry.get("name")
        if not isinstance(label, str):
            continue
        if label in first:
            key = "label" if entry.get("label") else "name"
            message = f"another policy is also called '{label}'"
            yield draft.problem(("policies", index, key), message, "give each a 'label' of its own")
        first.setdefault(label, index)


def _cross_problems(draft: Draft, spec: ExperimentSpec) -> Iterator[Problem]:
    labels = [policy.shown_as for policy in spec.policies]
    yield from _published_problems(draft, spec, labels)
    reference = spec.report.reference
    if reference is not None and reference not in labels:
        message = f"no policy of this experiment is called '{reference}'"
        yield draft.problem(("report", "reference"), message, nearest(reference, labels))
    if spec.sequential is not None:
        yield from _refused(draft, ("sequential", "metric"), find_metric, spec.sequential.metric)
    yield from _node_problems(draft, spec)
    yield from _process_problems(draft, spec)
    yield from _fairness_problems(draft, spec)
    for index, policy in enumerate(spec.policies):
        for section, merge in (("workload", spec.workload_of), ("engine", spec.engine_of)):
            try:
                merge(policy)
            except ValidationError as error:
                yield draft.problem(("policies", index, section), error.errors()[0]["msg"])


def _node_problems(draft: Draft, spec: ExperimentSpec) -> Iterator[Problem]:
    nodes = len(spec.cluster.build().nodes)
    keys: list[tuple[str | int, ...]] = [("engine",), *(("policies", i, "engine") for i in range(len(spec.policies)))]
    for key, engine in zip(keys, [spec.engine, *(policy.engine for policy in spec.policies)], strict=True):
        if engine is not None and engine.initial_nodes is not None and engine.initial_nodes > nodes:
            message = f"{engine.initial_nodes} nodes cannot be rented; the cluster has {nodes}"
            yield draft.problem((*key, "initial_nodes"), message)


def _process_problems(draft: Draft, spec: ExperimentSpec) -> Iterator[Problem]:
    """Reject processes where all jobs must be known in advance, or a part of them runs alone."""
    beside = {
        "tuning": spec.tuning is not None,
        "shards": spec.shards.parts > 1,
        "losses": spec.losses,
        "finish_time_fairness": spec.finish_time_fairness is not None,
    }
    for key in (key for key, there in beside.items() if there and spec.processes):
        message = "cannot be combined with 'processes', which may submit jobs and stop nodes at any time"
        yield draft.problem((key,), message, f"leave out '{key}' or 'processes'")


def _fairness_problems(draft: Draft, spec: ExperimentSpec) -> Iterator[Problem]:
    """Reject an equal share of unequal GPUs."""
    rule = spec.finish_time_fairness
    types = spec.cluster.build().gpu_types
    if rule is not None and rule.definition != "gavel" and len(types) > 1:
        message = f"an equal share of GPUs of several types ({', '.join(types)}) is not defined"
        remedy = "leave it out, or take the definition 'gavel'"
        yield draft.problem(("finish_time_fairness",), message, remedy)


def _curve_problems(draft: Draft, spec: ExperimentSpec) -> Iterator[Problem]:
    if spec.report.curves is None:
        return
    try:
        read_curves(Path(spec.report.curves))
    except InputError as error:
        for problem in error.problems:
            yield draft.problem(("report", "curves"), f"{problem.where} {problem.message}", problem.remedy)


def _published_problems(draft: Draft, spec: ExperimentSpec, labels: Sequence[str]) -> Iterator[Problem]:
    replaced = any(path[0] == "policies" for path in draft.origins)  # then published values may be unused
    for name, values in spec.published.items():
        label = name.partition(" [")[0]  # 'pollux [load=2.0]' names one point of a sweep
        if name not in labels and label not in labels and not replaced:
            yield draft.problem(
                ("published", name), "no policy of this experiment has this label", nearest(label, labels)
            )
        for metric in values:
            yield from _refused(draft, ("published", name, metric), find_metric, metric)


def _points(draft: Draft, found: _Plugins) -> tuple[tuple[Point, ...], list[Problem]]:
    """Create the points of the sweep, the last key varying fastest; report each value that does not fit."""
    sweep: dict[str, list[Any]] = draft.data.get("sweep") or {}
    problems = [problem for key in sweep for problem in _sweep_problems(draft, found, key, sweep[key])]
    if problems:
        return (), problems
    total = math.prod(len(values) for values in sweep.values())
    if total > MOST_POINTS:
        message = f"these are {total} points, more than the {MOST_POINTS} that an experiment may have"
        return (), [draft.problem(("sweep",), message, "sweep fewer values")]
    points: list[Point] = []
    for values in product(*sweep.values()):
        chosen = dict(zip(sweep, values, strict=True))
        one = draft.copy()
        for key, value in chosen.items():
            one.set(key, value, f"sweep of {key}")
        spec, wrong = _checked(one, found)
        problems += wrong
        if spec is not None and not problems:
            problems += _cross_problems(one, spec)
            points.append(Point(MappingProxyType(chosen), spec))
    return tuple(points), problems


def _sweep_problems(draft: Draft, found: _Plugins, key: str, values: Sequence[Any]) -> Iterator[Problem]:
    if key.split(".")[0] in _NOT_SWEPT:
        yield draft.problem(("sweep", key), "this key cannot be swept", f"not swept are: {', '.join(_NOT_SWEPT)}")
        return
    if "." not in key and key not in ExperimentSpec.model_fields:
        yield draft.problem(("sweep", key), "there is no such key", nearest_to_last(key, _dotted(draft, found)))
        return
    seen: set[tuple[type, str]] = set()
    for index, value in enumerate(values):
        known = (type(value), json.dumps(value, sort_keys=True))
        if known in seen:
            yield draft.problem(("sweep", key, index), f"the value {value} is given twice")
            continue
        seen.add(known)
        one = draft.copy()
        refused = list(_refused(draft, ("sweep", key), one.set, key, value, ""))
        yield from refused
        for problem in () if refused else _checked(one, found)[1]:
            yield draft.problem(("sweep", key, index), problem.message, problem.remedy)


def _dotted(draft: Draft, found: _Plugins) -> Iterator[str]:
    """Yield the dotted keys that a sweep may name: those of sections, and parameters of the experiment's policies."""
    for section in ExperimentSpec.model_fields:
        yield section
        yield from (f"{section}.{key}" for key in keys_at(ExperimentSpec, (section,)))
    for index, entry in _entries(draft, "policies"):
        policy = found.policies.get(str(entry.get("name")))
        for parameter in parameters(policy) if policy is not None else ():
            yield f"{draft.name(('policies', index, 'params', parameter.name))}"


def check_workload(options: Sequence[str]) -> ExperimentSpec:
    """Read `key=value` options of a workload alone, as taken by `simsched workload make`.

    Keys without a dot belong to section `workload`. Raises `InputError` as `read_experiment` does.
    """
    full = [option if "." in option.partition("=")[0] else f"workload.{option}" for option in options]
    draft = draft_of(yaml_lines.parse("{name: workload, policies: [{name: fifo}]}", "workload"), full)
    spec, problems = _structured(draft)
    if spec is None:
        raise InputError(*problems)
    return spec
