"""A cluster of manifests with a different number of nodes: copies of the declared ones, and quotas in proportion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import groupby
from operator import attrgetter

from simsched.manifests import HOSTNAME, NodeFacts, node_groups
from simsched.model import Cluster
from simsched_policies.production.kueue.model import FlavourResource, Quota, Setup


def grown(nodes: Sequence[NodeFacts], cluster: Cluster) -> list[NodeFacts]:
    """Return as many nodes of each make as the cluster has; added nodes cycle through copies of the declared ones.

    Makes are runs of equal nodes, in the order of both. A cluster of other makes gets the declared nodes.
    """
    sizes = [group["nodes"] for group in node_groups(nodes)]
    make_of = attrgetter("gpus", "gpu_type", "cpu_milli", "memory_mib")
    runs = [len(list(same)) for _, same in groupby(cluster.nodes, key=make_of)]
    if len(runs) != len(sizes):
        return list(nodes)
    found: list[NodeFacts] = []
    begin = 0
    for size, wanted in zip(sizes, runs, strict=True):
        make = nodes[begin : begin + size]
        begin += size
        found += [make[i] if i < size else _copy(make[i % size], i // size) for i in range(wanted)]
    return found


def _copy(node: NodeFacts, number: int) -> NodeFacts:
    name = f"{node.name}-copy-{number}"
    return replace(node, name=name, labels={**node.labels, HOSTNAME: name})


def scaled(setup: Setup, before: Sequence[NodeFacts], after: Sequence[NodeFacts]) -> Setup:
    """Return quotas and their limits in proportion to the GPUs that each flavour has after and had before."""
    factors = {
        name: Fraction(_gpus(after, flavour.labels), max(_gpus(before, flavour.labels), 1))
        for name, flavour in (setup.flavours or {}).items()
    }

    def moved(quotas: Mapping[FlavourResource, Quota]) -> dict[FlavourResource, Quota]:
        return {key: _times(quota, factors.get(key[0], Fraction(1))) for key, quota in quotas.items()}

    queues = tuple(replace(one, quotas=moved(one.quotas)) for one in setup.queues)
    return replace(setup, queues=queues, cohorts=tuple(replace(one, quotas=moved(one.quotas)) for one in setup.cohorts))


def _gpus(nodes: Sequence[NodeFacts], labels: Mapping[str, str]) -> int:
    return sum(node.gpus for node in nodes if labels.items() <= node.labels.items())


def _times(quota: Quota, factor: Fraction) -> Quota:
    limits = (quota.borrowing_limit, quota.lending_limit)
    return Quota(int(quota.nominal * factor), *(None if one is None else int(one * factor) for one in limits))
