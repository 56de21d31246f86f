"""Finding policies by name."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from simsched.plugins import Kind
from simsched.policy.contract import Policy

POLICIES = Kind(
    noun="policy",
    group="simsched.policies",
    essential="decide",
    members=("name", *(member for member in vars(Policy) if not member.startswith("_"))),
    remedy="subclass simsched.policy.Policy, give the class a 'name' and a method 'decide(view, rng)'",
)


def names() -> tuple[str, ...]:
    """List the names of all registered policies, sorted."""
    return POLICIES.names()


def load(name: str, *, folder: Path | None = None) -> type[Policy]:
    """Find a policy class by name, as `simsched.plugins.Kind.load` does."""
    return cast("type[Policy]", POLICIES.load(name, folder=folder))
