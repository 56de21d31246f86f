"""Fills a cluster with pods under several rules and seeds, and averages what each rule gives away."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from simsched.errors import input_error
from simsched.model.pod import Pod, PodNode
from simsched.packing.inflation import Filling, fill
from simsched.results.statistics import Estimate, estimate

_SHARE = (0.0, 1.0)


@dataclass(frozen=True)
class Packed:
    """What a rule has given away over all seeds: by demand, as shares of the cluster's GPUs, and at the end."""

    rule: str
    demand: tuple[float, ...]
    curve: tuple[Estimate, ...]
    allocated: Estimate
    unusable: Estimate
    refused: Estimate


def pack(
    nodes: Sequence[PodNode],
    pods: Sequence[Pod],
    rules: Sequence[str],
    seeds: int,
    demand: float = 1.3,
    progress: Callable[[str, int], None] | None = None,
) -> Mapping[str, Packed]:
    """Fill a cluster under each rule with seeds 1 to `seeds`; all rules face the same pods in the same order.

    Raises `InputError` where no pod asks for a GPU. `progress` is called with rule and seed before each
    filling.
    """
    if not any(pod.total_milli for pod in pods):
        raise input_error("pods", "no pod asks for a GPU", "give a list with at least one that does")
    found: dict[str, Packed] = {}
    for rule in rules:
        fillings = []
        for seed in range(1, seeds + 1):
            if progress is not None:
                progress(rule, seed)
            fillings.append(fill(nodes, pods, rule, np.random.default_rng(seed), demand))
        found[rule] = _averaged(rule, fillings)
    return found


def _averaged(rule: str, fillings: Sequence[Filling]) -> Packed:
    curves = np.array([filling.allocated for filling in fillings])
    curve = tuple(estimate(values, within=_SHARE) for values in curves.T)
    demand = tuple(float(step) for step in fillings[0].demand)
    unusable = estimate((filling.unusable for filling in fillings), within=_SHARE)
    return Packed(rule, demand, curve, curve[-1], unusable, estimate(filling.refused for filling in fillings))
