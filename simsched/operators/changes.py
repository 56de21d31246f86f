"""Changes as operators write them: absolute and relative values of keys, with named groups of nodes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from simsched.documents import Document, parse_value
from simsched.errors import InputError, Problem, input_error, nearest
from simsched.experiment import ExperimentSpec, check_experiment, make_policy
from simsched.experiment.cluster import ClusterSpec, GroupSpec

#: `+4`, `-25%`, `*1.5`; a second equals sign, as in `key==-10`, makes a signed number absolute.
_RELATIVE = re.compile(r"\s*([-+*])\s*(\d+\.?\d*(?:e[-+]?\d+)?|\.\d+)\s*(%?)\s*", re.IGNORECASE)
_POLICY = "policies.0"


@dataclass(frozen=True)
class Changed:
    """A key with its values before and after a change; None where it has none."""

    key: str
    old: Any
    new: Any

    def __str__(self) -> str:
        """Render as `cluster.a100.nodes 10 -> 14`."""
        return f"{self.key} {_shown(self.old)} -> {_shown(self.new)}"

    @property
    def words(self) -> str:
        """Render nodes as `4 more nodes of a100`, anything else with its values."""
        match = re.fullmatch(r"cluster\.(?:(.+)\.)?nodes", self.key)
        if match is None or not all(isinstance(value, int) for value in (self.old, self.new)):
            return str(self)
        more = self.new - self.old
        noun = "node" if abs(more) == 1 else "nodes"
        return f"{abs(more)} {'more' if more > 0 else 'fewer'} {noun}{f' of {match[1]}' if match[1] else ''}"


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    return (
        f"{value:.10g}"
        if isinstance(value, float)
        else value
        if isinstance(value, str)
        else json.dumps(value, default=str)
    )


def group_names(groups: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of groups of nodes: their GPU type, numbered (`a100-1`) where several groups share it."""
    kinds = [str(one.get("gpu_type", "gpu")) for one in groups]
    return [
        kind if kinds.count(kind) == 1 else f"{kind}-{kinds[: place + 1].count(kind)}"
        for place, kind in enumerate(kinds)
    ]


def changed_value(old: Any, text: str, where: str) -> Any:
    """Return the value that a change's text gives, from the old one if it is relative.

    Whole numbers stay whole, and text that holds a number stays text. Raises `InputError` if there is no old number, or
    if a relative change rounds to none.
    """
    match = _RELATIVE.fullmatch(text)
    if match is None:
        value = parse_value(text.removeprefix("="), where)
        if isinstance(value, int | float) and text.strip()[0] in "+-":  # YAML knows +4_0 and +1:30
            raise input_error(where, f"'{text}' is not a number to change by", "write +4, -25% or *1.5")
        return value
    sign, number, percent = match[1], float(match[2]), match[3]
    try:
        before = float(old)
    except (TypeError, ValueError):
        remedy = "give a value instead; a second equals sign, as in key==-10, sets a signed number"
        raise input_error(where, f"is relative, but the value before it is {_shown(old)}", remedy) from None
    if percent and sign == "*":
        raise input_error(where, "multiplies by a percentage", f"write *{number / 100:g}, or +{number:g}%")
    amount = before * number / 100 if percent else number
    after = before * number if sign == "*" else before + (amount if sign == "+" else -amount)
    whole = isinstance(old, int) or (isinstance(old, str) and old.lstrip("-").isdigit())
    new = round(after) if whole else after
    if new == before and after != before:
        raise input_error(where, f"rounds to no change of {_shown(old)}", "write a larger one")
    return str(new) if isinstance(old, str) else new


def resolve(
    document: Document, changes: Sequence[str], *, option: str = "--change"
) -> tuple[tuple[str, ...], tuple[Changed, ...]]:
    """Return the `key=value` overrides of an experiment of one policy that changes stand for, and each with its values.

    `policy.KEY` is a parameter of the policy and `policy` its name; groups of nodes go by `group_names`. A relative
    change counts from the values after those before it. Raises `InputError`, in the words of the changes, for those
    that the experiment rejects.
    """
    overrides: list[str] = []
    keys: list[str] = []
    said: dict[str, str] = {}
    before = check_experiment(document)
    for change in changes:
        where = f"{option} {change}"
        key, equals, text = change.partition("=")
        if not equals:
            raise input_error(where, "write a change as key=value, such as tenants.vision.share=0.3")
        full = _full_key(key.strip(), before.spec.cluster, where)
        if full == f"{_POLICY}.name":  # the settings of one policy are not those of another
            overrides.append(f"{_POLICY}.params={{}}")
        if text.lstrip()[:1] in tuple("+-*"):
            now = _in_words(document, overrides, said) if overrides else before
            text = json.dumps(changed_value(_value_at(now, full), text, where))
        overrides.append(f"{full}={text.removeprefix('=')}")
        keys.append(full)
        said[f"-o {overrides[-1]}"] = where
    after = _in_words(document, overrides, said) if overrides else before
    found = [Changed(_short(key, before.spec.cluster), _value_at(before, key), _value_at(after, key)) for key in keys]
    return tuple(overrides), tuple(one for place, one in enumerate(found) if one not in found[:place])


def _in_words(document: Document, overrides: Sequence[str], said: Mapping[str, str]) -> Any:
    """Check an experiment with overrides; problems name the changes behind them."""
    try:
        return check_experiment(document, overrides)
    except InputError as error:
        raise InputError(*(_reworded(problem, said) for problem in error.problems)) from None


def _reworded(problem: Problem, said: Mapping[str, str]) -> Problem:
    message = re.sub(r"^policies\.[^:]*?\.params\.", "policy.", problem.message)
    return replace(problem, where=said.get(problem.where, problem.where), message=message)


def _full_key(key: str, cluster: ClusterSpec, where: str) -> str:
    head, _, rest = key.partition(".")
    if head == "policy":
        return f"{_POLICY}.params.{rest}" if rest else f"{_POLICY}.name"
    name, _, field = rest.rpartition(".")
    if head != "cluster" or cluster.groups is None or name.split(".")[0] in ClusterSpec.model_fields:
        return key
    names = group_names([one.model_dump() for one in cluster.groups])
    if name in names:
        return f"cluster.groups.{names.index(name)}.{field}"
    if name:
        raise input_error(where, f"the cluster has no group '{name}'", nearest(name, names))
    return f"cluster.groups.0.{field}" if len(names) == 1 and field in GroupSpec.model_fields else key


def _short(key: str, cluster: ClusterSpec) -> str:
    """Return a key as operators write it."""
    match = re.fullmatch(r"cluster\.groups\.(\d+)\.(\w+)", key)
    if match and cluster.groups is not None:
        return f"cluster.{group_names([one.model_dump() for one in cluster.groups])[int(match[1])]}.{match[2]}"
    return key.replace(f"{_POLICY}.params.", "policy.").replace(f"{_POLICY}.name", "policy")


def _value_at(experiment: Any, key: str) -> Any:
    """Return the value of a key with its default; None if it has none."""
    spec: ExperimentSpec = experiment.spec
    parts, found = key.split("."), cast("Any", spec)
    if key.startswith(f"{_POLICY}.params."):
        one = spec.policies[0]
        found, parts = make_policy(experiment.policies[one.name], dict(one.params)), parts[3:]
    for part in parts:
        if isinstance(found, tuple) and all(isinstance(item, tuple) for item in found):
            found = dict(found)  # a mapping that is kept as pairs
        if isinstance(found, Mapping):
            found = found.get(part)
        elif isinstance(found, list | tuple):
            found = found[int(part)] if part.isdigit() and int(part) < len(found) else None
        else:
            found = getattr(found, part, None)
    return found
