"""Metrics by GPU type, for clusters with several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from simsched.results.metric import Columns

if TYPE_CHECKING:
    import pandas as pd


def node_types(groups: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the GPU type of each node of a cluster whose groups have `nodes` and `gpu_type`."""
    return [str(group["gpu_type"]) for group in groups for _ in range(int(group["nodes"]))]


def type_of_placements(placements: pd.Series, groups: Sequence[Mapping[str, Any]]) -> pd.Series:
    """Return the GPU type of each placement, that of its first node: no job mixes types."""
    types = node_types(groups)
    return placements.str.extract(r"^(\d+)", expand=False).astype("int64").map(dict(enumerate(types)))


def summarise_types(
    jobs: pd.DataFrame | Columns, allocations: pd.DataFrame | Columns, groups: Sequence[Mapping[str, Any]]
) -> dict[str, float]:
    """Compute `gpu_utilisation[TYPE]`, `gpu_hours[TYPE]` and `jct_mean_s[TYPE]`; nothing with a single type.

    The JCT is that of jobs that got most of their GPU-seconds on the type (on a tie: the first by name). A type whose
    GPUs no job held has no JCT.
    """
    sizes: dict[str, int] = {}
    for group in groups:
        kind = str(group["gpu_type"])
        sizes[kind] = sizes.get(kind, 0) + int(group["nodes"]) * int(group["gpus_per_node"])
    if len(sizes) < 2 or not len(jobs):
        return {}
    done, intervals = Columns.of(jobs), Columns.of(allocations)
    held = intervals.frame(("job_id", "placement"))
    held["gpu_s"] = (intervals["end_s"] - intervals["start_s"]) * intervals["gpus"]
    if "gpu_share" in intervals:
        held["gpu_s"] *= intervals["gpu_share"]
    held["kind"] = type_of_placements(held["placement"], groups)
    total = held.groupby("kind")["gpu_s"].sum()
    most = held.groupby(["job_id", "kind"])["gpu_s"].sum().unstack(fill_value=0).idxmax(axis=1)
    times = done.frame(("job_id", "jct_s"))
    means = times["jct_s"].groupby(times["job_id"].map(most)).mean()
    makespan_s = float(done["end_time_s"].max())
    found: dict[str, float] = {}
    for kind in sorted(sizes):
        gpu_s = float(total.get(kind, 0.0))
        found[f"gpu_hours[{kind}]"] = gpu_s / 3600
        if makespan_s > 0:
            found[f"gpu_utilisation[{kind}]"] = gpu_s / (sizes[kind] * makespan_s)
        if kind in means:
            found[f"jct_mean_s[{kind}]"] = float(means[kind])
    return found
