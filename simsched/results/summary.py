"""Computes the summary of a cell from its folder, and of each GPU type if there are several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from simsched.arithmetic import Series
from simsched.results.arrow import columns_of, stored_columns
from simsched.results.metric import Columns, Power, Tables
from simsched.results.metrics import summarise
from simsched.results.quality import read_losses
from simsched.results.rows import TABLES
from simsched.results.sheets import read_trials

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa


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


_NONE: Mapping[str, Any] = MappingProxyType({})


def summarise_folder(
    folder: Path,
    total_gpus: int,
    *,
    node_price_per_h: float | None = None,
    power: Power | None = None,
    gpu_price_per_h: Sequence[float | Series] = (),
    groups: Sequence[Mapping[str, Any]] = (),
    at_hand: Mapping[str, pa.Table] = _NONE,
) -> dict[str, float]:
    """Compute every metric that the files in `folder` allow (the table of jobs must be there).

    Tables `at_hand`, which have just been written, are not read. `node_price_per_h` is the price of a rented node and
    `power` what is drawn, None if not requested; `gpu_price_per_h` is the price of a GPU-hour on each node, empty if
    free. With several GPU types in the cluster's `groups`, each is also summarised separately.
    """
    trials = read_trials(folder)
    accuracies = None if trials is None else trials["accuracy"].tolist()
    losses = read_losses(folder)

    def table(name: str) -> Columns | None:
        if name in at_hand:
            return columns_of(at_hand[name])
        there = name == "jobs" or (Path(folder) / TABLES[name].file).is_file()
        return stored_columns(folder, name) if there else None

    jobs, allocations, rounds = (table(name) for name in ("jobs", "allocations", "rounds"))
    assert jobs is not None  # a missing table of jobs was refused earlier
    by_type = {} if allocations is None else summarise_types(jobs, allocations, groups)
    prices: Any = {"node_price_per_h": node_price_per_h, "power": power, "gpu_price_per_h": gpu_price_per_h}
    tables = Tables(jobs, allocations, rounds, total_gpus, accuracies=accuracies, losses=losses, **prices)
    return by_type | summarise(tables)
