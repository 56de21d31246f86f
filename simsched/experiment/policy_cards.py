"""What there is to know about a policy, from its declarations: for catalogue pages and the terminal."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from simsched.experiment.policy_params import full_params, make_policy
from simsched.knowledge import Known, told
from simsched.plugins import parameters
from simsched.policy import Policy, Signal, registry

#: Questions of somebody who looks for a policy, each with what answers it.
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
    """A policy as its declarations have it.

    `parts` are the paragraphs of its documentation: `Idea`, `Deviations`, and the rest under "". `signals` maps what it
    reads to how a real scheduler would come by it, `physics` what it counts on to what it is without, and `parameters`
    are name, type and default as text. It `follows` a version of a scheduler, whose switches are `features` with their
    defaults. `evidence` has rows of kind, what came out, and where that is shown.
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
        """The class in which it competes: what it knows, and whether jobs keep the number of their GPUs."""
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
    read = signals_read(policy)
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
        policy.traits.follows,
        policy.traits.features,
    )


def signals_read(policy: type[Policy]) -> frozenset[Signal]:
    """Return the signals a policy reads with default parameters, or may read if it has no defaults."""
    try:
        return make_policy(policy, {}).signals
    except (TypeError, ValueError):
        return frozenset(policy.traits.needs)


def _answers(policy: type[Policy], read: frozenset[Signal]) -> Iterator[str]:
    """Yield which questions a policy answers with yes."""
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
    """Return the folder that a policy stands in below its package, which names its family."""
    return policy.__module__.split(".")[1] if policy.__module__.count(".") else "own"


def _documented(policy: type[Policy]) -> tuple[str, Mapping[str, Sequence[str]]]:
    """Return the first line of a policy's documentation, and its other paragraphs by their heading.

    A module with an *Idea* is about its policies; otherwise the class speaks for itself.
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
    """Return the paragraphs of a text, each a line, and the items of a list a line each."""
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
    """Yield what the package of a policy says of how it was checked, in its module `evidence` if it has one."""
    package = policy.__module__.partition(".")[0]
    if hasattr(sys.modules[package], "__path__") and find_spec(f"{package}.evidence") is not None:
        yield from (tuple(one) for one in import_module(f"{package}.evidence").EVIDENCE.get(policy.name, ()))


def _table(title: str, headers: Sequence[str], rows: Any) -> list[str]:
    body = [f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |" for row in rows]
    if not body:
        return []
    return [f"**{title}.**", "", f"| {' | '.join(headers)} |", f"|{' --- |' * len(headers)}", *body, ""]
