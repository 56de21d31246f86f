"""Counts free GPUs that no waiting job can use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import NamedTuple

from simsched.engine.state import JobState
from simsched.model import Cluster


class Stranded(NamedTuple):
    """Free GPUs that no waiting job can use: on any nodes of one type, on the fewest nodes, in the fewest domains.

    The fewest are those needed in the empty cluster; domains are of the lowest level above nodes, or the cluster.
    """

    gpus: int = 0
    by_node: int = 0
    by_domain: int = 0


NONE_STRANDED = Stranded()


class _Units:
    """Nodes or domains of one GPU type: their sizes, and the fewest each job needs."""

    def __init__(self, nodes_of: Sequence[Sequence[int]], gpus: Sequence[int]) -> None:
        self.nodes_of = nodes_of
        self._sizes = sorted((sum(gpus[node] for node in nodes) for nodes in nodes_of), reverse=True)

    def stranded(self, free: Sequence[int], wanted: Iterable[int]) -> int:
        """Count the free GPUs that no job of sizes `wanted` can get on as few units as it needs."""
        left = sorted((sum(free[node] for node in nodes) for nodes in self.nodes_of), reverse=True)
        least = min((self._least(left, gpus) for gpus in wanted), default=inf)
        return sum(gpus for gpus in left if gpus < least)

    def _least(self, left: Sequence[int], gpus: int) -> float:
        """Return the fewest free GPUs that make a unit useful to a job, infinity if none is."""
        before = 0
        missing = gpus
        for size, has in zip(self._sizes, left, strict=True):
            if missing <= size:
                least = gpus - before
                return max(least, 1) if has >= least else inf
            missing -= size
            before += has
        return inf


class StrandedGpus:
    """Counts stranded GPUs; walks nodes and jobs only if GPUs are free and jobs wait."""

    def __init__(self, cluster: Cluster, *, rigid: bool) -> None:
        """Prepare for policies that grant full requests (`rigid`), or any number of GPUs."""
        self._rigid = rigid
        self._tiered = cluster.tiered and bool(cluster.levels)
        gpus = [node.gpus for node in cluster.nodes]
        domains = cluster.levels[0].domains if cluster.levels else (tuple(range(len(gpus))),)
        self._units: dict[str, tuple[_Units, _Units, _Units]] = {}
        for kind in cluster.gpu_types:
            of_type = [node.index for node in cluster.nodes if node.gpu_type == kind]
            held = [tuple(node for node in domain if cluster.nodes[node].gpu_type == kind) for domain in domains]
            groups = ([of_type], [(node,) for node in of_type], [nodes for nodes in held if nodes])
            pool, nodes, inside = (_Units(group, gpus) for group in groups)
            self._units[kind] = pool, nodes, inside

    def fits_in_domain(self, free: Sequence[int]) -> int:
        """Return the most free GPUs of a type in one domain of the lowest level, 0 if no tier has uplinks."""
        inside = (unit.nodes_of for _, _, unit in self._units.values()) if self._tiered else ()
        return max((sum(free[node] for node in nodes) for domains in inside for nodes in domains), default=0)

    def stranded(self, free: Sequence[int], active: Mapping[str, JobState]) -> Stranded:
        """Count the free GPUs that no waiting job can use, zero if none waits."""
        if not any(free):
            return NONE_STRANDED
        waiting = [job for job in active.values() if not job.allocation]
        if not waiting:
            return NONE_STRANDED
        kinds = {(job.request.num_gpus if self._rigid else 1, job.facts.gpu_types) for job in waiting}
        totals = [0, 0, 0]
        for kind, units in self._units.items():
            wanted = {gpus for gpus, types in kinds if types is None or kind in types}
            for place, unit in enumerate(units):
                totals[place] += unit.stranded(free, wanted)
        return Stranded(*totals)
