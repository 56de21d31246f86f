"""Computes the summary of a cell from its folder."""

from __future__ import annotations

from pathlib import Path

from simsched.results.metrics import summarise
from simsched.results.reader import read_table
from simsched.results.schema import TABLES
from simsched.results.trials import read_trials

#: The columns that the metrics look at; the rest of large tables stays on disk.
_COLUMNS = {
    "jobs": (
        "application",
        "tenant",
        "end_time_s",
        "jct_s",
        "held_s",
        "queueing_s",
        "restart_s",
        "attained_gpu_s",
        "restarts",
        "start_time_s",
        "status",
        "attempts",
        "failures",
        "lost_s",
        "lost_gpu_s",
        "checkpoint_s",
    ),
    "allocations": ("start_s", "end_s", "restarting", "efficiency", "gpus", "gpu_share"),
    "rounds": ("time_s", "available_gpus", "provisioned_nodes"),
}


def summarise_folder(folder: Path, total_gpus: int, *, node_price_per_h: float | None = None) -> dict[str, float]:
    """Compute every metric that the files in `folder` allow (the table of jobs must be there).

    `node_price_per_h` is what a rented node costs, None where nothing is paid.
    """
    trials = read_trials(folder)
    accuracies = None if trials is None else trials["accuracy"].tolist()
    jobs = read_table(folder, "jobs", _COLUMNS["jobs"])
    allocations, rounds = (
        read_table(folder, name, _COLUMNS[name]) if (Path(folder) / TABLES[name].file).is_file() else None
        for name in ("allocations", "rounds")
    )
    return summarise(jobs, allocations, rounds, total_gpus, node_price_per_h=node_price_per_h, accuracies=accuracies)
