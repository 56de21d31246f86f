"""Bounds the speed of fitted or measured applications on a number of GPUs, for any batch and placement."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from simsched.arithmetic import exp, log
from simsched.model import BatchLimits, Cluster
from simsched.model.fitted import FittedApplication
from simsched.model.measured import MeasuredApplication
from simsched.model.step_model import Placements

Floats = NDArray[np.float64]
TrainedApplication = FittedApplication | MeasuredApplication
Speeds = Mapping[tuple[str, int], float]


def fitted_speeds(app: TrainedApplication, cluster: Cluster, *, on_one_gpu: bool = False) -> Speeds:
    """Bound an application's progress per second by GPU type and number of GPUs, over its whole training.

    In each epoch the speed is the largest over all batches and placements. As efficiency changes between epochs,
    progress is measured in seconds at an epoch's largest speed, or at that `on_one_gpu`: the whole training takes the
    sum of these, and on other GPUs it is at most as fast as in the epoch that gains most, or loses least, from them.
    Either gives a bound. The first is exact for jobs on all GPUs, the second for jobs on one.
    """
    counts = {
        (kind, gpus): _speeds_by_epoch(app, kind, gpus, sizes)
        for kind in sorted(app.step_models if isinstance(app, FittedApplication) else app.gpu_types)
        if (sizes := [node.gpus for node in cluster.nodes if node.gpu_type == kind])
        for gpus in range(1, min(sum(sizes), app.limits.max_batch_size) + 1)
    }
    known = {place: speeds for place, speeds in counts.items() if speeds.any()}
    usual = np.max([*known.values()], axis=0) if known else np.zeros(1)
    if not usual.all():
        return {}
    if on_one_gpu:
        fewest = min(gpus for _, gpus in known)
        few = np.max([one for (_, gpus), one in known.items() if gpus == fewest], axis=0)
        usual = np.where(few > 0, few, usual)
    lengths = np.diff([0.0, *(app.epoch_end(epoch) for epoch in range(app.epochs))])
    mean = float(lengths.sum() / (lengths / usual).sum())
    return {place: mean * float((speeds / usual).max()) for place, speeds in known.items()}


def _speeds_by_epoch(app: TrainedApplication, kind: str, gpus: int, sizes: list[int]) -> Floats:
    """Return the largest progress per second in each epoch on `gpus` GPUs; 0 if no batch fits."""
    limits = app.limits
    most = limits.max_batch_size // gpus
    local = np.arange(limits.min_local_bsz, min(limits.max_local_bsz, most) + 1)
    if isinstance(app, FittedApplication):
        found = app.step_models[kind].times_s(_placements(gpus, sizes), local[None, :])
        compute, step = (np.broadcast_to(one, (one.shape[0], len(local))).min(axis=0) for one in found)
    else:
        nodes = range(-(-gpus // max(sizes)), min(gpus, len(sizes)) + 1)
        compute, step = app.times_s(gpus, nodes, local)
    totals, seconds = _iteration_seconds(limits, local, compute, step, gpus)
    usable = (totals >= limits.init_batch_size) & np.isfinite(seconds)
    totals, seconds = totals[usable], seconds[usable]
    if not len(totals):
        return np.zeros(app.epochs)
    return np.array([(gain / seconds).max() for gain in _gains(app, totals)])


def _placements(gpus: int, sizes: list[int]) -> Placements:
    """Return the possible placements of GPUs: the number of nodes, and of GPUs on the fullest node."""
    largest = max(sizes)
    found = [
        (nodes, fullest)
        for nodes in range(-(-gpus // largest), min(gpus, len(sizes)) + 1)
        for fullest in range(-(-gpus // nodes), min(largest, gpus - nodes + 1) + 1)
    ]
    nodes, fullest = (np.array(column)[:, None] for column in zip(*found, strict=True))
    return Placements.counted(nodes, np.full_like(nodes, gpus), fullest)


def _iteration_seconds(
    limits: BatchLimits, local: NDArray[np.int64], compute: Floats, step: Floats, gpus: int
) -> tuple[NDArray[np.int64], Floats]:
    """Return all total batches and the least seconds of an iteration at each, over all splits.

    The fastest placements for computation and for a whole step may differ. The engine rejects micro-batches beyond the
    application's limits.
    """
    most = limits.max_batch_size // gpus
    seconds = np.full(most + 1, np.inf)
    if len(local):
        for micro_batches in range(1, most // limits.min_local_bsz + 1):
            fits = local[: most // micro_batches - limits.min_local_bsz + 1]
            own = step[: len(fits)] + (micro_batches - 1) * compute[: len(fits)]
            seconds[fits * micro_batches] = np.minimum(seconds[fits * micro_batches], own)
    return np.arange(most + 1) * gpus, seconds


def _gains(app: TrainedApplication, totals: NDArray[np.int64]) -> Floats:
    """Return the value of an iteration in initial-batch iterations at each total batch, a row for each epoch."""
    initial = app.limits.init_batch_size
    if isinstance(app, MeasuredApplication):  # as used: even if noise made them negative
        sqr, var = (
            np.array([np.interp(totals, app.batch_sizes, values) for values in zip(*by_curve, strict=True)])
            for by_curve in ([curve.grad_sqr for curve in app.curves], [curve.grad_var for curve in app.curves])
        )
        return np.asarray(np.maximum(0.0, (var + sqr) / (var * initial / totals + sqr)), dtype=np.float64)
    curve = app.training.noise
    logs = np.asarray(log(curve.noise))
    by_epoch = np.array([np.interp(range(app.epochs), curve.epochs, column) for column in logs.T])
    at = log(totals.astype(np.float64))
    noise = exp(np.array([np.interp(at, log(curve.batch_sizes), column) for column in by_epoch.T])) / initial
    return np.asarray((noise + 1) / (noise * initial / totals + 1), dtype=np.float64)
