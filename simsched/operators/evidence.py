"""Evidence in a log of rules that a replay does not know, such as limits of users, or of idle GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from simsched.operators.log_input import Groups, held_over_time, total_gpus
from simsched.workload.readers import ClusterLog

Numbers = npt.NDArray[np.float64]

#: The fraction of jobs that must name a partition or a time limit for the log to count as naming them.
_MOST_SILENT = 0.2
#: The fewest users who stop at the same number of GPUs for it to look like a rule, and the fewest GPUs.
_LIKE_MINDED, _LEAST_CAP = 2, 4
#: Shorter recorded waits count as none: schedulers scan their queues every half minute or minute.
WAITED_S = 300.0
#: The fraction of waits worth reporting.
_WORTH = 0.1


def unknowns(log: ClusterLog, groups: Groups) -> tuple[str, ...]:
    """Name what a log must record on this cluster but does not."""
    kinds = {(one.get("gpu_type"), one.get("gpus_per_node")) for one in groups}
    silent = float((log.table["queue"] == "").mean())
    if len(kinds) < 2 or silent <= _MOST_SILENT:
        return ()
    return (
        f"the cluster has {len(kinds)} kinds of nodes, and {100 * silent:.0f} % of the jobs name no partition: the log "
        "does not say who waited for which",
    )


def likely_causes(jobs: pd.DataFrame, log: ClusterLog, groups: Groups) -> tuple[str, ...]:
    """Name what a replay may lack, by evidence in the log; `jobs` are those judged."""
    return tuple(_causes(jobs, log, groups))


def _causes(jobs: pd.DataFrame, log: ClusterLog, groups: Groups) -> Iterator[str]:
    table = log.table
    if (table["queue"] == "").mean() > _MOST_SILENT:
        yield "the log names no partitions: ask sacct for Partition"
    if (table["time_limit_s"] <= 0).mean() > _MOST_SILENT:
        yield "jobs without time limits: backfill lives on them (sacct's Timelimit)"
    waited = (jobs["recorded_s"] >= WAITED_S).to_numpy("bool")
    idle = _waited_beside_free(table, groups)
    names = table["job_id"].astype(str)
    share = float(jobs["job_id"][waited].isin(set(names[idle])).mean()) if waited.any() else 0.0
    if share > _WORTH:
        yield (
            f"{100 * share:.0f} % of the jobs that waited did so while as many GPUs of their type as they asked for "
            "stood idle: processors, memory, whole nodes, limits, reservations, or nodes that were down"
        )
    for what in (("user",), ("account",), ("user", "qos")):
        most, holders, met = _common_peak(table, what, idle)
        if holders >= _LIKE_MINDED and met:
            who = " of one ".join(what)
            yield f"{holders} times a {who} comes to hold {most:g} GPUs at once, and none holds more: a limit?"
    more = jobs["simulated_s"].sum() > jobs["recorded_s"].sum()
    yield (
        "the replay waits longer than the cluster did: does the cluster have more nodes than were named, or jobs less "
        "strict rules?"
        if more
        else "the replay waits less than the cluster did: something held jobs back that the replay does not know"
    )


def _waited_beside_free(table: pd.DataFrame, groups: Groups) -> npt.NDArray[np.bool_]:
    """Return which jobs had enough idle GPUs of their type in the middle of a wait of five minutes or more."""
    found = np.zeros(len(table), dtype=bool)
    types = {str(one.get("gpu_type", "")) for one in groups}
    known = bool(table["gpu_type"].isin(types).all())
    for kind in sorted(types) if known else [""]:
        mine = (table["gpu_type"] == kind).to_numpy("bool") if known else np.ones(len(table), dtype=bool)
        gpus = total_gpus([one for one in groups if not known or str(one.get("gpu_type", "")) == kind])
        found[mine] = _beside_free(table[mine], gpus)
    return found


def _beside_free(table: pd.DataFrame, gpus: int) -> npt.NDArray[np.bool_]:
    asked = np.ceil(table["gpus"].to_numpy("float64"))
    start, eligible = (table[name].to_numpy("float64") for name in ("start_s", "eligible_s"))
    times, held = held_over_time(table)
    place = np.searchsorted(times, (eligible + start) / 2, side="right") - 1
    used = np.where(place >= 0, held[np.maximum(place, 0)], 0.0)
    found: npt.NDArray[np.bool_] = (start - eligible >= WAITED_S) & (gpus - used >= asked)
    return found


def _common_peak(table: pd.DataFrame, what: Sequence[str], idle: npt.NDArray[np.bool_]) -> tuple[float, int, bool]:
    """Return the most GPUs that a user (account, ...) held at once, how many reached this, and whether one waited."""
    keys = table[list(what)].astype(str)
    who, named = keys.groupby(list(what)).ngroup().to_numpy(), (keys != "").any(axis=1).to_numpy("bool")
    if not named.any():
        return 0.0, 0, False
    asked, start, end = (table[name].to_numpy("float64")[named] for name in ("gpus", "start_s", "end_s"))
    moves = np.concatenate([-np.ceil(asked), np.ceil(asked)])
    whose = np.tile(who[named], 2)
    order = np.lexsort((moves, np.concatenate([end, start]), whose))
    held = np.cumsum(moves[order])  # all its GPUs are released before the next one begins
    found, first = np.unique(whose[order], return_index=True)
    peaks = np.maximum.reduceat(held, first)
    most = float(peaks.max())
    if most < _LEAST_CAP:
        return 0.0, 0, False
    at_peak = found[peaks == most]
    return most, len(at_peak), bool(np.isin(who[idle & named], at_peak).any())
