"""Nodes and GPUs for the grants of a round, by the number of free GPUs on each node."""

from __future__ import annotations

from collections.abc import Iterable

from simsched.model.placement import Allocation
from simsched.policy.placers import Pool
from simsched.policy.rounds.mechanism import Grant
from simsched.policy.view import View


def allocate(grants: Iterable[Grant], view: View) -> dict[str, Allocation]:
    """Return the allocation of each job of the grants that run.

    A job that holds GPUs of its type keeps them; the others take what is free, largest first: the fullest node that
    can hold a job whole, else the emptiest nodes.
    """
    order = sorted((grant for grant in grants if grant.runs), key=lambda grant: -grant.num_gpus)
    free = [node.gpus if up else 0 for node, up in zip(view.nodes, view.up, strict=True)]
    placed: dict[str, Allocation] = {}
    for grant in order:
        held = view.jobs[grant.unit[0]].allocation
        if held and view.nodes[held[0][0]].gpu_type == grant.gpu_type:
            _keep(grant, held, free, placed)
    pools: dict[str, Pool] = {}
    for grant in order:
        if grant.unit[0] not in placed:
            if grant.gpu_type not in pools:
                pools[grant.gpu_type] = _pool(grant.gpu_type, view, free)
            found = _first_fit(pools[grant.gpu_type], grant.num_gpus, free)
            placed.update(dict.fromkeys(grant.unit, found))
    return placed


def _keep(grant: Grant, held: Allocation, free: list[int], placed: dict[str, Allocation]) -> None:
    for node, gpus in held:
        free[node] -= gpus
    placed.update(dict.fromkeys(grant.unit, held))


def _pool(gpu_type: str, view: View, free: list[int]) -> Pool:
    capacity = {
        node.index: node.gpus for node, up in zip(view.nodes, view.up, strict=True) if up and node.gpu_type == gpu_type
    }
    return Pool(capacity, free)


def _first_fit(pool: Pool, gpus: int, free: list[int]) -> Allocation:
    node = pool.best_fit(gpus)
    picked: list[tuple[int, int]] = []
    missing = gpus
    for index, count in [(node, gpus)] if node is not None else list(pool.most_free()):
        taken = min(count, missing)
        picked.append((index, taken))
        missing -= taken
        if not missing:
            break
    for index, taken in picked:
        pool.change(index, free[index], free[index] - taken)
        free[index] -= taken
    return tuple(picked)
