"""The scenarios of HiveD's own test: nodes and GPUs, victims, waits, bad nodes and safe splits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from simsched_policies.production.hived.cell import anchors
from simsched_policies.production.hived.scheduler import CellScheduler
from simsched_policies.production.hived.spec import (
    FREE,
    CellCluster,
    CellSpec,
    CellType,
    Gang,
    Placed,
    Preempts,
    VirtualCluster,
    Waits,
)

from simsched.errors import InputError

DATA = json.loads((Path(__file__).resolve().parents[1] / "data" / "hived" / "scenarios.json").read_text())


def cell(entry: dict[str, Any]) -> CellSpec:
    children = tuple(cell(child) for child in entry.get("children", []))
    return CellSpec(entry.get("type", ""), entry.get("address", ""), children, entry.get("pinned", ""))


def cluster(changes: list[list[Any]]) -> CellCluster:
    owned = {name: [list(entry) for entry in spec["cells"]] for name, spec in DATA["tenants"].items()}
    for tenant, place, path, count in changes:
        owned[tenant][place] = [path or owned[tenant][place][0], count]
    return CellCluster(
        {name: CellType(**spec) for name, spec in DATA["types"].items()},
        tuple(cell(entry) for entry in DATA["cells"]),
        {
            name: VirtualCluster(tuple((p, n) for p, n in cells), tuple(DATA["tenants"][name]["pinned"]))
            for name, cells in owned.items()
        },
    )


def gang(entry: dict[str, Any]) -> Gang:
    return Gang(**{**entry, "pods": tuple(entry["pods"])})


class Replay:
    """Carries the steps of a scenario out and checks what each of them expects."""

    def __init__(self, changes: list[list[Any]]) -> None:
        self.cells = CellScheduler(cluster(changes))
        self.nodes = [node.node for chain in self.cells.chains.values() for node in anchors(chain.tops)]
        for node in self.nodes:
            self.cells.set_health(node, healthy=False)
        for node in self.nodes:
            self.cells.set_health(node, healthy=True)
        self.placed = 0

    def schedule(self, step: dict[str, Any]) -> None:
        suggested = step.get("suggested")
        if "suggested_without" in step:
            suggested = [node for node in self.nodes if node not in step["suggested_without"]]
        asked = gang(step["gang"])
        if "error" in step:
            with pytest.raises(InputError, match=step["error"]):
                self.cells.schedule(asked)
            return
        outcome = self.cells.schedule(asked, suggested, preempt=step.get("preempt", True))
        where = step["pods_of_test"]
        if "victims" in step:
            assert isinstance(outcome, Preempts), where
            assert list(outcome.victims) == step["victims"], where
        elif "places" in step:
            assert isinstance(outcome, Placed), (where, outcome)
            got = [[node, list(gpus)] for node, gpus in outcome.places]
            assert got[: len(step["places"])] == step["places"], where
            self.placed += len(step["places"])
        else:
            assert isinstance(outcome, Waits), (where, outcome)
        if "demoted" in step:
            assert list(outcome.demoted) == step["demoted"]  # type: ignore[union-attr]

    def release(self, step: dict[str, Any]) -> None:
        self.cells.release(step["gang"])

    def bad(self, step: dict[str, Any]) -> None:
        self.cells.set_health(step["node"], healthy=False)

    def healthy(self, step: dict[str, Any]) -> None:
        self.cells.set_health(step["node"], healthy=True)

    def unknown(self, step: dict[str, Any]) -> None:
        assert step["gang"] not in self.cells.groups

    def guaranteed(self, step: dict[str, Any]) -> None:
        assert self.cells.groups[step["gang"]].virtual
        assert self.cells.groups[step["gang"]].running

    def priority(self, step: dict[str, Any]) -> None:
        leaves = [leaf for c in self.cells.chains.values() for t in c.tops for leaf in t.leaves]
        assert {leaf.priority for leaf in leaves if leaf.node == step["node"]} == {step["priority"]}

    def roots(self, step: dict[str, Any]) -> None:
        roots = self.cells.tenants[step["tenant"]].roots[step["chain"]]
        bad = [root for root in roots if root.twin is not None and not root.twin.healthy]
        idle = [root for root in roots if not root.used()]
        if "bad" in step:
            assert len(bad) == step["bad"]
        if "healthy_idle" in step:
            assert len([root for root in idle if root not in bad]) == step["healthy_idle"]
        if "healthy" in step:
            assert len(roots) - len(bad) == step["healthy"]

    def empty(self, step: dict[str, Any]) -> None:
        assert not self.cells.groups
        tops = [top for chain in self.cells.chains.values() for top in chain.tops]
        assert all(leaf.priority == FREE for top in tops for leaf in top.leaves)
        assert all(top.split == any(c.pinned for c in self._inside(top)) for top in tops if not top.pinned)

    def _inside(self, top: Any) -> list[Any]:
        return [top, *(c for child in top.children for c in self._inside(child))]


@pytest.mark.parametrize("scenario", DATA["scenarios"], ids=[s["name"] for s in DATA["scenarios"]])
def test_scenario(scenario: dict[str, Any]) -> None:
    replay = Replay(scenario["cells"])
    for step in scenario["steps"]:
        getattr(replay, step["do"])(step)


def test_tenants_cannot_own_more_than_there_is() -> None:
    with pytest.raises(InputError, match="tenants own 3 cells of type 'CT1'"):
        CellScheduler(cluster([["VC1", 0, "CT1-NODE", 2], ["VC1", 1, "CT1-NODE.CT1", 2]]))
