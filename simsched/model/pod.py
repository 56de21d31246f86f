"""Pods that ask for parts of GPUs, and the nodes that they are put on."""

from __future__ import annotations

from dataclasses import dataclass

#: Thousandths in a whole GPU.
GPU_MILLI = 1000


@dataclass(frozen=True)
class Pod:
    """What a pod asks for: thousandths of cores, MiB, and `num_gpus` GPUs of each of which it wants `gpu_milli` / 1000.

    `gpu_models` are the models that it accepts, any where there is none.
    """

    name: str
    cpu_milli: int
    memory_mib: int
    num_gpus: int
    gpu_milli: int
    gpu_models: frozenset[str] = frozenset()

    @property
    def total_milli(self) -> int:
        """Return the thousandths of GPUs that it asks for in all."""
        return self.num_gpus * self.gpu_milli

    @property
    def shares(self) -> bool:
        """Return whether it wants a part of one GPU."""
        return self.num_gpus > 0 and self.gpu_milli < GPU_MILLI


@dataclass(frozen=True)
class PodNode:
    """A node: thousandths of cores, MiB, and GPUs of one model."""

    name: str
    cpu_milli: int
    memory_mib: int
    gpus: int
    gpu_model: str = ""
