"""Sia's values of configurations, and the program that gives each job one (Jayaram Subramanya et al., SOSP'23).

A configuration is a GPU type and a number of nodes and GPUs: powers of two inside a node, whole nodes beyond.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simsched.arithmetic import power
from simsched.toolkit.programs.one_each import OfferProblem, solve

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

#: Exponent p of goodputs, weight of a job left without GPUs, most GPUs of a job: the artifact's values.
FAIRNESS = -0.5
PENALTY = 1.1
MOST_GPUS = 64
#: No goodput counts as less than this, no goodput to the power p as more than that.
LEAST_GOODPUT = 1e-4
MOST_VALUE = 3000.0


class Configuration(NamedTuple):
    """GPUs of one type: `gpus` in all, on `nodes` nodes."""

    gpu_type: str
    nodes: int
    gpus: int


def configurations(groups: Mapping[str, tuple[int, int]], most_gpus: int = MOST_GPUS) -> tuple[Configuration, ...]:
    """List the configurations of a cluster, `groups` gives (nodes, GPUs per node) by GPU type.

    Inside a node: the powers of two and the whole node; beyond: whole nodes up to `most_gpus`.
    """
    found = []
    for gpu_type, (nodes, per_node) in sorted(groups.items()):
        inside = {2**power for power in range(per_node.bit_length())} | {per_node}
        found += [Configuration(gpu_type, 1, gpus) for gpus in sorted(inside) if gpus <= min(per_node, most_gpus)]
        most_nodes = min(nodes, most_gpus // per_node)
        found += [Configuration(gpu_type, count, count * per_node) for count in range(2, most_nodes + 1)]
    return tuple(found)


def rigid(groups: Mapping[str, tuple[int, int]], gpus: int) -> tuple[Configuration, ...]:
    """List the configurations of a job that takes exactly `gpus` GPUs: one on each type that has that many."""
    return tuple(
        Configuration(gpu_type, -(-gpus // per_node), gpus)
        for gpu_type, (nodes, per_node) in sorted(groups.items())
        if gpus <= nodes * per_node
    )


def may_grow_to(largest_gpus: int, most_gpus: int = MOST_GPUS) -> int:
    """Return the most GPUs that an adaptive job may get next: twice the most it ran on, or one if it never ran."""
    return min(max(2 * largest_gpus, 1), most_gpus)


def restart_factor(age_s: float, restarts: int, delay_s: float) -> float:
    """Return the factor in [0, 1] on the goodput of a configuration that differs from the current one.

    The share of its life that a job would have spent on training with one more restart, at `delay_s` each; 1 while it
    is no older than one restart (artifact).
    """
    if age_s <= delay_s:
        return 1.0
    return max(age_s - restarts * delay_s, 0.0) / (age_s + delay_s)


def bootstrapped(rate: float, alone_here: float, alone_there: float) -> float:
    """Return the speed on several GPUs of a type on which the job ran on one GPU only (the bootstrap of unknown types).

    `rate` is the speed on as many GPUs of a known type, `alone_there` that on one GPU of that type, `alone_here` the
    speed on one GPU of the type in question.
    """
    return alone_here / alone_there * rate


def values(
    goodputs: Floats, gpus: Integers, current: int = -1, factor: float = 1.0, fairness: float = FAIRNESS
) -> Floats:
    """Return the value of each configuration of one job: shape (c,); smaller is better for `fairness` < 0.

    `goodputs` and `gpus` are by configuration, `current` is the index of the one held (-1 for none), `factor` its
    `restart_factor`. Goodputs are relative to the least of them, which counts as much as its GPUs.
    """
    floored = np.maximum(goodputs, LEAST_GOODPUT)
    least = int(np.argmin(floored))
    row = floored / floored[least] * gpus[least]
    others = np.arange(len(row)) != current
    row = np.where(others & (current >= 0), row * factor, row)
    powered: Floats = np.minimum(np.round(power(np.maximum(row, LEAST_GOODPUT), fairness), 2), MOST_VALUE)
    return powered


class Offers(NamedTuple):
    """The configurations on offer to the jobs, as arrays of shape (m,), sorted by job.

    `job` and `gpu_type` count from 0; `value` is each offer's value. A rigid job has one offer per type, an adaptive
    one has one per configuration, a restarting one only the one it holds.
    """

    job: Integers
    gpu_type: Integers
    gpus: Integers
    value: Floats


def offers_of(rows: Sequence[tuple[Sequence[int], Sequence[int], Sequence[float]]]) -> Offers:
    """Combine the offers of jobs: for each job the types, GPUs and values of its configurations."""
    job = np.repeat(np.arange(len(rows)), [len(types) for types, _, _ in rows])
    types, gpus, value = (np.array([cell for row in rows for cell in row[part]]) for part in range(3))
    return Offers(job, types.astype(np.int64), gpus.astype(np.int64), value.astype(np.float64))


def choose(
    offers: Offers,
    room: Integers,
    jobs: int,
    *,
    weights: Floats | None = None,
    must: Flags | None = None,
    fairness: float = FAIRNESS,
    penalty: float = PENALTY,
) -> Integers:
    """Choose at most one offer for each of `jobs` jobs: an index into the offers, -1 for none.

    `room` counts the GPUs of each type, `weights` and `must` (the job must get an offer) are by job. For negative
    `fairness`, minimises the weighted values plus `penalty` for each job without GPUs; for positive, maximises the
    values less the penalties. Raises `ValueError` if the jobs that must get an offer do not fit.
    """
    weight = np.ones(jobs) if weights is None else weights
    sign = 1.0 if fairness < 0 else -1.0
    cost = sign * weight[offers.job] * offers.value - penalty
    needed = np.zeros(jobs, dtype=bool) if must is None else must
    return solve(OfferProblem(offers.job, offers.gpu_type, offers.gpus, cost, room, needed))
