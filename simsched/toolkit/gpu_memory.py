"""Whether jobs fit together in the memory of a GPU, for policies that let jobs share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from simsched.model import Cluster
from simsched.policy import JobView


@dataclass(frozen=True)
class GpuMemory:
    """Memory of a GPU in MB by type; a type that is not listed has room for everybody."""

    room_mb: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, cluster: Cluster) -> GpuMemory:
        """Return the memory of the GPUs of a cluster."""
        return cls(dict(cluster.memory_mb))

    def holds(self, gpu_type: str, *jobs: JobView) -> bool:
        """Return whether all of `jobs` fit on one GPU of a type; one whose need is not known takes nothing."""
        return sum(job.memory_mb for job in jobs) <= self.room_mb.get(gpu_type, math.inf)
