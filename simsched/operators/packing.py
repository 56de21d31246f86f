"""Fills a cluster with pods under several rules and seeds, and averages the GPUs allocated."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simsched.errors import input_error
from simsched.model import Node
from simsched.model.placement import Pod
from simsched.results import Estimate, estimate
from simsched.toolkit.packing import PUBLISHED_NAMES, Filling, NodeOrder, fill
from simsched.workload.readers import open_sheet

_SHARE = (0.0, 1.0)


@dataclass(frozen=True)
class Packed:
    """The GPUs a rule allocated over all seeds: by demand, as shares of the cluster's, and at the end.

    A seed draws arrivals and the node order, which breaks ties. `spread_arrivals` and `spread_orders` are the standard
    deviations of `allocated` with one varying, the other as for the first seed; None with one seed or order.
    """

    rule: str
    demand: tuple[float, ...]
    curve: tuple[Estimate, ...]
    allocated: Estimate
    spread_arrivals: float | None
    spread_orders: float | None
    unusable: Estimate
    refused: Estimate


def pack(
    nodes: Sequence[Node],
    pods: Sequence[Pod],
    rules: Sequence[str],
    seeds: int,
    demand: float = 1.3,
    *,
    node_order: NodeOrder = "shuffled",
    progress: Callable[[str], None] | None = None,
) -> Mapping[str, Packed]:
    """Fill a cluster under each rule with seeds 1 to `seeds`; all rules see the same pods and node orders.

    Raises `InputError` if no pod asks for a GPU. `progress` receives each rule before its first filling.
    """
    if not any(pod.total_milli for pod in pods):
        raise input_error("pods", "no pod asks for a GPU", "give a list with at least one that does")
    found: dict[str, Packed] = {}
    for rule in rules:
        if progress is not None:
            progress(rule)

        def filled(seed: int, order_seed: int, rule: str = rule) -> Filling:
            return fill(nodes, pods, rule, seed, demand, order_seed=order_seed, node_order=node_order)

        fillings = [filled(seed, seed) for seed in range(1, seeds + 1)]
        others = range(2, seeds + 1)
        arrivals = [fillings[0], *(filled(seed, 1) for seed in others)]
        shuffled = node_order == "shuffled" or rule == "random"
        orders = [fillings[0], *(filled(1, seed) for seed in others)] if shuffled else []
        found[rule] = _averaged(rule, fillings, arrivals, orders)
    return found


def _averaged(rule: str, fillings: Sequence[Filling], arrivals: Sequence[Filling], orders: Sequence[Filling]) -> Packed:
    curves = np.array([filling.allocated for filling in fillings])
    curve = tuple(estimate(values, within=_SHARE) for values in curves.T)
    demand = tuple(float(step) for step in fillings[0].demand)
    unusable = estimate((filling.unusable for filling in fillings), within=_SHARE)
    refused = estimate(filling.refused for filling in fillings)
    return Packed(rule, demand, curve, curve[-1], _spread(arrivals), _spread(orders), unusable, refused)


def _spread(fillings: Sequence[Filling]) -> float | None:
    if len(fillings) < 2:
        return None
    return float(np.std([filling.allocated[-1] for filling in fillings], ddof=1))


#: Columns of the published table on the uncertainty of its means.
PUBLISHED_IDLE = ("seeds", "ci95_low", "ci95_high", "sd")


def read_published(path: str | Path, lists: Sequence[str]) -> Mapping[tuple[str, str], float]:
    """Read published shares of allocated GPUs by pod list and rule, for the `lists` in the file.

    Columns: `pod_list,rule,mean_percent`. A file matches a `pod_list` if its stem is the name or ends with _ and the
    name. Raises `InputError` with every bad cell, or if no list matches.
    """
    sheet = open_sheet(Path(path), ("pod_list", "rule", "mean_percent"), idle=PUBLISHED_IDLE)
    names = {published: rule for rule, published in PUBLISHED_NAMES.items()}
    percent = sheet.number("mean_percent", least=0, most=100)
    sheet.blame("rule", sheet.missing("rule"), "is missing")
    rows = list(zip(sheet.text("pod_list"), sheet.one_of("rule", list(names)), percent, strict=True))
    keys = [row[:2] for row in rows]
    sheet.blame("rule", np.array([key in keys[:i] for i, key in enumerate(keys)]), "has a row for this list already")
    sheet.check()
    found = {
        (one, names[rule]): float(mean) / 100
        for one in lists
        for pod_list, rule, mean in rows
        if one == pod_list or one.endswith(f"_{pod_list}")
    }
    if not found:
        has = ", ".join(dict.fromkeys(pod_list for pod_list, _, _ in rows))
        raise input_error(path, f"has no row for {', '.join(lists)}", f"it has {has}")
    return found
