"""Pods: requests for cores, memory and parts of GPUs."""

from __future__ import annotations

from dataclasses import dataclass

#: Thousandths in a whole GPU.
GPU_MILLI = 1000


def models_of(gpu_spec: str) -> frozenset[str]:
    """Return the models that a text names, separated by |; none where it is empty."""
    return frozenset(name.strip() for name in gpu_spec.split("|") if name.strip())


@dataclass(frozen=True)
class Pod:
    """What a pod asks for: thousandths of cores, MiB, and `num_gpus` GPUs of each of which it wants `gpu_milli` / 1000.

    `gpu_spec` names the models that it accepts, separated by |; any where it is empty.
    """

    name: str
    cpu_milli: int
    memory_mib: int
    num_gpus: int
    gpu_milli: int
    gpu_spec: str = ""

    @property
    def total_milli(self) -> int:
        """Return the thousandths of GPUs that it asks for in all."""
        return self.num_gpus * self.gpu_milli

    @property
    def gpu_models(self) -> frozenset[str]:
        """Return the models that it accepts, any where there is none."""
        return models_of(self.gpu_spec)

    @property
    def shares(self) -> bool:
        """Return whether it wants a part of one GPU."""
        return self.num_gpus == 1 and self.gpu_milli < GPU_MILLI
