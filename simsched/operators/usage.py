"""Usage of a cluster within a window: GPU hours by type, losses, energy and cost."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from simsched.results import Cell

#: Final states of jobs that did not run to completion.
CUT_SHORT: Collection[str] = ("TimeLimit", "Cancelled")


@dataclass(frozen=True)
class Usage:
    """Usage of a group of jobs: GPU hours, their share of the capacity, losses, energy and cost.

    Losses are the GPU hours of jobs that were killed at a limit or cancelled, and those repeated after failures.
    `energy_kwh` is the consumption of busy GPUs and `cost` the share of nodes' prices; both None if unknown.
    """

    gpu_hours: float
    utilisation: float
    lost_gpu_hours: float
    energy_kwh: float | None
    cost: float | None


@dataclass(frozen=True)
class Used:
    """GPU hours of a replay within a window by job (rows) and type (columns); `lost_h` by job."""

    by_type: pd.DataFrame
    lost_h: pd.Series
    gpus: Mapping[str, int]
    hours: float
    busy_w: Mapping[str, float] | None
    gpu_price_per_h: Mapping[str, float] | None

    @classmethod
    def of(cls, cell: Cell, from_s: float, until_s: float, node_price_per_h: float | None) -> Used:
        """Compute the GPU hours between two seconds of a replay."""
        makes = cell.manifest["cluster"]
        types = np.repeat([one["gpu_type"] for one in makes], [one["nodes"] for one in makes])
        table = cell.table("allocations", ["job_id", "start_s", "end_s", "gpus", "placement"])
        lasts = table["end_s"].clip(upper=until_s) - table["start_s"].clip(lower=from_s)
        table = table.assign(hours=(lasts.clip(lower=0) * table["gpus"]) / 3600)
        node = table["placement"].str.extract(r"^(\d+)", expand=False).fillna("0").astype("int64")
        table["type"] = types[node.to_numpy()]
        used = table.pivot_table(index="job_id", columns="type", values="hours", aggfunc="sum", fill_value=0.0)
        jobs = cell.jobs.set_index("job_id")
        repeated = jobs["lost_gpu_s"] / 3600 if "lost_gpu_s" in jobs else jobs["attained_gpu_s"] * 0.0
        cut = jobs["status"].isin(CUT_SHORT).reindex(used.index, fill_value=False)
        lost = used.sum(axis=1) * cut + repeated.reindex(used.index, fill_value=0.0)
        gpus: dict[str, int] = {}
        for one in makes:
            gpus[one["gpu_type"]] = gpus.get(one["gpu_type"], 0) + one["nodes"] * one["gpus_per_node"]
        power = cell.manifest.get("power")
        watts = {kind: float(one["busy_w"]) for kind, one in power["gpus"].items()} if power else None
        price = (
            None
            if node_price_per_h is None
            else {one["gpu_type"]: node_price_per_h / max(one["gpus_per_node"], 1) for one in makes}
        )
        return cls(used, lost, gpus, (until_s - from_s) / 3600, watts, price)

    @property
    def type_of(self) -> pd.Series:
        """Return the GPU type on which each job ran longest."""
        return self.by_type.idxmax(axis=1)

    def part(self, jobs: Collection[str] | None = None, gpu_type: str = "") -> Usage:
        """Sum over some jobs (None: all) and one type (empty: all)."""
        rows = self.by_type if jobs is None else self.by_type[self.by_type.index.isin(jobs)]
        rows = rows[[gpu_type]] if gpu_type in rows else rows
        by_type = rows.sum()
        gpus = sum(count for kind, count in self.gpus.items() if gpu_type in ("", kind))
        hours = float(by_type.sum())
        share = float(self.lost_h[rows.index].sum())

        def weighed(each: Mapping[str, float] | None, factor: float) -> float | None:
            return None if each is None else factor * sum(by_type[kind] * each[kind] for kind in by_type.index)

        whole = gpus * self.hours
        energy, cost = weighed(self.busy_w, 1e-3), weighed(self.gpu_price_per_h, 1.0)
        return Usage(hours, hours / whole if whole else 0.0, share, energy, cost)
