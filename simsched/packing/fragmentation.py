"""How much of the free GPUs of a node the pods that may come cannot use: the measure of FGD.

Source: Weng et al., "Beware of Fragmentation" (USENIX ATC'23), section 3, as its published simulator computes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from simsched.model.parts import COVERED, usual_requests
from simsched.model.pod import Pod, PodNode

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Target:
    """The pods that may come, as classes with their `share` (which add up to 1); each array of shape (classes,).

    A class is a request for `cpu_milli`, `num_gpus` and `gpu_milli` by models `gpu_models`.
    """

    cpu_milli: Ints
    num_gpus: Ints
    gpu_milli: Ints
    gpu_models: tuple[frozenset[str], ...]
    share: Floats

    @classmethod
    def of(cls, pods: Iterable[Pod], covered: float = COVERED) -> Target:
        """Take the most frequent requests until they are `covered` of all pods; equal ones in the order of the pods."""
        counts = Counter((pod.cpu_milli, pod.num_gpus, pod.gpu_milli, pod.gpu_models) for pod in pods)
        kept = usual_requests(counts, covered)
        columns = [np.array([request[i] for request, _ in kept], dtype=np.int64) for i in range(3)]
        models = tuple(request[3] for request, _ in kept)
        return cls(columns[0], columns[1], columns[2], models, np.array([share for _, share in kept]))

    def accepts(self, node: PodNode) -> Bools:
        """Return which classes accept the GPUs of a node, shape (classes,)."""
        return np.array([not models or node.gpu_model in models for models in self.gpu_models], dtype=np.bool_)


def fragmentation(target: Target, accepts: Bools, cpu_free: Ints, gpu_free: Ints) -> Floats:
    """Return the expected thousandths of free GPUs that a pod of the target cannot use, for each of n states of a node.

    `cpu_free` has shape (n,), `gpu_free` (n, GPUs), both in thousandths. For a class that the node cannot run, or
    that wants no GPU, all that is free counts; for the others the GPUs with less free than it wants of one.
    """
    # Axes: state, class, GPU.
    fits = gpu_free[:, None, :] >= target.gpu_milli[None, :, None]
    runs = accepts & (target.num_gpus > 0) & (cpu_free[:, None] >= target.cpu_milli)
    runs &= fits.sum(axis=2) >= target.num_gpus
    too_small = np.where(fits, 0, gpu_free[:, None, :]).sum(axis=2)
    unusable = np.where(runs, too_small, gpu_free.sum(axis=1)[:, None])
    return np.asarray(unusable @ target.share, dtype=np.float64)


def free_share_unusable(target: Target, nodes: Sequence[PodNode], cpu_free: Ints, gpu_free: Ints) -> float:
    """Return the share of all free GPUs that is fragmented, 0 where none is free.

    `cpu_free` has shape (nodes,), `gpu_free` (nodes, GPUs of the largest).
    """
    free = int(gpu_free.sum())
    lost = 0.0
    for i, node in enumerate(nodes):
        lost += float(fragmentation(target, target.accepts(node), cpu_free[i : i + 1], gpu_free[i : i + 1])[0])
    return lost / free if free else 0.0
