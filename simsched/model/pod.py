"""Pods: requests for cores, memory and parts of GPUs; the usual requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TypeVar

#: Thousandths in a whole GPU.
GPU_MILLI = 1000


def models_of(gpu_spec: str) -> frozenset[str]:
    """Return the models in a text, separated by |; empty for an empty text."""
    return frozenset(name.strip() for name in gpu_spec.split("|") if name.strip())


@dataclass(frozen=True)
class Pod:
    """The request of a pod: thousandths of cores, MiB, and `gpu_milli` / 1000 of each of `num_gpus` GPUs.

    `gpu_spec` names the models that it accepts, separated by |; any if it is empty.
    """

    name: str
    cpu_milli: int
    memory_mib: int
    num_gpus: int
    gpu_milli: int
    gpu_spec: str = ""

    @property
    def total_milli(self) -> int:
        """Return the thousandths of GPUs that it asks for in total."""
        return self.num_gpus * self.gpu_milli

    @property
    def gpu_models(self) -> frozenset[str]:
        """Return the models that it accepts; empty means any."""
        return models_of(self.gpu_spec)

    @property
    def shares(self) -> bool:
        """Return whether it wants a fraction of one GPU."""
        return self.num_gpus == 1 and self.gpu_milli < GPU_MILLI


Request = TypeVar("Request", bound=Hashable)

#: The amount by which parts may exceed a whole GPU, since sums of decimal fractions are inexact.
SLACK = 1e-9
#: The share of all requests that the usual ones cover.
COVERED = 0.95


def usual_requests(counts: Counter[Request], covered: float = COVERED) -> list[tuple[Request, float]]:
    """Return the most frequent requests that cover the share `covered`, each with its share; shares add up to 1.

    Ties go to the request counted first. Source: Weng et al., "Beware of Fragmentation" (ATC'23), section 3, the
    classes of its target workload.
    """
    total, seen, kept = counts.total(), 0, []
    for request, count in counts.most_common():
        kept.append((request, count))
        seen += count
        if seen >= covered * total:
            break
    return [(request, count / seen) for request, count in kept]
