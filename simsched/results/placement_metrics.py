"""Metrics of placement, if recorded: unusable free GPUs, and jobs spread over domains."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from simsched.arithmetic import dot
from simsched.results.integrals import held_between_rounds
from simsched.results.metric import HIGHER, LOWER, Columns, Metric, Tables, makespan_s, ratio


def _share(column: str) -> Callable[[Tables], float | None]:
    """Return the share of free GPU-seconds that is stranded, over the time in which jobs wait."""

    def compute(tables: Tables) -> float | None:
        rounds, until_s = tables.decided, makespan_s(tables)
        if rounds is None or column not in rounds or until_s is None:
            return None
        waiting = rounds["active_jobs"] > rounds["running_jobs"]
        free = np.where(waiting, rounds["available_gpus"] - rounds["allocated_gpus"], 0)
        lost = np.where(waiting, rounds[column], 0)
        arrays = {"time_s": rounds["time_s"], "free_gpus": free, "lost_gpus": lost}
        both = Columns(arrays, len(rounds), arrays.__getitem__)
        start, end, free_gpus = held_between_rounds(both, "free_gpus", until_s)
        *_, lost_gpus = held_between_rounds(both, "lost_gpus", until_s)
        return ratio(dot(end - start, lost_gpus), dot(end - start, free_gpus))

    return compute


def _room(tables: Tables) -> float | None:
    """Return the mean over time of the largest job that fits in one domain."""
    rounds, until_s = tables.decided, makespan_s(tables)
    if rounds is None or "fits_in_domain_gpus" not in rounds or until_s is None:
        return None
    start, end, fits = held_between_rounds(rounds, "fits_in_domain_gpus", until_s)
    return ratio(dot(end - start, fits), until_s)


def _crossing(tables: Tables) -> float | None:
    intervals = tables.held
    if intervals is None or "levels_crossed" not in intervals:
        return None
    gpu_s = (intervals["end_s"] - intervals["start_s"]) * intervals["gpus"]
    return ratio(float(gpu_s[intervals["levels_crossed"] > 0].sum()), float(gpu_s.sum()))


_MEANING = "`{}` / free GPUs, both integrated over the time in which jobs wait; needs `engine.fragmentation`"

_FRAGMENTATION = tuple(
    Metric(name, title, "share", LOWER, _MEANING.format(column), _share(column))
    for name, title, column in (
        ("fragmentation", "fragmentation", "stranded_gpus"),
        ("fragmentation_by_node", "fragmentation by node", "stranded_by_node_gpus"),
        ("fragmentation_by_domain", "fragmentation by domain", "stranded_by_domain_gpus"),
    )
)

#: The metrics of this module.
PLACEMENT_METRICS = (
    *_FRAGMENTATION,
    Metric("crossing_share", "time across domains", "share", LOWER,
           "share of the GPU-seconds held by jobs that are in several domains of the lowest level above the nodes",
           _crossing),
    Metric("room_in_domain", "largest job in a domain", "GPU", HIGHER,
           "mean over time of `fits_in_domain_gpus`; needs `engine.fragmentation` and tiers with uplinks", _room),
)  # fmt: skip
