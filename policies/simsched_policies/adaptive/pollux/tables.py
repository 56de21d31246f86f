"""The speedup of each job over its fair share, for every placement that it may get."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simsched.agent import GoodputReport
from simsched.model import BatchLimits
from simsched.model.goodput import GoodputModel
from simsched.policy import JobView

Floats = NDArray[np.float64]

ONE_NODE, SEVERAL_NODES = 0, 1


@dataclass
class _Known:
    """Goodputs computed from one version of a job's model."""

    gpu_type: str
    version: int
    goodput: Floats  # [2, GPUs + 1]
    fair: dict[int, float]


class GoodputTables:
    """Caches the goodput tables of jobs until their models change."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def forget(self, job_id: str) -> None:
        """Drop the table of a job that has left."""
        self._known.pop(job_id, None)

    def write_speedup(
        self, table: Floats, job: JobView, report: GoodputReport, gpu_type: str, gpus: int, fair_gpus: int
    ) -> None:
        """Write the speedup over `fair_gpus` GPUs on a node, for up to `gpus` GPUs on one and on several nodes.

        `table` has shape [2, more than `gpus`] and is zeroed; it is indexed by one or several nodes, then by GPUs.
        Without a model the speedup is the number of GPUs over the fair share (Pollux, section 4.2, and its artifact).
        """
        model = report.on(gpu_type).model
        if model is None:
            if gpus == 1:  # the case of most waiting jobs
                table[ONE_NODE, 1] = 1 / fair_gpus
                return
            table[:, 1 : gpus + 1] = np.arange(1, gpus + 1) / fair_gpus
        else:
            limits = job.limits
            assert limits is not None  # the agent refuses jobs without
            known = self._of(job.id, gpu_type, report.version, model, gpus)
            fair_gpus = min(fair_gpus, most_gpus_for_batch(limits))
            if fair_gpus not in known.fair:
                known.fair[fair_gpus] = _fair_goodput(known, model, fair_gpus)
            fair = known.fair[fair_gpus]
            if fair > 0:
                table[:, : gpus + 1] = known.goodput[:, : gpus + 1] / fair
        table[SEVERAL_NODES, 1] = 0.0  # one GPU is on one node

    def _of(self, job_id: str, gpu_type: str, version: int, model: GoodputModel, gpus: int) -> _Known:
        known = self._known.get(job_id)
        same = known is not None and (known.gpu_type, known.version) == (gpu_type, version)
        if known is None or not same or known.goodput.shape[1] <= gpus:
            known = self._known[job_id] = _Known(gpu_type, version, _goodputs(model, gpus), {})
        return known


def most_gpus_for_batch(limits: BatchLimits) -> int:
    """Count the GPUs on which even the smallest per-GPU batch stays within the largest total batch."""
    return limits.max_batch_size // limits.min_local_bsz


def _goodputs(model: GoodputModel, gpus: int) -> Floats:
    counts = np.arange(1, gpus + 1)
    nodes = np.repeat([1, 2], gpus)
    best = model.optimise(nodes, np.tile(counts, 2)).goodput
    table = np.zeros((2, gpus + 1))
    table[:, 1:] = best.reshape(2, gpus)
    return table


def _fair_goodput(known: _Known, model: GoodputModel, gpus: int) -> float:
    if gpus < known.goodput.shape[1]:
        return float(known.goodput[ONE_NODE, gpus])
    return float(model.optimise(1, gpus).goodput)
