"""A policy's parameters against its constructor, its creation, and its description from its declarations."""

from __future__ import annotations

import inspect
import json
import math
import re
import sys
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast, get_args

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

from simsched.documents import MOST_NUMBER, keys_at, say
from simsched.errors import InputError, Problem, nearest
from simsched.files import absolute
from simsched.knowledge import Known, told
from simsched.plugins import is_process, parameters, quiet_stdout
from simsched.policy import INFINITE, INPUT_FILE, Policy, Signal, registry


def make_policy(policy: type[Policy], params: Mapping[str, Any], diagnostics: Sequence[str] = ()) -> Policy:
    """Create a policy with its supported `diagnostics`; raises `ValueError` or `TypeError` as its constructor does."""
    values = converted(policy, params)
    asked = policy.traits.diagnostics if diagnostics else ""
    if asked and asked not in values:
        values[asked] = _validated(policy, asked, list(diagnostics))
    with quiet_stdout():
        try:
            return policy(**values)
        except (SystemExit, GeneratorExit) as error:
            raise ValueError(f"its constructor raises {type(error).__name__}: {error}") from error


#: The policy that runs another one behind a wall.
_BRIDGE = "simsched_policies.external.bridge:Bridged"


def isolated(row: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return what changes in a policy's row for it to run behind a wall, without loading it: nothing if it ships.

    Its file, or the folder of its package, is part of what identifies results; files in its parameters count from
    `folder`.
    """
    name = str(row.get("name"))
    if not registry.POLICIES.is_foreign(name) or name == _BRIDGE:
        return {}
    place, _, own = name.rpartition(":")
    if place.endswith(".py"):
        code = absolute(folder / place)
    else:
        top = (place or registry.POLICIES.module_of(name)).partition(".")[0]
        spec = find_spec(top)
        code = Path((spec and spec.origin) or top)
        code = code.parent if code.name == "__init__.py" else code
    params = row.get("params", {})
    if isinstance(params, dict):
        files = {key: folder / one for key, one in params.items() if isinstance(one, str) and one}
        params = params | {key: str(absolute(path)) for key, path in files.items() if path.is_file()}
    inner = {"policy": name, "code": str(code), "params": params}
    return {"name": _BRIDGE, "label": row.get("label") or own, "params": inner}


def walled_maker(name: str) -> Callable[[], Policy]:
    """Return what makes instances of a policy, each behind a wall of its own."""
    row = isolated({"name": name}, Path.cwd()) or {"params": {"policy": name}}
    return partial(registry.load(_BRIDGE), **row["params"])


def converted(plugin: type[Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """Convert plain data to the types of a plugin's parameters."""
    return {name: _validated(plugin, name, value) for name, value in params.items()}


def full_params(policy: type[Any], params: Mapping[str, Any], diagnostics: Sequence[str] = ()) -> dict[str, Any]:
    """Return all parameters of a policy, agent or process as plain data, defaults included."""
    full: dict[str, Any] = {}
    asked = policy.traits.diagnostics if diagnostics else ""
    for parameter in parameters(policy):
        if parameter.name in params:
            full[parameter.name] = params[parameter.name]
        elif parameter.name == asked:
            full[asked] = list(diagnostics)
        elif not parameter.required:
            full[parameter.name] = TypeAdapter(Any).dump_python(parameter.default, mode="json", fallback=repr)
    return full


def input_files(policy: type[Policy], params: Mapping[str, Any]) -> dict[str, str]:
    """Return a policy's input file parameters with their paths."""
    marked = [one.name for one in parameters(policy) if INPUT_FILE in get_args(one.annotation)]
    return {name: params[name] for name in marked if isinstance(params.get(name), str) and params[name]}


def parameter_problems(
    policy: type[Any], name: str, params: Mapping[str, Any], diagnostics: Sequence[str] = (), *, noun: str = "policy"
) -> Iterator[tuple[tuple[str | int, ...], str, str]]:
    """Yield the problems with parameters of a policy, agent or process: key below `params`, message, remedy."""
    known = {parameter.name: parameter for parameter in parameters(policy)}
    missing = [one.name for one in known.values() if one.required and one.name not in params]
    problems = [*_value_problems(policy, name, params, known, noun)]
    problems += [((), f"the {noun} '{name}' needs the parameter '{one}'", "") for one in missing]
    if not problems and not is_process(policy):  # whose site only a simulation has
        yield from _refused(policy, params, diagnostics, noun)
    yield from problems


def _value_problems(
    policy: type[Any], name: str, params: Mapping[str, Any], known: Mapping[str, Any], noun: str
) -> Iterator[tuple[tuple[str | int, ...], str, str]]:
    for key, value in params.items():
        if key not in known:
            hint = _meant(policy, key, known) if known else f"'{name}' takes none"
            yield (key,), f"the {noun} '{name}' has no such parameter", hint
        elif _too_large(value):
            yield (key,), "holds a number that is too large", f"numbers go to {MOST_NUMBER}"
        elif _not_finite(value, infinite=INFINITE in get_args(known[key].annotation)):
            yield (key,), "must be finite", "give a number"
        else:
            yield from (_nested(detail, key, value, known, noun) for detail in _type_errors(policy, key, value))


def _meant(policy: type[Any], key: str, known: Mapping[str, Any]) -> str:
    """Suggest a parameter: the one whose sentence in the docstring has the key as a symbol, or the nearest by name."""
    sentence = re.search(rf"`(\w+)`[^`.]*\b{re.escape(key)}\b", inspect.getdoc(policy) or "")
    if len(key) <= _LONGEST_SYMBOL and sentence and sentence[1] in known:
        return f"did you mean '{sentence[1]}'?"
    return nearest(key, known)


#: The most characters of a symbol of a paper, such as p or mu.
_LONGEST_SYMBOL = 3


def _nested(
    detail: Any, key: str, value: Any, known: Mapping[str, Any], noun: str
) -> tuple[tuple[str | int, ...], str, str]:
    """Return place, message and remedy of an error within a parameter."""
    place: list[str | int] = [key]
    here = value
    for part in detail["loc"]:  # the rest names members of a union
        if (isinstance(here, dict) and part in here) or (isinstance(here, list) and isinstance(part, int)):
            here = here[part]
            place.append(part)
    if detail["type"] != "unexpected_keyword_argument":
        missing = detail["loc"][-1:] if detail["type"] == "missing" else ()
        return (*place, *missing), say(detail), ""
    wrong = str(place[-1])
    remedy = nearest(wrong, keys_at(known[key].annotation, tuple(place[1:-1])))
    remedy = f"the {noun} itself takes '{wrong}'" if wrong in known else remedy
    return tuple(place), "there is no such key", remedy


def _refused(
    policy: type[Policy], params: Mapping[str, Any], diagnostics: Sequence[str], noun: str
) -> Iterator[tuple[tuple[str | int, ...], str, str]]:
    try:
        made = make_policy(policy, params, diagnostics)
        if noun == "policy":
            _ = made.triggers  # which reject an interval of 0
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
    """Attribute a problem with an input file to the parameter that names it."""
    key = [name for name, path in input_files(policy, params).items() if problem.where.startswith(path)]
    place = f"{problem.where}:{problem.line}" if problem.line else problem.where
    return tuple(key[:1]), f"{place}: {problem.message}", problem.remedy


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, dict | list | tuple):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _numbers(one)
    elif isinstance(value, int | float):
        yield value


def _too_large(value: Any) -> bool:
    """Return whether a value holds an integer too large for an exact float."""
    return any(math.isfinite(number) and abs(number) > MOST_NUMBER for number in _numbers(value))


def _not_finite(value: Any, *, infinite: bool) -> bool:
    """Return whether a value holds nan, or infinity where it is meaningless."""
    return any(math.isnan(number) or (math.isinf(number) and not infinite) for number in _numbers(value))


@lru_cache(maxsize=256)
def _adapter(policy: Any, name: str) -> TypeAdapter[Any] | None:
    """Return the validator of a parameter, None for a custom type that only the constructor can check."""
    annotation = next(one.annotation for one in parameters(policy) if one.name == name)
    try:
        try:
            return TypeAdapter(annotation, config=ConfigDict(strict=True))
        except PydanticUserError as error:
            if "config" not in str(error):
                raise
            return TypeAdapter(annotation)
    except PydanticSchemaGenerationError:
        return None


def _validated(policy: type[Any], name: str, value: Any) -> Any:
    """Convert plain data as strict JSON: lists may become tuples, but text does not become numbers."""
    adapter = _adapter(cast("Hashable", policy), name)
    return value if adapter is None else adapter.validate_json(json.dumps(value), strict=True)


def _type_errors(policy: type[Any], name: str, value: Any) -> list[Any]:
    try:
        _validated(policy, name, value)
    except ValidationError as error:
        return error.errors(include_url=False)
    return []


#: Questions of a user who looks for a policy, each with the test that answers it.
QUESTIONS: Mapping[str, str] = {
    "Needs no knowledge of a job but its request": "blind",
    "Reads what only an oracle knows": "oracle",
    "Changes how many GPUs a job has": "elastic",
    "Weighs GPU types against each other": "typed",
    "Shares GPUs between jobs": "shares",
    "Meets deadlines": "deadlines",
    "Knows tenants and their quotas": "tenants",
    "Rents nodes and lets them go": "rents",
}


@dataclass(frozen=True)
class PolicyCard:
    """A policy as described by its declarations.

    `parts` are the paragraphs of its documentation: `Idea`, `Deviations`, and the rest under "". `signals` maps what it
    reads to how a real scheduler would obtain it, `physics` what it relies on to what it becomes without, and
    `parameters` are name, type and default as text. It `follows` a version of a scheduler, with switches in `features`
    and their defaults. `evidence` has rows of kind, result and location.
    """

    name: str
    family: str
    title: str
    parts: Mapping[str, Sequence[str]]
    signals: Mapping[str, str]
    physics: Mapping[str, str]
    parameters: Sequence[tuple[str, str, str]]
    evidence: Sequence[tuple[str, str, str]]
    answers: frozenset[str]
    follows: str = ""
    features: Mapping[str, bool] = field(default_factory=dict)

    @property
    def group(self) -> str:
        """The class in which it competes: its knowledge, and whether jobs keep their number of GPUs."""
        return f"{told(self.signals)}, {'elastic' if 'elastic' in self.answers else 'rigid'}"

    def markdown(self) -> str:
        """Return the page of the policy."""
        lines = [f"# {self.name}", "", f"*{self.group}; family: {self.family}*", "", self.title, ""]
        lines += [f"Follows {self.follows}.", ""] if self.follows else []
        for heading, paragraphs in self.parts.items():
            if heading:
                lines += [f"**{heading}.**", ""]
            for paragraph in paragraphs:
                lines += [paragraph, ""]
        lines += _table("Reads", ("signal", "a real scheduler has it"), self.signals.items())
        lines += _table("Counts on", ("physics", f"without it, {self.name}"), self.physics.items())
        lines += _table("Parameters", ("parameter", "type", "default"), self.parameters)
        states = ((name, "on" if on else "off") for name, on in sorted(self.features.items()))
        lines += _table("Features", ("feature", "default"), states)
        lines += _table("How it was checked", ("kind", "what came out", "shown by"), self.evidence)
        return "\n".join(lines)


def policy_card(name: str) -> PolicyCard:
    """Return the card of a policy by name; raises `InputError` for an unknown one."""
    policy = registry.load(name)
    read, made = signals_read(policy), _default(policy)
    answers = set(_answers(policy, read))
    title, parts = _documented(policy)
    return PolicyCard(
        name,
        _family(policy),
        title,
        parts,
        {str(one): str(one.known) for one in sorted(read, key=str)},
        {one.name: becomes.words for one, becomes in policy.traits.wants.items()},
        tuple(_parameters(policy)),
        tuple(_evidence(policy)),
        frozenset(answers),
        "" if made is None else made.follows,
        getattr(policy, "features", {}),
    )


def signals_read(policy: type[Policy]) -> frozenset[Signal]:
    """Return the signals a policy reads with default parameters, or may read if it has no defaults."""
    made = _default(policy)
    return frozenset(policy.traits.needs) if made is None else made.signals


def _default(policy: type[Policy]) -> Policy | None:
    """Return a policy with default parameters, None if it has none."""
    try:
        return make_policy(policy, {})
    except (TypeError, ValueError):
        return None


def _answers(policy: type[Policy], read: frozenset[Signal]) -> Iterator[str]:
    """Yield the questions to which the answer is yes for a policy."""
    if all(one.known is Known.REPORTED for one in read):
        yield "blind"
    if any(one.known is Known.ORACLE for one in read):
        yield "oracle"
    traits, wants = policy.traits, {one.name for one in policy.traits.wants}
    family = _family(policy)
    said = {"elastic": not traits.rigid, "typed": traits.type_aware, "tenants": traits.reads_tenants}
    said |= {"rents": traits.scales, "shares": "sharing" in wants or family == "sharing"}
    said |= {"deadlines": "deadlines" in wants or family == "deadlines"}
    yield from (name for name, true in said.items() if true)


def _family(policy: type[Policy]) -> str:
    """Return the folder of a policy below its package, which names its family."""
    return policy.__module__.split(".")[1] if policy.__module__.count(".") else "own"


def _documented(policy: type[Policy]) -> tuple[str, Mapping[str, Sequence[str]]]:
    """Return the first line of a policy's documentation, and its other paragraphs by heading.

    The module's docstring counts if it has an *Idea*, otherwise the class's.
    """
    own = _paragraphs(inspect.getdoc(policy) or "")
    module = _paragraphs(inspect.getdoc(sys.modules[policy.__module__]) or "")
    about = module if any(one.startswith("Idea:") for one in module) else own
    parts: dict[str, list[str]] = {"Idea": []} if about is module else {}
    for paragraph in about[1:]:
        heading = re.match(r"(Idea|Deviations|Source): ", paragraph)
        kind = heading[1] if heading else ""
        said = paragraph[heading.end() :] if heading else paragraph
        parts.setdefault(kind, []).append(said[:1].upper() + said[1:])
    if about is module and own:
        parts.setdefault("Use", []).extend(own)
    elif len(own) == 1 and module:
        parts["Idea"] = module
    return about[0] if about else "", parts


def _paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a text as one line each, and likewise the items of lists."""
    joined = re.sub(r"(?<!\n)\n(?!\n|- )", " ", text)
    return [re.sub(r"[ ]+", " ", part).strip() for part in joined.split("\n\n") if part.strip()]


def _parameters(policy: type[Policy]) -> Iterator[tuple[str, str, str]]:
    defaults = full_params(policy, {})
    for one in parameters(policy):
        kind = one.annotation if isinstance(one.annotation, str) else inspect.formatannotation(one.annotation)
        words = re.sub(r"\b(?:\w+\.)+(\w+)", r"\1", kind)
        yield f"`{one.name}`", f"`{words}`", "required" if one.required else f"`{_plain(defaults[one.name])}`"


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else "null" if value is None else f"{value}" or '""'


def _evidence(policy: type[Policy]) -> Iterator[tuple[str, str, str]]:
    """Yield how a policy was checked, from the module `evidence` of its package, if any."""
    package = policy.__module__.partition(".")[0]
    if hasattr(sys.modules[package], "__path__") and find_spec(f"{package}.evidence") is not None:
        yield from (tuple(one) for one in import_module(f"{package}.evidence").EVIDENCE.get(policy.name, ()))


def _table(title: str, headers: Sequence[str], rows: Any) -> list[str]:
    body = [f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |" for row in rows]
    if not body:
        return []
    return [f"**{title}.**", "", f"| {' | '.join(headers)} |", f"|{' --- |' * len(headers)}", *body, ""]
