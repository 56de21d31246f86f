"""Levels of a cluster, and how jobs that share an uplink slow each other down."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from math import gcd
from typing import NamedTuple

from simsched.model.cluster import Cluster, Level, Node, Uplink, Within
from simsched.model.placement import Allocation, Site, Tier, consolidated_shape, shape_of


class Route(NamedTuple):
    """A term of `Place.more`: the urgency of a job's communication if jobs share uplinks, 0 being served first.

    `paths` is the path that it takes at each level of the cluster, the lowest first; None: hashed from the job's id.
    """

    level: int = 0
    paths: tuple[int, ...] | None = None


def consecutive(nodes: int, count: int) -> tuple[tuple[int, ...], ...]:
    """Divide `count` nodes into domains of `nodes` consecutive ones; the last may have fewer."""
    return tuple(tuple(range(at, min(at + nodes, count))) for at in range(0, count, nodes))


def check_nodes(domains: Sequence[Sequence[int]], count: int) -> None:
    """Raise `ValueError` if domains name a node outside a cluster of `count` nodes."""
    for node in (node for domain in domains for node in domain):
        if not 0 <= node < count:
            raise ValueError(f"there is no node {node}; the nodes are 0 to {count - 1}")


def with_levels(cluster: Cluster, levels: Sequence[Level], within: Sequence[Within] = ()) -> Cluster:
    """Return a cluster with levels above its nodes, and tiers within them, the lowest first.

    Raises `ValueError` unless every node is in exactly one domain of each level, and every domain within one of the
    next level.
    """
    places = [_places(level, len(cluster.nodes)) for level in levels]
    for lower, upper, below, above in zip(levels, levels[1:], places, places[1:], strict=False):
        for place, domain in enumerate(lower.domains):
            if len({above[node] for node in domain}) > 1:
                message = f"domain {place} of level '{lower.name}' lies in several domains of level '{upper.name}'"
                raise ValueError(message)
        if below == above:
            raise ValueError(f"the levels '{lower.name}' and '{upper.name}' have the same domains")
    nodes = [replace(node, domains=tuple(place[node.index] for place in places)) for node in cluster.nodes]
    return replace(cluster, nodes=tuple(nodes), levels=tuple(levels), within=tuple(within))


def _places(level: Level, count: int) -> list[int]:
    """Return the domain of each node; raises `ValueError` if a node is in none or in two."""
    check_nodes(level.domains, count)
    found: dict[int, int] = {}
    for place, domain in enumerate(level.domains):
        for node in domain:
            if node in found:
                raise ValueError(f"node {node} is twice in the domains of level '{level.name}'")
            found[node] = place
    missing = next((node for node in range(count) if node not in found), None)
    if missing is not None:
        raise ValueError(f"node {missing} is in no domain of level '{level.name}'")
    return [found[node] for node in range(count)]


def levels_crossed(nodes: Sequence[Node], allocation: Allocation) -> int:
    """Count the levels, from the lowest up, at which an allocation spans several domains."""
    held = {nodes[node].domains for node, _ in allocation}
    return sum(len(set(places)) > 1 for places in zip(*held, strict=True))


def site_of(cluster: Cluster, allocation: Allocation) -> Site:
    """Return the site of an allocation, of the type of its first node."""
    kind = cluster.nodes[allocation[0][0]].gpu_type
    crossed = levels_crossed(cluster.nodes, allocation) if cluster.levels else 0
    site = _site(cluster, shape_of(allocation), kind, crossed)
    if not cluster.tiered:
        return site
    held: list[dict[int, int]] = [{} for _ in cluster.levels]
    for node, gpus in allocation:
        for domains, domain in zip(held, cluster.nodes[node].domains, strict=True):
            domains[domain] = domains.get(domain, 0) + gpus
    return site._replace(tiers=_tiers(cluster, site.shape, [tuple(domains.values()) for domains in held]))


def tightest_site(cluster: Cluster, gpus: int, gpu_type: str) -> Site:
    """Return the site of `gpus` GPUs of a type in the empty cluster, on as few nodes and levels as possible."""
    if (gpus, gpu_type) not in cluster.tightest_sites:
        cluster.tightest_sites[gpus, gpu_type] = _tightest_site(cluster, gpus, gpu_type)
    return cluster.tightest_sites[gpus, gpu_type]


def _tightest_site(cluster: Cluster, gpus: int, gpu_type: str) -> Site:
    shape = consolidated_shape(gpus, cluster.gpus_per_node(gpu_type))
    crossed = sum(most < gpus for most in cluster.largest_domains[gpu_type])
    site = _site(cluster, shape, gpu_type, crossed)
    if not cluster.tiered:
        return site
    held = [consolidated_shape(gpus, most) for most in cluster.largest_domains[gpu_type]]
    return site._replace(tiers=_tiers(cluster, shape, held))


def _tiers(cluster: Cluster, shape: Sequence[int], held: Sequence[Sequence[int]]) -> tuple[Tier, ...]:
    """Return how GPUs are spread over tiers with uplinks, given the GPUs per node and, for each level, per domain."""
    most = max(shape)
    found = [
        _tier((*shape, min(one.gpus, most)), one.uplink, inside=True) if one.gpus else _tier(shape, one.uplink)
        for one in cluster.within
    ]
    found += [
        _tier(gpus, level.uplink) for level, gpus in zip(cluster.levels, held, strict=True) if level.uplink is not None
    ]
    return tuple(found)


def _tier(gpus: Sequence[int], uplink: Uplink, *, inside: bool = False) -> Tier:
    largest = gpus[-1] if inside else max(gpus)
    return Tier(gcd(*gpus), largest, uplink.bytes_per_s, uplink.latency_s, inside)


def _site(cluster: Cluster, shape: tuple[int, ...], gpu_type: str, crossed: int) -> Site:
    factor = 1.0
    if crossed:
        factor = cluster.levels[crossed - 1].sync_factor
    elif cluster.levels and len(shape) > 1:
        factor = cluster.levels[0].inside_factor
    return Site(shape, gpu_type, crossed, factor)


_CLOSE = 1e-9
_MOST_ROUNDS = 1000
_LEAST_LEFT = 0.05  # share of an uplink left for flows less urgent than those that fill it


class Flow(NamedTuple):
    """A job alone: the seconds of its step and, for each tier, the seconds that wait for uplinks, and these uplinks.

    Lower levels are more urgent.
    """

    step_s: float
    across: tuple[tuple[float, tuple[Hashable, ...]], ...]
    level: int = 0


def shared_steps_s(flows: Sequence[Flow]) -> list[float]:
    """Return the seconds of a step of each job when all flows run at the same time."""
    parts = [(job, exposed_s, links) for job, flow in enumerate(flows) for exposed_s, links in flow.across if exposed_s]
    users: dict[Hashable, list[int]] = {}
    for part, (_, _, links) in enumerate(parts):
        for link in links:
            users.setdefault(link, []).append(part)
    # Uplinks with the same users are equally busy: one of them represents all.
    busy = sorted({tuple(sharing) for sharing in users.values() if len(sharing) > 1})
    level = [flows[job].level for job, _, _ in parts]
    meets: list[list[tuple[list[int], list[int]]]] = [[] for _ in parts]
    for sharing in busy:
        for part in sharing:
            equals = [other for other in sharing if other != part and level[other] == level[part]]
            meets[part].append((equals, [other for other in sharing if level[other] < level[part]]))
    stretch, steps_s = [1.0] * len(parts), [flow.step_s for flow in flows]
    for _ in range(_MOST_ROUNDS):
        active = [exposed_s * stretch[part] / steps_s[job] for part, (job, exposed_s, _) in enumerate(parts)]
        wider = [max((_stretch(active, *met) for met in part), default=1.0) for part in meets]
        moved = max((abs(now - before) for now, before in zip(wider, stretch, strict=True)), default=0.0)
        stretch = wider
        steps_s = [flow.step_s for flow in flows]
        for part, (job, exposed_s, _) in enumerate(parts):
            steps_s[job] += exposed_s * (stretch[part] - 1)
        if moved < _CLOSE:
            break
    return steps_s


def _stretch(active: Sequence[float], equals: Sequence[int], first: Sequence[int]) -> float:
    """Return the factor by which flows of equal level and flows served first stretch a flow."""
    left = max(1.0 - sum(active[other] for other in first), _LEAST_LEFT)
    return (1.0 + sum(active[other] for other in equals)) / left
