"""Finding agents by name."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from simsched.agent.agent import AgentFactory
from simsched.plugins import Kind

AGENTS = Kind(
    noun="agent",
    group="simsched.agents",
    essential="agent",
    members=("name", "begin"),
    remedy="an agent is named by a class with a 'name' and the methods 'begin(cluster)' and 'agent(request, facts)'",
)


def names() -> tuple[str, ...]:
    """List the names of all registered agents, sorted."""
    return AGENTS.names()


def load(name: str, *, folder: Path | None = None) -> type[AgentFactory]:
    """Find an agent class by name, as `simsched.plugins.Kind.load` does."""
    return cast("type[AgentFactory]", AGENTS.load(name, folder=folder))
