"""Who runs by a walk over an order of jobs, job by job and type by type."""

from random import Random
from types import SimpleNamespace

import pytest

from simsched.model import ApplicationFacts, Capacity, Cluster, NodeGroup
from simsched.policy import Reasons, Why
from simsched.testing.builders import FakeView
from simsched.toolkit import run_in_order
from simsched.toolkit.gang import available_by_type, available_gpus
from simsched.toolkit.placers import MOST_FREE

CLUSTER = Cluster.of(NodeGroup(2, 4, "v100"), NodeGroup(1, 2, "t4"), NodeGroup(1, 4, "a100"))
TYPES = ("v100", "v100", "t4", "a100")


def job(name, gpus, types, allocation=()):
    return SimpleNamespace(
        id=name, num_gpus=gpus, allocation=allocation, running=bool(allocation),
        facts=ApplicationFacts("any", gpu_types=types),
    )  # fmt: skip


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_jobs_run_in_order_on_the_type_they_hold_or_the_first_with_room(seed, blocking):
    rng, holds = Random(seed), {}
    for _ in range(8):
        up = [rng.random() < 0.9 for _ in TYPES]
        holds = {name: at for name, at in holds.items() if all(up[node] for node, _ in at)}
        order = []
        for name in rng.sample("abcdefgh", 7):
            at = holds.get(name, ())
            gpus = sum(count for _, count in at) or rng.choice([1, 1, 2, 4, 6])
            types = rng.choice([None, ("a100", "t4")]) if not at else None
            order.append(job(name, gpus, types, at))
        view = FakeView(CLUSTER, {one.id: one for one in order}, up=up, reasons=Reasons())

        left = {
            kind: sum(4 if kind != "t4" else 2 for node in range(4) if up[node] and TYPES[node] == kind)
            for kind in TYPES
        }
        assert available_by_type(view) == left
        assert available_gpus(view) == sum(left.values())
        goes, blocked = {}, None
        for one in order:
            own = [TYPES[one.allocation[0][0]]] if one.allocation else []
            able = [kind for kind in (*own, *left) if one.facts.runs_on(kind) and left[kind] >= one.num_gpus]
            if able:
                goes[one.id] = able[0]
                left[able[0]] -= one.num_gpus
            elif blocking:
                blocked = one.id
                break
        by_id = {one.id: one for one in order}
        stay = {name for name in goes if by_id[name].allocation and TYPES[by_id[name].allocation[0][0]] == goes[name]}
        expected = {name: by_id[name].allocation for name in stay}
        free = Capacity.idle(view, expected.values())
        for name in goes:
            if name not in stay:
                at = free.place(MOST_FREE, by_id[name].num_gpus, (free.types.index(goes[name]),))
                expected[name] = at

        holds = run_in_order(order, view, blocking=blocking, score=lambda one: one.num_gpus)
        assert holds == expected
        ranks = {one.id: (rank, one.num_gpus) for rank, one in enumerate(order, start=1)}
        assert view.reasons.places == ranks
        # A full cluster ends the walk before anybody blocks.
        behind = [one.id for one in order[ranks[blocked][0] :]] if blocked and any(left.values()) else []
        assert view.reasons.waits == dict.fromkeys(behind, (Why.ANOTHER_FIRST, f"{blocked} waits before it"))
