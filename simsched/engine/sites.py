"""The sites of placements in a cluster."""

from __future__ import annotations

from simsched.model import Allocation, Cluster, Site, site_of


class Sites:
    """Tells the site of an allocation; those on one node, of which there are few, are made once."""

    def __init__(self, cluster: Cluster) -> None:
        """Begin with none made."""
        self._cluster = cluster
        self._made: dict[tuple[str, int], Site] = {}

    def of(self, allocation: Allocation, gpu_type: str, gpus: int) -> Site:
        """Return the site of an allocation of so many GPUs of a type."""
        if len(allocation) > 1:
            return site_of(self._cluster, allocation)
        site = self._made.get((gpu_type, gpus))
        if site is None:
            site = self._made[gpu_type, gpus] = site_of(self._cluster, allocation)
        return site
