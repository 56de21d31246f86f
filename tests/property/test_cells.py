"""Whatever comes and goes, no GPU is held twice, all of them come back, and a tenant gets what it owns."""

from __future__ import annotations

import random

import pytest
from simsched_policies.production.hived.cell import anchors
from simsched_policies.production.hived.scheduler import CellScheduler
from simsched_policies.production.hived.spec import (
    CellCluster,
    CellSpec,
    CellType,
    Gang,
    Placed,
    Preempts,
    VirtualCluster,
)

TYPES = {
    "pair": CellType("gpu", 2),
    "node": CellType("pair", 2, is_node=True),
    "rack": CellType("node", 2),
}


def cluster() -> CellCluster:
    racks = tuple(
        CellSpec("rack", children=tuple(CellSpec(address=f"n{rack}{node}") for node in range(2))) for rack in range(3)
    )
    tenants = {
        "a": VirtualCluster((("rack.node", 2), ("rack.node.pair", 2))),
        "b": VirtualCluster((("rack", 1), ("rack.node", 1))),
    }
    return CellCluster(TYPES, racks, tenants)


def held(cells: CellScheduler) -> list[tuple[str, int]]:
    return [(leaf.node, leaf.index) for group in cells.groups.values() if group.running for leaf in group.leaves]


@pytest.mark.parametrize("seed", range(20))
def test_gangs_come_and_go(seed: int) -> None:
    dice, cells = random.Random(seed), CellScheduler(cluster())
    nodes = [node.node for node in anchors(cells.chains["rack"].tops)]
    for number in range(60):
        pods = tuple(dice.choice((1, 2, 4)) for _ in range(dice.choice((1, 1, 2))))
        lazy = dice.random() < 0.5
        gang = Gang(f"g{number}", dice.choice("ab"), dice.choice((-1, 0, 1, 2)), pods, lazy=lazy)
        outcome = cells.schedule(gang)
        if isinstance(outcome, Preempts):
            for victim in outcome.victims:
                cells.release(victim)
            assert isinstance(cells.schedule(gang), Placed)
        if dice.random() < 0.2:
            cells.set_health(dice.choice(nodes), healthy=dice.random() < 0.7)
        if cells.groups and dice.random() < 0.4:
            cells.release(dice.choice(sorted(cells.groups)))
        assert len(held(cells)) == len(set(held(cells)))
    for name in sorted(cells.groups):
        cells.release(name)
    for node in nodes:
        cells.set_health(node, healthy=True)
    assert len(cells.bindings.free["rack"].of(4)) == 3
    assert not any(top.used() or top.split for top in cells.chains["rack"].tops)
    assert not any(root.twin for tenant in cells.tenants.values() for root in tenant.roots["rack"])


@pytest.mark.parametrize("seed", range(10))
def test_a_tenant_always_gets_its_whole_cells(seed: int) -> None:
    dice, cells = random.Random(seed), CellScheduler(cluster())
    for number in range(30):
        pods = (dice.choice((1, 2, 4)),)
        cells.schedule(Gang(f"g{number}", "b", dice.choice((-1, 0)), pods))
        if cells.groups and dice.random() < 0.5:
            cells.release(dice.choice(sorted(cells.groups)))
    for number in range(2):
        outcome = cells.schedule(Gang(f"own{number}", "a", 5, (4,)))
        while isinstance(outcome, Preempts):
            for victim in outcome.victims:
                cells.release(victim)
            outcome = cells.schedule(Gang(f"own{number}", "a", 5, (4,)))
        assert isinstance(outcome, Placed)
