"""Finds the command that reproduces a run."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from simsched.documents import Document, parse_value, yaml_lines, yaml_text
from simsched.errors import InputError
from simsched.experiment.results_name import shipped_experiments
from simsched.experiment.running.prepared import apart_if_foreign
from simsched.experiment.spec import ExperimentSpec
from simsched.experiment.validation import check_experiment
from simsched.results import Reproduction, Run

#: The most options of a command; beyond them the whole file is shown.
_MOST_OVERRIDES = 12
#: Keys that change no result.
_SAID_ONLY = MappingProxyType({"description": ""})


def reproduction_of(run: Run) -> Reproduction:
    """Return how to reproduce a run: a shipped experiment with `-o` options, or the full file.

    A command is given only if it yields the run's specification, apart from the description.
    """
    wanted = _complete(run.experiment)
    labels = [entry.get("label") or entry.get("name") for entry in wanted.get("policies", [])]
    chosen = [] if set(labels) <= set(run.policies) else [f"--policy={label}" for label in run.policies]
    found = [(name, _overrides(path, wanted)) for name, path in _candidates(run.name)]
    known = [(len(overrides), len(name), name, overrides) for name, overrides in found if overrides is not None]
    if known:
        _, _, name, overrides = min(known)
        options = [part for override in overrides for part in ("-o", override)]
        return Reproduction(shlex.join(["simsched", "run", name, *options, *chosen]))
    file = f"{run.name}.yaml"
    text = yaml_text(_without_defaults(wanted))
    return Reproduction(shlex.join(["simsched", "run", file, *chosen]), file, text)


def _candidates(name: str) -> Iterator[tuple[str, Path]]:
    named = re.compile(rf"^name:\s*[\"']?{re.escape(name)}[\"']?\s*(#.*)?$", re.MULTILINE)
    for key, path in shipped_experiments().items():
        if named.search(path.read_text(encoding="utf-8")):
            yield key, path


def _overrides(path: Path, wanted: Mapping[str, Any]) -> list[str] | None:
    """Return the options that turn a shipped experiment into the wanted one, None if impossible."""
    try:
        before = dict(_flat(_checked(path)))
        changes = {key: value for key, value in _flat(wanted) if key not in before or before[key] != value}
        if len(changes) > _MOST_OVERRIDES:
            return None
        options = [f"{key}={_written(value)}" for key, value in changes.items()]
        again = _checked(path, options)
    except (InputError, KeyError):
        return None
    return options if {**again, **_SAID_ONLY} == {**wanted, **_SAID_ONLY} else None


def _checked(path: Path, options: Sequence[str] = ()) -> dict[str, Any]:
    document = yaml_lines.load(path)
    return apart_if_foreign(_plain_of, document, options) or _plain_of(document, options)


def _plain_of(document: Document, options: Sequence[str], progress: object = None) -> dict[str, Any]:
    return _plain(check_experiment(document, options).spec)


def _plain(spec: ExperimentSpec) -> dict[str, Any]:
    plain: dict[str, Any] = spec.model_dump(mode="json")
    return plain


def _complete(experiment: Mapping[str, Any]) -> dict[str, Any]:
    """Add defaults of keys introduced after the run."""
    text = json.dumps(dict(experiment))
    try:
        return _plain(ExperimentSpec.model_validate_json(text))
    except ValueError:
        return dict(json.loads(text))


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of an experiment by dotted key, those of policies by label, or by place if several have it."""
    if name == "policies":
        labels = [entry.get("label") or entry["name"] for entry in value]
        keys = [str(place) if labels.count(label) > 1 else label for place, label in enumerate(labels)]
        value = dict(zip(keys, value, strict=True))
    if isinstance(value, dict) and (value or not name):
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else key)
    elif name == "seeds" and value == list(range(1, len(value) + 1)):
        yield name, len(value)
    elif name not in _SAID_ONLY:
        yield name, value


def _written(value: Any) -> str:
    if isinstance(value, str):
        try:
            if parse_value(value, "") == value:
                return value
        except InputError:
            pass
    return json.dumps(value, ensure_ascii=False)


def _without_defaults(wanted: dict[str, Any]) -> dict[str, Any]:
    """Drop redundant defaults, unless the file would then mean something else."""
    defaults = _plain(ExperimentSpec.model_validate({"name": "x", "policies": ({"name": "x"},)}))
    short = _pruned(wanted, defaults)
    policies = [_pruned(entry, {**defaults, "name": None}) for entry in wanted.get("policies", [])]
    short["policies"] = [{key: one for key, one in entry.items() if one not in (None, {})} for entry in policies]
    try:
        if _plain(ExperimentSpec.model_validate_json(json.dumps(short))) == wanted:
            return short
    except ValueError:
        pass
    return wanted


def _pruned(value: dict[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for key, item in value.items():
        default = defaults.get(key)
        if item == default:
            continue
        kept[key] = _pruned(item, default) if isinstance(item, dict) and isinstance(default, dict) else item
    return kept
