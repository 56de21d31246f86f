"""The speeds of jobs that shared a GPU in pairs."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from simsched.results.by_type import type_of_placements
from simsched.results.reader import Cell

COLUMNS = ("gpu_type", "application", "batch_size", "other_application", "other_batch_size", "speed", "sum")
_JOBS = ("job_id", "application", "num_gpus", "batch_size")
_HELD = ("job_id", "start_s", "end_s", "gpus", "placement", "restarting", "neighbours", "relative_speed")


def pair_speeds(cells: Iterable[Cell]) -> pd.DataFrame:
    """Gather the pairs of single-GPU jobs that shared a GPU, in both orders, by application, batch and GPU type.

    `speed` is that of the first job of the pair, relative to running alone, averaged over the seconds in which they
    shared a GPU; `sum` is that of both. Sorted by type and pair.
    """
    parts = [_shared(cell) for cell in cells]
    seen = pd.concat([part for part in parts if len(part)] or [pd.DataFrame(columns=[*COLUMNS[:5], "worth", "s"])])
    sums = seen.groupby(list(COLUMNS[:5]), sort=True)[["worth", "s"]].sum().reset_index()
    sums["speed"] = sums["worth"] / sums["s"]
    kinds = [*COLUMNS[:5]]
    around = [kinds[0], kinds[3], kinds[4], kinds[1], kinds[2]]
    other = sums[[*kinds, "speed"]].rename(columns=dict(zip(kinds, around, strict=True)))
    both = sums.merge(other, on=kinds, suffixes=("", "_of_other"))
    both["sum"] = both["speed"] + both["speed_of_other"]
    return both[list(COLUMNS)]


def _shared(cell: Cell) -> pd.DataFrame:
    """Return the intervals of a cell in which a job of one GPU shared it with one other."""
    held = cell.table("allocations", _HELD)
    held = held[(held["gpus"] == 1) & ~held["restarting"] & (held["neighbours"] != "")]
    held = held[~held["neighbours"].str.contains(" ", regex=False)]
    jobs = cell.table("jobs", _JOBS).set_index("job_id")
    one, other = jobs.reindex(held["job_id"]), jobs.reindex(held["neighbours"])
    seconds = (held["end_s"] - held["start_s"]).to_numpy(dtype="float64")
    found = pd.DataFrame(
        {
            "gpu_type": type_of_placements(held["placement"], cell.manifest["cluster"]).to_numpy(),
            "application": one["application"].to_numpy(),
            "batch_size": one["batch_size"].to_numpy(),
            "other_application": other["application"].to_numpy(),
            "other_batch_size": other["batch_size"].to_numpy(),
            "worth": held["relative_speed"].to_numpy() * seconds,
            "s": seconds,
        }
    )
    return found[(other["num_gpus"] == 1).to_numpy()]
