"""Every policy that ships says where its ties go."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from simsched.model.capacity import Capacity
from simsched.model.cluster import Cluster
from simsched.policy import registry
from simsched.toolkit.placers import PLACERS

README = Path(__file__).resolve().parents[2] / "policies" / "README.md"


def test_the_table_of_ties_names_every_policy() -> None:
    section = README.read_text(encoding="utf-8").split("### Where ties go")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`([^`]+)`", row)}
    families = tuple(name.removesuffix("*") for name in named if name.endswith("*"))
    shipped = set(registry.names())
    assert {name for name in shipped - named if not name.startswith(families)} == set()
    assert {name for name in named - shipped if not name.endswith("*")} == set()


@pytest.mark.parametrize("name", sorted(PLACERS))
def test_a_placer_gives_a_tie_to_the_first_node(name: str) -> None:
    nodes = Cluster.uniform(4, 4).nodes
    free = Capacity(nodes, [True] * 4, [0, 4, 4, 4])
    assert free.choose(PLACERS[name], 2) == ((1, 2),)
    free = Capacity(nodes, [True] * 4, [4, 4, 4, 4])
    assert free.choose(PLACERS[name], 8) == ((0, 4), (1, 4))
