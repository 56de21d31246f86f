"""Computes the summary of a cell from its folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from simsched.results.arrow_tables import columns_of, stored_columns
from simsched.results.by_type import summarise_types
from simsched.results.metric import Columns
from simsched.results.metrics import summarise
from simsched.results.power import Power
from simsched.results.quality import read_losses
from simsched.results.rows import TABLES
from simsched.results.trials import read_trials

if TYPE_CHECKING:
    import pyarrow as pa

_NONE: Mapping[str, Any] = MappingProxyType({})


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
