"""Checks a policy's parameters against its constructor, and makes the policy."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

from simsched.documents.validation_messages import say
from simsched.errors import InputError, Problem, nearest
from simsched.policy import INPUT_FILE, Policy, registry

#: The constructor's parameter through which a policy is asked for extra diagnostics.
TRACE = "trace"


def make_policy(policy: type[Policy], params: Mapping[str, Any], trace: Sequence[str] = ()) -> Policy:
    """Make a policy of parameters as they stand in an experiment, asking for the diagnostics `trace` where it has any.

    Raises `ValueError` or `TypeError` as the constructor does.
    """
    known = {parameter.name: parameter for parameter in registry.parameters(policy)}
    values = {name: _validated(known[name].annotation, value) for name, value in params.items()}
    if trace and TRACE in known and TRACE not in values:
        values[TRACE] = _validated(known[TRACE].annotation, list(trace))
    return policy(**values)


def full_params(policy: type[Policy], params: Mapping[str, Any], trace: Sequence[str] = ()) -> dict[str, Any]:
    """Give all parameters of a policy, defaults filled in, as plain data."""
    full: dict[str, Any] = {}
    for parameter in registry.parameters(policy):
        if parameter.name in params:
            full[parameter.name] = params[parameter.name]
        elif parameter.name == TRACE and trace:
            full[TRACE] = list(trace)
        elif not parameter.required:
            full[parameter.name] = TypeAdapter(Any).dump_python(parameter.default, mode="json", fallback=repr)
    return full


def takes_trace(policy: type[Policy]) -> bool:
    """Tell whether a policy can be asked for extra diagnostics."""
    return any(parameter.name == TRACE for parameter in registry.parameters(policy))


def input_files(policy: type[Policy], params: Mapping[str, Any]) -> dict[str, str]:
    """Give those of a policy's parameters that name input files, with the path that each names."""
    marked = [one.name for one in registry.parameters(policy) if INPUT_FILE in get_args(one.annotation)]
    return {name: params[name] for name in marked if isinstance(params.get(name), str) and params[name]}


def complaints(
    policy: type[Policy], name: str, params: Mapping[str, Any], trace: Sequence[str] = ()
) -> Iterator[tuple[tuple[str | int, ...], str, str]]:
    """Find everything that is wrong with a policy's parameters: the key below `params`, the message, the remedy."""
    known = {parameter.name: parameter for parameter in registry.parameters(policy)}
    faulty = False
    for key, value in params.items():
        if key not in known:
            faulty = True
            hint = nearest(key, known) if known else f"'{name}' takes none"
            yield (key,), f"the policy '{name}' has no such parameter", hint
            continue
        for detail in _type_errors(known[key].annotation, value):
            faulty = True
            items = [part for part in detail["loc"] if isinstance(part, int)]  # the rest names members of a union
            yield (key, *items), say(detail), ""
    for parameter in known.values():
        if parameter.required and parameter.name not in params:
            faulty = True
            yield (), f"the policy '{name}' needs the parameter '{parameter.name}'", ""
    if not faulty:
        yield from _refused(policy, params, trace)


def _refused(
    policy: type[Policy], params: Mapping[str, Any], trace: Sequence[str]
) -> Iterator[tuple[tuple[str | int, ...], str, str]]:
    try:
        _ = make_policy(policy, params, trace).triggers  # which refuse an interval of 0
    except InputError as error:
        for problem in error.problems:
            yield _of_file(policy, params, problem)
    except (ValueError, TypeError) as error:
        said = str(error)
        blamed = [key for key in params if key in said]
        yield ((blamed[0],) if len(blamed) == 1 else ()), said, ""


def _of_file(
    policy: type[Policy], params: Mapping[str, Any], problem: Problem
) -> tuple[tuple[str | int, ...], str, str]:
    """Lay a problem with an input file at the parameter that names the file."""
    key = [name for name, path in input_files(policy, params).items() if problem.where.startswith(path)]
    place = f"{problem.where}:{problem.line}" if problem.line else problem.where
    return tuple(key[:1]), f"{place}: {problem.message}", problem.remedy


def _adapter(annotation: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(annotation, config=ConfigDict(strict=True))
    except PydanticUserError as error:
        if "config" not in str(error):
            raise
        return TypeAdapter(annotation)


def _validated(annotation: Any, value: Any) -> Any:
    """Convert plain data as strict JSON: a list may become a tuple, but a text no number."""
    try:
        adapter = _adapter(annotation)
    except PydanticSchemaGenerationError:  # a type that only the policy itself understands; its constructor decides
        return value
    return adapter.validate_json(json.dumps(value), strict=True)


def _type_errors(annotation: Any, value: Any) -> list[Any]:
    try:
        _validated(annotation, value)
    except ValidationError as error:
        return error.errors(include_url=False)
    return []
