"""Computes the summary of a cell from its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from simsched.results.arrow_tables import columns_of, read_arrow
from simsched.results.by_type import HELD_COLUMNS, TYPED_JOB_COLUMNS, summarise_types
from simsched.results.metric import Columns
from simsched.results.metrics import summarise
from simsched.results.power import Power
from simsched.results.quality import LIFE_COLUMNS, QUALITY_COLUMNS, read_losses
from simsched.results.schema import TABLES
from simsched.results.trials import read_trials

if TYPE_CHECKING:
    import pyarrow as pa

_NONE: Mapping[str, Any] = MappingProxyType({})
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
        "deadline_s",
        "declined",
    ),
    "allocations": (
        "start_s",
        "end_s",
        "restarting",
        "efficiency",
        "gpus",
        "neighbours",
        "gpu_share",
        "relative_speed",
        "levels_crossed",
    ),
    "rounds": (
        "time_s",
        "available_gpus",
        "provisioned_nodes",
        "active_jobs",
        "running_jobs",
        "allocated_gpus",
        "stranded_gpus",
        "stranded_by_node_gpus",
        "stranded_by_domain_gpus",
        "provisioned_gpus",
    ),
}


def summarise_folder(
    folder: Path,
    total_gpus: int,
    *,
    node_price_per_h: float | None = None,
    power: Power | None = None,
    gpu_price_per_h: Sequence[float] = (),
    groups: Sequence[Mapping[str, Any]] = (),
    at_hand: Mapping[str, pa.Table] = _NONE,
) -> dict[str, float]:
    """Compute every metric that the files in `folder` allow (the table of jobs must be there).

    Tables that are `at_hand`, because they have just been written, are not read.

    `node_price_per_h` is what a rented node costs and `power` what is drawn, None where that is not asked for;
    `gpu_price_per_h` is what an hour of a GPU of each node costs, empty where nothing is;
    `groups` are those of the cluster, whose GPU types are summarised by themselves where there are several.
    """
    trials = read_trials(folder)
    accuracies = None if trials is None else trials["accuracy"].tolist()
    losses = read_losses(folder)
    beside = {} if losses is None else {"jobs": QUALITY_COLUMNS, "allocations": LIFE_COLUMNS}
    columns = {name: tuple(dict.fromkeys([*own, *beside.get(name, ())])) for name, own in _COLUMNS.items()}
    if len(gpu_price_per_h) or (power is not None and len(power.types) > 1):
        columns["allocations"] += ("placement",)
    several = len({group["gpu_type"] for group in groups}) > 1
    if several:
        columns["jobs"] = tuple(dict.fromkeys([*columns["jobs"], *TYPED_JOB_COLUMNS]))
        columns["allocations"] = tuple(dict.fromkeys([*columns["allocations"], *HELD_COLUMNS]))

    def table(name: str) -> Columns | None:
        if name in at_hand:
            whole = at_hand[name]
            return columns_of(whole.select([one for one in columns[name] if one in whole.schema.names]))
        there = name == "jobs" or (Path(folder) / TABLES[name].file).is_file()
        return columns_of(read_arrow(folder, name, columns[name])) if there else None

    jobs, allocations, rounds = (table(name) for name in ("jobs", "allocations", "rounds"))
    assert jobs is not None  # a missing table of jobs has been refused
    by_type = summarise_types(jobs.frame, allocations.frame, groups) if several and allocations is not None else {}
    return by_type | summarise(
        jobs,
        allocations,
        rounds,
        total_gpus,
        node_price_per_h=node_price_per_h,
        accuracies=accuracies,
        losses=losses,
        power=power,
        gpu_price_per_h=gpu_price_per_h,
    )
