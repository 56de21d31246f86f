"""Placers, which choose a job's GPUs among the free GPUs of the nodes of one type, or make it wait."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Literal

from simsched.model import Allocation
from simsched.model.pool import Placer as Placer, Pool, lowest_node


def _most_free(pool: Pool, gpus: int) -> Allocation | None:
    for nodes in pool.nodes_with[: gpus - 1 : -1]:
        if nodes:  # one node is nearly always enough
            return ((lowest_node(nodes), gpus),)
    return pool.fill(gpus, pool.most_first)


def _fragments(pool: Pool, gpus: int) -> Allocation | None:
    exact = pool.nodes_with[gpus : gpus + 1]
    return ((lowest_node(exact[0]), gpus),) if exact and exact[0] else pool.fill(gpus, pool.least_first)


def _consolidated(pool: Pool, gpus: int) -> Allocation | None:
    count = pool.fewest_nodes(gpus)
    if count is None:
        return None
    picked: list[tuple[int, int]] = []
    taken = 0
    nodes = pool.most_free()
    while len(picked) < count - 1:
        found = next(nodes, None)
        if found is None:
            return None
        picked.append(found)
        taken |= 1 << found[0]
        gpus -= found[1]
    last = pool.best_fit(gpus, within=~taken)
    return None if last is None else (*picked, (last, gpus))


def _any(pool: Pool, gpus: int) -> Allocation | None:
    picked: list[tuple[int, int]] = []
    for node, free in sorted(pool.least_free()):
        picked.append((node, min(free, gpus)))
        gpus -= free
        if gpus <= 0:
            return tuple(picked)
    return None


def _fewest_domains(pool: Pool, gpus: int) -> Allocation | None:
    return tuple(_closest(pool, gpus, -1, len(pool.levels))) if pool.total >= gpus else None


def _one_domain(pool: Pool, gpus: int) -> Allocation | None:
    possible = next((level for level in pool.levels if any(size >= gpus for _, size in level)), ())
    if possible and all(pool.free_within(domain) < gpus for domain, _ in possible):
        return None
    return _fewest_domains(pool, gpus)


def _aligned(pool: Pool, gpus: int) -> Allocation | None:
    size = len(pool.nodes_with) - 1
    count, rest = divmod(gpus, size)
    if pool.total < gpus or rest or count < 2 or not pool.levels:
        return _fewest_domains(pool, gpus)
    whole = pool.nodes_with[size]
    leaves = sorted((domain & whole for domain, _ in pool.levels[0] if domain & whole), key=int.bit_count)
    spines = [domain for domain, _ in pool.levels[1]] if len(pool.levels) > 1 else []
    spines.sort(key=lambda domain: (whole & domain).bit_count())
    for parts in (parts for parts in range(1, len(leaves) + 1) if count % parts == 0):
        for within in (*spines, -1):
            fit = [leaf for leaf in leaves if leaf & within and leaf.bit_count() * parts >= count][:parts]
            if len(fit) == parts:
                return tuple((node, size) for leaf in fit for node in _lowest(leaf, count // parts))
    return _fewest_domains(pool, gpus)


def _lowest(nodes: int, count: int) -> Iterator[int]:
    for _ in range(count):
        yield lowest_node(nodes)
        nodes &= nodes - 1


def _closest(pool: Pool, gpus: int, within: int, level: int) -> list[tuple[int, int]]:
    """Choose GPUs among nodes with enough: on one node, else in one domain below `level`, else in few domains."""
    node = pool.best_fit(gpus, within)
    if node is not None:
        return [(node, gpus)]
    free: dict[int, int] = {}
    for below, domains in enumerate(pool.levels[:level]):
        free = {domain: pool.free_within(domain) for domain, _ in domains if domain & within}
        fit = min((domain for domain in free if free[domain] >= gpus), key=free.__getitem__, default=None)
        if fit is not None:
            return _closest(pool, gpus, fit, below)
    if not level:
        return _closest_nodes(pool, gpus, within)
    picked: list[tuple[int, int]] = []
    while max(free.values()) < gpus:
        most = max(free, key=free.__getitem__)
        picked += pool.most_free(most)
        gpus -= free.pop(most)
    last = min((domain for domain in free if free[domain] >= gpus), key=free.__getitem__)
    return picked + _closest(pool, gpus, last, level - 1)


def _closest_nodes(pool: Pool, gpus: int, within: int) -> list[tuple[int, int]]:
    """Choose GPUs on the fewest nodes, the most free first and the last by best fit."""
    picked: list[tuple[int, int]] = []
    nodes = pool.most_free(within)
    last = None
    while last is None:
        picked.append(next(nodes))
        within &= ~(1 << picked[-1][0])
        gpus -= picked[-1][1]
        last = pool.best_fit(gpus, within)
    return [*picked, (last, gpus)]


def _best_fit(pool: Pool, gpus: int) -> Allocation | None:
    node = pool.best_fit(gpus)
    return _most_free(pool, gpus) if node is None else ((node, gpus),)


def most_free_among(nodes: Iterable[int]) -> Placer:
    """Return a placer that takes the nodes with the most free GPUs first, among `nodes` only."""
    within = sum(1 << node for node in nodes)
    return Placer("most-free", partial(_most_free_within, within))


def _most_free_within(within: int, pool: Pool, gpus: int) -> Allocation | None:
    return pool.fill(gpus, pool.most_first, within)


#: The node with the least free GPUs that suffices, else those with the most first.
BEST_FIT = Placer("best-fit", _best_fit)
#: The node with the most free GPUs first, as the published Pollux simulator places jobs.
MOST_FREE = Placer("most-free", _most_free)
#: As few machines as the empty cluster would need, the last of them by best fit; waits until there are enough such
#: machines.
CONSOLIDATED = Placer("consolidated", _consolidated, waits=True)
#: A node with exactly enough free GPUs, else the smallest fragments first: whole machines stay whole.
FRAGMENTS = Placer("fragments", _fragments)
#: The nodes of the lowest index first.
ANY = Placer("any", _any)
#: One node, else one domain of the lowest level above nodes that has room, each by best fit, else few domains: the most
#: free first, the last by best fit.
FEWEST_DOMAINS = Placer("fewest-domains", _fewest_domains)
#: The same, but a job waits for one domain of the lowest level whose domains could hold it when empty.
ONE_DOMAIN = Placer("one-domain", _one_domain, waits=True)

#: Whole nodes in equal parts on as few domains of the lowest level as possible, the tightest fit, within one of the
#: next level if one has room, so that groups of equal size fill domains. Other jobs as with fewest domains.
ALIGNED = Placer("aligned", _aligned)

#: The names of the placers, for parameters of policies.
PlacerName = Literal["most-free", "consolidated", "fragments", "any", "fewest-domains", "one-domain", "aligned"]
PLACERS: Mapping[str, Placer] = MappingProxyType(
    {placer.name: placer for placer in (MOST_FREE, CONSOLIDATED, FRAGMENTS, ANY, FEWEST_DOMAINS, ONE_DOMAIN, ALIGNED)}
)
