"""How each policy that ships was checked, and how it differs from its paper, from where these are declared."""

from __future__ import annotations

import inspect
import re
import sys
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from simsched.documents import Section, read_section
from simsched.paths import data_folder
from simsched.policy import registry

#: The kinds of check, strongest first.
Kind = Literal["replay", "oracle", "closed form", "published", "direction", "cases"]

_DEVIATIONS = re.compile(r"^(Deviations?\b.*?)(?:\n\n|\Z)", re.MULTILINE | re.DOTALL)


class EvidenceSpec(Section):
    """The file `leagues/evidence.yaml`: by policy the kinds of check, each with the place in the repository."""

    format: Literal["simsched-evidence/1"]
    policies: dict[str, dict[Kind, str]] = Field(min_length=1)


@dataclass(frozen=True)
class Checked:
    """How a policy was checked: kinds with their places; and in what it differs from its paper, as its module says."""

    policy: str
    how: tuple[tuple[str, str], ...]
    differs: str


def how_checked() -> tuple[Checked, ...]:
    """Return how every policy that ships was checked, by name."""
    declared = read_section(data_folder("leagues") / "evidence.yaml", EvidenceSpec).policies
    names = [name for name in registry.names() if registry.POLICIES.is_shipped(name)]
    return tuple(Checked(name, tuple(declared.get(name, {}).items()), _differs(name)) for name in names)


def _differs(name: str) -> str:
    """Return the paragraph on deviations of the module of a policy, or of the package that is the policy's own."""
    kind = registry.load(name)
    module = sys.modules[kind.__module__]
    package = sys.modules[module.__package__ or kind.__module__]
    for said in (inspect.getdoc(kind), module.__doc__, package.__doc__):
        found = _DEVIATIONS.search(inspect.cleandoc(said or ""))
        if found:
            return " ".join(found[1].split())
    return ""
